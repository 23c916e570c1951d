"""Which loggers may have texts of models, tools and users: only in the tracebacks that the guide lists."""

import logging
import re
import traceback
from pathlib import Path

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.compacting import compacting, script
from tests.deciding import on

from treadle import (
    Limits,
    Loop,
    Output,
    Pauses,
    Recipe,
    RecipeStep,
    Response,
    Retry,
    RunHandle,
    Telemetry,
    ToolContext,
    Usage,
    approve,
    default_stages,
    stage,
    tool,
)
from treadle.effects import Sleep
from treadle.stages import circuit_breaker
from treadle.testing import ScriptedLLM, call, calls

CANARY = "canary-7d2"
USER = [{"role": "user", "content": CANARY}]
GUIDE = Path(__file__).parents[2] / "docs" / "guide-telemetry.md"


class CanaryError(Exception):
    """An error whose text a user wrote."""

    def __init__(self):
        super().__init__(CANARY)


def fails(*_args, **_opts):
    raise CanaryError


@tool
def fail(text: str = CANARY):
    """Fail."""
    raise CanaryError


@tool(lock=fails)
def lock(text: str = ""):
    """Lock."""


@tool(requires_approval=fails)
def guarded(text: str = ""):
    """Guard."""


@tool(requires_approval=True)
def sign(text: str = ""):
    """Sign."""
    return CANARY


@tool(retries=1)
def flaky(ctx: ToolContext):
    """Fail once."""
    ctx.report(CANARY, data=CANARY)
    if ctx.attempt == 1:
        raise CanaryError
    return CANARY


class Library:
    """A resolver whose recipes fail in each of the ways."""

    def available_tools(self):
        return ["search", "compose", "arguments", "recipe"]

    def resolve(self, asked):
        raise CanaryError

    def dispatch_recipe(self, name):
        made = {
            "compose": lambda arguments: Recipe([RecipeStep("sign2")], compose=fails),
            "arguments": lambda arguments: Recipe([RecipeStep("sign2", fails)]),
            "recipe": fails,
        }
        return made.get(name)


class BrokenStream:
    """A stream that breaks off, and cannot be closed."""

    def __iter__(self):
        return self

    def __next__(self):
        raise CanaryError

    def close(self):
        raise CanaryError


class ClaimStore:
    def claim(self, pause_id, claimant, *, take_over):
        return True

    def release(self, pause_id, claimant, outcome):
        raise CanaryError


class Session:
    """A session that cannot be stored."""

    def load(self):
        return {"messages": [], "memo": {}, "pause_id": None}

    def save(self, loaded, turn):
        raise CanaryError


class BrokenTracers(TracerProvider):
    def get_tracer(self, *_args, **_opts):
        return self

    def start_span(self, *_args, **_opts):
        raise CanaryError


@stage
def cleans_up_badly(ctx, *, handle):
    handle.cancel()
    try:
        yield Sleep(60)
    finally:
        raise CanaryError


def one_call(name, **arguments):
    return ScriptedLLM(calls(call(name, "c1", **arguments), text=CANARY), f"{CANARY} answer")


def of_a_tool(name, **options):
    return lambda: Loop.run_sync(
        USER,
        one_call(name),
        tools=[fail, lock, guarded, sign, flaky],
        stages=[circuit_breaker(threshold=9), ...],
        **options,
    )


def resolved(name):
    return lambda: Loop.run_sync(USER, one_call(name), resolve_tool=Library())


def with_cost(usage):
    response = Response(CANARY, usage=usage)
    return lambda: Loop.run_sync(USER, lambda messages: response, limits=Limits(cost_of=fails))


def released():
    loop = Loop(tools=[sign], pauses=Pauses(claims=ClaimStore()))
    paused = loop.run_sync(USER, one_call("sign", text=CANARY))
    handle = RunHandle()
    handle.cancel()
    loop.resume_sync(paused, on(paused, {"c1": approve}), ScriptedLLM(), handle=handle)


def answered(**options):
    return lambda: Loop.run_sync(USER, ScriptedLLM(CANARY), **options)


