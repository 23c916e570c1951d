"""Contexts to call stages with directly, and a way through several of them."""

import json
from collections.abc import Generator

import pytest

from treadle.pipeline import drive_sync
from treadle.stages import Resolver, ToolRunner
from treadle.types import Context, History, Limits, Response, RunState, ToolCall, toolset


@pytest.fixture
def context():
    """Make a context that enters the stages with some calls: ``("name", {arguments})`` or `ToolCall`."""

    def make(
        *calls, tools=(), resolve_tool=None, response=None, messages=None, limits=None, **more
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
        return Context(
            messages=History(messages or [{"role": "user", "content": "Hi"}]),
            tools=toolset(tools),
            response=response or Response(tool_calls=tuple(made)),
            limits=Limits(**limits or {}),
            state=state,
            runner=ToolRunner(),
            resolve_tool=None if resolve_tool is None else Resolver(resolve_tool),
            **more,
        )

    return make


@pytest.fixture
def through():
    """Take a context through stages, one after another; those that yield effects are driven."""

    def step(ctx, *stages, emit=None):
        for stage in stages:
            out = stage(ctx)
            ctx = drive_sync(out, emit) if isinstance(out, Generator) else out
        return ctx

    return step
