"""A call whose result was compacted away is answered from the store while that still holds, and runs otherwise."""

import dataclasses
import itertools
import json

import pytest

from treadle import (
    Loop,
    Ok,
    Paused,
    RunHandle,
    ToolSearch,
    approve,
    default_stages,
    tool,
)
from treadle.events import CallNotRun, CallsPlanned, RepeatWarned, SubagentEvent
from treadle.sessions import StubResults, compact_history, drop_superseded
from treadle.testing import ScriptedLLM, call, calls, check_history

from .compacting import USER, look, looks, notes, run

FILLER = [f"f{n}" for n in range(6)]
LIMITS = {"max_tokens": 500}
NOTE = "[note: this is what the same call returned in iteration"


def then_fill(*script, after):
    """A script, calls that push its results out of the view, and further answers."""
    return [*script, *map(looks, FILLER), *after, "Done."]


def recalling(*first, after, tools=None, ran=None, compaction=None, **options):
    """Run a script whose first results are compacted away before the last calls."""
    ran = [] if ran is None else ran
    observed = run(
        *then_fill(*first, after=after),
        tools=[look(ran), *(tools or [])],
        compaction={**LIMITS, **(compaction or {})},
        **options,
    )
    assert observed.compacted
    return observed, [place for place in ran if place not in FILLER]


def compacting(tools, **options):
    stages = [compact_history(notes, **LIMITS), *default_stages()]
    return Loop(tools=tools, max_iterations=20, stages=stages, **options)


def last_answers(observed, number=1):
    return observed.answers[-number:]


