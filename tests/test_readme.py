"""What the README shows is what there is."""

import subprocess
import sys
from pathlib import Path

from treadle import Loop

README = Path(__file__).parents[1].joinpath("README.md").read_text()


def test_the_picture_of_the_pipeline_is_that_of_the_loop():
    assert f"```mermaid\n{Loop().diagram()}```" in README


def test_the_two_commands_come_before_everything_that_needs_them():
    assert README.index("make run") < README.index("make test") < README.index("pip install")


def test_the_first_block_prints_what_it_says():
    """The block runs in test_docs too; here, that the promise in its comment is kept."""
    block = README.split("```python\n", 1)[1].split("```", 1)[0]
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=True)
    assert done.stdout == "It is 5.\n"
    assert len([line for line in block.splitlines() if line.strip()]) <= 22
