"""Bounds inside bounds, struck from within: every driver has the same outcomes and cleanups."""

import contextlib

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.effects import Bounded, Call, Mode, Signal, Stopped

BOUNDS = 3
GRACE = 0.03


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr("treadle.effects.cleanup.GRACE_SECONDS", GRACE)


@st.composite
def programs(draw, enclosing=(), depth=4):
    """A tree of effects; a call that does not return strikes a bound around it."""
    kinds = ["value", "error", "strike"]
    if enclosing:
        kinds += ["strike and stay"] * 4
    if depth:
        kinds += ["bounded"] * 4 if len(enclosing) < BOUNDS else []
        kinds += ["sequence"] * 2 + ["finally"] * 2
    kind = draw(st.sampled_from(kinds))
    inner = programs(enclosing, depth - 1)
    match kind:
        case "strike":
            return ("strike", draw(st.integers(0, BOUNDS - 1)), "value")
        case "strike and stay":
            end = draw(st.sampled_from(["waits", "ignores", "cleans up"]))
            return ("strike", draw(st.sampled_from(enclosing)), end)
        case "bounded":
            bound = len(enclosing)
            return ("bounded", bound, draw(programs((*enclosing, bound), depth - 1)))
        case "sequence":
            return ("sequence", draw(st.lists(inner, min_size=1, max_size=3)))
        case "finally":
            return ("finally", draw(inner), draw(inner))
    return (kind,)


class Machine:
    """Makes the steps of a program; notes what was cleaned up."""

    def __init__(self):
        self.signals = [Signal() for _ in range(BOUNDS)]
        self.cleaned = []
        self.is_released = False

    def steps(self, program):
        match program:
            case ("bounded", bound, inner):
                try:
                    return (yield Bounded(self.steps(inner), until=self.signals[bound]))
                except Stopped:
                    return f"stopped {bound}"
            case ("sequence", parts):
                outcomes = []
                for part in parts:
                    outcomes.append((yield from self.steps(part)))
                return outcomes
            case ("finally", inner, after):
                try:
                    return (yield from self.steps(inner))
                finally:
                    self.cleaned.append("begun")
                    self.cleaned.append((yield from self.steps(_harmless(after))))
            case _:
                try:
                    return (yield Call(self.call, program, mode=Mode.ASYNC, label="tool"))
                except Exception as error:
                    return repr(error)

    async def call(self, program):
        match program:
            case ("value",):
                return "value"
            case ("error",):
                raise ValueError("error")
        _, bound, end = program
        self.signals[bound].set()
        if end == "value":
            return f"struck {bound}"
        if end == "ignores":
            while not self.is_released:
                with contextlib.suppress(BaseException):
                    await anyio.sleep(0.005)
            return "too late"
        try:
            await anyio.sleep(30)
        finally:
            if end == "cleans up":
                self.cleaned.append("call")


def _harmless(program):
    """A cleanup that waits for nothing: only the values and the errors of a program."""
    match program:
        case ("strike", *_):
            return ("value",)
        case ("bounded", bound, inner):
            return ("bounded", bound, _harmless(inner))
        case ("sequence", parts):
            return ("sequence", [_harmless(part) for part in parts])
        case ("finally", inner, after):
            return ("finally", _harmless(inner), _harmless(after))
    return program


def outcome_of(runner, program):
    machine = Machine()

    def steps():
        try:
            # Nothing strikes this bound: it makes the steps run in a carrier.
            return (yield Bounded(machine.steps(program), seconds=30))
        finally:
            machine.is_released = True

    return runner.drive(steps()), machine.cleaned


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(program=programs())
def test_every_driver_has_the_same_outcome(runners, program):
    first, *others = [outcome_of(runner, program) for runner in runners]
    assert others == [first, first]
