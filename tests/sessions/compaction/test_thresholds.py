"""When a history is compacted: the tokens are the provider's last count and an estimate of what came since."""

import inspect

import pytest

from treadle import OptionError, Usage, default_stages, stage, tool
from treadle.events import HistoryCompacted
from treadle.messages import estimate_tokens
from treadle.sessions import StubResults, collapse_repeats, compact_history, drop_superseded
from treadle.stages import (
    ask_model,
    dispatch_tools,
    parse_tool_calls,
    plan_calls,
    validate_calls,
)
from treadle.testing import call, calls

from .compacting import USER, Observed, blocks, compacting, counted, look, looks, notes, run

LONG = "x" * 4_000
"""A thousand tokens."""


def asked(number):
    """A call with a known id."""
    return calls(call("look", f"c{number}", place=f"p{number}"))


def reported(*usages):
    """Responses with one call each, with these counts, and an answer."""
    return [*(counted(asked(n), usage) for n, usage in enumerate(usages)), "Done."]


def first_count(observed):
    """The tokens that the first compacted request would have had."""
    return observed.of(HistoryCompacted)[0].tokens_before


class TestCounts:
    """The count of a request."""

    def test_the_last_count_and_an_estimate_of_what_came_since(self):
        """Prompt and response were counted; only the results came since."""
        usages = [Usage(50, 5), Usage(1_000, 20)]
        ran = []
        observed = run(
            *reported(*usages), tools=[look(ran)], compaction={"max_tokens": 900, "keep_recent": 1}
        )
        assert observed.compacted == [3]
        [*_, result] = observed.records[2]
        assert first_count(observed) == 1_000 + 20 + estimate_tokens([result])

    @pytest.mark.parametrize(("spare", "iterations"), [(0, []), (-1, [3])])
    def test_a_history_is_compacted_strictly_above_the_threshold(self, spare, iterations):
        result = {"role": "tool", "tool_call_id": "c1", "content": f"p1: {'x' * 400}"}
        count = 1_020 + estimate_tokens([result])
        observed = run(
            *reported(Usage(50, 5), Usage(1_000, 20)),
            tools=[look([])],
            compaction={"max_tokens": count + spare, "keep_recent": 1},
        )
        assert observed.compacted == iterations

    @pytest.mark.parametrize(
        "usage",
        [
            None,
            Usage(5, 1, is_lower_bound=True),
            Usage(5, 1, is_estimate=True),
            Usage(0, 0),
        ],
        ids=["none", "a lower bound", "an estimate", "nothing"],
    )
    def test_without_a_count_the_request_is_estimated(self, usage):
        """With its tools and instructions."""
        tool = look([], 2_000)
        observed = run(
            *reported(usage, usage, usage),
            tools=[tool],
            instructions=LONG,
            compaction={"max_tokens": 2_500, "keep_recent": 1},
        )
        record = observed.records[observed.compacted[0] - 1]
        sent = estimate_tokens(record, [tool.as_openai()], [LONG])
        assert observed.compacted == [4]
        # The estimate of each part is rounded up.
        assert sent <= first_count(observed) <= sent + 3

    def test_a_count_after_estimates_counts(self):
        """The provider knows better: what was estimated too high is corrected."""
        usages = [None, None, Usage(100, 1)]
        observed = run(
            *reported(*usages),
            tools=[look([], 2_000)],
            compaction={"max_tokens": 1_200, "keep_recent": 1},
        )
        assert observed.compacted == []

    def test_a_count_of_a_compacted_request_counts_from_then_on(self):
        usages = [Usage(5_000, 1), Usage(5_000, 1), Usage(5_000, 1), Usage(50, 1), Usage(50, 1)]
        observed = run(
            *reported(*usages), tools=[look([])], compaction={"max_tokens": 1_000, "keep_recent": 2}
        )
        assert observed.compacted == [3, 4]
        assert list(map(len, observed.requests)) == [1, 3, 3, 3, 5, 7]

    def test_a_request_that_was_made_again_in_one_iteration_is_not_counted_twice(self):
        """A stage asks again: the last response has counted all before it."""

        @stage
        def again(ctx):
            if ctx.iteration == 1:
                ctx = parse_tool_calls.fn((yield from ask_model(ctx)))
                for step in (validate_calls, plan_calls, dispatch_tools):
                    ctx = yield from step(ctx)
            return ctx

        stages = default_stages()
        place = next(n for n, one in enumerate(stages) if one.name == "dispatch_tools")
        stages.insert(place + 1, again)
        usages = [Usage(100, 1), Usage(700, 1), Usage(800, 1)]
        observed = run(
            *reported(*usages),
            tools=[look([], 1_200)],
            compaction={"max_tokens": 1_150, "keep_recent": 1, "stages": stages},
        )
        assert len(observed.requests) == len(usages) + 1
        assert len(observed.views) == len(usages)
        assert observed.compacted == []

    def test_a_given_history_is_compacted_before_the_first_request(self):
        given = [
            one
            for n in range(10)
            for one in ({"role": "user", "content": LONG}, {"role": "assistant", "content": f"{n}"})
        ]
        given.append({"role": "user", "content": "And now?"})
        observed = run("Done.", given=given, compaction={"max_tokens": 5_000})
        assert observed.compacted == [1]
        [request] = observed.requests
        assert len(request) == 1 + 4
        assert request[-4:] == given[-4:]


