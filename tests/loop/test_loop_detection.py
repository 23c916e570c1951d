"""Endless loops: the same calls with the same results, again and again."""

import itertools

import pytest

from treadle import Loop, LoopDetected, Ok, tool
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]
numbers = itertools.count()


@tool
def same(n: int = 0):
    return "same"


@tool
def other(n: int = 0):
    return next(numbers)


@tool(volatile=True)
def clock():
    return "noon"


def run(*iterations, **options):
    """Each iteration is a list of calls: ``(name, {arguments})``."""
    script = [calls(*(call(name, **arguments) for name, arguments in made)) for made in iterations]
    return Loop.run_sync(
        USER, ScriptedLLM(*script, "done"), tools=[same, other, clock], max_iterations=50, **options
    )


A, B = ("same", {"n": 1}), ("same", {"n": 2})


@pytest.mark.parametrize(
    ("iterations", "ends_at"),
    [
        ([[A]] * 3, 3),
        ([[A]] * 2, None),
        ([[A], [A], [B], [A], [A]], None),
        ([[A], [A], [B], [B], [B]], 5),
        ([[A, B], [B, A], [A, B]], 3),
        ([[A, A], [A], [A, A]], None),
        ([[("other", {})]] * 6, None),
        ([[A, ("other", {})]] * 6, None),
        ([[("clock", {})]] * 6, None),
        ([[A, ("clock", {})]] * 6, None),
        ([[("nope", {})]] * 2, None),
        ([[A], [A], [("clock", {})], [A], [A]], None),
    ],
)
def test_the_same_calls_that_bring_the_same_end_the_run(iterations, ends_at):
    """Another result is progress; a volatile tool may always be asked again; order does not count."""
    result = run(*iterations)
    if ends_at is None:
        assert isinstance(result, Ok)
    else:
        assert isinstance(result.reason, LoopDetected)
        assert result.iterations == ends_at


def test_the_reason_names_the_calls_and_the_count():
    reason = run([A, B], [A, B], [A, B]).reason
    assert reason.calls == ('same({"n": 1})', 'same({"n": 2})')
    assert reason.iterations == 3


def test_hostile_calls_are_named_within_bounds():
    result = run(*[[("x" * 9000, {"y": "z" * 9000})] * 20] * 3, breaker_threshold=9)
    assert len(result.reason.calls) == 5
    assert len(str(result.reason)) < 1200


@pytest.mark.parametrize("threshold", [2, 4])
def test_the_threshold_is_an_option(threshold):
    assert run(*[[A]] * 9, loop_threshold=threshold).iterations == threshold


def test_the_signature_is_noted_on_the_node_of_each_iteration():
    result = run([A, B], [B, A], [A])
    noted = [node.metadata.get("tool_signature") for node in result.run.nodes]
    assert noted[0] == noted[1] != noted[2]
    assert noted[3] is None
