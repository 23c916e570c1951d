"""Compactions in telemetry, logs, recordings and the live view; and from recorded effects alone."""

import io
import logging

import pytest
from rich.console import Console
from tests.whole.recorder import Recorder as EffectRecorder
from tests.whole.recorder import replay

from treadle import Loop, Response, RunState, Usage
from treadle.events import HistoryCompacted
from treadle.loop.start import start_run
from treadle.reports import LiveView, Recorder, read_recording, render_report
from treadle.sessions import StubResults
from treadle.testing import ScriptedLLM

from .compacting import USER, Observed, compacting, look, looks, run, text

pytest.importorskip("opentelemetry.sdk")

from tests.telemetry.watching import Watch

from treadle.telemetry import names

SCRIPT = [*(looks(f"p{n}") for n in range(8)), looks("p0"), "Done."]
LIMITS = {"max_tokens": 500}


def priced(_):
    return Response("NOTES", usage=Usage(50, 5))


class TestTelemetry:
    """Spans, events and metrics."""

    @pytest.mark.parametrize("driver", ["sync", "asyncio", "trio"])
    def test_a_summary_is_a_run_inside_the_run(self, driver):
        watch = Watch()
        observed = run(
            *SCRIPT,
            summarize=priced,
            tools=[look([])],
            compaction=LIMITS,
            driver=driver,
            name="bot",
            **watch.options,
        )
        number = len(observed.compacted)
        assert number >= 3
        kids = watch.named("invoke_agent summarize")
        assert len(kids) == number
        for kid in kids:
            assert watch.names_around(kid) == ("invoke_agent summarize", "invoke_agent bot")
            chats = [one for one in watch.spans if one.parent == kid.context]
            assert [one.name for one in chats] == ["chat"]
            assert chats[0].attributes["gen_ai.usage.input_tokens"] == 50
        assert len({span.context.trace_id for span in watch.spans}) == 1
        assert len(watch.ledger.started) == len(watch.ledger.ended)

    def test_compactions_and_recalled_calls_are_events_of_its_span(self):
        watch = Watch()
        observed = run(
            *SCRIPT,
            summarize=priced,
            tools=[look([])],
            compaction=LIMITS,
            name="bot",
            **watch.options,
        )
        events = watch.one("invoke_agent bot").events
        made = [event for event in events if event.name == names.HISTORY_COMPACTED]
        for event, emitted in zip(made, observed.of(HistoryCompacted), strict=True):
            assert event.attributes == {
                names.ITERATION: emitted.iteration,
                names.TOKENS_BEFORE: emitted.tokens_before,
                names.TOKENS_AFTER: emitted.tokens_after,
                names.IS_SUMMARIZED: True,
            }
        assert watch.total(names.COMPACTIONS, {names.IS_SUMMARIZED: True}) == len(made)
        assert sum(event.name == names.CALL_NOT_RUN for event in events) == 1
        assert watch.total(names.CALLS_NOT_RUN, {"gen_ai.tool.name": "look"}) == 1

    def test_a_failure_is_an_event(self):
        watch = Watch()

        def fails(_):
            raise ValueError("down")

        run(
            *SCRIPT,
            summarize=fails,
            tools=[look([])],
            compaction=LIMITS,
            name="bot",
            **watch.options,
        )
        events = watch.one("invoke_agent bot").events
        failed = [event for event in events if event.name == names.COMPACTION_FAILED]
        assert [event.attributes[names.GIVES_UP] for event in failed] == [False, True]
        assert watch.total(names.COMPACTIONS) == 0


class TestReports:
    """What other observers make of it."""

    def test_a_recording_the_report_and_the_live_view_have_it(self, tmp_path):
        live, shown = LiveView(enabled=True, clock=lambda: 0.0), []

        def watched(messages):
            console = Console(file=io.StringIO(), width=80, height=24, color_system=None)
            console.print(live)
            shown.append(console.file.getvalue())
            return priced(messages)

        path = tmp_path / "runs.jsonl"
        with Recorder(path) as recorder:
            observed = Observed()
            Loop.run_sync(
                USER,
                ScriptedLLM(*SCRIPT),
                tools=[look([])],
                max_iterations=20,
                stages=compacting(observed, watched, **LIMITS),
                on_event=[recorder, live, observed.events.append],
            )
        recording = read_recording(path)
        [recorded] = recording.runs
        kinds = [guard.kind for guard in recorded.guards]
        assert kinds.count("compacted") == len(observed.compacted) >= 3
        assert kinds.count("not_run") == 1
        assert "summarised" in render_report(recording)
        assert "recalled" in shown[-1]

    def test_a_failure_is_logged(self, caplog):
        def fails(_):
            raise ValueError("down")

        with caplog.at_level(logging.WARNING, "treadle"):
            run(*SCRIPT, summarize=fails, tools=[look([])], compaction=LIMITS)
        logged = [record for record in caplog.records if "not summarised" in record.getMessage()]
        assert len(logged) == 2


class TestReplay:
    """A run happens again from what became of its effects."""

    @pytest.mark.parametrize("driver", ["sync", "asyncio", "trio"])
    @pytest.mark.parametrize("strategies", [(), (StubResults(300),)], ids=["summaries", "stubs"])
    def test_the_same_requests_and_events(self, driver, strategies):
        def forbidden(*args, **options):
            raise AssertionError("a replay asks no model")

        recorder = EffectRecorder()
        options = {**LIMITS, "strategies": strategies}
        first = run(
            *SCRIPT,
            summarize=priced,
            tools=[look([])],
            compaction=options,
            driver=driver,
            middleware=[recorder],
            state=RunState("agent", "run"),
        )
        again, events = Observed(), []
        loop = Loop(
            tools=[look([])],
            max_iterations=100,
            stages=compacting(again, forbidden, **options),
            on_event=events.append,
            state=RunState("agent", "run"),
        )
        steps, _ = start_run(loop, USER, forbidden)
        result = replay(steps, recorder.log, events.append)
        assert result.messages == first.result.messages
        assert result.usage == first.result.usage
        assert [[text(one) for one in view] for view in again.views] == [
            [text(one) for one in view] for view in first.views
        ]
        assert [type(event) for event in events] == [type(event) for event in first.events]