class TestOtherThresholds:
    """Documents, and the number of messages."""

    IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}

    def talk(self, parts, size=15):
        content = [{"type": "text", "text": LONG}, *parts]
        given = [{"role": "user", "content": content}]
        for n in range(size):
            given += [{"role": "assistant", "content": f"{n}"}, {"role": "user", "content": LONG}]
        return given

    @pytest.mark.parametrize(("parts", "iterations"), [([], [1]), ([IMAGE], [])])
    def test_with_documents_another_threshold_holds(self, parts, iterations):
        options = {"max_tokens": 10_000, "max_tokens_with_documents": 20_000}
        observed = run("Done.", given=self.talk(parts), compaction=options)
        assert observed.compacted == iterations

    def test_a_document_in_the_summary_is_one(self):
        """Also after its message was compacted away."""
        options = {"max_tokens": 1_000, "max_tokens_with_documents": 12_000}
        script = [counted(asked(n), Usage(11_000, 1)) for n in range(3)]
        observed = run(
            *script, "Done.", given=self.talk([self.IMAGE]), tools=[look([])], compaction=options
        )
        assert observed.compacted == [1]

    def test_a_document_that_a_tool_returns_is_one(self):
        @tool(read_only=True)
        def photo():
            return [self.IMAGE]

        script = [calls(call("photo")), *(counted(asked(n), Usage(1_500, 1)) for n in range(3))]
        options = {"max_tokens": 1_000, "max_tokens_with_documents": 4_000}
        observed = run(*script, "Done.", tools=[photo, look([])], compaction=options)
        assert observed.compacted == []

    def test_too_many_messages_are_compacted(self):
        options = {"max_messages": 7, "max_tokens": 100_000}
        observed = run(*map(asked, range(8)), "Done.", tools=[look([])], compaction=options)
        # From then on a summary and four messages; two more come with each iteration.
        assert [len(request) for request in observed.requests] == [1, 3, 5, 7, 5, 7, 5, 7, 5]

    def test_the_numbers_are_those_of_runax(self):
        defaults = {
            name: one.default for name, one in inspect.signature(compact_history).parameters.items()
        }
        assert defaults["max_tokens"] == 40_000
        assert defaults["max_tokens_with_documents"] == 60_000
        assert defaults["keep_recent"] == 4
        assert defaults["max_messages"] is None


