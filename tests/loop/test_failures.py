"""What failed is shown with the traceback of the user's code: in the log, on events, and by `unwrap`."""

import functools
import logging
import threading
import traceback

import anyio
import pytest
from tests.samples import OverloadedError

from treadle import Err, Loop, Recipe, RecipeStep, RunError, default_stages, tool
from treadle.events import ToolFinished, ToolRetried
from treadle.results import CircuitBroken, LLMError, PipelineFailed
from treadle.stages import ask_model, validate_calls
from treadle.testing import ScriptedLLM, call, calls

USER = "Hi"
NO_ARGUMENTS = {"type": "object", "properties": {}}


def fault(*_, **__):
    raise KeyError("missing")


def exits():
    raise SystemExit(3)


class Recipes:
    """A resolver whose calls have a recipe."""

    def __init__(self, recipe=None, make=None):
        self.recipe = recipe
        self.make = make

    def resolve(self, call):
        return fault() if self.recipe is None else "resolved"

    def available_tools(self):
        return ["broken"]

    def dispatch_recipe(self, name):
        return lambda arguments: self.recipe if self.make is None else self.make(arguments)


def tools(fn, **options):
    return {"tools": [tool(name="broken", description="", **options)(fn)]}


def plain():
    fault()


async def later():
    await anyio.sleep(0)
    fault()


def generator():
    yield 1
    fault()


async def async_generator():
    yield 1
    fault()


def awaitable():
    return later()


def times_out_itself():
    fault_of_time()


def fault_of_time():
    raise TimeoutError("a socket")


def returns_it():
    try:
        fault()
    except KeyError as error:
        return Err(error)


def subagent(fn, script=None):
    inner = Loop(**tools(fn))
    script = script or (calls(call("broken", "i1")), "inner")
    return {"tools": [inner.as_tool("broken", "", ScriptedLLM(*script), input_schema=NO_ARGUMENTS)]}


PATHS = {
    "function": lambda: tools(plain),
    "coroutine": lambda: tools(later),
    "generator": lambda: tools(generator),
    "async generator": lambda: tools(async_generator),
    "function that returns an awaitable": lambda: tools(awaitable),
    "function with a time limit": lambda: tools(plain, timeout=30),
    "coroutine with a time limit": lambda: tools(later, timeout=30),
    "function in a run with a time limit": lambda: {**tools(plain), "max_seconds": 30},
    "last of several attempts": lambda: tools(plain, retries=1),
    "its own TimeoutError": lambda: tools(times_out_itself, timeout=30),
    "a returned Err": lambda: tools(returns_it, retries=1),
    "resolver": lambda: {"resolve_tool": lambda call: fault()},
    "step of a recipe": lambda: {
        "tools": [tool(name="other", description="")(plain)],
        "resolve_tool": Recipes(Recipe([RecipeStep("other")])),
    },
    "arguments of a step": lambda: {"resolve_tool": Recipes(Recipe([RecipeStep("broken", fault)]))},
    "compose of a recipe": lambda: {"resolve_tool": Recipes(Recipe(compose=fault))},
    "function of a lock": lambda: tools(lambda: "never runs", lock=fault),
    "tool of a subagent": lambda: subagent(plain),
    "messages of a subagent": lambda: {
        "tools": [
            Loop().as_tool(
                "broken", "", ScriptedLLM("x"), messages=fault, input_schema=NO_ARGUMENTS
            )
        ]
    },
    "model of a subagent": lambda: {
        "tools": [Loop().as_tool("broken", "", fault, input_schema=NO_ARGUMENTS)]
    },
}


def run(way, model, **options):
    events = []
    options = {"on_event": events.append, "name": "bot", **options}
    result = way.run(Loop(), model, USER, **options)
    return result, [event.innermost for event in events]


def last_frame(error):
    """The name of the function in the last line of a traceback."""
    return traceback.extract_tb(error.__traceback__)[-1].name


