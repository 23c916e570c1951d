"""Strategies that need no model, the tool that reads results back, and how stable a view is."""

import itertools

import pytest

from treadle import Loop, OptionError, ToolSearch, Usage, default_stages, tool
from treadle.events import HistoryCompacted
from treadle.sessions import StubResults, collapse_repeats, compact_history, drop_superseded
from treadle.sessions.compaction.read_result import MAX_CHARACTERS
from treadle.testing import call, calls, check_history

from .compacting import USER, counted, look, looks, notes, run, text

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def asked(*made, said=None):
    """An exchange: calls, each with its id, name, arguments and result."""
    functions = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": given}}
        for i, name, given, _ in made
    ]
    results = [{"role": "tool", "tool_call_id": i, "content": result} for i, *_, result in made]
    return [{"role": "assistant", "content": said, "tool_calls": functions}, *results]


def looked(call_id, place="a", result="nothing", **more):
    return asked((call_id, "look", f'{{"place": "{place}"}}', result), **more)


class TestStubResults:
    """Old results are replaced by a stub."""

    def test_long_results_are_replaced_and_nothing_else(self):
        given = [
            *USER,
            *looked("c1", result="x" * 1_000, said="y" * 2_000),
            *looked("c2", result="x" * 999),
            *looked("c3", result=[{"type": "text", "text": "x" * 2_000}, IMAGE]),
            *looked("c4", result=[{"type": "text", "text": "x" * 2_000}]),
        ]
        made = StubResults()(given)
        check_history(made)
        changed = [one["tool_call_id"] for old, one in zip(given, made, strict=True) if old != one]
        assert changed == ["c1", "c4"]
        assert all(one is old for old, one in zip(given, made, strict=True) if old == one)
        assert made[2]["content"] == (
            "[This result of 1,000 characters was removed to save space. "
            'read_result with id "c1" reads it.]'
        )

    def test_what_is_replaced_is_shorter(self):
        [_, stub] = StubResults(200)(looked("x" * 40, result="x" * 200))
        assert len(stub["content"]) < 200


class TestDropSuperseded:
    """Earlier ones of the same calls are dropped."""

    def test_the_latest_stays(self):
        first, second, other = looked("c1"), looked("c2"), looked("c3", "b")
        assert drop_superseded([*USER, *first, *other, *second]) == [*USER, *other, *second]

    def test_the_arguments_may_be_written_differently(self):
        first = asked(("c1", "look", '{"a": 1, "b": 2}', "x"))
        second = asked(("c2", "look", '{"b":2,"a":1}', "y"))
        assert drop_superseded([*first, *second]) == second

    @pytest.mark.parametrize(
        "kept",
        [
            looked("c1", said="Let me see."),
            looked("c1", result=[IMAGE]),
            asked(("c1", "look", '{"place": "a"}', "x"), ("c0", "look", '{"place": "b"}', "x")),
            asked(("c1", "look", "[broken", "x")),
        ],
        ids=["a text", "an attachment", "another call", "malformed arguments"],
    )
    def test_what_has_more_stays(self, kept):
        assert drop_superseded([*kept, *looked("c2")]) == [*kept, *looked("c2")]

    def test_calls_of_a_kind_of_a_provider(self):
        def grep(call_id, given):
            custom = {"id": call_id, "type": "custom", "custom": {"name": "grep", "input": given}}
            result = {"role": "tool", "tool_call_id": call_id, "content": "found"}
            return [{"role": "assistant", "content": None, "tool_calls": [custom]}, result]

        given = [*grep("c1", "x"), *grep("c2", "y"), *grep("c3", "x")]
        assert drop_superseded(given) == [*grep("c2", "y"), *grep("c3", "x")]


class TestCollapseRepeats:
    """Of the same exchanges in a row, the last stays."""

    def test_in_a_row(self):
        other = looked("c4", result="something")
        given = [*USER, *looked("c1"), *looked("c2"), *looked("c3"), *other]
        assert collapse_repeats(given) == [*USER, *looked("c3"), *other]

    def test_not_in_a_row_or_with_another_result(self):
        given = [*looked("c1"), *looked("c2", "b"), *looked("c3"), *looked("c4", result="x")]
        assert collapse_repeats(given) == given

    def test_a_text_stays(self):
        given = [*looked("c1", said="Again."), *looked("c2", said="Again.")]
        assert collapse_repeats(given) == given


