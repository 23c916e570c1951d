"""docs/quickstart.md with the local model."""

import sys

import pytest
from tests.guides.pasted import DOCS, blocks_of
from tests.programs import run_program

pytestmark = pytest.mark.local


def test_the_program_with_the_local_model_answers_with_the_result_of_the_tool(tmp_path):
    [program] = [
        block.text for block in blocks_of(DOCS / "quickstart.md") if "LocalModel" in block.text
    ]
    file = tmp_path / "local.py"
    file.write_text(program, encoding="utf-8")
    done = run_program([sys.executable, file])
    assert done.returncode == 0, done.stderr
    assert "drizzle" in done.stdout
