"""Which histories are forgiven, the table of verdicts, and the list of scenarios."""

import ast
import re
import sys
from pathlib import Path

import pytest
import torture_suite
from tests.programs import run_program
from torture_suite import (
    MAX_ITERATIONS,
    SCENARIOS,
    Fault,
    Log,
    Row,
    Scenario,
    Table,
    Verdict,
)
from torture_suite.script import call, calls, says
from torture_suite.tolerance import problems_of_history
from torture_suite.toolbox import PING, by_name

DOCS = Path(__file__).parents[2] / "docs"
ASK = {"role": "user", "content": "Hi."}


# What is forgiven


def answer(call_id, text="x"):
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def assistant(*ids, arguments="{}", name="f"):
    return calls(*(call(name, arguments, id=call_id) for call_id in ids))


FORGIVEN = {
    "another order": [ASK, assistant("a", "b"), answer("b"), answer("a")],
    "ids used again": [ASK, assistant("a"), answer("a"), assistant("a"), answer("a")],
    "no arguments": [ASK, assistant("a", arguments="{"), answer("a")],
    "blank": [ASK, says(" "), ASK],
    "no content": [ASK, says(None)],
    "two in a row": [ASK, says("a"), says("b")],
    "a name with spaces": [ASK, assistant("a", name="no name"), answer("a")],
}
WRONG = {
    "unanswered": [ASK, assistant("a"), ASK],
    "unanswered at the end": [ASK, assistant("a")],
    "half answered": [ASK, assistant("a", "b"), answer("a"), ASK],
    "answers nothing": [ASK, answer("a")],
    "answered twice": [ASK, assistant("a"), answer("a"), answer("a")],
    "answered too late": [ASK, assistant("a"), ASK, answer("a")],
    "the same id in a batch": [ASK, assistant("a", "a"), answer("a"), answer("a")],
    "no id": [ASK, assistant(""), answer("")],
    "no such role": [{"role": "robot", "content": "x"}],
    "half a character": [{"role": "user", "content": "\ud835"}],
    "a call of nothing": [ASK, {"role": "assistant", "tool_calls": [{"id": "a", "function": 1}]}],
    "a call that is none": [ASK, {"role": "assistant", "content": None, "tool_calls": [1]}],
}


@pytest.mark.parametrize("messages", FORGIVEN.values(), ids=FORGIVEN)
def test_what_the_most_tolerant_provider_takes_is_forgiven_unless_it_is_strict(messages):
    assert not list(problems_of_history(messages, is_strict=False))
    assert list(problems_of_history(messages, is_strict=True))


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize("messages", WRONG.values(), ids=WRONG)
def test_what_no_provider_takes_is_a_problem(messages, is_strict):
    assert list(problems_of_history(messages, is_strict=is_strict))


def test_a_sound_history_has_no_problems():
    history = [ASK, assistant("a", "b"), answer("a"), answer("b"), says("done")]

    assert not list(problems_of_history(history, is_strict=True))


# The table


def row(name, *verdicts):
    return Row(name, "1", verdicts)


GREEN = Verdict("one", {"ended": [], "limits": [], "history": []})
RED = Verdict("two", {"ended": [], "limits": ["too much"], "history": [], "lost": []}, seconds=1.5)
NONE = Verdict("three", not_applicable="it has no streaming")


def test_the_table_counts_by_column_and_in_all():
    table = Table((row("a", GREEN, RED, NONE),)) + Table((row("b", GREEN),))

    assert table.markdown().splitlines()[2:] == [
        "| a | 1 | 1/2 | 2/2 | 1/2 | 2/2 | 1/1 | 0/0 | 1 |",
        "| b | 1 | 1/1 | 1/1 | 1/1 | 1/1 | 0/0 | 0/0 | 0 |",
    ]


def test_the_pages_have_the_columns_of_the_table_and_a_row_for_each_scenario():
    header, *_ = Table([]).markdown().splitlines()
    assert header in (DOCS / "benchmarks.md").read_text(encoding="utf-8").splitlines()
    page = (DOCS / "torture.md").read_text(encoding="utf-8")
    grid = page.partition("## Results by scenario")[2]
    names = list(SCENARIOS)
    assert re.findall(r"^\| ([a-z-]*[a-z]) \|", grid, flags=re.MULTILINE)[1:] == names
    assert f"a set of {len(names)} named scenarios" in page


def test_the_grid_has_a_row_for_each_scenario():
    table = Table((row("a", GREEN, RED), row("b", GREEN, NONE)))

    assert table.grid().splitlines()[2:] == [
        "| one | ok | ok |",
        "| two | limits | n/a |",
        "| three | n/a | n/a |",
    ]


def test_the_table_lists_its_failures_and_nothing_else():
    assert list(Table((row("a", GREEN, RED, NONE),)).failures()) == [
        "a: two: +X++- within limits: too much"
    ]


# The whole


def test_every_scenario_says_where_its_complaint_is_from():
    for scenario in SCENARIOS.values():
        assert scenario.complaint.endswith((".", "times."))
        is_thread = re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", scenario.source)
        assert is_thread or "#" not in scenario.source, scenario.source
        assert re.fullmatch(r"[a-z][a-z-]+", scenario.name)


def test_every_scenario_says_what_its_limits_need():
    for scenario in SCENARIOS.values():
        assert (scenario.max_iterations is not None) == (MAX_ITERATIONS in scenario.needs)


def test_columns_apply_by_what_a_scenario_asks_for():
    plain = Scenario("s", "c", "t", ())

    assert plain.columns == ("ended", "limits", "history")
    assert Scenario("s", "c", "t", (), runs={"ping": 1}).columns[-1] == "lost"
    assert Scenario("s", "c", "t", (), faults=(Fault(),)).columns[-1] == "reported"
    assert Scenario("s", "c", "t", (), checks={"lost": lambda _: ()}).columns[-1] == "lost"


def test_two_scenarios_of_one_name_are_an_error():
    with pytest.raises(ValueError, match="two scenarios"):
        by_name([SCENARIOS["reply-blank"]] * 2)


def test_a_parameter_that_is_no_identifier_is_an_error():
    schema = {"type": "object", "properties": {"a b": {"type": "string"}}}

    with pytest.raises(ValueError, match="identifier"):
        type(PING)("t", PING.fn, parameters=schema).made(Log())


def test_it_needs_no_more_than_the_standard_library():
    """It is imported in the environments of other loops: here without site-packages."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import torture_suite as t; print(len(t.SCENARIOS))"
    folder = Path(torture_suite.__file__).parents[1]

    done = run_program([sys.executable, "-S", "-c", code, folder])

    assert done.stdout.strip() == str(len(SCENARIOS)), done.stderr


def test_every_file_of_scenarios_is_in_the_catalogue():
    home = Path(torture_suite.__file__).parent
    files = {path.stem for path in home.glob("scenarios_*.py")}
    tree = ast.parse((home / "catalogue.py").read_text())
    named = {alias.name for node in ast.walk(tree) for alias in getattr(node, "names", ())}

    assert files <= named
