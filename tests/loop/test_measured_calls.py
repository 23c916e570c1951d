"""What is measured of each request to a model: on the response, on the node of the iteration, on events."""

import threading

import anyio
import pytest
from tests.whole.recorder import Recorder, as_written, replay

from treadle import (
    Err,
    FirstChunk,
    Limits,
    Loop,
    ModelCall,
    ModelCallStatus,
    ModelFailed,
    ModelResponded,
    ModelRetried,
    Response,
    RunHandle,
    Timing,
    Usage,
)
from treadle.providers.middleware import Fallback, Hedge, ResponseCache
from treadle.run_state import RunState
from treadle.stages import ask_model
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, Way, of
from .notes import completion, note, notes


def piece(text="", usage=None, reason=None):
    """A chunk of a stream, as OpenAI sends it."""
    made = {"choices": [{"delta": {"content": text}, "finish_reason": reason}], "model": "m-1"}
    return made if usage is None else {**made, "usage": usage}


END = piece(usage={"prompt_tokens": 4, "completion_tokens": 20}, reason="stop")


def streaming(clock, *pieces, wait=2.0, each=0.5):
    """A model whose first piece takes ``wait`` seconds, and each further one ``each``."""

    def send(messages):
        clock.now += wait
        for index, one in enumerate(pieces):
            clock.now += each if index else 0.0
            if isinstance(one, Exception):
                raise one
            yield one

    return send


def whole(clock, *replies, wait=2.0):
    """A model each of whose replies takes ``wait`` seconds."""
    script = iter(replies)

    def send(messages):
        clock.now += wait
        reply = next(script)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return send


def run(clock, model, way=SYNC, **options):
    """Run with the clock of the test; return the result and the events."""
    seen = []
    loop = Loop(
        tools=[note],
        middleware=[clock.middleware],
        retry_delay=0,
        on_event=seen.append,
        stages=[ask_model(restart_streams=True), ...],
        **options,
    )
    return way.run(loop, model), seen


class TestTheResponse:
    def test_a_stream_has_the_time_to_its_first_piece_and_its_rate_from_there_on(self, clock, way):
        result, _ = run(clock, streaming(clock, piece("a"), piece("b"), END), way)
        response = result.response
        assert response.timing == Timing(1000.0, 1003.0, 1002.0)
        assert (response.duration, response.time_to_first_token) == (3.0, 2.0)
        assert response.tokens_per_second == 20 / 1.0
        assert response.status == "success"

    def test_a_whole_response_has_its_duration_and_its_rate_over_all_of_it(self, clock, way):
        result, _ = run(clock, whole(clock, completion("x", made=6)), way)
        response = result.response
        assert response.timing == Timing(1000.0, 1002.0)
        assert (response.duration, response.time_to_first_token) == (2.0, None)
        assert response.tokens_per_second == 3.0

    def test_an_async_stream_is_measured(self, clock):
        async def send(messages):
            for one in streaming(clock, piece("a"), END)(messages):
                yield one

        result = anyio.run(lambda: Loop(middleware=[clock.middleware]).run("Hi", send))
        assert result.response.timing == Timing(1000.0, 1002.5, 1002.0)

    @pytest.mark.parametrize(
        ("usage", "status"),
        [
            (None, "usage_missing"),
            (Usage(3, is_lower_bound=True), "usage_missing"),
            (Usage(3, 4, is_estimate=True), "usage_estimated"),
            (Usage(3, 4), "success"),
        ],
    )
    def test_its_status_says_how_its_tokens_are_known(self, usage, status):
        assert Response("x", usage=usage).status == status

    def test_the_rate_is_unknown_without_the_tokens_and_without_time(self, clock):
        assert run(clock, whole(clock, "x"))[0].response.tokens_per_second is None
        some = Response("x", usage=Usage(3, 4, is_lower_bound=True))
        assert run(clock, whole(clock, some))[0].response.tokens_per_second is None
        at_once, _ = run(clock, whole(clock, completion("x"), wait=0.0))
        assert at_once.response.tokens_per_second is None

    def test_a_response_that_did_not_come_through_a_run_has_no_times(self):
        response = Response("x", usage=Usage(1, 2))
        assert response.timing is response.duration is None
        assert response.time_to_first_token is response.tokens_per_second is None

    def test_a_response_that_the_model_keeps_stays_as_it_is(self, clock):
        kept = Response("x", usage=Usage(1, 2), extra={"k": 1})
        result, _ = run(clock, whole(clock, kept))
        assert (result.response, result.response.extra) == (kept, {"k": 1})
        assert (kept.times, result.response.times) == (None, (1000.0, 1002.0))

    def test_a_derived_response_stays_one(self, clock):
        class Own(Response):
            pass

        result, _ = run(clock, whole(clock, Own("x")))
        assert (type(result.response), result.response.times) == (Own, (1000.0, 1002.0))

    def test_the_times_are_those_of_the_attempt_that_answered(self, clock, way):
        model = whole(clock, ConnectionError("no"), completion("x"))
        result, _ = run(clock, model, way)
        assert result.response.timing == Timing(1002.0, 1004.0)

    def test_the_provider_of_the_model_is_that_of_a_response_that_names_none(self):
        class Model:
            provider = "acme"

            def __init__(self, response):
                self.response = response

            def __call__(self, messages):
                return self.response

        assert Loop.run_sync("Hi", Model("x")).response.provider == "acme"
        routed = Response("x", provider="other")
        assert Loop.run_sync("Hi", Model(routed)).response.provider == "other"


