"""What `make run` shows a newcomer: a question about this very folder, and a right answer."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.local
def test_the_question_of_make_run_is_answered_rightly():
    """The model calls the right tool on the right folder, and names all that is there."""
    lines = (REPOSITORY / "Makefile").read_text().splitlines()
    question = next(line for line in lines if line.startswith("QUESTION")).split("?= ", 1)[1]
    done = subprocess.run(
        [sys.executable, "-m", "treadle", "run", "--json", question],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=250,
    )
    result = json.loads(done.stdout)
    assert [(call["name"], call["status"]) for call in result["calls"]] == [
        ("list_files", "success")
    ]
    names = {path.name for path in (REPOSITORY / "benchmarks").iterdir() if path.name[0] != "_"}
    assert names == {"iterations.py", "local_model"}
    assert all(name in result["content"] for name in names)
