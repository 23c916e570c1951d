"""The output of each command in docs/guide-scaling.md is that of the command."""

import re
import sys
from pathlib import Path

import pytest
from tests.programs import run_program

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "guide-scaling.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n\$ (.+)\n((?:.*\n)*?)```$", PAGE, flags=re.MULTILINE)
MAKE = "make bench-scaling"


@pytest.mark.timeout(1_200)  # half a minute of computing each, on a machine that may be busy
@pytest.mark.parametrize(("command", "output"), BLOCKS, ids=[command for command, _ in BLOCKS])
def test_the_page_has_what_the_command_prints(command, output):
    program, *arguments = command.replace(MAKE, "python benchmarks/scaling.py").split()
    assert program == "python"
    done = run_program([sys.executable, *arguments], cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_the_page_has_commands_and_make_simulates_the_default_day():
    assert len(BLOCKS) == PAGE.count("```console") > 1
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.search(
        r"^bench-scaling:.*\n\t\$\(BIN\)/python benchmarks/scaling.py$", makefile, re.MULTILINE
    )
