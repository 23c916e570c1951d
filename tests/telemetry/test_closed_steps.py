"""Runs whose steps are interrupted or closed at each of their effects: every span ends."""

from collections import Counter
from types import SimpleNamespace

import pytest
from opentelemetry.trace import StatusCode
from tests.samples import OverloadedError

from treadle import Chunk, Loop, tool
from treadle.effects import Bounded, Call, Emit, Now, Parallel
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double
from .watching import Watch


@tool(retries=1)
def fail():
    raise OSError("no")


@tool(timeout=60)
def limited(n: int):
    return n


def one_by_one(steps):
    """The effects of steps, with nested steps in sequence in their place."""
    given, error = None, None
    while True:
        try:
            effect = steps.send(given) if error is None else steps.throw(error)
        except StopIteration as stop:
            return stop.value
        given, error = None, None
        try:
            if isinstance(effect, Parallel):
                given = []
                for each in effect.steps:
                    given.append((yield from one_by_one(each)))
            elif isinstance(effect, Bounded):
                given = yield from one_by_one(effect.steps)
            else:
                given = yield effect
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as raised:
            error = raised


class Clock:
    """Performs effects without waiting, with a fake clock."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def perform(self, effect):
        self.now += 0.001
        if isinstance(effect, Now):
            return self.now
        if not isinstance(effect, Call):
            return None
        reporter = (SimpleNamespace(now=lambda: self.now, emit=lambda event, listener=None: None),)
        return effect.fn(*effect.args, *(reporter if effect.reporting else ()))


def run_to(watch, count, end):
    """Perform a number of effects of a run, then end it; return its result or None."""
    inner = Loop(tools=[double], name="inner", on_event=lambda event: None)
    script = [calls(call("double", "i1", n=1), call("double", "i2", n=2)), "in"]
    deep = inner.as_tool("deep", "", ScriptedLLM(*script))
    middle = Loop(tools=[deep], name="middle", max_seconds=60)
    kid = middle.as_tool(
        "kid", "", ScriptedLLM(calls(call("deep", "d", task="a")), "in"), timeout=60
    )
    model = ScriptedLLM(
        calls(call("kid", "k", task="a"), call("fail", "f"), call("limited", "l", n=1)),
        OverloadedError(),
        [Chunk("o"), Chunk("ut")],
    )
    options = {"tools": [kid, fail, limited], "retry_delay": 0, **watch.options}
    steps, clock = one_by_one(Loop.steps(USER, model, **options)), Clock()
    try:
        given, error = steps.send(None), None
        effect = given
        for _ in range(count):
            effect, error = performed(steps, clock, effect, error)
        end(steps, clock)
    except StopIteration as stop:
        return stop.value
    return None


def performed(steps, clock, effect, error):
    try:
        given = clock.perform(effect)
    except Exception as raised:
        return steps.throw(raised), None
    return steps.send(given), error


def closed(steps, clock):
    steps.close()


def interrupted(steps, clock):
    """As a driver does it: raise the interrupt in the steps, and perform their cleanup."""
    with pytest.raises(KeyboardInterrupt):
        effect = steps.throw(KeyboardInterrupt())
        while True:
            effect, _ = performed(steps, clock, effect, None)


@pytest.mark.parametrize(("end", "reason"), [(closed, "abandoned"), (interrupted, "cancelled")])
def test_all_spans_end_at_every_effect(end, reason):
    count, result, ends, within = 0, None, Counter(), Counter()
    while result is None:
        watch = Watch()
        result = run_to(watch, count, end)
        watch.check_whole()
        for agent in watch.kind(names.INVOKE_AGENT):
            counted = ends if agent.parent is None else within
            counted[agent.attributes[names.STOP_REASON]] += 1
        count += 1
    assert result.unwrap().content == "out"
    assert ends.total() == count - 1  # before its start it is no run
    assert ends[reason] > 80
    assert within[reason] > 60
    if end is interrupted:  # an interrupt between the last effect of a run and its end
        assert ends["abandoned"] <= 1
        assert within["abandoned"] <= 2


def test_open_spans_are_marked_as_abandoned():
    watch = Watch()
    run_to(watch, 8, closed)
    errors = {span.name: span.attributes.get(names.ERROR_TYPE) for span in watch.spans}
    assert errors["invoke_agent"] == "abandoned"
    assert watch.one("invoke_agent").status.status_code is StatusCode.ERROR
    assert set(errors.values()) <= {"abandoned", None}


def test_unreferenced_steps_are_abandoned():
    watch = Watch()
    steps = Loop.steps(USER, lambda m: "x", **watch.options)
    effects = [steps.send(None), steps.send(1_700_000_000.0)]
    assert isinstance(effects[1], Emit)
    del steps
    watch.check_whole(runs=1)
    assert watch.one("invoke_agent").attributes[names.STOP_REASON] == "abandoned"


def test_steps_that_were_not_started_report_nothing():
    watch = Watch()
    Loop.steps(USER, lambda m: "x", **watch.options).close()
    assert watch.ledger.started == []
    assert watch.logs() == []
