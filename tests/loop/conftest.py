"""The drivers that run and resume a loop, and tools that record their calls."""

import json
from types import SimpleNamespace

import anyio
import pytest
from tests.deciding import on
from tests.time_limit import TimeLimit

from treadle import Loop, PausedStateError, PendingCall, RunHandle, default_stages, stage, tool
from treadle.effects import Bounded, Call, Now, map_effects, with_reporter
from treadle.testing import ScriptedLLM, call, calls, check_history

USER = [{"role": "user", "content": "Hi"}]
BATCH = calls(call("note", "a", n=1), call("wipe", "b", path="/"), call("note", "c", n=3))
"""The first runs, the second needs approval, and the third waits for the second."""


class Way:
    """One way to run a loop and to resume it; the history of every result is checked."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

    def _driven(self, sync, later):
        made = sync() if self.name == "sync" else anyio.run(later, backend=self.name)
        if made.stop_reason != "invalid_input":  # which leaves no history
            check_history(made.messages)
        return made

    def run(self, loop, model, messages=USER, **options):
        """Run to the end, or to a pause."""
        return self._driven(
            lambda: loop.run_sync(messages, model, **options),
            lambda: loop.run(messages, model, **options),
        )

    def resume(self, loop, paused, decisions, model, **options):
        """Resume after a pause, with decisions by the ids of the calls."""
        decisions = on(paused, decisions)
        return self._driven(
            lambda: loop.resume_sync(paused, decisions, model, **options),
            lambda: loop.resume(paused, decisions, model, **options),
        )


SYNC = Way("sync")


@pytest.fixture(params=["sync", "asyncio", "trio"])
def way(request):
    """Each of the drivers."""
    return Way(request.param)


class Clock:
    """A clock that only a test advances; its middleware replaces the clock of the driver."""

    def __init__(self, now=1000.0):
        self.now = now
        self.bounds = []
        self.limit = TimeLimit()

    def middleware(self, steps):
        return map_effects(steps, self._see)

    def _see(self, effect):
        if isinstance(effect, Now):
            return Call(lambda: self.now, label="now")
        if isinstance(effect, Bounded) and effect.seconds is not None:
            self.bounds.append(effect.seconds)
            return self.limit.bounded(effect)
        return with_reporter(effect, self._reporter) if isinstance(effect, Call) else effect

    def _reporter(self, inner):
        return SimpleNamespace(now=lambda: self.now, emit=inner.emit)


@pytest.fixture
def clock():
    return Clock()


class RecordedTools:
    """Tools that record their calls: ``wipe`` needs approval, ``pay`` needs it above 100, ``note`` never."""

    def __init__(self):
        self.done = []

        @tool
        def note(n: int):
            self.done.append(f"note {n}")
            return f"noted {n}"

        @tool(requires_approval=True)
        def wipe(path: str):
            self.done.append(f"wipe {path}")
            return f"wiped {path}"

        @tool(requires_approval=lambda given: given["amount"] > 100 and f"pay {given['amount']}?")
        def pay(amount: int):
            self.done.append(f"pay {amount}")
            return f"paid {amount}"

        self.tools = [note, wipe, pay]

    @property
    def did(self):
        """What was done, in alphabetical order: calls of one batch run at the same time."""
        return sorted(self.done)

    def loop(self, **options):
        return Loop(**{"tools": self.tools, **options})


@pytest.fixture
def recorded():
    return RecordedTools()


@pytest.fixture
def family(recorded):
    """Make a parent whose subagent follows a script; both have the recorded tools."""

    def make(*inner, options=None, behaviour=None, **settings):
        model = ScriptedLLM(*inner)
        subagent = recorded.loop(name="kid", **(options or {}))
        made = subagent.as_tool("helper", "Helps.", model, **(behaviour or {}))
        return Loop(tools=[*recorded.tools, made], **settings)

    return make


@pytest.fixture
def handle():
    return RunHandle()


def answers(messages):
    """The tool messages of a history, by the id of the call."""
    return {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}


def stored(paused):
    """A paused state that was stored as JSON and loaded."""
    return json.loads(json.dumps(paused.state))


def of(events, kind):
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def paused_at(recorded, *script, way=SYNC, **options):
    """Run until a call waits; return the loop, the model and the pause."""
    loop, model = recorded.loop(**options), ScriptedLLM(*(script or (BATCH,)), "done")
    return loop, model, way.run(loop, model)


def refused(loop, state, model=lambda m: "x", text="paused state", decisions=None, **options):
    """Assert that a state is refused before anything runs."""
    with pytest.raises(PausedStateError, match=text):
        loop.resume_sync(state, on(state, decisions or {}), model, **options)


def after_model(*stages):
    """The default stages, with others after ``ask_model``: they see the response before any other stage."""
    ask_model, *rest = default_stages()
    return [ask_model, *stages, *rest]


@stage
def asking(ctx):
    """A custom stage that requests an approval."""
    if "q" in ctx.approvals:
        return ctx
    return ctx.pause(
        (PendingCall("q", "asking", {"text": ctx.response.content}, "May it say so?"),)
    )