class TestTheNode:
    def test_it_has_each_request_with_what_was_measured(self, clock, way):
        model = whole(clock, ConnectionError("no"), completion("x", cost=0.5))
        model.model = "m-1"
        result, _ = run(clock, model, way)
        [node] = result.run.nodes
        failed, answered = node.model_calls
        assert failed == ModelCall(
            ModelCallStatus.ERROR,
            "m-1",
            timing=Timing(1000.0, 1002.0),
            error="no",
            error_type="ConnectionError",
        )
        assert (answered.status, answered.timing) == ("success", Timing(1002.0, 1004.0))
        assert (answered.cost, answered.tokens_per_second, answered.error) == (0.5, 1.5, None)

    def test_a_stream_that_broke_off_has_the_time_of_its_first_piece(self, clock):
        breaks = streaming(clock, piece("a"), ConnectionError("cut"))
        result, _ = run(clock, breaks, max_retries=0)
        [call] = result.run.nodes[0].model_calls
        assert (call.status, call.timing) == ("error", Timing(1000.0, 1002.5, 1002.0))

    def test_each_iteration_has_its_own(self, clock):
        result, _ = run(clock, whole(clock, completion(notes(1)), completion("x")))
        times = [call.timing for node in result.run.nodes for call in node.model_calls]
        assert times == [Timing(1000.0, 1002.0), Timing(1002.0, 1004.0)]
        assert [len(call.model_calls) for call in result.run.nodes[0].tool_calls] == [0]

    def test_it_is_kept_in_json(self, clock):
        model = whole(clock, ConnectionError("no"), completion("x", cost=0.5))
        state = run(clock, model)[0].run
        restored = RunState.from_json(state.as_json())
        assert restored.nodes[0].model_calls == state.nodes[0].model_calls
        assert restored.as_json() == state.as_json()

    def test_a_secret_in_the_text_of_an_error_is_not_kept(self, clock):
        error = ConnectionError("https://me:sekret@host/ failed")
        result, _ = run(clock, whole(clock, error), max_retries=0)
        assert "sekret" not in str(result.run.as_json())


class TestTheEvents:
    def test_a_response_has_its_status(self, clock):
        _, seen = run(clock, whole(clock, completion(notes(1)), "x"))
        assert [event.status for event in of(seen, ModelResponded)] == ["success", "usage_missing"]

    def test_an_estimate_is_marked(self, clock):
        result, seen = run(clock, whole(clock, "x"), limits=Limits(unmeasured="estimate"))
        assert [event.status for event in of(seen, ModelResponded)] == ["usage_estimated"]
        assert result.run.nodes[0].model_calls[0].status == "usage_estimated"

    def test_failed_attempts_have_their_times(self, clock, way):
        model = whole(clock, ConnectionError("1"), ConnectionError("2"))
        _, seen = run(clock, model, way, max_retries=1)
        [retried], [failed] = of(seen, ModelRetried), of(seen, ModelFailed)
        assert (retried.status, retried.timing) == ("error", Timing(1000.0, 1002.0))
        assert (failed.status, failed.timing) == ("error", Timing(1002.0, 1004.0))

    def test_it_does_not_have_those_of_an_earlier_request(self, clock):
        def refusing_later(request, send):
            if request.attempt > 1:
                raise ValueError("not again")
            return (yield from send(request))

        model = whole(clock, ConnectionError("no"))
        _, seen = run(clock, model, model_middleware=[refusing_later])
        assert of(seen, ModelRetried)[0].timing == Timing(1000.0, 1002.0)
        assert of(seen, ModelFailed)[0].timing is None

    def test_a_switch_to_another_model_has_the_times_of_the_request_that_failed(self, clock):
        model = whole(clock, ConnectionError("no"))
        fallback = Fallback(whole(clock, "x"))
        result, seen = run(clock, model, model_middleware=[fallback])
        assert of(seen, ModelRetried)[0].timing == Timing(1000.0, 1002.0)
        statuses = [call.status for call in result.run.nodes[0].model_calls]
        assert statuses == ["error", "usage_missing"]

    def test_a_response_from_a_cache_has_no_times(self, clock):
        cache, model = ResponseCache(), whole(clock, "x")
        made = [run(clock, model, model_middleware=[cache])[0].response for _ in range(2)]
        assert [one.timing for one in made] == [Timing(1000.0, 1002.0), None]