class TestRecalled:
    """What is answered from the store."""

    def test_a_summarised_result(self):
        observed, ran = recalling(looks("a"), after=[looks("a")])
        assert ran == ["a"]
        [answer] = last_answers(observed)
        assert answer.startswith(f"a: {'x' * 400}\n\n{NOTE} 1, which is no longer")
        assert "call it once more to run it" in answer

    @pytest.mark.parametrize(
        "strategy", [StubResults(300), drop_superseded], ids=["stubbed", "dropped"]
    )
    def test_a_result_that_a_strategy_removed(self, strategy):
        """If the latest of several same calls is still visible, it is no recalled call."""
        first = [looks("a"), looks("a")] if strategy is drop_superseded else [looks("a")]
        observed, ran = recalling(
            *first, after=[looks("a")], summarize=None, compaction={"strategies": [strategy]}
        )
        is_stubbed = strategy is not drop_superseded
        assert len(observed.recalled) == is_stubbed
        assert ran == ["a"] if is_stubbed else ["a", "a", "a"]

    def test_a_result_that_a_custom_strategy_dropped(self):
        def forget(messages):
            return [one for one in messages if one["role"] != "tool" and "tool_calls" not in one]

        observed, ran = recalling(
            looks("a"), after=[looks("a")], summarize=None, compaction={"strategies": [forget]}
        )
        assert ran == ["a"]
        assert last_answers(observed)[0].startswith("a: xxx")

    def test_called_once_more_it_runs(self):
        observed, ran = recalling(looks("a"), after=[looks("a"), looks("a")])
        assert ran == ["a", "a"]
        assert len(observed.recalled) == 1
        assert NOTE not in last_answers(observed)[0]

    def test_each_of_two_identical_calls_in_one_response(self):
        observed, ran = recalling(looks("a"), after=[looks("a", "a")])
        assert ran == ["a"]
        assert all(answer.startswith("a: xxx") for answer in last_answers(observed, 2))

    def test_next_to_a_call_that_runs(self):
        observed, ran = recalling(looks("a"), after=[looks("b", "a", "c")])
        assert ran == ["a", "b", "c"]
        assert len(observed.recalled) == 1

    def test_the_arguments_may_be_written_differently(self):
        other = looks("a")
        other["tool_calls"][0]["function"]["arguments"] = '{ "place":"a" }'
        assert recalling(looks("a"), after=[other])[1] == ["a"]

    def test_only_the_fields_count_that_the_tool_names(self):
        ran = []

        @tool(read_only=True, dedupe_fields=["query"])
        def search(query: str, why: str):
            ran.append(why)
            return f"{query}: nothing"

        observed, _ = recalling(
            calls(call("search", query="q", why="one")),
            after=[calls(call("search", query="q", why="two"))],
            tools=[search],
        )
        assert ran == ["one"]
        assert len(observed.recalled) == 1

    def test_a_result_that_was_compacted_away_twice(self):
        script = [looks("a"), *map(looks, FILLER), looks("a")]
        ran = []
        more = [looks(f"g{n}") for n in range(6)]
        observed = run(*script, *more, looks("a"), "Done.", tools=[look(ran)], compaction=LIMITS)
        assert ran.count("a") == 1
        assert len(observed.recalled) == 2
        assert last_answers(observed)[0].count(NOTE) == 1

    def test_after_a_suppressed_call_that_is_still_visible(self):
        """What is visible says only that the call was not run, with the start of a long result."""
        ran, long = [], look([], 9_000)

        @tool(read_only=True)
        def read(n: int):
            ran.append(n)
            return "y" * 9_000

        reads = [calls(call("read", n=1)) for _ in range(3)]
        observed = run(
            *reads,
            looks("z"),
            calls(call("read", n=1)),
            "Done.",
            tools=[read, dataclasses.replace(long)],
            compaction={"max_tokens": 5_800},
        )
        reasons = [event.reason.value for event in observed.of(CallNotRun)]
        assert reasons == ["no_new_evidence", "recalled"]
        assert ran == [1, 1]
        assert last_answers(observed)[0].startswith("y" * 9_000)

    def test_a_deferred_call_does_not_show_the_result(self):
        ran = []

        @tool(parallel_safe=False, read_only=True)
        def alone(n: int):
            return "alone"

        batch = calls(call("alone", n=1), call("look", place="a"))
        observed = run(
            looks("a"),
            *map(looks, FILLER),
            batch,
            looks("g"),
            looks("a"),
            "Done.",
            tools=[look(ran), alone],
            compaction={"max_tokens": 700},
        )
        assert ran.count("a") == 1
        assert len(observed.recalled) == 1
        assert last_answers(observed)[0].startswith("a: xxx")

    def test_in_the_list_of_calls_a_recalled_or_skipped_call_has_its_result(self):
        script = [looks("a"), looks("a"), looks("a"), *map(looks, FILLER), "Done."]
        observed = run(*script, tools=[look([])], compaction={"max_tokens": 700})
        assert observed.of(CallNotRun)
        [line] = [
            line
            for line in observed.requests[-1][0]["content"].splitlines()
            if line.startswith('look({"place": "a"})')
        ]
        assert line.startswith('look({"place": "a"}): a: xxx')

    def test_with_tool_search_by_call_tool(self):
        ran = []

        def through(place):
            return calls(call("call_tool", name="look", arguments={"place": place}))

        script = [through("a"), *map(through, FILLER), through("a"), "Done."]
        observed = run(*script, tools=[look(ran)], tool_search=ToolSearch(), compaction=LIMITS)
        assert ran.count("a") == 1
        assert len(observed.recalled) == 1

    def test_a_call_that_needs_approval_is_not_asked_for_again(self):
        done = []

        @tool(requires_approval=True, read_only=True)
        def peek(n: int):
            done.append(n)
            return "peeked"

        model = ScriptedLLM(*then_fill(calls(call("peek", n=1)), after=[calls(call("peek", n=1))]))
        loop = compacting([peek, look([])])
        paused = loop.run_sync(USER, model)
        assert isinstance(paused, Paused)
        [pending] = paused.pending
        result = loop.resume_sync(paused, {pending.id: approve}, model)
        assert isinstance(result, Ok)
        assert done == [1]