class TestOrder:
    """Strategies are applied in order, before a summary."""

    def test_one_works_on_what_the_other_returned(self):
        seen = []

        def first(messages):
            seen.append(("first", [text(one) for one in messages]))
            return [{**messages[0], "content": "FIRST"}, *messages[1:]]

        def second(messages):
            seen.append(("second", [text(one) for one in messages]))
            return messages

        run(
            *(looks(f"p{n}") for n in range(6)),
            "Done.",
            tools=[look([])],
            compaction={"max_tokens": 300, "strategies": [first, second]},
        )
        (name, texts), (other, later), *_ = seen
        assert (name, other) == ("first", "second")
        assert (texts[0], later[0]) == (text(USER[0]), "FIRST")

    def test_a_summary_is_written_only_if_they_do_not_help_enough(self):
        """Enough is a fifth below the threshold."""

        def compacted(size):
            observed = run(
                *(looks(f"p{n}") for n in range(5)),
                "Done.",
                tools=[look([], size)],
                compaction={"max_tokens": 1_300, "strategies": [StubResults(600)]},
            )
            return [event.is_summarized for event in observed.of(HistoryCompacted)]

        assert compacted(1_200) == [False]
        assert True in compacted(2_400)

    def test_a_summary_is_made_of_the_whole_results(self):
        seen = []

        def summarize(messages):
            seen.append(messages[-1]["content"])
            return "N"

        run(
            *(looks(f"p{n}") for n in range(8)),
            "Done.",
            summarize=summarize,
            tools=[look([], 1_200)],
            compaction={"max_tokens": 900, "strategies": [StubResults(600)]},
        )
        assert f"p0: {'x' * 1_200}" in seen[0]
        assert "was removed to save space" not in "".join(seen)


class TestReadResult:
    """The tool that reads a result which was replaced."""

    def reading(self, *reads, size=9_000, max_tokens=6_000, **options):
        script = [
            calls(call("look", "wanted", place="a")),
            *(looks(f"p{n}") for n in range(3)),
            *reads,
            "Done.",
        ]
        return run(
            *script,
            summarize=None,
            tools=[look([], size)],
            compaction={"max_tokens": max_tokens, "strategies": [StubResults()]},
            **options,
        )

    def read(self, call_id="wanted", **arguments):
        return calls(call("read_result", id=call_id, **arguments))

    def test_a_result_is_read_back(self):
        observed = self.reading(self.read())
        assert "wanted" in text(observed.requests[4][2])
        assert text(observed.requests[4][2]).startswith("[This result of 9,003 characters")
        assert observed.answers[-1] == f"a: {'x' * 9_000}"
        assert observed.result.tool_calls_count == 5

    def test_page_by_page(self):
        size = 2 * MAX_CHARACTERS + 100
        reads = [
            self.read(),
            self.read(offset=MAX_CHARACTERS),
            self.read(offset=2 * MAX_CHARACTERS),
        ]
        reads += [self.read(offset=size + 3), self.read(offset=10**9)]
        observed = self.reading(*reads, size=size, max_tokens=25_000)
        first, second, third, past, far = observed.answers[-5:]
        assert first.endswith(
            f"\n[{MAX_CHARACTERS + 103:,} characters follow; read them with offset {MAX_CHARACTERS}.]"
        )
        pages = [page.partition("\n[")[0] for page in (first, second, third)]
        assert "".join(pages) == f"a: {'x' * size}"
        assert len(third) == 103
        assert (
            past == far == f"[The result has {size + 3:,} characters; offset has to be below that.]"
        )

    def test_an_unknown_id_is_an_error_that_says_where_the_id_is(self):
        observed = self.reading(self.read("elsewhere"))
        assert "there is no result with the id 'elsewhere'" in observed.answers[-1]
        assert "the text that replaced it" in observed.answers[-1]

    @pytest.mark.parametrize("given", [{"offset": -1}, {"offset": "0"}, {"more": 1}])
    def test_its_arguments_are_checked(self, given):
        observed = self.reading(self.read(**given))
        assert observed.answers[-1].startswith("Error: ")

    def test_a_result_of_the_given_history(self):
        given = [*USER, *looked("before", result="x" * 2_000), {"role": "user", "content": "Go."}]
        given += [*looked("c2"), *looked("c3"), {"role": "user", "content": "Go on."}]
        observed = run(
            self.read("before"),
            "Done.",
            given=given,
            summarize=None,
            compaction={"max_tokens": 200, "strategies": [StubResults()]},
        )
        assert observed.compacted
        assert observed.answers[-1] == "x" * 2_000

    def test_it_is_offered_from_the_start_and_only_with_stubs(self):
        """A tool that came later would cost the provider's cache of the prompt."""
        offered = []

        def model(messages, tools=()):
            offered.append([one["function"]["name"] for one in tools])
            return "Done."

        for strategies in ([StubResults()], [collapse_repeats]):
            stages = [compact_history(notes, strategies=strategies), *default_stages()]
            Loop.run_sync(USER, model, tools=[look([])], stages=stages)
        assert offered == [["look", "read_result"], ["look"]]

    @pytest.mark.parametrize("mode", ["call", "native"])
    def test_with_tool_search_it_is_offered_as_well(self, mode):
        search = ToolSearch() if mode == "call" else ToolSearch("native")
        offered = []

        def model(messages, tools=()):
            offered.append([one["function"]["name"] for one in tools])
            return "Done."

        stages = [compact_history(notes, strategies=[StubResults()]), *default_stages()]
        Loop.run_sync(USER, model, tools=[look([])], stages=stages, tool_search=search)
        [names] = offered
        assert "read_result" in names
        assert "look" not in names

    def test_another_tool_of_its_name_is_refused(self):
        @tool
        def read_result(path: str):
            return "mine"

        stages = [compact_history(notes, strategies=[StubResults()]), *default_stages()]
        result = Loop.run_sync(USER, lambda _: "x", tools=[read_result], stages=stages)
        assert "'read_result' is the name of the tool that `StubResults` needs" in str(
            result.reason
        )
        assert isinstance(result.reason.cause, OptionError)

    def test_reading_does_not_make_other_results_stale(self):
        """It changes nothing."""
        ran = []
        observed = run(
            calls(call("look", "wanted", place="a")),
            *(looks(f"p{n}") for n in range(3)),
            self.read(),
            looks("p0"),
            "Done.",
            summarize=None,
            tools=[look(ran, 1_200)],
            compaction={"max_tokens": 1_000, "strategies": [StubResults()]},
        )
        assert ran.count("p0") == 1
        assert len(observed.recalled) == 1


