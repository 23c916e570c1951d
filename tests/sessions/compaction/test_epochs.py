"""Loops and stalls: a compaction begins a new epoch, and compactions without new evidence end the run."""

import itertools

from treadle import (
    CompactionStalled,
    Err,
    Limits,
    LoopDetected,
    Ok,
    RunHandle,
    default_stages,
    stage,
    tool,
)
from treadle.codec import plain_data, restore
from treadle.events import LimitReached
from treadle.results import Reason
from treadle.sessions import StubResults
from treadle.testing import call, calls

from .compacting import look, looks, run

LIMITS = {"max_tokens": 500}


def forgetful(places, number, *, ran=None, **options):
    """A model that calls the same tools in turn, so many times, and never sees that it did."""
    script = [looks(place) for place in itertools.islice(itertools.cycle(places), number)]
    return run(
        *script,
        "Done.",
        tools=[look([] if ran is None else ran)],
        compaction=LIMITS,
        **options,
    )


def advancing():
    """A tool that always returns something else."""
    numbers = itertools.count(1)

    @tool(read_only=True)
    def following():
        return f"{next(numbers)} {'x' * 400}"

    return following


class TestStalls:
    """Compactions again and again, and nothing new in between."""

    def test_the_run_ends(self):
        """The cycle is longer than a pattern that loop detection finds."""
        ran = []
        observed = forgetful("abcde", 100, ran=ran)
        result = observed.result
        assert isinstance(result, Err)
        assert isinstance(result.reason, CompactionStalled)
        assert result.stop_reason == "compaction_stalled"
        # What was learned was learned once, and the compactions since then are few.
        assert ran == list("abcde")
        assert result.reason.without_evidence == 3
        assert result.reason.compactions == len(observed.compacted) <= 5
        assert "without a tool returning anything new" in str(result.reason)
        assert len(observed.requests) == result.iterations - 1  # the last one was not sent
        [reached] = observed.of(LimitReached)
        assert reached.reason == result.reason
        assert restore(Reason, plain_data(result.reason)) == result.reason

    def test_with_a_last_answer(self):
        asked = []

        def model(messages):
            asked.append(messages[-1]["content"])
            if "Do not call any more tools" in messages[-1]["content"]:
                return "All I know."
            return looks("abcde"[len(asked) % 5])

        observed = run(
            model,
            tools=[look([])],
            compaction=LIMITS,
            limits=Limits(on_limit="finish"),
            max_iterations=200,
        )
        assert isinstance(observed.result, Ok)
        assert observed.result.stop_reason == "finished"
        assert isinstance(observed.result.limit, CompactionStalled)
        assert observed.result.output == "All I know."
        assert len(observed.requests[-1]) < 10

    def test_the_last_answer_is_compacted_and_does_not_stall_again(self):
        """The model calls a tool instead of answering, and is asked once more."""

        def model(messages):
            if "Give your final answer" in messages[-1]["content"]:
                return looks("z") if len(texts) < 1 and not texts.append(1) else "The end."
            return looks("abcde"[next(numbers) % 5])

        texts, numbers = [], itertools.count()
        observed = run(model, tools=[look([])], compaction=LIMITS, limits=Limits(on_limit="finish"))
        assert observed.result.stop_reason == "finished"
        assert observed.result.output == "The end."

    def test_new_results_in_between(self):
        script = []
        for n in range(12):
            script += [looks("a"), looks(f"new {n}"), looks("b")]
        ran = []
        observed = run(*script, "Done.", tools=[look(ran)], compaction=LIMITS)
        assert observed.result.stop_reason == "answered"
        assert len(observed.compacted) > 6
        # The first time, its result was visible: that is the one confirmed repetition.
        assert (ran.count("a"), ran.count("b")) == (2, 1)

    def test_a_result_that_changes_is_new(self):
        asked = [calls(call("following")) for _ in range(20)]
        observed = run(*asked, "Done.", tools=[advancing()], compaction=LIMITS)
        assert observed.result.stop_reason == "answered"

    def test_a_poll_may_return_something_new_at_any_time(self):
        @tool(volatile=True, read_only=True)
        def poll():
            return f"waiting {'x' * 400}"

        asked = [calls(call("poll")) for _ in range(30)]
        observed = run(*asked, "Done.", tools=[poll], compaction=LIMITS)
        assert observed.result.stop_reason == "answered"
        assert len(observed.compacted) > 6

    def test_a_message_of_the_user_is_new(self):
        handle, numbers = RunHandle(), itertools.count()

        def model(messages):
            number = next(numbers)
            if number % 4 == 3:
                handle.steer(f"Look again, {number}.")
            return looks("abcde"[number % 5]) if number < 40 else "Done."

        observed = run(model, tools=[look([])], compaction=LIMITS, handle=handle)
        assert observed.result.stop_reason == "answered"
        assert len(observed.compacted) > 6

    def test_a_conversation_without_tools(self):
        """Each message of the user is new."""
        handle, numbers = RunHandle(), itertools.count()

        def model(messages):
            number = next(numbers)
            if number < 30:
                handle.steer(f"And {number}?")
            return f"{number} {'x' * 400}"

        observed = run(model, compaction=LIMITS, handle=handle)
        assert observed.result.stop_reason == "answered"
        assert len(observed.compacted) > 6

    def test_compactions_that_fail_do_not_count(self):
        """The run goes on as if there were none; loop detection and the limits remain."""

        def fails(_):
            raise ValueError("down")

        observed = forgetful("abcde", 15, summarize=fails)
        assert observed.result.stop_reason == "answered"
        assert len(observed.failed) == 2

    def test_strategies_that_remove_nothing_do_not_count(self):
        observed = run(
            *(looks("abcde"[n % 5]) for n in range(15)),
            "Done.",
            summarize=None,
            tools=[look([], 250)],
            compaction={"max_tokens": 100, "strategies": [StubResults(1_000)]},
        )
        assert observed.result.stop_reason == "answered"
        assert observed.compacted == []

    def test_strategies_again_and_again_count(self):
        observed = run(
            *(looks("abcde"[n % 5]) for n in range(100)),
            "Done.",
            summarize=None,
            tools=[look([], 4_000)],
            compaction={"max_tokens": 2_500, "strategies": [StubResults(300)]},
        )
        assert observed.result.stop_reason == "compaction_stalled"

    def test_a_request_that_is_shortened_and_summarised_counts_once(self):
        observed = run(
            *(looks("abcde"[n % 5]) for n in range(100)),
            "Done.",
            tools=[look([], 4_000)],
            compaction={"max_tokens": 2_500, "strategies": [StubResults(300)]},
        )
        assert observed.result.stop_reason == "compaction_stalled"
        assert observed.result.reason.compactions == len(set(observed.compacted))