class TestNotRecalled:
    """What runs again."""

    def other(self, answers, **options):
        """A tool with these results, and how often it ran."""
        made, ran = iter(answers), []

        @tool(**{"read_only": True, **options})
        def other():
            ran.append(1)
            answer = next(made)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return other, ran

    @pytest.mark.parametrize("options", [{"volatile": True}, {"dedupe": "off"}])
    def test_a_tool_that_may_always_return_something_else(self, options):
        other, ran = self.other(itertools.repeat("same"), **options)
        asked = calls(call("other"))
        observed, _ = recalling(asked, after=[calls(call("other"))], tools=[other])
        assert len(ran) == 2
        assert observed.recalled == []

    def test_duplicates_switched_off(self):
        observed, ran = recalling(looks("a"), after=[looks("a")], dedupe="off")
        assert (ran, observed.recalled) == (["a", "a"], [])

    @pytest.mark.parametrize("options", [{}, {"parallel_safe": False}], ids=str)
    def test_after_a_call_that_may_have_changed_something(self, options):
        write, ran_write = self.other(itertools.repeat("ok"), read_only=False, **options)
        observed, ran = recalling(
            looks("a"), after=[calls(call("other")), looks("a")], tools=[write]
        )
        assert (len(ran_write), ran, observed.recalled) == (1, ["a", "a"], [])

    def test_next_to_a_call_that_may_have_changed_something(self):
        """It may have read what was there before, or after."""
        write, _ = self.other(itertools.repeat("ok"), read_only=False)
        first = calls(call("look", place="a"), call("other"))
        _, ran = recalling(first, after=[looks("a")], tools=[write])
        assert ran == ["a", "a"]

    def test_after_a_write_that_failed(self):
        write, _ = self.other(itertools.repeat(ValueError("half")), read_only=False)
        _, ran = recalling(looks("a"), after=[calls(call("other")), looks("a")], tools=[write])
        assert ran == ["a", "a"]

    def test_after_a_write_that_was_cancelled(self):
        handle, ran = RunHandle(), []

        @tool
        def write():
            handle.cancel_all()

        observed, ran = recalling(
            looks("a"),
            after=[calls(call("write")), looks("a")],
            tools=[write],
            handle=handle,
        )
        assert last_answers(observed, 2)[0].startswith("Cancelled")
        assert ran == ["a", "a"]

    def test_the_last_write_itself_is_recalled(self):
        """A model that has forgotten that it did something does not do it twice."""
        write, ran = self.other(itertools.repeat("sent"), read_only=False)
        asked = calls(call("other"))
        observed, _ = recalling(asked, after=[calls(call("other"))], tools=[write])
        assert (len(ran), len(observed.recalled)) == (1, 1)

    def test_a_tool_that_a_resolver_runs_may_change_something(self):
        class Resolver:
            def resolve(self, call, context=None):
                return lambda: "resolved"

            def available_tools(self):
                return ["remote"]

        _, ran = recalling(
            looks("a"), after=[calls(call("remote")), looks("a")], resolve_tool=Resolver()
        )
        assert ran == ["a", "a"]

    def test_a_result_that_has_changed_between_calls(self):
        """A cursor, a counter: it has always returned something else."""
        count, ran = self.other(itertools.count(1))
        twice = [calls(call("other")), calls(call("other"))]
        observed, _ = recalling(*twice, after=[calls(call("other"))], tools=[count])
        assert (len(ran), observed.recalled) == (3, [])
        assert last_answers(observed) == ["3"]

    def test_an_error(self):
        other, ran = self.other([OSError("not yet"), "at last"])
        asked = calls(call("other"))
        observed, _ = recalling(asked, after=[calls(call("other"))], tools=[other])
        assert (len(ran), last_answers(observed)) == (2, ["at last"])

    def test_a_result_with_parts(self):
        """The store has its text only."""
        image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
        other, ran = self.other(itertools.repeat([image]))
        asked = calls(call("other"))
        options = {**LIMITS, "max_tokens_with_documents": 1_500}
        observed, _ = recalling(
            asked, after=[calls(call("other"))], tools=[other], compaction=options
        )
        assert (len(ran), observed.recalled) == (2, [])

    def test_after_a_message_of_the_user(self):
        """Who may know that something has changed."""
        handle = RunHandle()

        def steered(messages):
            handle.steer("Look again.")
            return looks("g")

        observed, ran = recalling(looks("a"), after=[steered, looks("a")], handle=handle)
        assert ran == ["a", "g", "a"]
        assert observed.recalled == []

    def test_a_result_that_is_still_visible(self):
        ran = []
        script = [looks("a"), looks("a"), looks("a"), "Done."]
        observed = run(*script, tools=[look(ran)], compaction={"max_tokens": 100_000})
        assert ran == ["a", "a"]
        assert observed.recalled == []
        assert len(observed.of(CallNotRun)) == 1

    def test_in_another_run(self):
        ran = []
        loop = compacting([look(ran)])
        first = loop.run_sync(USER, ScriptedLLM(*then_fill(looks("a"), after=[])))
        given = [*first.messages, {"role": "user", "content": "Again."}]
        loop.run_sync(given, ScriptedLLM(looks("a"), "Done."))
        assert ran.count("a") == 2

    def test_behind_a_call_that_runs_alone(self):
        """That one runs first, and this one would see what it did."""

        @tool(parallel_safe=False)
        def wipe():
            return "wiped"

        batch = calls(call("wipe"), call("look", place="a"))
        observed, ran = recalling(
            looks("a"),
            after=[batch],
            tools=[wipe],
            sequential="in_step",
        )
        assert (ran, observed.recalled) == (["a", "a"], [])


