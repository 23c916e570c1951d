"""Contexts for calling stages directly, and a fixture that applies several stages."""

import dataclasses
import json
from collections.abc import Generator

import pytest
from tests.learning import learn

from treadle.context import Context, RunServices
from treadle.effects import drive_sync
from treadle.limits import Budget, Limits
from treadle.messages import History, Response, ToolCall
from treadle.run_state import RunState
from treadle.tools import Resolver, toolset

from .dispatching import Noting
from .planning import TOOLS, made, planned

SERVICES = {spec.name for spec in dataclasses.fields(RunServices)}
"""Options of a test for the run of a context: ``in_flight``, ``breaker``, ``has_listeners`` and so on."""


@pytest.fixture
def context():
    """Make a context that enters the stages with some calls: ``("name", {arguments})`` or `ToolCall`."""

    def make(
        *calls,
        tools=(),
        resolve_tool=None,
        response=None,
        messages=None,
        limits=None,
        **more,
    ):
        made = []
        for place, call in enumerate(calls, 1):
            if not isinstance(call, ToolCall):
                name, arguments = call
                text = arguments if isinstance(arguments, str) else json.dumps(arguments)
                call = ToolCall(f"c{place}", name, text)  # noqa: PLW2901
            made.append(call)
        state = RunState("bot", "run-1")
        state.new_node(at=0.0).start(0.0)
        services = {name: more.pop(name) for name in list(more) if name in SERVICES}
        services.setdefault("budget", Budget(Limits(**limits or {})))
        return Context(
            messages=History(messages or [{"role": "user", "content": "Hi"}]),
            tools=toolset(tools),
            response=response or Response(tool_calls=tuple(made)),
            run=RunServices(
                state=state,
                resolver=None if resolve_tool is None else Resolver(resolve_tool),
                **services,
            ),
            **more,
        )

    return make


@pytest.fixture
def through():
    """Apply stages to a context, one after another; those that yield effects are driven."""

    def step(ctx, *stages, emit=None):
        for stage in stages:
            out = stage(ctx)
            ctx = drive_sync(out, emit) if isinstance(out, Generator) else out
        return ctx

    return step


@pytest.fixture
def plan(context):
    """Plan calls, see `planning`, with nothing new learned since the results of earlier ones.

    ``known`` were made and repeated with the same result, ``once`` were made once, ``failed`` failed twice.
    The results of ``hidden`` are no longer visible.
    """

    def plan(
        words,
        *,
        known="",
        once="",
        failed="",
        hidden="",
        in_step=False,
        dedupe="evidence",
        broken=None,
        **more,
    ):
        ctx = context(tools=more.pop("tools", TOOLS), iteration=3, **more)
        learned = [(word, f"result of {word}", False) for word in known.split()]
        learned += [(word, "it failed", True) for word in failed.split()]
        answered_once = [(word, f"result of {word}", False) for word in once.split()]
        learn(ctx.run.repeats, 1, learned + answered_once)
        learn(ctx.run.repeats, 2, learned)
        ctx.run.repeats.hide(dict.fromkeys(hidden.split(), True))
        return planned(ctx, made(words), in_step=in_step, dedupe=dedupe, broken=broken)

    return plan


@pytest.fixture
def noting():
    return Noting()
