"""The outcome of a call that a stage makes is stored before the run goes on, as that of a tool is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.ways import DRIVEN, Way
from tests.whole.scripts import HELLO, add

from treadle import labels
from treadle.effects import Call, Mode, Parallel, Steps
from treadle.testing import ScriptedLLM, call, calls

from .interrupting import RUN, Durable
from .memory import ENDS, Interrupted


class Mails:
    """Counts the mails that stages send."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def send(self, text: str) -> int:
        self.sent[text] += 1
        return self.sent[text]

    def fail(self, text: str) -> None:
        self.sent[text] += 1
        raise ValueError(text)


def one_call(mails: Mails) -> Steps[Any]:
    yield Call(mails.send, "a", mode=Mode.THREAD)


def with_a_label(mails: Mails) -> Steps[Any]:
    yield Call(mails.send, "a", label="mail", key="a")


def one_that_fails(mails: Mails) -> Steps[Any]:
    try:
        yield Call(mails.fail, "a")
    except ValueError:
        return


def two_at_once(mails: Mails) -> Steps[Any]:
    yield Parallel([_one(mails, "a"), _one(mails, "b")])


def _one(mails: Mails, text: str) -> Steps[Any]:
    return (yield Call(mails.send, text, mode=Mode.THREAD))


@pytest.mark.parametrize("way", DRIVEN, ids=repr)
@pytest.mark.parametrize("mailing", [one_call, with_a_label, one_that_fails, two_at_once])
def test_a_call_is_not_made_again_if_the_process_ends_right_after_it(way: Way, mailing: Any):
    mails, ends = Mails(), [True]

    def notify(ctx: Any) -> Any:
        yield from mailing(mails)
        if ends.pop():
            raise Interrupted
        return ctx

    ends.insert(0, False)
    one = Durable(way, HELLO, ScriptedLLM("Done."), {"stages": [notify, ...]})
    with pytest.raises(ENDS):
        one.process()
    assert one.process().output == "Done."
    assert set(mails.sent.values()) == {1}


def test_what_the_loop_asks_itself_waits_for_the_next_write(driven: Way):
    """So a run of an iteration with a tool still takes as many writes."""

    def draw(ctx: Any) -> Any:
        number = yield Call(lambda: 4, label=labels.RANDOM)
        return ctx.remember("number", number)

    def plain(ctx: Any) -> Any:
        return ctx.remember("number", 4)

    writes: list[int] = []
    for stage in (plain, draw):
        model = ScriptedLLM(calls(call("add", "c1", a=1, b=1)), "Done.")
        one = Durable(driven, HELLO, model, {"tools": [add], "stages": [stage, ...]})
        assert one.process().output == "Done."
        writes.append(one.journal.writes)
    assert writes[0] == writes[1]
    assert one.journal.parts[RUN]
