"""What `make run` shows a newcomer: a question that takes a tool, and a right answer."""

import json
import sys
from pathlib import Path

import pytest
from tests.programs import run_program

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.local
def test_the_question_of_make_run_is_answered_rightly(one_core):
    """The model calls the right tool with the right arguments, and says what it was told."""
    lines = (REPOSITORY / "Makefile").read_text().splitlines()
    question = next(line for line in lines if line.startswith("QUESTION")).split("?= ", 1)[1]
    done = run_program(
        [*one_core, sys.executable, "-m", "treadle", "run", "--json", question],
        cwd=REPOSITORY,
        check=True,
    )
    result = json.loads(done.stdout)
    assert [(call["name"], call["status"]) for call in result["calls"]] == [
        ("calculate", "success")
    ]
    assert str(1234 * 5678) in result["content"]
