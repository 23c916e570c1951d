"""Whatever a model answers and whatever tools do: the loop ends, and its history is valid."""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import json
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.ways import ASYNCIO, SYNC, TRIO, Way

from treadle import Chunk, Err, Limits, Ok, Response, RunHandle, Tool, ToolCall, Usage, tool
from treadle.events import RunFinished
from treadle.messages import CallChunk, for_sdk
from treadle.messages.repair import repair_history
from treadle.stages import _attempts as calling
from treadle.testing import ScriptedLLM, call, calls, check_history, history_problems

from .guard_scripts import SCRIPTS
from .scripts import HELLO, Busy, Refused, completion_chunks, played


@pytest.fixture(autouse=True, scope="module")
def quick_retries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calling, "RETRY_DELAY", 0.0)
        yield


# What a model may say.

DEEP = '{"n":' * 20_000
ARGUMENTS = [
    '{"n": 1}',
    '{"n": 2}',
    '{"n": 1, "n": 2}',
    "",
    "  \n",
    "{}",
    "{",
    '{"n": 1',
    "{'n': 1}",
    '{"n": 1}}',
    '{"n": 1} and more',
    "[]",
    "[1]",
    "1",
    "null",
    '"n"',
    "NaN",
    '{"n": NaN}',
    '{"n": -Infinity}',
    '{"n": 1e999}',
    '{"n": "1"}',
    '{"n": [{"n": 1}]}',
    '{"n": 1, "m": 2}',
    '{"n": "\\ud800"}',
    '{"n": "\ud800"}',
    '{"n": "\\u0000"}',
    "\0",
    "\ufeff{}",
    '{"n": ' + "9" * 5_000 + "}",
    DEEP,
    DEEP + "1" + "}" * 20_000,
    '{"n": "' + "x" * 200_000 + '"}',
    {"n": 1},
    ["n"],
    None,
    5,
    {"n": object},
]
NAMES = [
    "value",
    "later",
    "raw",
    "slow",
    "final",
    "valeu",
    "VALUE",
    "v",
    " ",
    "",
    "a b",
    "x" * 5_000,
    "\ud800",
]
IDS = ["c1", "c1", "c2", "c1_2", "call_1_1", "", " ", None, 5, "x" * 500, "\ud800"]
TEXTS = [None, "", " \n", "Well.", "\ud800", "\0", "x" * 1_000]

raw_calls = st.builds(
    lambda call_id, name, arguments, extra: {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
        **extra,
    },
    st.sampled_from(IDS),
    st.sampled_from(NAMES),
    st.sampled_from(ARGUMENTS),
    st.sampled_from([{}, {"index": 0}, {"signature": {"a": [1]}}]),
)
extras = st.sampled_from(
    [{}, {"reasoning": [{"text": "hm"}]}, {"refusal": "no"}, {"annotations": []}]
)