class TestCancelled:
    """A request that a time limit, the handle or the caller ended."""

    @pytest.mark.parametrize("by", ["a time limit", "the handle"])
    def test_by(self, way, by):
        handle, seen = RunHandle(), []

        def observe(event):
            seen.append(event)
            if by == "the handle" and isinstance(event, FirstChunk):
                handle.cancel()

        def send(messages):
            yield piece("a")
            threading.Event().wait(1.5)
            yield END

        async def send_async(messages):
            yield piece("a")
            await anyio.sleep(10)

        limits = {"max_seconds": 0.8} if by == "a time limit" else {}
        loop = Loop(on_event=observe, **limits)
        result = way.run(loop, send if way.name == "sync" else send_async, handle=handle)
        [event], [call] = of(seen, ModelFailed), result.run.nodes[0].model_calls
        assert (event.status, event.error_type) == ("cancelled", result.stop_reason)
        assert (call.status, call.error, call.timing) == ("cancelled", None, event.timing)
        assert event.timing.first_chunk is not None
        assert 0 < event.timing.duration < 5
        assert event.at == event.timing.ended

    def test_the_task_of_the_caller(self):
        seen = []

        async def send(messages):
            await anyio.sleep(10)

        async def main():
            with anyio.move_on_after(0.05):
                await Loop(on_event=seen.append).run("Hi", send)

        anyio.run(main)
        [event] = of(seen, ModelFailed)
        assert (event.status, event.timing.first_chunk) == ("cancelled", None)

    def test_a_run_that_is_cancelled_while_a_tool_runs_has_no_cancelled_request(self, way):
        handle, seen = RunHandle(), []

        async def slow(n: int):
            """Take long."""
            handle.cancel()
            await anyio.sleep(10)

        model = ScriptedLLM(calls(call("slow", n=1)))
        result = way.run(Loop(tools=[slow], on_event=seen.append), model, handle=handle)
        assert of(seen, ModelFailed) == []
        assert [call.status for call in result.run.nodes[0].model_calls] == ["usage_missing"]

    def test_a_request_that_lost_a_race_is_not_what_interrupted_the_run(self, async_way):
        handle, seen, asked = RunHandle(), [], []

        async def racing(messages, **opts):
            asked.append(messages)
            if len(asked) == 1:
                await anyio.sleep(10)
            return calls(call("slow", n=1))

        async def slow(n: int):
            """Take long."""
            handle.cancel()
            await anyio.sleep(10)

        hedge = Hedge(after=0.01)
        loop = Loop(tools=[slow], on_event=seen.append, model_middleware=[hedge])
        result = async_way.run(loop, racing, handle=handle)
        assert isinstance(result, Err)
        statuses = [call.status for call in result.run.nodes[0].model_calls]
        assert sorted(statuses) == ["cancelled", "usage_missing"]
        assert of(seen, ModelFailed) == []


@pytest.fixture(params=["asyncio", "trio"])
def async_way(request):
    return Way(request.param)


class Priced:
    """A model that knows the cost of its responses."""

    def __init__(self, send):
        self._send = send

    def __call__(self, messages):
        return self._send(messages)

    def cost_of(self, response):
        return 1.5


def test_a_replayed_run_has_the_same_measurements(clock):
    """The outcome of the request has its times, and what failed is asked for with an effect."""
    recorder, run_id = Recorder(), {"run_id": "r"}
    model = Priced(whole(clock, ConnectionError("no"), completion("x")))
    middleware = [clock.middleware, recorder]
    first = Loop(middleware=middleware, retry_delay=0).run_sync("Hi", model, **run_id)
    steps = Loop(retry_delay=0).steps("Hi", model, **run_id)
    second = replay(steps, as_written(recorder.log), lambda event: None)
    assert second.response.timing == first.response.timing == Timing(1002.0, 1004.0)
    assert second.run.nodes[0].model_calls == first.run.nodes[0].model_calls
    assert second.usage.cost == first.usage.cost == 1.5
