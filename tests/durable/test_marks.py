"""The mark of a call that must not run twice is found wherever the call is after a change of the loop."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from tests.ways import SYNC, Way
from tests.whole.scripts import HELLO

from treadle import Loop, Tool, stage, tool
from treadle.effects import NOW, Bounded, Call, Emit, Parallel, Steps
from treadle.errors import ReplayError
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls

from .interrupting import RUN, Durable
from .memory import ENDS


def paying(paid: list[int], **options: Any) -> Tool:
    """A tool that pays, which must not run twice."""

    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return f"paid {n}"

    return tool(name="pay", **options)(pay)


@stage
def ask_the_time(ctx: Any) -> Steps[Any]:
    """Ask for the time, so that later effects have other numbers."""
    yield NOW
    return ctx


def interrupted(way: Way, llm: Any, make: Any) -> Durable:
    """A run whose process ends while a call of pay runs: its start is stored, its outcome is not."""
    for at in range(1, 12):
        one = Durable(way, HELLO, ScriptedLLM(*llm), {"tools": [make()]})
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        one.note_unknown()
        if one.unknown:
            return one
    raise AssertionError("no call was in flight")


PAY = [calls(call("pay", "c1", n=1)), "Done."]
BOTH = [calls(call("pay", "c1", n=1), call("pay", "c2", n=2)), "Done."]


@pytest.mark.parametrize("is_ended_again", [False, True], ids=["", "twice"])
@pytest.mark.parametrize("script", [PAY, BOTH], ids=["one", "two"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"timeout": 60}),
        ({"timeout": 60}, {}),
        ({"timeout": 60}, {"timeout": 90}),
        ({}, {"max_uses": 3}),
        ({}, {"timeout": 60, "max_uses": 3}),
    ],
    ids=str,
)
def test_a_call_does_not_run_twice_after_a_change_of_its_tool(
    driven: Way, before: Any, after: Any, script: Any, is_ended_again: bool
):
    paid: list[int] = []
    one = interrupted(driven, script, lambda: paying(paid, **before))
    changed = {"tools": [paying(paid, **after)]}
    if is_ended_again:
        one.journal.interrupt(2, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process(**changed)
    result = one.process(**changed)
    assert result.output == "Done."
    assert all(paid.count(n) <= 1 for n in (1, 2))
    contents = {m["tool_call_id"]: m["content"] for m in result.messages if m["role"] == "tool"}
    assert one.unknown
    assert all(contents[key].startswith("Unknown: ") for key in one.unknown)


def test_a_call_that_became_idempotent_runs_again():
    paid: list[int] = []
    one = interrupted(SYNC, PAY, lambda: paying(paid))
    result = one.process(tools=[paying(paid, idempotent=True, timeout=60)])
    assert (result.output, one.told) == ("Done.", set())
    assert max(one.world.ran.values()) == 1  # which gives the call the outcome that it had


def sending(sent: list[str], shape: str) -> Any:
    """A stage that makes two calls which must not run twice, without labels and keys."""

    def act(text: str) -> str:
        sent.append(text)
        return text

    def steps(text: str) -> Steps[Any]:
        return (yield Call(act, text, once=True))

    @stage
    def send(ctx: Any) -> Steps[Any]:
        """Send two texts."""
        if ctx.iteration > 1:
            return ctx
        if shape == "parallel":
            yield Parallel([steps("a"), steps("b")])
        elif shape == "bounded":
            yield Bounded(steps("a"), seconds=60)
            yield from steps("b")
        else:
            yield from steps("a")
            yield from steps("b")
        return ctx

    return [send, *default_stages()]


@pytest.mark.parametrize(
    ("before", "after"), [("plain", "bounded"), ("bounded", "plain"), ("parallel", "parallel")]
)
def test_a_call_of_a_stage_does_not_run_twice(driven: Way, before: str, after: str):
    for at in range(1, 7):
        sent: list[str] = []
        one = Durable(driven, HELLO, ScriptedLLM("Done."), {"stages": sending(sent, before)})
        one.journal.interrupt(at, is_stored=False)
        with contextlib.suppress(*ENDS):
            one.process()
        with contextlib.suppress(ReplayError):
            one.process(stages=sending(sent, after))
        assert all(sent.count(text) <= 1 for text in "ab")


def nothing() -> Steps[None]:
    yield from ()


def plus_an_event(stages: Any) -> Any:
    @stage
    def report(ctx: Any) -> Steps[Any]:
        """Emit an event."""
        yield Emit(object())
        return ctx

    return [*stages[:-4], report, *stages[-4:]]


@pytest.mark.parametrize(
    "stages",
    [
        [*default_stages()[:-4], ask_the_time, *default_stages()[-4:]],
        plus_an_event(default_stages()),
        [one for one in default_stages() if one.name != "dispatch_tools"],
    ],
    ids=["another effect", "an event", "no dispatch"],
)
def test_a_change_before_the_call_is_an_error(driven: Way, stages: Any):
    paid: list[int] = []
    one = interrupted(driven, PAY, lambda: paying(paid))
    writes = len(one.journal.log(RUN))
    with pytest.raises(ReplayError, match=r"expected now.*changed since then: stage") as caught:
        one.process(stages=stages)
    assert caught.value.run_id == RUN
    assert paid == [1]
    assert len(one.journal.log(RUN)) == writes + 1
    assert one.process().output == "Done."
    assert paid == [1]


@pytest.mark.parametrize("key", ["mail", ""])
def test_a_mark_that_is_never_met_is_an_error(driven: Way, key: str):
    sent: list[str] = []

    def sending_after(*effects: Any) -> Any:
        @stage
        def send(ctx: Any) -> Steps[Any]:
            """Send a mail."""
            yield from effects
            yield Call(sent.append, "mail", key=key, once=True)
            return ctx

        return [send, *default_stages()]

    one = Durable(driven, HELLO, ScriptedLLM("Done."), {"stages": sending_after()})
    one.journal.interrupt(2, is_stored=False)
    with pytest.raises(ENDS):
        one.process()
    assert sent == ["mail"]
    expected = f"expected call{' ' if key else ''}{key and repr(key)}, got"
    for effects in ([NOW], [Emit(object())], [Call(int)], [Bounded(nothing(), seconds=1)]):
        with pytest.raises(ReplayError, match=expected) as caught:
            one.process(stages=sending_after(*effects))
        assert caught.value.run_id == RUN
    assert sent == ["mail"]


def test_the_call_of_a_subagent_does_not_run_twice(driven: Way):
    paid: list[int] = []

    def llm(messages: Any) -> Any:
        return "Paid." if messages[-1]["role"] == "tool" else calls(call("pay", "d1", n=1))

    def sub(**options: Any) -> Tool:
        return Loop(tools=[paying(paid, **options)]).as_tool("sub", "", llm)

    one = interrupted(driven, [calls(call("sub", "c1", task="pay")), "Done."], sub)
    assert one.unknown == {"c1/d1"}
    before = list(paid)
    assert one.process(tools=[sub(timeout=60)]).output == "Done."
    assert paid == before