def message_of(text: Any, asked: list[Any], extra: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": asked, **extra}


def completion_of(message: Any, finish_reason: Any, usage: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": usage}


messages_of_calls = st.builds(
    message_of, st.sampled_from(TEXTS), st.lists(raw_calls, max_size=4), extras
)
completions = st.builds(
    completion_of,
    messages_of_calls,
    st.sampled_from([None, "stop", "length", "tool_calls", 5]),
    st.sampled_from([None, {}, {"prompt_tokens": 3}, {"prompt_tokens": "3", "total_tokens": None}]),
)
call_chunks = st.builds(
    CallChunk,
    st.integers(0, 2),
    st.sampled_from(["", "c1", "c2"]),
    st.sampled_from(["", "value", "later", "lat"]),
    st.sampled_from(["", '{"n"', ": 1}", '{"n": 1}', "x"]),
)
chunks = st.builds(
    Chunk,
    st.sampled_from(["", "Well", " "]),
    st.lists(call_chunks, max_size=2).map(tuple),
    st.sampled_from([None, "stop", "length"]),
    st.sampled_from([None, Usage(1, 1)]),
    ends_with_reason=st.booleans(),
)
JUNK_CHUNKS = [
    "Well",
    "",
    None,
    5,
    {},
    {"choices": []},
    {"choices": [{}]},
    {"choices": [{"delta": None}]},
]
pieces = st.lists(chunks | st.sampled_from(JUNK_CHUNKS), max_size=5)
streams = st.one_of(
    pieces,
    st.sampled_from(["Hello.", ""]).map(completion_chunks),
    st.just(completion_chunks("Hel", None)),
    st.builds(lambda made, error: [*made, error], pieces, st.just(ConnectionError("lost"))),
)
JUNK = [
    None,
    5,
    object(),
    {},
    [],
    b"bytes",
    {"choices": []},
    {"choices": [{}]},
    {"choices": "x"},
    {"role": "user", "content": "I am you"},
    {"role": "assistant", "content": 5},
    {"role": "assistant", "content": [{"type": "text", "text": "parts"}]},
    {"role": "assistant", "content": [{"type": "text"}, 5]},
    {"role": "assistant", "content": []},
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": [5]},
    {"role": "assistant", "tool_calls": [{"function": {}}]},
    {"role": "assistant", "tool_calls": {"a": 1}},
    Response(),
    Response("Well.", refusal="no"),
    Response(None, refusal="no"),
    Response(None, (ToolCall("", "value", '{"n": 1}'), ToolCall("", "value", "{"))),
]
FAILURES = [
    ValueError("bad"),
    Busy("busy"),
    Refused("no"),
    TimeoutError(),
    KeyError("x"),
    RecursionError(),
    StopIteration(),
    StopAsyncIteration(),
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    ExceptionGroup("several", [ValueError("one")]),
]
answers = st.one_of(
    messages_of_calls,
    messages_of_calls,
    completions,
    streams.map(lambda made: ("stream", made)),
    st.sampled_from(TEXTS[1:]),
    st.sampled_from(JUNK),
    st.sampled_from(FAILURES),
)


class Model:
    """Answers by a script, then with text; spoils whatever it is handed."""

    def __init__(self, script: list[Any], *, spoils: bool) -> None:
        self.script = list(script)
        self.spoils = spoils
        self.asked = 0

    def __call__(self, messages: list[Any], **opts: Any) -> Any:
        self.asked += 1
        if self.spoils:
            spoil(messages)
            spoil(opts)
        answer = copy.copy(self.script.pop(0)) if self.script else "The end."
        if isinstance(answer, BaseException):
            raise answer
        return stream_of(answer[1]) if isinstance(answer, tuple) else answer


class AsyncModel(Model):
    async def __call__(self, messages: list[Any], **opts: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        answer = super().__call__(messages, **opts)
        return later(answer) if isinstance(answer, Iterator) else answer


def stream_of(made: list[Any]) -> Iterator[Any]:
    for piece in made:
        if isinstance(piece, BaseException):
            raise piece
        yield piece


async def later(made: Iterator[Any]) -> Any:
    for piece in made:
        await anyio.lowlevel.checkpoint()
        yield piece


def spoil(value: Any) -> None:
    """Change all that can be changed, from the inside out."""
    if isinstance(value, dict):
        for part in list(value.values()):
            spoil(part)
        value.clear()
        value["spoiled"] = True
    elif isinstance(value, list):
        for part in value:
            spoil(part)
        value.clear()
        value.append({"spoiled": True})


# What tools may do.


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")

    __repr__ = __str__


class Shy:
    def __str__(self) -> str:
        raise RuntimeError("I will not say")

    __repr__ = __str__


def circular() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def failing_generator() -> Iterator[int]:
    yield 1
    raise ValueError("in the middle")


def raising(error: BaseException) -> Any:
    def act() -> Any:
        raise error

    return act


BEHAVIOURS = {
    "number": lambda: 5,
    "text": lambda: "fine",
    "the same text": lambda: "fine",
    "nothing": lambda: None,
    "bytes": lambda: b"\0\xff",
    "nan": lambda: {"a": float("nan"), "b": [float("inf")]},
    "ok": lambda: Ok(5),
    "ok of ok": lambda: Ok(Ok(5)),
    "err": lambda: Err("no"),
    "err of nothing": lambda: Err(None),
    "an object": object,
    "a class": lambda: Shy,
    "an object that will not be shown": Shy,
    "a set": lambda: {1, "a", (2,)},
    "odd keys": lambda: {1: 2, None: 3, (4,): 5, Shy: 6},
    "a generator": lambda: (n for n in range(3)),
    "a failing generator": failing_generator,
    "circular": circular,
    "deep": lambda: json.loads("[" * 500 + "]" * 500),
    "huge": lambda: "x\n" * 100_000,
    "a surrogate": lambda: "a\ud800b",
    "a nested surrogate": lambda: {"a\ud800": ["\ud800"]},
    "an exception as a value": lambda: ValueError("a value"),
    "ValueError": raising(ValueError("no")),
    "the same ValueError": raising(ValueError("no")),
    "a surrogate in an error": raising(ValueError("a\ud800b")),
    "Mute": raising(Mute()),
    "TimeoutError": raising(TimeoutError("their own")),
    "StopIteration": raising(StopIteration(5)),
    "StopAsyncIteration": raising(StopAsyncIteration()),
    "CancelledError": raising(asyncio.CancelledError()),
    "futures.CancelledError": raising(concurrent.futures.CancelledError()),
    "ExceptionGroup": raising(ExceptionGroup("several", [ValueError("one")])),
    "RecursionError": raising(RecursionError("too deep")),
}


LEFT: list[str] = []


def act() -> Any:
    return BEHAVIOURS[LEFT.pop(0) if LEFT else "number"]()


@tool(retries=1)
def value(n: int) -> Any:
    """Behave in a thread."""
    return act()


@tool(name="later")
async def behave_later(n: int) -> Any:
    """Behave on the event loop."""
    await anyio.lowlevel.checkpoint()
    return act()


@tool(timeout=0.005)
async def slow(n: int = 0) -> str:
    """Take too long."""
    await anyio.sleep(5)
    return "too late"


def spoiling(**arguments: Any) -> Any:
    spoil(arguments)
    return act()


@tool
def sibling(n: int) -> int:
    """Do well."""
    return n


raw = Tool("raw", "", {"type": "object"}, fn=spoiling, parallel_safe=False)
final = tool(name="final", terminal=True)(value.fn)
TOOLS = [value, behave_later, slow, raw, final, sibling]


def tools_of(behaviours: list[str]) -> list[Tool]:
    """Tools that behave by a list, each call by the next of it."""
    LEFT[:] = behaviours
    return TOOLS


def check(
    way: Way, script: list[Any], behaviours: list[str], model: type[Model], **options: Any
) -> Any:
    messages = copy.deepcopy(list(HELLO))
    given_messages = copy.deepcopy(messages)
    observed = way.run(
        messages,
        model(script, spoils=options.pop("spoils", False)),
        tools=tools_of(behaviours),
        retry_delay=0,
        max_retries=1,
        max_iterations=6,
        **options,
    )
    result = observed.result
    assert messages == given_messages
    check_history(result.messages)
    assert result.messages[: len(messages)] == given_messages
    assert result.stop_reason != "pipeline_failed", result.reason
    assert result.iterations <= (8 if options.get("on_limit") == "finish" else 6)
    most = options.get("max_tool_calls")
    assert most is None or result.tool_calls_count <= most
    assert observed.state.is_terminal
    assert observed.state.messages == result.messages
    assert [
        event for event in observed.events if isinstance(event, RunFinished)
    ] == observed.events[-1:]
    sent = json.dumps(result.messages, ensure_ascii=False)
    sent.encode()  # a lone surrogate would raise, here as in a client
    assert "spoiled" not in sent
    return result


scripts = st.lists(answers, max_size=7)
guards = st.fixed_dictionaries(
    {
        "sequential": st.sampled_from(["defer", "in_step"]),
        "limits": st.builds(
            Limits, on_limit=st.sampled_from(["stop", "finish"]), show_budget=st.booleans()
        ),
        "dedupe": st.sampled_from(["evidence", "strict", "off"]),
        "max_tool_calls": st.sampled_from([None, 0, 1, 3]),
    }
)
behaviour_lists = st.lists(st.sampled_from(sorted(BEHAVIOURS)), max_size=8)


@pytest.mark.parametrize("way", [SYNC, ASYNCIO, TRIO], ids=repr)
@given(scripts, behaviour_lists, st.sampled_from([Model, AsyncModel]), st.booleans(), guards)
@settings(max_examples=150)
def test_the_loop_ends_with_a_valid_history(way, script, behaviours, model, spoils, options):
    check(way, script, behaviours, model, spoils=spoils, **options)


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
@pytest.mark.parametrize("asked", ["value", "later", "raw"])
def test_whatever_a_tool_does_its_siblings_are_answered(driven: Way, asked: str, name: str):
    batch = calls(call("sibling", "c1", n=1), call(asked, "c2", n=1), call("sibling", "c3", n=2))
    # `raw` runs alone: in this step all the same.
    options = {"tools": tools_of([name, name]), "sequential": "in_step"}
    observed = driven.run(HELLO, ScriptedLLM(batch, "Done."), **options)
    assert observed.result.stop_reason == "answered"
    check_history(observed.result.messages)
    answers = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
    assert (answers[0], answers[2]) == ("1", "2")
    answers[1].encode()  # what no provider could be sent would raise


ODD_CALLS = [
    *((name, arguments) for name in ("value", "final") for arguments in ARGUMENTS),
    *((name, arguments) for name in NAMES for arguments in ('{"n": 1}', "{", None)),
]


@pytest.mark.parametrize(("name", "arguments"), ODD_CALLS, ids=lambda given: repr(given)[:20])
def test_whatever_a_call_looks_like_its_siblings_run(name: str, arguments: Any):
    odd = {"id": "c2", "type": "function", "function": {"name": name, "arguments": arguments}}
    batch = calls(call("sibling", "c1", n=5), odd, call("sibling", "c3", n=6))
    options = {"tools": tools_of([]), "max_retries": 0, "sequential": "in_step"}
    observed = SYNC.run(HELLO, ScriptedLLM(batch, "Done."), **options)
    check_history(observed.result.messages)
    assert observed.result.stop_reason in {"answered", "output"}
    if observed.result.stop_reason == "answered":
        contents = [m["content"] for m in observed.result.messages if m["role"] == "tool"]
        assert (contents[0], contents[2]) == ("5", "6")
        assert len(contents[1]) < 60_000


# Histories that arrive broken.

texts = st.sampled_from(
    ["Hello.", "", " ", [{"type": "text", "text": "Hi"}], [], [{"type": "image"}]]
)
proper_calls = st.builds(
    lambda call_id, arguments, kind: (
        {"id": call_id, "type": "function", "function": {"name": "value", "arguments": arguments}}
        if kind == "function"
        else {"id": call_id, "type": kind, kind: {"name": "x", "input": "y"}}
    ),
    st.sampled_from(["c1", "c2", "c3", "c1_2"]),
    st.sampled_from([given for given in ARGUMENTS if isinstance(given, str)]),
    st.sampled_from(["function", "function", "function", "custom"]),
)
keys = st.sampled_from([{}, {"name": "x"}, {"cache_control": {"type": "ephemeral"}}])
some_messages = st.one_of(
    st.builds(
        lambda role, content, extra: {"role": role, "content": content, **extra},
        st.sampled_from(["system", "developer", "user"]),
        texts,
        keys,
    ),
    st.builds(
        lambda content, asked, extra: {
            "role": "assistant",
            "content": content,
            **({"tool_calls": asked} if asked is not None else {}),
            **extra,
        },
        texts | st.none(),
        st.none() | st.lists(proper_calls, max_size=3),
        st.sampled_from([{}, {"refusal": "no"}, {"refusal": None}, {"reasoning": "hm"}]),
    ),
    st.builds(
        lambda call_id, content: {"role": "tool", "tool_call_id": call_id, "content": content},
        st.sampled_from(["c1", "c2", "c3", "c9"]),
        texts,
    ),
)
histories = st.lists(some_messages, max_size=8)


@given(histories)
@settings(max_examples=200)
def test_a_broken_history_is_repaired(history):
    given_history = copy.deepcopy(history)
    mended, repairs = repair_history(copy.deepcopy(history))
    if mended:
        check_history(mended)
    assert bool(repairs) == (mended != history) or not mended
    again, repairs_again = repair_history(copy.deepcopy(mended))
    assert again == mended
    assert repairs_again == ()
    assert history == given_history


@given(histories)
@settings(max_examples=200)
def test_repairing_a_valid_history_changes_nothing(history):
    """Repaired once it is valid; and what is valid from the start stays as it is."""
    if not list(history_problems(history)):
        mended, repairs = repair_history(copy.deepcopy(history))
        assert mended == history
        assert repairs == ()


@pytest.mark.parametrize("way", [SYNC, ASYNCIO, TRIO], ids=repr)
@given(histories, st.lists(st.sampled_from(["calls", "text", "blank"]), max_size=2))
@settings(max_examples=60)
def test_a_run_may_start_from_any_history(way, history, script):
    given_history = copy.deepcopy(history)
    steps = {
        "calls": calls(call("later", "c1", n=1), call("later", "c1", n=2)),
        "text": "Well.",
        "blank": "",
    }
    model = Model([steps[name] for name in script], spoils=True)
    observed = way.run(history, model, tools=tools_of([]))
    assert history == given_history
    if observed.result.stop_reason == "invalid_input":
        assert model.asked == 0
    else:
        assert observed.result.stop_reason == "answered"
        check_history(observed.result.messages)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["role", "user"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "tool_call_id", "id", "function", "name", "type"]
            )
            | st.text(max_size=2),
            inner | st.sampled_from(["user", "assistant", "tool", "x"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
@settings(max_examples=200)
@example([{"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}])
@example([{"role": ["user"], "content": "x"}])
@example([{"role": {}, "content": "x"}])
@example(circular())
@example([circular()])
@example([{"role": "user", "content": circular()}])
def test_every_input_is_accepted_or_refused_with_its_problems(messages):
    observed = SYNC.run(messages, Model([], spoils=False))
    if observed.result.stop_reason == "invalid_input":
        assert observed.result.reason.problems
    else:
        check_history(observed.result.messages)
        assert observed.result.stop_reason == "answered"


# Whose messages they are.

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
OWN = {
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "refusal",
    "id",
    "type",
    "function",
    "index",
}
names = st.text(min_size=1, max_size=8).filter(lambda key: key not in OWN)
unknown = st.dictionaries(names, json_values, max_size=3)


@given(unknown, unknown, unknown)
@settings(max_examples=100)
def test_unknown_keys_go_in_and_come_out(of_user, of_answer, of_call):
    """Of a message that is handed in, of an answer, and of a call in it; a spoiling model changes none."""
    asked = {**call("later", "c1", n=1), **copy.deepcopy(of_call)}
    answer = {"role": "assistant", "content": "Let me see.", "tool_calls": [asked], **of_answer}
    messages = [{"role": "user", "content": "Go.", **copy.deepcopy(of_user)}]
    result = SYNC.run(
        messages, Model([copy.deepcopy(answer)], spoils=True), tools=tools_of([])
    ).result
    assert result.messages[0] == {"role": "user", "content": "Go.", **of_user}
    kept = {**without_nulls(answer), "tool_calls": [without_nulls(asked)]}
    assert for_sdk(result.messages)[1] == kept
    messages = [*result.messages, {"role": "user", "content": "And?"}]
    again = SYNC.run(messages, Model([], spoils=True), tools=tools_of([])).result
    assert again.messages[: len(messages)] == messages
    assert again.run.repairs == ()


def without_nulls(holder):
    """A message or a call of a model as the history keeps it: its lists have no entries without a value."""
    return {
        key: [one for one in value if one is not None] if isinstance(value, list) else value
        for key, value in holder.items()
    }


def test_numbers_that_json_has_not_become_text_in_the_history(driven: Way):
    """A provider's unknown keys are kept, as far as they can be sent back."""
    asked = {**call("later", "c1", n=1), "weight": float("inf"), "odds": [float("nan"), 0.5]}
    result = driven.run(HELLO, Model([calls(asked)], spoils=False), tools=tools_of([])).result
    [kept] = result.messages[2]["tool_calls"]
    assert (kept["weight"], kept["odds"]) == ("inf", ["nan", 0.5])


def test_messages_that_a_caller_got_are_the_callers_own():
    """Changing what a handle or a state shows changes no record."""
    handle = RunHandle()
    observed = SYNC.run(HELLO, ScriptedLLM("Hi."), handle=handle)
    expected = copy.deepcopy(observed.result.messages)
    spoil(handle.messages)
    spoil(observed.state.messages)
    assert handle.messages == observed.state.messages == expected


def test_a_run_can_go_on_from_every_result(driven: Way):
    """Whatever ended it: the history of one run is the input of the next, and needs no repair.

    That of a run which waits for a person too: then it waits no more.
    """
    for script in SCRIPTS:
        if script.ends == "invalid_input" or script.name.startswith("too_slow"):
            continue
        first = played(driven, script).result
        messages = list(first.messages)
        if messages[-1]["role"] != "user":
            messages.append({"role": "user", "content": "And?"})
        second = driven.run(messages, ScriptedLLM("So."))
        assert second.result.run.repairs == (), script
        assert second.result.messages[: len(first.messages)] == first.messages
