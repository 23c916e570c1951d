"""The log of a run: its levels and loggers; the content of messages is never logged."""

import logging
import re
import sys

import pytest
from tests.compacting import compacting, failing, script
from tests.deciding import on
from tests.programs import run_program
from tests.samples import OverloadedError, double

from treadle import CircuitBreaker, Limits, Loop, RunHandle, approve, tool
from treadle.effects import Emit, map_effects
from treadle.sessions import StubResults
from treadle.stages import circuit_breaker, loop_decision
from treadle.testing import ScriptedLLM, call, calls

NAME = "treadle.loop"
USER = [{"role": "user", "content": "canary user"}]


@tool
def fail(text: str = "canary"):
    raise ValueError("canary error")


@tool(retries=1)
def flaky():
    raise OSError("canary error")


@tool(requires_approval=True)
def sign(text: str):
    return "canary signed"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from treadle.stages import _attempts as calling

    monkeypatch.setattr(calling, "RETRY_DELAY", 0)


@pytest.fixture
def run(way, caplog):
    """Run a script, and return the records of its log."""

    def run(*script, level=logging.DEBUG, messages=USER, **options):
        options = {"tools": [double, fail, flaky, sign], "name": "bot", "retry_delay": 0, **options}
        caplog.clear()
        with caplog.at_level(level, NAME):
            run.result = way.run(Loop(**options), ScriptedLLM(*script), messages)
        return [record for record in caplog.records if record.name.startswith("treadle.loop")]

    return run


def texts_of(records, level):
    return [record.getMessage() for record in records if record.levelno == level]


def starts(records, *beginnings):
    """Whether each text has its beginning, and there are no others."""
    return len(records) == len(beginnings) and all(map(str.startswith, records, beginnings))


