"""Events: frozen, equal but for times and ids; and each can be sent as JSON and restored, as the page says."""

import copy
import dataclasses
import enum
import json
import operator
import pickle
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import (
    Err,
    Event,
    EventBase,
    IterationFinished,
    IterationStarted,
    JSONFormatError,
    LimitReached,
    Limits,
    LLMError,
    Loop,
    ModelRetried,
    Ok,
    PendingCall,
    Response,
    RunFinished,
    RunStarted,
    StoppedByStage,
    SubagentEvent,
    TextDelta,
    ToolCall,
    ToolFinished,
    ToolResult,
    Usage,
    event_from_json,
)
from treadle.events import EVENT_TYPES, number
from treadle.fast_dataclass import fast_dataclass_kw
from treadle.results import RunError
from treadle.testing import ScriptedLLM, call, calls

from .event_samples import KINDS, instances_of

PAGE = Path(__file__).parents[1] / "docs" / "guide-events.md"
HEAD = ["type", "seq", "path"]


@pytest.mark.parametrize("kind", typing.get_args(Event), ids=lambda kind: kind.__name__)
def test_every_event_is_frozen_and_takes_only_keywords(kind):
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen
    assert all(spec.kw_only for spec in dataclasses.fields(kind))


def finished(result=None, **changes):
    facts = {"stop_reason": "x", "total_iterations": 1, "tool_calls_count": 0, "at": 1.0}
    return RunFinished(result=result, **{**facts, **changes})


CALL = {"iteration": 1, "call": ToolCall("a", "f"), "result": ToolResult("a", "5")}
RETRIED = {"iteration": 1, "attempt": 1, "error": "x", "error_type": "E"}


@pytest.mark.parametrize(
    "make",
    [
        lambda n: RunStarted(agent_name="x", run_id=str(n), at=n),
        lambda n: IterationStarted(iteration=1, at=n),
        lambda n: ToolFinished(**CALL, at=n, duration=n),
        lambda n: ModelRetried(**RETRIED, delay=n, at=n),
    ],
)
def test_times_and_ids_do_not_count_for_equality(make):
    """Two runs of one script can be compared event by event."""
    assert make(1) == make(2)


def test_other_fields_count_for_equality():
    assert TextDelta(iteration=1, text="a") != TextDelta(iteration=1, text="b")
    assert finished(stop_reason="a") != finished(stop_reason="b")


@dataclasses.dataclass
class Plain(EventBase):
    n: int


@dataclasses.dataclass(frozen=True)
class Frozen(EventBase):
    n: int


@pytest.mark.parametrize("kind", [Plain, Frozen])
@pytest.mark.parametrize("seq", [0, 7])
def test_an_event_of_a_custom_class_can_be_copied_and_pickled(kind, seq):
    event = kind(3)
    if seq:
        number(event, seq)
    pickled = pickle.loads(pickle.dumps(event))  # noqa: S301 - our own
    for again in (copy.copy(event), copy.deepcopy(event), pickled):
        assert (again, again.seq) == (event, seq)


def test_the_events_of_a_run_can_be_deep_copied():
    """They are frozen, so the copy is the event: the context of one has services that cannot be copied."""
    events = []
    Loop.run_sync("Hi", lambda messages: "Hello", on_event=events.append)
    assert all(map(operator.is_, copy.deepcopy(events), events))


# As JSON


def sent(event):
    """The JSON form of an event after it was sent to another program."""
    return json.loads(json.dumps(event.to_json(), allow_nan=False))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_an_event_that_was_sent_can_be_restored_and_sent_again(kind, data):
    event = data.draw(instances_of(kind))
    number(event, data.draw(st.integers(0, 9)))
    for call_id in data.draw(st.lists(st.text(max_size=2), max_size=2)):
        event = SubagentEvent(call_id=call_id, event=event)
        number(event, 10)
    restored = event_from_json(sent(event))
    assert (restored.seq, restored.path, type(restored.innermost)) == (event.seq, event.path, kind)
    data, again = sent(event), sent(restored)
    if "exception" in data:
        assert again.pop("exception") is None
        del data["exception"]
    assert again == data
    reduced = {"seq", "state", "context", "exception", *({"result"} if kind is RunFinished else ())}
    for spec in dataclasses.fields(kind):
        if spec.name not in reduced:
            before, after = (getattr(one.innermost, spec.name) for one in (event, restored))
            assert after == before, spec.name


def test_the_events_of_a_run_come_with_everything_that_a_page_shows():
    seen = []
    model = ScriptedLLM(calls(call("look", "c1", n=1)), "Done.")
    Loop.run_sync("Go.", model, tools=[look], on_event=seen.append)
    shown = {event["type"]: event for event in map(sent, seen)}
    assert shown["tool_started"]["call"]["input"] == {"n": 1}
    assert shown["tool_finished"]["result"] == {
        "tool_call_id": "c1", "content": "1", "is_error": False, "status": "done",
        "parts": None,
    }  # fmt: skip
    assert shown["iteration_finished"]["context"]["decision"] == "done"
    assert shown["run_finished"]["result"]["text"] == "Done."
    result = event_from_json(shown["run_finished"]).result
    assert isinstance(result, Ok)
    assert (result.response.content, result.messages) == ("Done.", [])


def look(n: int):
    """Look."""
    return n