class TestStableViews:
    """Between two compactions, each request begins with the one before, so that the provider's cache is used."""

    @pytest.mark.parametrize(
        "compaction",
        [
            {"max_tokens": 1_000},
            {"max_tokens": 1_000, "keep_recent": 1},
            {"max_tokens": 1_000, "strategies": [StubResults(300), drop_superseded]},
            {"max_messages": 12},
        ],
        ids=["summaries", "one recent message", "strategies", "messages"],
    )
    @pytest.mark.parametrize("parts", [[], [IMAGE]], ids=["text", "an image"])
    def test_a_request_begins_with_the_one_before(self, compaction, parts):
        """Even if an attachment comes again later."""
        numbers = itertools.count(1)

        @tool(read_only=True)
        def photo():
            return [IMAGE] if parts else "nothing"

        def model(messages):
            number = next(numbers)
            if number % 5 == 0:
                return calls(call("photo"))
            return looks(*(f"{number}.{n}" for n in range(number % 3 + 1))) if number < 40 else "!"

        content = [{"type": "text", "text": "Go."}, *parts]
        observed = run(
            model,
            given=[{"role": "user", "content": content}],
            tools=[look([], 200), photo],
            compaction={"max_tokens_with_documents": 4_000, **compaction},
            loop_threshold=None,
        )
        compacted = set(observed.compacted)
        assert len(compacted) >= 2
        changed = {
            number
            for number, (before, after) in enumerate(itertools.pairwise(observed.requests), 2)
            if after[: len(before)] != before
        }
        assert changed <= compacted
        assert changed
        assert len(observed.requests) > 2 * len(compacted)

    def test_a_thousand_results_in_the_list_of_calls_take_a_quarter_of_the_tokens(self):
        def model(messages):
            number = next(numbers)
            return counted(looks(f"{number}"), Usage(2_000, 5)) if number <= 300 else "Done."

        numbers = itertools.count(1)
        observed = run(
            model,
            tools=[look([], 10)],
            compaction={"max_tokens": 1_000},
            max_iterations=400,
        )
        [block] = [one for one in observed.requests[-1] if one["role"] == "user"]
        lines = text(block).splitlines()
        shown = [line for line in lines if line.startswith("look(")]
        assert sum(map(len, shown)) <= 1_000
        assert len(shown) > 10
        last = int(shown[-1].partition('"place": "')[2].partition('"')[0])
        assert last >= 297
        assert lines[-1] == f"({last - len(shown)} earlier calls are not listed)"