class TestOptions:
    """Bad options get a clear error."""

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"max_tokens": 0}, "max_tokens: expected a whole number of at least 1, got 0"),
            ({"max_tokens": None}, "max_tokens: expected a whole number of at least 1, got None"),
            ({"max_tokens": True}, "max_tokens: expected a whole number of at least 1, got True"),
            ({"max_tokens": "9"}, "max_tokens: expected a whole number of at least 1, got '9'"),
            ({"max_tokens_with_documents": 1.5}, "max_tokens_with_documents: expected a whole"),
            ({"keep_recent": 0}, "keep_recent: expected a whole number of at least 1, got 0"),
            ({"keep_recent": None}, "keep_recent: expected a whole number of at least 1, got None"),
            ({"max_messages": 5}, "max_messages: expected a whole number of at least 6, got 5"),
            ({"strategies": StubResults()}, "strategies: expected a list of them, got StubResults"),
            ({"strategies": [StubResults(), "no"]}, "strategies[1]: expected a callable, got str"),
        ],
    )
    def test_options(self, options, text):
        with pytest.raises(OptionError) as caught:
            compact_history(notes, **options)
        assert str(caught.value).startswith(f"compact_history: {text}")

    @pytest.mark.parametrize("given", [5, [notes], object()])
    def test_the_summariser_has_to_be_a_model(self, given):
        with pytest.raises(OptionError, match=r"^compact_history: summarize: "):
            compact_history(given)

    def test_there_has_to_be_something_to_do(self):
        with pytest.raises(OptionError, match="pass a model that writes summaries, or strategies"):
            compact_history(None)

    def test_strategies_may_be_an_iterator(self):
        observed = Observed()
        compacting(observed, None, strategies=iter([drop_superseded]))
        with pytest.raises(OptionError, match="there is nothing to do"):
            compact_history(None, strategies=iter([]))

    @pytest.mark.parametrize("given", [0, 199, "1000", None, 1e9, True])
    def test_the_length_of_a_stub(self, given):
        with pytest.raises(OptionError, match="^StubResults: min_characters: expected a whole"):
            StubResults(given)

    def test_an_earlier_stage_may_not_change_the_messages_of_the_request(self):
        @stage
        def shorter(ctx):
            return ctx.with_request(messages=ctx.messages[-1:])

        observed = run(
            "Done.",
            stages=[shorter, compact_history(notes), *default_stages()],
        )
        assert observed.result.stop_reason == "pipeline_failed"
        assert "put compact_history before it" in str(observed.result.reason)

    def test_an_earlier_stage_may_change_the_rest_of_it(self):
        @stage
        def cooler(ctx):
            return ctx.with_request(options={"temperature": 0})

        observed = run("Done.", stages=[cooler, compact_history(notes), *default_stages()])
        assert observed.result.stop_reason == "answered"

    def test_a_later_stage_changes_the_view(self):
        """And sees what the model would see."""

        @stage
        def quiet(ctx):
            return ctx.with_request(messages=ctx.request.messages[:1])

        observed = run(
            *(looks(f"p{n}") for n in range(6)),
            "Done.",
            tools=[look([])],
            compaction={"max_tokens": 300, "stages": [quiet, *default_stages()]},
        )
        assert observed.compacted
        assert blocks(observed.requests[-1])
        assert len(observed.requests[-1]) == 1

    @pytest.mark.parametrize(
        ("strategy", "text"),
        [
            (lambda messages: None, "expected a list of messages, got nothing"),
            (lambda messages: messages[1:], "it returned an invalid part of a history"),
            (lambda messages: [{"role": "x"}], "it returned invalid messages: messages[0].role"),
        ],
        ids=["nothing", "half an exchange", "no messages"],
    )
    def test_a_strategy_that_breaks_the_history_is_named(self, strategy, text):
        observed = run(
            *(looks(f"p{n}") for n in range(6)),
            "Done.",
            tools=[look([])],
            compaction={
                "max_tokens": 300,
                "strategies": [collapse_repeats, lambda m: strategy(m[1:] or m)],
            },
        )
        assert observed.result.stop_reason == "pipeline_failed"
        assert f"compact_history: strategies[1]: {text}" in str(observed.result.reason)
