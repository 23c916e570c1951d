"""One event of each kind, all fields of it filled; and a record of a run in which much happens."""

import io
from typing import get_args

from tests.samples import add

from treadle import Loop, Ok, Response, ToolCall, Usage, tool
from treadle.context import Context, RunServices
from treadle.events import (
    BreakerChanged,
    CallNotRun,
    CallsPlanned,
    CompactionFailed,
    Event,
    FirstChunk,
    HistoryCompacted,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    LimitReached,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    PartialOutput,
    ReasoningDelta,
    RepeatWarned,
    RunFinished,
    RunStarted,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolProgress,
    ToolRetried,
    ToolStarted,
    UserMessageAdded,
)
from treadle.limits import Limits
from treadle.messages import History, ToolResult
from treadle.recording.recorder import Recorder
from treadle.results import BudgetExhausted
from treadle.run_state import RunState
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import NotRun, PlanReason

CALL = ToolCall("c1", "add", '{"a": 1}', {"a": 1}, "f" * 8, {"signature": "s"})
OTHER = ToolCall("c2", "add", "{", None)
USAGE = Usage(10, 5, cached_tokens=2, reasoning_tokens=1, cost=0.25)
RESPONSE = Response("text", (CALL, OTHER), "stop", USAGE, "m", "r1", {"reasoning": "so"}, "no", "p")
RESULT = ToolResult("c1", "1", False, "done")
USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "hi"}
STATE = RunState("agent", "run-1")
CONTEXT = Context(
    messages=History([USER, ANSWER]),
    tools={},
    response=RESPONSE,
    run=RunServices(state=STATE),
    tool_calls=(CALL, OTHER),
    tool_results={"c1": RESULT, "c2": ToolResult("c2", "no JSON", True, "invalid")},
    validation_errors={"c2": ("no JSON",)},
    guidance="go on",
    trace=("parse_tool_calls",),
)
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}

EVENTS = [
    RunStarted(
        agent_name="agent",
        run_id="run-1",
        at=1.0,
        resumed=False,
        limits=Limits(max_cost=1.5),
        tools=[TOOL],
        available=("add",),
        model="m",
        provider="p",
        request={"temperature": 0.5},
        state=STATE,
    ),
    HistoryRepaired(repairs=("dropped a blank message", "joined two messages"), stage="trim"),
    IterationStarted(iteration=1, at=2.0),
    ModelRequested(
        iteration=1, at=2.1, messages=[USER], instructions="be kind", guidance="be quick"
    ),
    FirstChunk(iteration=1, at=2.5),
    TextDelta(iteration=1, text="te"),
    PartialOutput(iteration=1, output={"total": 4}),
    ReasoningDelta(iteration=1, text="hm"),
    ToolCallDelta(iteration=1, index=0, id="c1", name="add", arguments='{"a"'),
    ModelRetried(iteration=1, attempt=1, error="busy", error_type="Busy", delay=0.5, at=2.7),
    ModelResponded(iteration=1, response=RESPONSE, at=3.0, duration=1.0),
    ModelFailed(iteration=1, error="gone", error_type="Gone", at=3.0),
    UserMessageAdded(iteration=1, messages=(USER,)),
    CallsPlanned(
        iteration=1,
        reason=PlanReason.SINGLE_CALL,
        batches=(("c1",),),
        not_run={"c2": NotRun.OVER_BUDGET},
    ),
    CallNotRun(iteration=1, call=CALL, reason=NotRun.NO_NEW_EVIDENCE),
    CallNotRun(iteration=1, call=CALL, reason=NotRun.RECALLED),
    CallNotRun(iteration=1, call=CALL, reason=NotRun.PARALLEL_CAP),
    CallNotRun(iteration=1, call=OTHER, reason=NotRun.OVER_BUDGET),
    BreakerChanged(iteration=1, tool="add", before="closed", after="open"),
    ToolStarted(iteration=1, call=CALL, at=3.5, within="c0"),
    ToolProgress(iteration=1, call=CALL, message="adding", progress=0.5, data={"digit": 1}, at=1.0),
    ToolRetried(
        iteration=1, call=CALL, attempt=1, error="bad", error_type="timeout", delay=0.1, at=3.6
    ),
    ToolFinished(iteration=1, call=CALL, result=RESULT, at=4.0, duration=0.5),
    RepeatWarned(iteration=1, call=CALL, count=3),
    HistoryCompacted(
        iteration=1,
        tokens_before=2_000,
        tokens_after=500,
        messages_before=9,
        messages_after=4,
        is_summarized=True,
    ),
    CompactionFailed(iteration=1, problem="the summary is empty", gives_up=True),
    LimitReached(iteration=1, reason=BudgetExhausted("max_cost", 1.5, 2.0)),
    IterationFinished(iteration=1, context=CONTEXT, at=5.0),
    RunFinished(
        stop_reason="finished",
        total_iterations=1,
        tool_calls_count=1,
        result=Ok(RESPONSE, [USER, ANSWER], {"n": 1}, limit=BudgetExhausted("max_cost", 1.5, 2.0)),
        at=6.0,
        usage=USAGE,
    ),
    SubagentEvent(
        call_id="c1", event=SubagentEvent(call_id="d1", event=TextDelta(iteration=2, text="x"))
    ),
]

assert {type(event) for event in EVENTS} == set(get_args(Event)), "a kind of event has no sample"


def recorded(*events):
    """The text of a record of some events."""
    stream = io.StringIO()
    recorder = Recorder(stream)
    for event in events:
        recorder(event)
    return stream.getvalue()


_flaky = []


@tool(retries=1)
def flaky(key: str) -> str:
    """Fail once for each key."""
    if key not in _flaky:
        _flaky.append(key)
        raise ConnectionError("not yet")
    return f"{key} at last"


@tool
def broken() -> str:
    """Fail."""
    raise ValueError("it is broken")


@tool(requires_approval=True)
def wipe() -> str:
    """Wipe everything."""
    return "gone"


@tool(requires_approval=True)
def buy(what: str) -> str:
    """Buy something."""
    return f"bought {what}"


@tool
def echo(text: str) -> str:
    """Say the same."""
    return text


def eventful(to, question="What is it?", **options):
    """A run with parallel calls, a retry, a suppressed call, an invalid one, a failure and a run within it."""
    _flaky.clear()
    inner = Loop(tools=[add], name="inner", max_iterations=4)

    def sum_up(messages):
        last = messages[-1]
        return (
            calls(call("add", a=20, b=22))
            if last["role"] == "user"
            else f"It is {last['content']}."
        )

    delegate = inner.as_tool("delegate", "Hand it on.", sum_up)
    model = ScriptedLLM(
        calls(call("add", a=1, b=2), call("flaky", key="k"), call("broken"), text="First these."),
        ConnectionError("the model is busy"),
        calls(call("add", a=1, b="x"), call("nobody")),
        calls(call("delegate", task="sum")),
        calls(call("add", a=1, b=2)),
        calls(call("add", a=1, b=2)),
        ["It is ", "forty-two."],
    )
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    loop = Loop(
        tools=[add, flaky, broken, delegate], name="outer", max_iterations=12, retry_delay=0.001
    )
    return loop.run_sync(messages, model, on_event=to, **options)
