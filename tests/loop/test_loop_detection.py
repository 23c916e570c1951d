"""Loop detection: the same iterations, again and again, with nothing new."""

import itertools

import pytest

from treadle import Loop, LoopDetected, Ok, RunState, tool
from treadle.context import Decision
from treadle.stages import circuit_breaker, default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import USER

numbers = itertools.count()


@tool
def same(n: int = 0):
    return "same"


@tool(dedupe="off")
def other(n: int = 0):
    return next(numbers)


@tool
def once(n: int = 0):
    return next(numbers)


@tool(volatile=True)
def clock():
    return "noon"


TOOLS = [same, other, once, clock]


def run(*iterations, **options):
    """Each iteration is a list of calls, ``(name, {arguments})``, or a text."""
    script = [
        made if isinstance(made, str) else calls(*(call(name, **given) for name, given in made))
        for made in iterations
    ]
    options = {"tools": TOOLS, "max_iterations": 50, **options}
    return Loop.run_sync(USER, ScriptedLLM(*script, "done"), **options)


A, B, C, D = (("same", {"n": n}) for n in range(1, 5))


@pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
@pytest.mark.parametrize(
    ("iterations", "ends_at"),
    [
        ([[A]] * 4, 3),
        ([[A]] * 2, None),
        ([[A], [A], [B], [A], [A]], None),
        ([[A], [A], [B], [B], [B], [B]], 5),
        ([[A, B], [B, A], [A, B], [B, A]], 3),
        ([[A, A], [A], [A, A]], None),
        ([[("other", {})]] * 6, None),
        ([[A, ("other", {})]] * 6, None),
        ([[("clock", {})]] * 6, None),
        ([[A, ("clock", {})]] * 6, None),
        ([[("nope", {})]] * 2, None),
        ([[A], [A], [("clock", {})], [A], [A]], None),
    ],
)
def test_the_same_calls_with_the_same_results_end_the_run(iterations, ends_at, dedupe):
    """Another result is progress; a volatile tool may always be asked again; order does not count.

    With ``evidence`` it takes one iteration more: call, repetition, skip, stop.
    """
    result = run(*iterations, dedupe=dedupe)
    if ends_at is None:
        assert isinstance(result, Ok)
    else:
        ends_at += dedupe == "evidence"
        assert isinstance(result.reason, LoopDetected)
        assert (result.iterations, result.reason.period) == (ends_at, 1)
        check_history(result.messages)


def test_a_suppressed_call_counts_with_its_earlier_result():
    """It would return something new, but it does not run: the model still loops."""
    result = run(*[[("once", {})]] * 6, dedupe="strict")
    assert (result.reason.iterations, result.iterations, result.tool_calls_count) == (3, 3, 1)
    assert isinstance(run(*[[("once", {})]] * 6), Ok)


@pytest.mark.parametrize("dedupe", ["evidence", "strict", "off"])
@pytest.mark.parametrize(
    ("script", "ends_at", "period"),
    [
        ([[A], [B]] * 4, 6, 2),
        ([[A], [B], [C]] * 4, 9, 3),
        ([[A], [A], [B]] * 4, 9, 3),
        ([[D], *[[A], [B]] * 4], 7, 2),
        ([[A, B], [C]] * 4, 6, 2),
        ([[A], [B], [A], [B], [A], [C], [B], [A]], None, None),
        ([[A], [B], [C], [D]] * 5, None, None),
        ([[A], [("clock", {})]] * 9, None, None),
        ([[A], [("other", {})]] * 9, None, None),
        ([[A], [B], [A], [B], [A], *[[C]] * 4], 8, 1),
    ],
)
def test_loops_of_up_to_three_iterations_end_the_run(script, ends_at, period, dedupe):
    """A B A B A B is a loop like A A A; a period of four iterations is not detected.

    In the third round of two or three iterations the model has seen a skip, so that the mode does not matter.
    """
    result = run(*script, dedupe=dedupe)
    if ends_at is None:
        assert isinstance(result, Ok)
    else:
        more = dedupe == "evidence" and period == 1
        assert result.reason.stop_reason == "loop_detected"
        assert result.iterations == ends_at + more
        assert (result.reason.period, result.reason.iterations) == (period, 3 + more)


