"""Fixtures of the parity tests, which run without an event loop, on asyncio and on trio."""

import functools

import anyio
import pytest

from treadle import Loop, presets
from treadle.effects import drive, drive_sync
from treadle.testing import ScriptedLLM, check_history


@pytest.fixture(params=["sync", "asyncio", "trio"])
def driver(request):
    return request.param


@pytest.fixture
def perform(driver):
    """Performs steps under the driver of the test."""

    def perform(steps, emit=None):
        if driver == "sync":
            return drive_sync(steps, emit)
        return anyio.run(drive, steps, emit, backend=driver)

    return perform


@pytest.fixture
def run(driver):
    """Runs a loop under the driver of the test; the history is checked, and so is the end of the script."""

    def run(messages, llm, **options):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if "stages" not in options:  # else `ask_model` among them has the delay
            options.setdefault("retry_delay", 0)
        if driver == "sync":
            result = Loop.run_sync(messages, llm, **options)
        else:
            start = functools.partial(Loop.run, messages, llm, **options)
            result = anyio.run(start, backend=driver)
        if result.stop_reason != "invalid_input":
            check_history(result.messages)
        if isinstance(llm, ScriptedLLM):
            llm.check()
        return result

    return run


@pytest.fixture
def planned(run):
    """Runs a loop with RunaxAI's rule for duplicates; returns its result, its plans, and its events."""

    def planned(*script, **options):
        events, plans = [], []
        rule = presets.runax()["dedupe"]
        options = {"dedupe": rule, **options, "on_event": events.append}
        result = run(
            "?", ScriptedLLM(*script), **options, on_iteration=lambda c: plans.append(c.plan)
        )
        return result, plans, events

    return planned


def answers(result):
    """The contents of the tool messages of a result."""
    return [message["content"] for message in result.messages if message["role"] == "tool"]