class TestLevels:
    """INFO for starts and ends, DEBUG for details, WARNING for problems."""

    def test_a_successful_run(self, run):
        records = run(calls(call("double", n=1)), "canary answer")
        assert starts(texts_of(records, logging.INFO), "run started", "run ended: answered")
        assert starts(
            texts_of(records, logging.DEBUG),
            "iteration 1: calling the model",
            "iteration 1: the model responded in",
            "call of double started",
            "call of double ended: done",
            "iteration 2: calling the model",
            "iteration 2: the model responded in",
        )
        assert texts_of(records, logging.WARNING) == []

    def test_known_numbers_of_tokens_are_logged(self, run):
        completion = {
            "choices": [{"message": {"role": "assistant", "content": "Hi"}}],
            "usage": {"prompt_tokens": 31, "completion_tokens": 47},
        }
        (answered,) = [t for t in texts_of(run(completion), logging.DEBUG) if "responded" in t]
        assert "31" in answered
        assert "47" in answered

    @pytest.mark.parametrize(
        ("script", "options", "ends"),
        [
            ([calls(call("double", n=1))], {"max_iterations": 1}, "max_iterations_reached"),
            ([calls(call("double", n=1))], {"max_tool_calls": 0}, "budget_exhausted"),
            (
                [calls(call("fail"))],
                {"stages": [circuit_breaker(threshold=1), ...]},
                "circuit_broken",
            ),
            ([calls(call("double", n=1))], {"loop_threshold": 1, "dedupe": "off"}, "loop_detected"),
            ([TypeError("canary")], {}, "llm_error"),
            ([""], {"stages": [loop_decision(max_blank_stops=0), ...]}, "empty_response"),
            ([], {"messages": []}, "invalid_input"),
        ],
    )
    def test_the_end_of_a_failed_run_is_a_warning(self, run, script, options, ends):
        (warning,) = texts_of(run(*script, **options), logging.WARNING)
        assert warning.startswith(f"run ended: {ends}")
        assert ("TypeError" in warning) == (ends == "llm_error")

    def test_the_end_of_a_cancelled_or_paused_run_is_not_a_warning(self, run):
        handle = RunHandle()
        handle.cancel()
        for options, ends in (({"handle": handle}, "cancelled"), ({}, "paused")):
            records = run(calls(call("sign", text="canary")), **options)
            assert texts_of(records, logging.INFO)[-1].startswith(f"run ended: {ends}")
            assert texts_of(records, logging.WARNING) == []

    def test_the_end_of_a_run_finished_at_its_limit_is_not_a_warning(self, run):
        script = [calls(call("double", n=1)), "so far"]
        records = run(*script, max_iterations=1, limits=Limits(on_limit="finish"))
        assert starts(
            texts_of(records, logging.INFO),
            "run started",
            "limit reached: max_iterations_reached",
            "run ended: finished",
        )
        assert texts_of(records, logging.WARNING) == []

    def test_a_retry_of_the_model_is_a_warning(self, run):
        records = run(OverloadedError("canary"), "x")
        (warning,) = texts_of(records, logging.WARNING)
        assert "OverloadedError" in warning

    def test_a_retry_of_a_tool_is_logged_at_info(self, run):
        records = run(calls(call("flaky", "c1")), "x")
        _, again, ended, _ = texts_of(records, logging.INFO)
        assert again.startswith("call of flaky: attempt 1 failed (OSError)")
        assert ended.startswith("call of flaky ended: ")

    def test_a_breaker_that_opens_is_a_warning(self, run):
        outcomes = iter([ValueError("canary"), "yes"])

        @tool
        def fetch(n: int):
            outcome = next(outcomes)
            if isinstance(outcome, ValueError):
                raise outcome
            return outcome

        script = [calls(call("fetch", n=1)), calls(call("fetch", n=2)), "x"]
        records = run(*script, tools=[fetch], breaker=CircuitBreaker(1, 0))
        assert texts_of(records, logging.WARNING) == ["breaker of fetch: open, was closed"]
        infos = [text for text in texts_of(records, logging.INFO) if text.startswith("breaker")]
        assert infos == [
            "breaker of fetch: half_open, was open",
            "breaker of fetch: closed, was half_open",
        ]

    def test_calls_that_do_not_run_are_logged_at_debug(self, run):
        batch = calls(*(call("double", f"c{n}", n=n // 2) for n in range(3)))
        debugs = texts_of(run(batch, "x", limits=Limits(max_parallel_calls=1)), logging.DEBUG)
        assert "call of double not run: duplicate_in_batch" in debugs
        assert "call of double not run: parallel_cap" in debugs

    def test_a_repaired_history_is_logged_at_info(self, run):
        broken = [{"role": "tool", "tool_call_id": "c9", "content": "canary"}, *USER]
        assert texts_of(run("x", messages=broken), logging.INFO)[1].startswith("history repaired")

    def test_a_compacted_history_is_logged_at_info_and_a_recalled_call_at_debug(self, run):
        strategies = [StubResults()]
        for writer, how, options in (
            (ScriptedLLM("canary notes"), "summarised", {}),
            (None, "shortened", {"strategies": strategies}),
        ):
            records = run(*script(), **compacting(writer, **options))
            texts = [t for t in texts_of(records, logging.INFO) if t.startswith("iteration")]
            (text,) = texts
            assert re.fullmatch(
                rf"iteration 4: history {how}, \d+ to \d+ tokens, 7 to \d messages", text
            )
            assert "call of look_up not run: recalled" in texts_of(records, logging.DEBUG)
            assert texts_of(records, logging.WARNING) == []

    @pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
    def test_a_history_that_was_not_summarised_is_a_warning(self, run, level):
        """With the end of the run that writes the summary."""
        records = run(*script(), level=level, **compacting(failing))
        assert starts(
            texts_of(records, logging.WARNING),
            "run ended: llm_error",
            "iteration 4: the history was not summarised",
            "run ended: llm_error",
            "iteration 5: the history was not summarised; no further summary is tried in this run",
        )


class TestQuiet:
    """Records below the level are not written, and their events are not created."""

    def effects(self, run, *script, level, **options):
        """The names of the events that a run emits, and its log records."""
        made = []

        def see(effect):
            made.extend([type(effect.event).__name__] if isinstance(effect, Emit) else [])
            return effect

        records = run(
            *script, level=level, middleware=[lambda steps: map_effects(steps, see)], **options
        )
        return made, records

    @pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
    def test_a_successful_run_emits_no_event_at_warning_or_above(self, run, level):
        kid = Loop(tools=[double]).as_tool("kid", "", ScriptedLLM(calls(call("double", n=1)), "in"))
        script = [calls(call("double", n=1), call("kid", task="a")), "x"]
        made, records = self.effects(run, *script, level=level, tools=[double, kid])
        assert (made, records) == ([], [])

    def test_at_warning_only_events_of_warnings_are_emitted(self, run):
        script = [OverloadedError(), calls(call("double", n=1))]
        made, records = self.effects(run, *script, level=logging.WARNING, max_iterations=1)
        assert made == ["ModelRetried", "RunFinished"]
        assert [record.levelno for record in records] == [logging.WARNING] * 2

    def test_at_critical_nothing_is_logged(self, run):
        _, records = self.effects(run, OverloadedError(), TypeError(), level=logging.CRITICAL)
        assert records == []

    def test_at_info_no_debug_record_is_written(self, run):
        made, records = self.effects(run, calls(call("double", n=1)), "x", level=logging.INFO)
        assert [record.levelno for record in records] == [logging.INFO] * 2
        assert made

    def test_no_handler_is_installed(self, run):
        run("x")
        manager = logging.root.manager
        made = [name for name in manager.loggerDict if name.partition(".")[0] == "treadle"]
        assert NAME in made
        assert [logging.getLogger(name).handlers for name in made] == [[]] * len(made)
        assert all(logging.getLogger(name).propagate for name in made)
        assert {logging.getLogger(name).level for name in made} == {logging.NOTSET}

    def test_without_configuration_nothing_is_printed(self):
        program = (
            "from treadle import Loop\n"
            "def model(messages): raise ValueError('canary')\n"
            "Loop.run_sync([{'role': 'user', 'content': 'Hi'}], model, max_retries=1, retry_delay=0)\n"
        )
        done = run_program([sys.executable, "-c", program], check=True)
        assert (done.stdout, done.stderr) == ("", "")


class TestExtras:
    """Each record has the ids of its run, iteration and call."""

    def test_the_run_the_iteration_and_the_call(self, run):
        records = run(calls(call("double", "c1", n=1)), "x")
        assert {record.run_id for record in records} == {run.result.run.run_id}
        assert {record.agent_name for record in records} == {"bot"}
        of_calls = [record for record in records if record.getMessage().startswith("call of")]
        assert [(record.iteration, record.call_id) for record in of_calls] == [(1, "c1")] * 2
        asked = [record.iteration for record in records if "calling" in record.getMessage()]
        assert asked == [1, 2]
        assert not any(hasattr(records[at], "iteration") for at in (0, -1))

    def test_a_subagent_has_its_own_run_id(self, run):
        inner = Loop(tools=[double], name="inner")
        innermost = inner.as_tool("deep", "", ScriptedLLM(calls(call("double", "i1", n=1)), "in"))
        kid = Loop(tools=[innermost]).as_tool(
            "kid", "", ScriptedLLM(calls(call("deep", "d", task="a")), "in")
        )
        records = run(calls(call("kid", "k", task="a")), "x", tools=[kid])
        outer = run.result.run.run_id
        ids = {(record.run_id, record.agent_name) for record in records}
        assert ids == {(outer, "bot"), (f"{outer}/k", "kid"), (f"{outer}/k/d", "inner")}
        (deep,) = [record for record in records if "double started" in record.getMessage()]
        assert (deep.run_id, deep.call_id) == (f"{outer}/k/d", "i1")

    def test_warnings_of_a_subagent_have_its_run_id(self, run):
        """Although its start was not emitted."""
        kid = Loop(name="inner", retry_delay=0).as_tool(
            "kid", "", ScriptedLLM(OverloadedError(), "in")
        )
        (record,) = run(calls(call("kid", "k", task="a")), "x", tools=[kid], level=logging.WARNING)
        assert record.run_id == f"{run.result.run.run_id}/k"

    def test_a_resumed_run_has_the_same_run_id(self, caplog):
        loop = Loop(tools=[sign], name="bot")
        model = ScriptedLLM(calls(call("sign", "c1", text="a")), "x")
        with caplog.at_level(logging.INFO, NAME):
            paused = loop.run_sync(USER, model)
            loop.resume_sync(paused, on(paused, {"c1": approve}), model)
        texts = [record.getMessage().split(";")[0] for record in caplog.records]
        assert texts == ["run started", "run ended: paused", "run resumed", "run ended: answered"]
        assert len({record.run_id for record in caplog.records}) == 1