class TestCounts:
    """A recalled call is neither a duplicate nor a call that ran."""

    def test_it_counts_for_nothing(self):
        observed, _ = recalling(looks("a"), after=[looks("a")], max_tool_calls=7, max_iterations=9)
        assert observed.result.tool_calls_count == 7
        assert [event.reason.value for event in observed.of(CallNotRun)] == ["recalled"]
        assert observed.of(RepeatWarned) == []
        assert observed.result.stop_reason == "answered"
        plan = observed.of(CallsPlanned)[-1]
        assert [reason.value for reason in plan.not_run.values()] == ["recalled"]

    def test_a_spent_budget_of_a_tool_does_not_matter(self):
        ran = []

        @tool(read_only=True, max_uses=1)
        def once():
            ran.append(1)
            return "one"

        asked = calls(call("once"))
        observed, _ = recalling(asked, after=[calls(call("once"))], tools=[once])
        assert last_answers(observed)[0].startswith("one")
        assert len(observed.recalled) == 1

    def test_no_nudge_for_a_call_that_the_model_has_forgotten(self):
        """The earlier calls are not counted; those that it sees are."""
        observed, _ = recalling(
            looks("a"), looks("a"), after=[looks("a"), looks("b"), looks("a"), looks("b")]
        )
        assert observed.of(RepeatWarned) == []

    def test_a_model_that_forgets_again_and_again_is_in_no_loop(self):
        """Each time after a compaction; and there is something new in between."""
        script = []
        for n in range(8):
            script += [looks("a"), *(looks(f"{n}.{m}") for m in range(4))]
        ran = []
        observed = run(*script, "Done.", tools=[look(ran)], compaction=LIMITS, loop_threshold=2)
        assert observed.result.stop_reason == "answered"
        assert ran.count("a") == 1


class TestPauses:
    """The store is part of the state of a paused run."""

    @pytest.mark.parametrize("times", [1, 2])
    def test_a_result_is_recalled_after_a_pause(self, times):
        ran = []

        @tool(requires_approval=True, read_only=True)
        def sign(n: int):
            return "signed"

        signs = [calls(call("sign", n=n)) for n in range(times)]
        model = ScriptedLLM(*then_fill(looks("a"), after=[*signs, looks("a")]))
        loop = compacting([sign, look(ran)])
        result = loop.run_sync(USER, model)
        for _ in range(times):
            assert isinstance(result, Paused)
            state = json.dumps(result.state)
            decisions = {one.id: approve for one in result.pending}
            result = loop.resume_sync(state, decisions, model)
        assert isinstance(result, Ok)
        check_history(result.messages)
        assert ran.count("a") == 1
        assert len(model.sent[-1].messages) < len(result.messages) - 1

    def test_a_stub_is_read_after_a_pause(self):
        """`read_result` is among the tools again, even while another call of its response waits."""

        @tool(requires_approval=True, read_only=True)
        def sign(n: int):
            return "signed"

        fetch = calls(call("look", "wanted", place="a"))
        both = calls(call("read_result", id="wanted"), call("sign", n=1))
        model = ScriptedLLM(
            *then_fill(fetch, after=[both, calls(call("read_result", id="wanted"))])
        )
        loop = Loop(
            tools=[sign, look([])],
            max_iterations=20,
            stages=[
                compact_history(None, **LIMITS, strategies=[StubResults(300)]),
                *default_stages(),
            ],
        )
        paused = loop.run_sync(USER, model)
        assert isinstance(paused, Paused)
        result = loop.resume_sync(paused, {paused.pending[0].id: approve}, model)
        assert isinstance(result, Ok)
        answers = [one["content"] for one in result.messages if one["role"] == "tool"]
        assert answers[-3].startswith("a: xxx")


class TestSubagents:
    """Each run has a store of its own."""

    def test_a_subagent_compacts_and_recalls(self):
        ran = []
        child = compacting([look(ran)], name="kid")
        inner = ScriptedLLM(*then_fill(looks("a"), after=[looks("a")]))
        events = []
        result = Loop.run_sync(
            USER,
            ScriptedLLM(calls(call("helper", task="t")), "Done."),
            tools=[child.as_tool("helper", "Helps.", inner)],
            max_iterations=30,
            on_event=events.append,
        )
        assert isinstance(result, Ok)
        assert ran.count("a") == 1
        kinds = [type(e.innermost).__name__ for e in events if isinstance(e, SubagentEvent)]
        assert kinds.count("CallNotRun") == 1
        assert "HistoryCompacted" in kinds

    def test_the_answer_of_a_subagent_is_recalled(self):
        """It is the result of a call, which may have changed something."""
        asked = calls(call("helper", task="t"))
        inner = ScriptedLLM("Found it.")
        helper = Loop(name="kid").as_tool("helper", "Helps.", inner, read_only=True)
        observed, _ = recalling(asked, after=[calls(call("helper", task="t"))], tools=[helper])
        assert last_answers(observed)[0].startswith("Found it.")
        assert inner.left == 0