def origin(error):
    """The exception that led to another."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@pytest.fixture
def records(caplog):
    """The records of the tools' logger."""
    caplog.set_level(logging.DEBUG, "treadle.tools")
    return lambda: [record for record in caplog.records if record.name == "treadle.tools"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from treadle.stages import _attempts

    monkeypatch.setattr(_attempts, "RETRY_DELAY", 0)


@pytest.mark.parametrize("path", PATHS)
def test_an_exception_of_a_tool_is_logged_once_and_is_on_the_event_of_its_call(way, records, path):
    model = ScriptedLLM(calls(call("broken", "c1")), "ok")
    _, events = run(way, model, **PATHS[path]())
    (record,) = records()
    assert record.levelno == logging.WARNING
    assert last_frame(origin(record.exc_info[1])).startswith("fault")
    raised = [e for e in events if isinstance(e, ToolFinished) and e.exception is not None]
    if path == "arguments of a step":  # the call was not made
        assert raised == []
    else:
        (event,) = raised
        assert event.result.is_error
        assert last_frame(origin(event.exception)).startswith("fault")


def test_the_traceback_starts_at_the_code_of_the_user(way, records):
    run(way, ScriptedLLM(calls(call("broken")), "ok"), **tools(plain, timeout=30))
    (record,) = records()
    shown = traceback.extract_tb(record.exc_info[2])
    assert [frame.name for frame in shown] == ["plain", "fault"]


def test_a_record_has_the_ids_of_its_call(way, records):
    result, _ = run(way, ScriptedLLM(calls(call("broken", "c1")), "ok"), **tools(plain))
    (record,) = records()
    assert record.getMessage() == "call of broken raised KeyError"
    facts = (record.run_id, record.agent_name, record.iteration, record.call_id, record.tool)
    assert facts == (result.run.run_id, "bot", 1, "c1", "broken")


def test_a_record_of_a_subagent_has_the_run_of_the_subagent(way, records):
    result, _ = run(way, ScriptedLLM(calls(call("broken", "c1")), "ok"), **subagent(plain))
    (record,) = records()
    assert (record.run_id, record.call_id) == (f"{result.run.run_id}/c1", "i1")


def test_an_exception_that_was_only_made_is_not_logged(way, records):
    """It is a result like any text; there is no traceback to show."""
    model = ScriptedLLM(calls(call("broken")), "ok")
    result, events = run(way, model, **tools(lambda: Err(ValueError("no such city"))))
    assert records() == []
    assert result.messages[2]["content"] == "Error: ValueError: no such city"
    (event,) = [event for event in events if isinstance(event, ToolFinished)]
    assert isinstance(event.exception, ValueError)


def test_a_call_that_succeeds_at_last_is_not_logged(way, records):
    tries = []

    def flaky():
        tries.append(1)
        return "ok" if len(tries) == 2 else fault()

    model = ScriptedLLM(calls(call("broken")), "ok")
    _, events = run(way, model, **tools(flaky, retries=1))
    assert records() == []
    (retried,) = [event for event in events if isinstance(event, ToolRetried)]
    assert last_frame(retried.exception) == "fault"
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert finished.exception is None


def test_a_timeout_has_no_exception(way, records):
    async def hangs():
        await anyio.sleep(60)

    model = ScriptedLLM(calls(call("broken")), "ok")
    _, events = run(way, model, **tools(hangs, timeout=0.01, retries=1))
    seen = [event for event in events if isinstance(event, (ToolRetried, ToolFinished))]
    assert [event.exception for event in seen] == [None, None]
    assert records() == []


def test_an_exception_does_not_count_for_equality_or_repr(way):
    def finished():
        _, events = run(way, ScriptedLLM(calls(call("broken", "c1")), "ok"), **tools(plain))
        return next(event for event in events if isinstance(event, ToolFinished))

    one, other = finished(), finished()
    assert one == other
    assert one.exception is not other.exception
    assert "exception" not in repr(one)


@pytest.mark.parametrize("fn", [exits, functools.partial(exits)], ids=["exits", "partial"])
def test_a_tool_that_exits_is_an_error_and_the_run_goes_on(way, records, fn):
    model = ScriptedLLM(calls(call("broken")), "ok")
    result, _ = run(way, model, **tools(fn))
    assert result.unwrap().content == "ok"
    text = "Error: CallExited: the callable called sys.exit(3)"
    assert result.messages[2]["content"] == text
    (record,) = records()
    assert last_frame(record.exc_info[1].__cause__) == "exits"


@pytest.mark.parametrize("place", ["model", "async model", "stream", "stage", "generator stage"])
def test_a_model_or_a_stage_that_exits_is_the_reason_of_the_run(way, place):
    def model(messages):
        exits()

    async def async_model(messages):
        exits()

    def stream(messages):
        yield "a"
        exits()

    def stage(ctx):
        exits()

    def generator_stage(ctx):
        yield from ()
        exits()

    models = {"model": model, "async model": async_model, "stream": stream}
    stages = {"stage": [stage], "generator stage": [generator_stage]}
    if place in models:
        result, _ = run(way, models[place])
        assert isinstance(result.reason, LLMError)
        assert result.reason.attempts == 1
    else:
        result, _ = run(way, ScriptedLLM(), stages=[*stages[place], *default_stages()])
        assert isinstance(result.reason, PipelineFailed)
    assert result.reason.error_type == "CallExited"
    assert last_frame(origin(result.reason)) == "exits"


@pytest.mark.parametrize("is_async", [False, True])
def test_an_observer_that_exits_is_logged(way, caplog, is_async):
    async def observe_later(event):
        exits()

    def observe(event):
        exits()

    with caplog.at_level(logging.ERROR, "treadle.loop"):
        result, _ = run(way, ScriptedLLM("ok"), on_event=observe_later if is_async else observe)
    assert result.unwrap().content == "ok"
    assert {record.exc_info[0] for record in caplog.records} == {SystemExit}


# What `unwrap` shows.


def a_plain_stage(ctx):
    fault()


def a_generator_stage(ctx):
    yield from ()
    fault()


async def an_async_stage(ctx):
    await anyio.sleep(0)
    fault()


def a_model(messages):
    fault()


async def an_async_model(messages):
    await anyio.sleep(0)
    fault()


def a_stream(messages):
    yield "a"
    fault()


async def an_async_stream(messages):
    yield "a"
    fault()


def an_overloaded_model(messages):
    raise OverloadedError


def with_on_retry():
    return [ask_model(on_retry=fault, retry_delay=0), *default_stages()[1:]]


BROKEN = calls(call("broken"))
ENDS = {
    **{fn.__name__: (LLMError, fn, dict) for fn in (a_model, an_async_model, a_stream)},
    "an_async_stream": (LLMError, an_async_stream, dict),
    **{
        fn.__name__: (
            PipelineFailed,
            "x",
            lambda fn=fn: {"stages": [fn, *default_stages()]},
        )
        for fn in (a_plain_stage, a_generator_stage, an_async_stage)
    },
    "instructions": (PipelineFailed, "x", lambda: {"instructions": fault}),
    "on_retry": (PipelineFailed, an_overloaded_model, lambda: {"stages": with_on_retry()}),
    "repair_call": (
        PipelineFailed,
        calls(call("made_up")),
        lambda: {"stages": [validate_calls(repair_call=fault), ...]},
    ),
    **{
        f"a broken circuit: {name}": (CircuitBroken, BROKEN, PATHS[name])
        for name in (
            "function",
            "coroutine",
            "last of several attempts",
            "resolver",
            "a returned Err",
        )
    },
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("limits", [{}, {"max_seconds": 60}], ids=["plain", "limited"])
def test_unwrap_shows_the_users_own_frame_last(way, end, limits):
    kind, model, options = ENDS[end]
    if not callable(model):
        model = ScriptedLLM(*[model] * 4)
    result, _ = run(way, model, **options(), **limits)
    with pytest.raises(RunError) as caught:
        result.unwrap()
    assert isinstance(caught.value, kind)
    shown = traceback.format_exception(caught.value)
    link = "\nThe above exception was the direct cause of the following exception:\n\n"
    cause = "".join(shown[: shown.index(link)])
    assert cause.rstrip().endswith("KeyError: 'missing'")
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "fault"
    assert "/treadle/effects/" not in cause


def test_a_circuit_that_other_failures_broke_has_no_cause(way):
    result, _ = run(way, ScriptedLLM(*[BROKEN] * 4), **tools(lambda: Err("no")))
    assert isinstance(result.reason, CircuitBroken)
    assert result.reason.cause is result.reason.__cause__ is None


def test_a_value_that_cannot_be_made_into_text_within_the_time_limit_is_a_timeout(way):
    is_over = threading.Event()

    class Endless:
        def __str__(self):
            is_over.wait(60)
            return "late"

    model = ScriptedLLM(calls(call("broken")), "ok")
    try:
        result, _ = run(way, model, **tools(Endless, timeout=0.05))
    finally:
        is_over.set()
    assert result.messages[2]["content"] == "Error: 'broken' took longer than 0.05 s."