def test_a_reason_is_restored_with_its_fields_and_an_unknown_one_with_its_text():
    for reason in (StoppedByStage("guard", "no"), LLMError("no", "ValueError", 2)):
        assert event_from_json(sent(finished(Err(reason)))).result.reason == reason
    later = {"kind": "of_a_later_version", "text": "because", "fields": {}}
    data = LimitReached(iteration=1, reason=StoppedByStage("a", "b")).to_json() | {"reason": later}
    assert event_from_json(data).reason == StoppedByStage("", "because")


def test_a_custom_event_has_a_json_form_and_is_no_event_that_can_be_restored():
    """An exception in it is its type and its text alone."""

    @fast_dataclass_kw
    class LongText(EventBase):
        error: Exception

    error = {"type": "ValueError", "message": "no"}
    data = sent(LongText(error=ValueError("no")))
    assert data == {"type": "long_text", "seq": 0, "path": [], "error": error}
    with pytest.raises(JSONFormatError, match=r"^type: .long_text. is no type of event"):
        event_from_json(data)


def test_keys_of_a_later_version_are_ignored():
    data = TextDelta(iteration=1, text="a").to_json() | {"mood": "good"}
    assert event_from_json(data) == TextDelta(iteration=1, text="a")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], "expected an object, got"),
        ({"type": 3}, "3 is no type of event"),
        ({"type": "text_dleta"}, "did you mean 'text_delta'"),
        ({"type": "text_delta", "iteration": 1}, "text_delta: .*'text'"),
        (
            {"type": "text_delta", "iteration": "1", "text": ""},
            "text_delta: iteration: expected a value of type int",
        ),
        ({"type": "text_delta", "iteration": True, "text": ""}, "text_delta: iteration: expected"),
        (
            {"type": "text_delta", "iteration": 1, "text": "", "seq": "1"},
            "text_delta: expected a value of type int",
        ),
        ({"type": "text_delta", "iteration": 1, "text": "", "path": "c1"}, "text_delta: expected an array"),
        (
            {"type": "calls_planned", "iteration": 1, "reason": "mood", "batches": [], "not_run": {}},
            "reason: expected one of",
        ),
        (
            {"type": "model_responded", "iteration": 1, "response": [], "at": 0, "duration": 0},
            "response: expected an object",
        ),
        ({"type": "user_message_added", "iteration": 1, "messages": "x"}, "messages: expected an array"),
        (
            {"type": "run_started", "agent_name": "", "run_id": "", "at": 0, "limits": {"max_cost": -1}},
            "limits: .*max_cost",
        ),
        ({"type": "iteration_finished", "iteration": 1, "at": 0, "context": 3}, "context: expected an object"),
        ({"type": "limit_reached", "iteration": 1, "reason": "max"}, "reason: expected an object"),
    ],
)  # fmt: skip
def test_data_that_is_no_event_says_what_is_wrong(data, problem):
    with pytest.raises(JSONFormatError, match=problem):
        event_from_json(data)


# The page


def word_of(hint):
    """The word for a type on the page."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        kinds = [arg for arg in args if arg is not type(None)]
        words = {word_of(kind) for kind in kinds} - {"err", "paused"}
        return " or ".join([*words, *(["null"] if len(kinds) < len(args) else [])])
    if origin is Ok:
        return "result"
    if origin in {tuple, Sequence}:
        return f"[{word_of(args[0])}]"
    if origin in {dict, Mapping}:
        return "object" if args[1] is typing.Any else f"{{{word_of(args[1])}}}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "string"
    if isinstance(hint, type) and issubclass(hint, BaseException):
        return "reason" if issubclass(hint, RunError) else "exception"
    if hint in WORDS:
        return WORDS[hint]
    return "any" if hint is typing.Any else hint.__name__.lower()


WORDS = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    ToolCall: "call",
    ToolResult: "tool result",
    PendingCall: "pending call",
}
OBJECTS = [ToolCall, ToolResult, Response, Usage, Limits, PendingCall]


def row(name, kind):
    hints = typing.get_type_hints(kind)
    fields = [
        f"`{spec.name}` {word_of(hints[spec.name])}"
        for spec in dataclasses.fields(kind)
        if spec.init
    ]
    return f"| {name} | {', '.join(fields)} |"


EXPECTED = [row(f"`{name}`", kind) for name, kind in EVENT_TYPES.items()]
EXPECTED += [row(word_of(kind), kind) for kind in OBJECTS]


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda row: row.split("|")[1].strip(" `"))
def test_the_page_has_every_event_and_object_with_its_fields(expected):
    assert expected in PAGE.read_text(encoding="utf-8").splitlines(), f"write: {expected}"


def test_the_page_has_the_keys_of_reduced_objects():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    made = {
        "result": sent(finished(Ok(Response("a"))))["result"],
        "reason": sent(LimitReached(iteration=1, reason=StoppedByStage("a", "b")))["reason"],
    }
    seen = []
    Loop.run_sync("Go.", ScriptedLLM("x"), on_event=seen.append)
    [context] = [sent(event)["context"] for event in seen if isinstance(event, IterationFinished)]
    assert isinstance(seen[0], RunStarted)
    assert sent(seen[0])["state"] is None
    for name, keys in {**made, "context": context}.items():
        [line] = [line for line in lines if line.startswith(f"| {name} |")]
        shown = re.findall(r"`(\w+)`", line)
        assert shown == [*keys], name
    assert list(seen[0].to_json())[:3] == HEAD
