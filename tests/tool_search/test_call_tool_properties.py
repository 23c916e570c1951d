"""A script that is run natively, and the same through `call_tool`: the run is the same, for any script."""

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st
from tests.deciding import on

from treadle import Limits, Loop, ToolCall, ToolSearch, approve, deny, tool
from treadle.events import (
    CallNotRun,
    CallsPlanned,
    RepeatWarned,
    ToolFinished,
    ToolStarted,
)
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tool_search.catalog import SearchCatalog, unwrapped

KINDS = (CallsPlanned, CallNotRun, RepeatWarned)
"""The events of calls that are equal if they say the same; those of running calls have times."""


def tools():
    """Tools of every kind; anew each time, since one counts."""
    numbers = itertools.count()

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool(parallel_safe=False)
    def alone(n: int) -> str:
        """Run alone."""
        return f"alone {n}"

    @tool(max_uses=2)
    def seldom(n: int) -> str:
        """Run twice at most."""
        return f"seldom {n}"

    @tool(volatile=True)
    def count() -> int:
        """Count."""
        return next(numbers)

    @tool
    def boom() -> None:
        """Fail."""
        raise ValueError("no")

    @tool(requires_approval=True)
    def ask(n: int) -> str:
        """Ask first."""
        return f"asked {n}"

    @tool(lock="key", requires_fresh_input=True)
    def fresh(n: int) -> str:
        """See all results first."""
        return f"fresh {n}"

    @tool(terminal=True)
    def finish(n: int) -> None:
        """Finish."""

    return [add, alone, seldom, count, boom, ask, fresh, finish]


SMALL = st.integers(0, 1)
CALL = st.one_of(
    st.tuples(st.just("add"), st.fixed_dictionaries({"a": SMALL, "b": SMALL})),
    st.tuples(st.just("add"), st.fixed_dictionaries({"a": st.just("x")})),  # invalid
    st.tuples(
        st.sampled_from(["alone", "seldom", "ask", "fresh"]), st.fixed_dictionaries({"n": SMALL})
    ),
    st.tuples(st.sampled_from(["count", "boom"]), st.just({})),
)
LAST = st.sampled_from([None, ("finish", {"n": 1})])
SCRIPT = st.tuples(st.lists(st.lists(CALL, min_size=1, max_size=4), max_size=6), LAST)


def native(place, name, arguments):
    return call(name, place, **arguments)


def wrapped(place, name, arguments):
    return call("call_tool", place, name=name, arguments=arguments)


def wrapped_as_text(place, name, arguments):
    return call("call_tool", place, name=name, arguments=json.dumps(arguments))


def steps_of(script, make):
    """The assistant messages of a script."""
    iterations, last = script
    rows = [*iterations, [last]] if last else iterations
    return [
        calls(*(make(f"c{row}_{n}", *one) for n, one in enumerate(made)))
        for row, made in enumerate(rows)
    ]


def observed(script, make, decision, search, **options):
    """A run of a script, with its pauses: what it returned, and what its events said about calls."""
    model = ScriptedLLM(*steps_of(script, make), "Done.", "Done.", "Done.")
    events = []
    loop = Loop(tools=tools(), tool_search=search, on_event=events.append, **options)
    result = loop.run_sync("Go.", model)
    check_history(result.messages)
    while result.stop_reason == "paused":
        decisions = {pending.id.partition("@")[0]: decision for pending in result.pending}
        result = loop.resume_sync(json.dumps(result.state), on(result, decisions), model)
        check_history(result.messages)
    said = [said_by(event) for event in events]
    return result, [one for one in said if one is not None], model


def said_by(event):
    if isinstance(event, KINDS):
        return event
    if isinstance(event, ToolStarted):
        return "started", event.call, event.call.input
    return ("finished", event.call, event.result) if isinstance(event, ToolFinished) else None


@given(
    SCRIPT,
    st.sampled_from([wrapped, wrapped_as_text]),
    st.sampled_from([approve, deny("no")]),
    st.sampled_from(["evidence", "strict", "off"]),
    st.sampled_from(["defer", "in_step"]),
    st.sampled_from([None, 3]),
)
def test_a_script_through_call_tool_is_the_same_run(
    script, make, decision, dedupe, sequential, most
):
    options = {"dedupe": dedupe, "sequential": sequential, "max_tool_calls": most}
    if most is not None:
        options["limits"] = Limits(on_limit="finish")
    plain, plain_said, _ = observed(script, native, decision, None, **options)
    result, said, model = observed(script, make, decision, ToolSearch(), **options)
    assert said == plain_said
    assert (result.stop_reason, result.output) == (plain.stop_reason, plain.output)
    assert result.tool_calls_count == plain.tool_calls_count
    assert result.iterations == plain.iterations
    assert texts(result) == texts(plain)
    assert len({json.dumps(sent.opts["tools"]) for sent in model.sent}) == 1
    made = [one for row in steps_of(script, make) for one in row["tool_calls"]]
    assert wrote(result) == made[: len(wrote(result))]


def texts(result):
    return [message["content"] for message in result.messages if message["role"] != "assistant"]


def wrote(result):
    return [made for message in result.messages for made in message.get("tool_calls", ())]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
ARGUMENTS = st.one_of(
    st.text(max_size=20),
    JSON.map(json.dumps),
    st.fixed_dictionaries({"name": JSON}, optional={"arguments": JSON}).map(json.dumps),
    st.fixed_dictionaries(
        {"name": st.sampled_from(["add", "search_tools", "call_tool"]), "arguments": JSON}
    ).map(json.dumps),
)


@given(ARGUMENTS)
def test_whatever_call_tool_is_called_with_is_answered(arguments):
    made = calls(call("call_tool", "c1"))
    made["tool_calls"][0]["function"]["arguments"] = arguments
    result = Loop.run_sync(
        "Go.", ScriptedLLM(made, "Done."), tools=tools(), tool_search=ToolSearch()
    )
    check_history(result.messages)
    assert result.messages[1]["tool_calls"][0]["function"]["name"] == "call_tool"
    assert result.stop_reason == "answered"


@given(ARGUMENTS)
def test_a_call_is_written_as_it_was(arguments):
    made = ToolCall("c", "call_tool", arguments)
    assert SearchCatalog.wrapped(unwrapped(made)) == ("call_tool", arguments)