@pytest.mark.parametrize(("dedupe", "ends_at"), [("evidence", 8), ("strict", 6), ("off", 6)])
def test_calls_that_each_may_change_what_the_other_returns_end_the_run_without_a_skip(
    dedupe, ends_at
):
    """After each of them the other has to run: it could return something else."""
    write = tool(name="write", parallel_safe=False)(lambda n: "ok")
    script = [[("write", {"n": n})] for n in (1, 2)] * 5
    result = run(*script, tools=[write], dedupe=dedupe, max_iterations=99)
    assert (result.stop_reason, result.iterations) == ("loop_detected", ends_at)
    assert result.tool_calls_count == ends_at


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_calls_that_fail_are_never_skipped_so_the_threshold_alone_counts(threshold):
    broken = tool(name="broken")(lambda: 1 / 0)
    result = run(
        *[[("broken", {})]] * 9,
        tools=[broken],
        stages=[circuit_breaker(threshold=9), ...],
        loop_threshold=threshold,
    )
    assert (result.stop_reason, result.iterations) == ("loop_detected", threshold)


def test_a_call_that_is_never_skipped_does_not_hide_one_that_is():
    """``other`` always runs, ``same`` runs twice: however low the threshold, the model sees the skip first."""
    off = tool(name="off", dedupe="off")(lambda: "same")
    script = [[("off", {})], [A]] * 5
    result = run(*script, tools=[same, off], loop_threshold=2)
    assert (result.iterations, result.tool_calls_count) == (7, 6)


def test_without_plan_calls_nothing_is_skipped_so_the_threshold_alone_counts():
    """The calls are answered in a custom stage."""

    def answered(ctx):
        for made in ctx.tool_calls:
            ctx = ctx.answer(made, "same")
        return ctx

    names = {"plan_calls": answered, "dispatch_tools": None}
    stages = [names.get(made.name, made) for made in default_stages()]
    result = run(*[[A]] * 3, stages=[made for made in stages if made is not None])
    assert (result.stop_reason, result.iterations) == ("loop_detected", 3)


def test_the_reason_has_the_number_of_iterations_of_the_loop():
    text = str(run(*[[A], [B]] * 3).reason)
    assert text.startswith(
        "the same calls with the same results in 3 times 2 consecutive iterations, the last: "
    )
    assert 'same({"n": 2})' in text


def talkative(ctx):
    """Continues after a text, as a stage with guidance does."""
    if ctx.decision is Decision.DONE and ctx.response.text != "done":
        return ctx.replace(decision=None).guide("Go on.")
    return ctx


def continuing():
    """The default stages, with one after the decision that undoes it."""
    stages = default_stages()
    return Loop(stages=stages).pipeline.replace(
        "loop_decision", lambda ctx: talkative(ctx.done() if not ctx.tool_calls else ctx)
    )


@pytest.mark.parametrize(
    ("texts", "ends_at"),
    [
        (["again", "again", "again", "again"], 3),
        (["a", "b", "c", "d"], None),
        (["a", "a", "b", "a", "a"], None),
        (["a", "b", "a", "b", "a", "b"], 6),
        (["a", "a", [A], "a", "a"], None),
    ],
)
def test_a_repeated_text_is_a_loop_if_the_run_continues_after_it(texts, ends_at):
    result = run(*texts, stages=continuing())
    if ends_at is None:
        assert isinstance(result, Ok)
    else:
        assert (result.stop_reason, result.iterations) == ("loop_detected", ends_at)
        assert result.reason.calls == (texts[-1],)
        check_history(result.messages)


def test_repeated_answers_are_not_a_loop():
    """The same text several times in a row, but each ended its run."""
    state = RunState()
    for _ in range(4):
        assert isinstance(run(state=state, loop_threshold=1, dedupe="off"), Ok)


def test_blank_answers_are_not_a_loop():
    """They have a separate limit."""
    assert run(*[""] * 4).stop_reason == "empty_response"


def test_long_calls_are_shortened_in_the_reason():
    result = run(
        *[[("x" * 9000, {"y": "z" * 9000})] * 20] * 3, stages=[circuit_breaker(threshold=9), ...]
    )
    assert len(result.reason.calls) == 5
    assert len(str(result.reason)) < 1200