class TestLoops:
    """Loop detection and compactions."""

    def test_a_loop_in_one_epoch_is_found(self):
        observed = run(
            *(looks("a") for _ in range(10)), tools=[look([])], compaction={"max_tokens": 100_000}
        )
        assert isinstance(observed.result.reason, LoopDetected)

    def test_a_compaction_begins_a_new_epoch(self):
        """What the model does again because it no longer sees it is no loop."""

        @tool(read_only=True, dedupe="off")
        def peek(n: int):
            return "x" * 900

        def run_with(max_tokens):
            script = [*(calls(call("peek", n=n)) for n in (1, 2, 1, 2)), "Done."]
            return run(
                *script,
                tools=[peek],
                compaction={"max_tokens": max_tokens, "keep_recent": 1},
                loop_threshold=2,
            )

        assert isinstance(run_with(100_000).result.reason, LoopDetected)
        compacted = run_with(300)
        assert compacted.compacted
        assert compacted.result.stop_reason == "answered"

    def test_a_loop_after_a_compaction_is_found(self):
        script = [*(looks(f"p{n}") for n in range(6)), *(looks("a") for _ in range(10))]
        observed = run(
            *script, tools=[look([], 40)], compaction={"max_messages": 12, "max_tokens": 10_000}
        )
        assert observed.compacted
        assert isinstance(observed.result.reason, (LoopDetected, CompactionStalled))

    def test_recalled_calls_are_no_loop(self):
        """Several forgotten calls in a row, each recalled."""
        script = [looks("a"), *(looks(f"p{n}") for n in range(8))]
        script += [looks("a", "p0"), looks("a", "p0"), "Done."]
        observed = run(*script, tools=[look([])], compaction=LIMITS, loop_threshold=2)
        assert observed.result.stop_reason == "answered"
        assert observed.recalled


def test_a_stage_that_shortens_the_history_begins_anew():
    """The summary covered messages that are no longer there."""

    @stage
    def forget(ctx):
        if ctx.iteration == 9:
            return ctx.replace(messages=ctx.messages[-2:])
        return ctx

    stages = [*default_stages(), forget]
    observed = run(
        *(looks(f"p{n}") for n in range(12)),
        "Done.",
        tools=[look([])],
        compaction={**LIMITS, "stages": stages},
    )
    assert any(number < 9 for number in observed.compacted)
    assert observed.requests[9] == observed.result.messages[:2]
    assert len(observed.requests[10]) == 4
