"""What the README shows is true."""

import subprocess
import sys
from pathlib import Path

from treadle import Loop

README = Path(__file__).parents[1].joinpath("README.md").read_text(encoding="utf-8")
QUICKSTART = README.split("```python\n", 1)[1].split("```", 1)[0]


def test_the_diagram_is_that_of_the_default_stages():
    assert f"```mermaid\n{Loop().diagram()}```" in README


def test_installing_comes_first_then_the_quickstart_then_the_commands_for_contributors():
    parts = ("pip install treadle", QUICKSTART, "make run", "make test")
    places = [README.index(part) for part in parts]
    assert places == sorted(places)


def test_the_quickstart_prints_what_its_comment_says():
    command = [sys.executable, "-c", QUICKSTART]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "It is 5.\n"


def test_the_quickstart_is_short():
    assert len([line for line in QUICKSTART.splitlines() if line.strip()]) <= 20
