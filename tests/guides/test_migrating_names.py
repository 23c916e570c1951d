"""The names of treadle in the tables of docs/guide-migrating.md exist.

The programs of the page are run by test_docs.
"""

import functools
import keyword
import re
from pathlib import Path

import pytest

import treadle
import treadle.reports
import treadle.stages
import treadle.testing
from treadle.tools import ToolBehaviour

PAGE = Path(__file__).parents[2] / "docs" / "guide-migrating.md"
LAST_CELLS = re.findall(r"^\|.*\| (.*) \|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
CODES = sorted({code for cell in LAST_CELLS for code in re.findall(r"`([^`]+)`", cell)})
OWNERS = {"ctx": treadle.Context, "result": treadle.Ok, "functools": functools}
OPTIONS = {
    *treadle.LoopOptions.__annotations__,
    "output",
    *ToolBehaviour.__annotations__,
    "on_retry",
}


def is_known(code):
    """Whether code of a cell is an option (``name=``), a name of treadle, or an attribute of one."""
    name = code.removesuffix("()")
    option, equals, _ = name.partition("=")
    if equals:
        return option in OPTIONS
    owner, dot, attribute = name.partition(".")
    if dot:
        found = OWNERS.get(owner) or getattr(treadle, owner, None)
        return attribute in {*dir(found), *getattr(found, "__dataclass_fields__", ())}
    homes = (treadle, treadle.stages, treadle.reports, treadle.testing)
    return (
        any(hasattr(home, name) for home in homes)
        or name in ToolBehaviour.__annotations__
        or keyword.issoftkeyword(name)
    )


@pytest.mark.parametrize("code", CODES)
def test_a_name_in_a_table_exists(code):
    assert is_known(code)


def test_there_are_tables_with_names():
    assert len(CODES) > 30
    assert not is_known("Loop.walk")
    assert not is_known("max_turns=")
