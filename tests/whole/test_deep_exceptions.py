"""Exceptions with long chains of causes, and groups nested deeply, wherever user-supplied code may raise them.

Python formats both without a limit of its own, and its recursion limit is 1,000.
"""

import json
import logging

import pytest
from tests.telemetry.watching import Watch

from treadle import (
    Err,
    Limits,
    Loop,
    Recipe,
    Response,
    Tool,
    Usage,
    default_stages,
    event_from_json,
    stage,
)
from treadle.reports import Recorder, read_recording, render_report
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools.rendering import error_text, make_text
from treadle.tracebacks import format_traceback, from_user_code, leaves_of

DEPTH = 1_500


def chained(attribute):
    error = None
    for n in range(DEPTH):
        try:
            raise ValueError(f"link {n}")
        except ValueError as made:
            setattr(made, attribute, error)
            error = made
    return error


def nested():
    error = ValueError("leaf")
    for n in range(DEPTH):
        try:
            raise ExceptionGroup(f"group {n}", [error])
        except ExceptionGroup as made:
            error = made
    return error


DEEP = {
    "causes": lambda: chained("__cause__"),
    "contexts": lambda: chained("__context__"),
    "groups": nested,
    "causes in groups": lambda: ExceptionGroup("both", [nested(), chained("__cause__")]),
}


class Library:
    def __init__(self, fail):
        self.fail = fail

    def available_tools(self):
        return ["bad"]

    def resolve(self, asked):
        return ""

    def dispatch_recipe(self, name):
        return lambda arguments: Recipe(compose=self.fail)


def model_of(fail):
    return ScriptedLLM(calls(call("bad", "c1")), "Done.")


def answers(messages):
    return Response("Done.", usage=Usage(1, 1))


# By place: the model and the options of a run that fails there, and how the run ends.
PLACES = {
    "a tool": lambda fail: (model_of(fail), {"tools": [Tool("bad", fn=fail)]}, "answered"),
    "a result": lambda fail: (
        model_of(fail),
        {"tools": [Tool("bad", fn=lambda: Err(caught(fail)))]},
        "answered",
    ),
    "a recipe": lambda fail: (model_of(fail), {"resolve_tool": Library(fail)}, "answered"),
    "a model": lambda fail: (fail, {}, "llm_error"),
    "a stage": lambda fail: (
        answers,
        {"stages": [stage(fail, "bad"), *default_stages()]},
        "pipeline_failed",
    ),
    "an observer": lambda fail: (answers, {"on_iteration": fail}, "answered"),
    "a cost": lambda fail: (answers, {"limits": Limits(cost_of=fail)}, "answered"),
}


def caught(fail):
    try:
        fail()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("place", PLACES)
def test_a_deep_exception_is_handled_as_any_other(place, kind, tmp_path, caplog):
    """In the result, the log, the events as JSON, the spans, the recording and the report."""

    def fail(*_args, **_opts):
        error = DEEP[kind]()
        raise error

    caplog.set_level(logging.DEBUG)  # its handler formats tracebacks, and raises if it cannot
    watch, events, path = Watch(), [], tmp_path / "run.jsonl"
    model, options, stop_reason = PLACES[place](fail)
    with Recorder(path) as recorder:
        result = Loop.run_sync(
            "Hi",
            model,
            on_event=[recorder, lambda event: events.append(event.to_json())],
            **options,
            **watch.reporting(capture_content=True),
        )
    assert result.stop_reason == stop_reason, result
    assert recorder.failure is None
    assert "RecursionError" not in json.dumps(events) + path.read_text() + watch.everything()
    assert "RecursionError" not in repr(result.messages)
    assert [event_from_json(event) for event in events]
    assert read_recording(path)
    assert render_report(path)
    watch.check_whole()


@pytest.mark.parametrize("kind", DEEP)
def test_the_functions_that_walk_over_exceptions(kind):
    error = DEEP[kind]()
    make_text(error)
    assert from_user_code(error) is error
    assert len(format_traceback(error)) <= 20_000
    assert "cannot be formatted" not in format_traceback(error)
    assert error_text(error).startswith("Error: ")


def test_the_leaves_of_groups_are_in_order_and_a_shared_group_counts_once():
    a, b, c = ValueError("a"), KeyError("b"), OSError("c")
    inner = ExceptionGroup("inner", [b])
    assert leaves_of(ExceptionGroup("outer", [a, inner, c, inner])) == [a, b, c]
    for _ in range(60):  # without it, this would have 2 ** 60 leaves
        inner = ExceptionGroup("doubled", [inner, inner])
    assert leaves_of(inner) == [b]
