"""The events and the history of a last answer, and its failures."""

import anyio

from treadle import (
    DeadlineExceeded,
    Err,
    IterationFinished,
    IterationStarted,
    LimitReached,
    Limits,
    Loop,
    MaxIterationsReached,
    Response,
    RunCancelled,
    RunHandle,
    Usage,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, answers, of
from .finishing import GUIDED, finished


class TestFailing:
    """The call for the last answer fails."""

    def test_a_failure_of_the_model_is_the_reason(self, way):
        events = []
        result, _ = finished(way, TypeError("gone"), on_event=events.append)
        assert (type(result), result.reason.message) == (Err, "gone")
        assert result.messages[-1]["content"] == "noted 1"
        assert (result.iterations, result.run.status) == (2, "failed")
        assert [one.reason for one in of(events, LimitReached)] == [MaxIterationsReached(1)]

    def test_a_failure_of_the_second_request(self, way):
        result, _ = finished(way, calls(call("note", "b", n=2)), TypeError("gone"))
        assert result.stop_reason == "llm_error"
        assert answers(result.messages) == {
            "a": "noted 1",
            "b": "Not run: the budget for this task is spent. Give your final answer with what you have.",
        }

    def test_a_temporary_failure_is_retried(self, way):
        result, _ = finished(way, ConnectionError(), "so far", retry_delay=0)
        assert result.unwrap().content == "so far"
        assert result.iterations == 2

    def test_the_time_limit_may_be_reached_meanwhile(self, way, clock):
        async def hang(messages):
            clock.limit.strike()
            await anyio.sleep(30)

        events = []
        options = {"max_seconds": 9, "middleware": [clock.middleware], "on_event": events.append}
        result, _ = finished(way, hang, **options)
        assert result.reason == DeadlineExceeded(9)
        reasons = [one.reason for one in of(events, LimitReached)]
        assert reasons == [MaxIterationsReached(1), DeadlineExceeded(9)]
        assert result.messages[-1]["content"] == "noted 1"

    def test_it_may_be_cancelled_meanwhile(self, way):
        handle = RunHandle()

        async def cancel(messages):
            handle.cancel()
            await anyio.sleep(30)

        result, _ = finished(way, cancel, handle=handle)
        assert (result.reason, result.iterations) == (RunCancelled(), 2)
        assert result.messages[-1]["content"] == "noted 1"


class TestEvents:
    """The events of a last answer."""

    def test_the_limit_is_reported_once_and_its_requests_are_iterations(self, way):
        events, contexts = [], []
        result, _ = finished(
            way,
            calls(call("note", "b", n=2)),
            "so far",
            on_event=events.append,
            on_iteration=contexts.append,
        )
        assert [one.reason for one in of(events, LimitReached)] == [result.limit]
        assert [one.iteration for one in of(events, IterationStarted)] == [1, 2, 3]
        assert [one.iteration for one in of(events, IterationFinished)] == [1, 2, 3]
        assert [one.iteration for one in contexts] == [1, 2, 3]
        assert events[-1].result is result
        assert events[-1].stop_reason == "finished"
        names = [type(event).__name__ for event in events]
        assert names.index("LimitReached") == names.index("IterationFinished") + 1

    def test_its_nodes_are_in_the_run_state(self):
        result, _ = finished(SYNC, calls(call("note", "b", n=2)), "so far")
        assert [node.status for node in result.run.nodes] == ["success"] * 3
        assert [len(node.tool_calls) for node in result.run.nodes] == [1, 0, 0]
        assert result.run.status == "success"
        assert result.run.error is None

    def test_its_tokens_count(self):
        answer = Response("so far", usage=Usage(5, 6))
        result, _ = finished(SYNC, answer)
        assert result.usage == result.run.total_usage == Usage(5, 6, is_lower_bound=True)

    def test_its_request_shows_the_remaining_budget(self):
        _, model = finished(SYNC, "so far", limits=Limits(on_limit="finish", show_budget=True))
        asked = model.sent[1].messages[-1]["content"]
        assert asked == f"{GUIDED}\n\nLeft for this task: 0 model calls."

    def test_its_request_replaces_the_guidance_of_a_stage(self, way):
        """The guidance after a blank response was for a request that is not sent."""
        loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
        with ScriptedLLM("", "so far") as model:
            result = way.run(loop, model)
        assert model.sent[1].messages == [{"role": "user", "content": f"Hi\n\n{GUIDED}"}]
        assert result.unwrap().content == "so far"


def test_a_text_after_which_a_stage_continued_stays_a_message_before_the_guidance():
    """Two assistant messages never follow each other."""

    def more(ctx):
        return ctx.guide("Go on.") if ctx.iteration == 1 else ctx.done()

    loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
    loop = loop.with_options(stages=loop.pipeline.replace("loop_decision", more))
    with ScriptedLLM("one", "two") as model:
        result = SYNC.run(loop, model)
    assert (result.unwrap().content, result.stop_reason) == ("two", "finished")
    assert model.sent[1].messages[1:] == [
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": GUIDED},
    ]
    assert result.messages == [*model.sent[1].messages, {"role": "assistant", "content": "two"}]