def invalid():
    wrong = calls(call("fail", "c1", text=[CANARY]), call(f"no_{CANARY}", "c2", text=CANARY))
    Loop.run_sync(USER, ScriptedLLM(wrong, CANARY), tools=[fail])


def retried_output():
    def check(output):
        raise Retry(CANARY)

    Loop.run_sync(USER, ScriptedLLM(*[CANARY] * 9), output=Output(str, validators=[check]))


def broken():
    Loop.run_sync(USER, lambda messages: BrokenStream(), max_retries=0)


def not_summarized():
    Loop.run_sync(USER, ScriptedLLM(*script(CANARY)), **compacting(fails))


def not_stored():
    async def main():
        with anyio.CancelScope() as scope:

            async def model(messages):
                scope.cancel()
                await anyio.sleep(60)

            await Loop.run(USER, model, session=Session())

    anyio.run(main)


def cleaned_up():
    handle = RunHandle()
    stages = [cleans_up_badly(handle=handle), *default_stages()]
    Loop.run_sync(USER, ScriptedLLM(), stages=stages, handle=handle)


# What logs the text of an exception: the logger, and the level.
TOOLS, MODEL = ("treadle.tools", "WARNING"), ("treadle.model", "WARNING")
LOOP, PIPELINE = ("treadle.loop", "ERROR"), ("treadle.pipeline", "ERROR")
SCENARIOS = {
    "a tool": (of_a_tool("fail"), {TOOLS}),
    "a lock": (of_a_tool("lock"), {TOOLS}),
    "an approval": (of_a_tool("guarded"), set()),
    "a retried tool": (of_a_tool("flaky"), set()),
    "a resolver": (resolved("search"), {TOOLS}),
    "compose": (resolved("compose"), {TOOLS}),
    "arguments of a step": (resolved("arguments"), {TOOLS}),
    "a recipe": (resolved("recipe"), {TOOLS}),
    "cost_of": (with_cost(Usage(1, 1)), {MODEL}),
    "cost_of without usage": (with_cost(None), {("treadle.model", "DEBUG")}),
    "an observer": (answered(on_event=fails), {LOOP}),
    "on_iteration": (answered(on_iteration=fails), {LOOP}),
    "on_complete": (answered(on_complete=fails), {LOOP}),
    "a claim store": (released, {LOOP}),
    "a session of a cancelled run": (not_stored, {LOOP}),
    "a summary": (not_summarized, set()),
    "telemetry": (
        answered(telemetry=Telemetry(tracer_provider=BrokenTracers())),
        {("treadle.telemetry", "ERROR")},
    ),
    "a stream": (broken, {("treadle.model", "DEBUG")}),
    "a model": (lambda: Loop.run_sync(USER, fails), set()),
    "instructions": (answered(instructions=fails), set()),
    "a stage": (answered(stages=[stage(fails), *default_stages()]), set()),
    "a cleanup": (cleaned_up, {PIPELINE}),
    "an output validator": (answered(output=Output(str, validators=[fails])), set()),
    "a retried output": (retried_output, set()),
    "invalid calls": (invalid, set()),
}


def formatted(record):
    """The record without its traceback: the message and all attributes."""
    others = {name: value for name, value in vars(record).items() if not name.startswith("exc_")}
    return f"{record.getMessage()} {others!r}"


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_text_of_an_exception_is_in_the_tracebacks_of_its_logger_only(name, caplog):
    act, expected = SCENARIOS[name]
    caplog.set_level(logging.DEBUG)
    act()
    records = [record for record in caplog.records if record.name.partition(".")[0] == "treadle"]
    assert records
    assert [record for record in records if CANARY in formatted(record)] == []
    with_text = [
        record
        for record in records
        if record.exc_info and CANARY in "".join(traceback.format_exception(*record.exc_info))
    ]
    assert {(record.name, record.levelname) for record in with_text} == expected


def test_the_guide_lists_these_loggers():
    listed = re.findall(r"^\| `(treadle\.\w+)` \| (.+?) \|", GUIDE.read_text(), re.MULTILINE)
    rows = {(name, level) for name, levels in listed for level in re.findall("`([A-Z]+)`", levels)}
    found = set().union(*(expected for _, expected in SCENARIOS.values()))
    assert found <= rows
