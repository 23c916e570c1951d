"""The requests of a run to its model: retries, streams, guidance, middleware."""

import contextvars
import itertools

import anyio
import pytest
from tests.clocks import SleepClock
from tests.loop.conftest import USER, of
from tests.providers.middleware.flaky import BusyError, Named
from tests.samples import OverloadedError, add

from treadle import Chunk, Err, Limits, LLMError, Loop, Response, Usage, default_stages, tool
from treadle.effects import Sleep
from treadle.errors import OptionError
from treadle.events import ModelFailed, ModelRequested, ModelRetried, TextDelta
from treadle.stages import ask_model
from treadle.testing import ScriptedLLM, call, calls


def run(*script, **options):
    """Run without waiting; return the result and the events."""
    events = []
    options = options if "stages" in options else {"retry_delay": 0, **options}
    result = Loop.run_sync(USER, ScriptedLLM(*script), on_event=events.append, **options)
    return result, events


class BadRequestError(Exception):
    status_code = 400


@pytest.mark.parametrize(
    ("options", "error", "attempts"),
    [
        ({}, OverloadedError, 4),
        ({"max_retries": 2}, ConnectionError, 3),
        ({"max_retries": 0}, OverloadedError, 1),
        ({}, BadRequestError, 1),
        ({}, ValueError, 1),
    ],
)
def test_after_the_last_attempt_it_is_an_err(options, error, attempts):
    """Work that was done stays in the history."""
    script = [error(str(attempt)) for attempt in range(1, attempts + 1)]
    result, events = run(calls(call("add", a=1, b=2)), *script, tools=[add], **options)
    assert isinstance(result, Err)
    assert result.stop_reason == "llm_error"
    assert result.reason == LLMError(str(attempts), error.__name__, attempts)
    assert result.reason.cause is script[-1]
    assert result.messages[-1]["content"] == "3"
    assert len(of(events, ModelRetried)) == attempts - 1
    (failed,) = of(events, ModelFailed)
    assert (failed.error, failed.error_type) == (str(attempts), error.__name__)


WEDNESDAY = 1_792_567_680.0
"""Wed, 21 Oct 2026 07:28:00 GMT."""


def busy(**headers):
    error = OverloadedError("busy")
    error.headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return error


def asking(**options):
    return {"stages": [ask_model(**options), *default_stages()[1:]]}


@pytest.mark.parametrize(
    ("headers", "options", "seconds"),
    [
        ({"retry_after": "45"}, {}, 45),
        ({"retry_after": "60"}, {}, 60),
        ({"retry_after_ms": "1500"}, {}, 1.5),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:33 GMT"}, {}, 33),
        ({"retry_after": "Tue, 20 Oct 2026 07:28:33 GMT"}, {}, 0),
        ({"retry_after": "600"}, asking(max_retry_delay=900), 600),
    ],
)
def test_a_wait_that_the_server_asks_for_is_not_cut_short(headers, options, seconds):
    clock = SleepClock(WEDNESDAY)
    result, events = run(busy(**headers), "Hello", middleware=[clock.middleware], **options)
    assert result.unwrap()
    assert clock.slept == [seconds]
    assert [event.delay for event in of(events, ModelRetried)] == [seconds]


def test_the_wait_that_is_checked_is_the_one_that_follows():
    """An error may compute what it carries."""

    class Busy(Exception):
        retryable = True

        def __init__(self):
            super().__init__("busy")
            self.asked = itertools.count(1)

        @property
        def details(self):
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            return [{"@type": kind, "retryDelay": f"{next(self.asked)}s"}]

    clock = SleepClock(WEDNESDAY)
    run(Busy(), "Hello", middleware=[clock.middleware])
    assert clock.slept == [1]


@pytest.mark.parametrize(
    ("headers", "options", "text"),
    [
        ({"retry_after": "3600"}, {}, "asked to wait 3,600 s, more than max_retry_delay=60"),
        ({"retry_after": "60.5"}, {}, "asked to wait 60.5 s, more than max_retry_delay=60"),
        (
            {"retry_after": "Wed, 21 Oct 2026 08:28:00 GMT"},
            {},
            "asked to wait 3,600 s, more than max_retry_delay=60",
        ),
        (
            {"retry_after_ms": "700"},
            asking(max_retry_delay=0.5),
            "asked to wait 0.7 s, more than max_retry_delay=0.5",
        ),
    ],
)
def test_a_longer_wait_ends_the_run_with_the_time(headers, options, text):
    clock = SleepClock(WEDNESDAY)
    result, events = run(busy(**headers), "Hello", middleware=[clock.middleware], **options)
    assert isinstance(result.reason, LLMError)
    assert str(result.reason) == f"the model failed: OverloadedError: busy; the server {text}"
    assert isinstance(result.reason.cause, OverloadedError)
    assert (clock.slept, of(events, ModelRetried)) == ([], [])
    assert [event.error for event in of(events, ModelFailed)] == [f"busy; the server {text}"]


def test_a_server_that_asks_not_to_retry_is_asked_once():
    result, events = run(busy(x_should_retry="false"), "Hello")
    assert (result.stop_reason, of(events, ModelRetried)) == ("llm_error", [])


@pytest.mark.parametrize(
    ("on_retry", "text"),
    [
        (lambda *_: 1 / 0, "division by zero"),
        (lambda *_: "again", "on_retry: expected a Request or None, got str"),
        (lambda request, *_: request.replace(tools="add"), "tools: expected a list of tools"),
        (lambda request, *_: request.replace(tools=["nope"]), "on_retry: there is no tool 'nope'"),
    ],
)
def test_a_request_whose_on_retry_failed_is_reported_as_failed(on_retry, text):
    stages = [ask_model(on_retry=on_retry, retry_delay=0), *default_stages()[1:]]
    events = []
    model = ScriptedLLM(ConnectionError("busy"), "Done.")
    result = Loop.run_sync(USER, model, stages=stages, on_event=events.append)
    assert (result.stop_reason, result.reason.stage) == ("pipeline_failed", "ask_model")
    (failed,) = of(events, ModelFailed)
    assert failed.error.startswith(text)
    assert result.usage.is_lower_bound


@pytest.mark.parametrize("kind", [int, list])
def test_instructions_that_are_not_text_end_the_run_before_the_model_is_called(kind):
    model = ScriptedLLM("Done.")
    result = Loop.run_sync(USER, model, instructions=lambda ctx: kind())
    assert str(result.reason.cause) == (
        f"instructions: expected the function to return a text or None, got {kind.__name__}"
    )
    assert model.sent == []


@pytest.mark.parametrize("is_async", [False, True])
def test_the_text_of_a_streamed_answer_is_reported_in_chunks(is_async):
    chunks = ["Hel", "", Chunk("lo", usage=Usage(1, 2)), Chunk(finish_reason="stop")]
    events = []
    model = ScriptedLLM(chunks, is_async=is_async)
    result = Loop.run_sync(USER, model, on_event=events.append)
    assert result.unwrap().content == "Hello"
    assert result.usage == Usage(1, 2)
    assert [event.text for event in of(events, TextDelta)] == ["Hel", "lo"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_generator_function_is_a_backend(backend):
    async def stream(messages):
        for piece in ("a", "b"):
            await anyio.sleep(0)
            yield piece

    assert anyio.run(lambda: Loop.run(USER, stream), backend=backend).unwrap().content == "ab"
    assert Loop.run_sync(USER, stream).unwrap().content == "ab"


class Odd:
    """An awaitable whose iterator has `__next__` only."""

    def __await__(self):
        return iter(())


class OddStream:
    """A stream whose `__anext__` is not a coroutine function, and returns awaitables of any kind."""

    place = contextvars.ContextVar("place", default="outside")

    def __init__(self, *pieces):
        self.pieces, self.places = list(pieces), []

    def __aiter__(self):
        return self

    def __anext__(self):
        self.places.append(self.place.get())
        self.place.set("inside")
        piece = self.pieces.pop(0) if self.pieces else StopAsyncIteration()
        if isinstance(piece, BaseException):
            raise piece
        return piece if isinstance(piece, Odd) else self.fetch(piece)

    async def fetch(self, piece):
        await anyio.sleep(0)
        self.places.append(self.place.get())
        return piece


async def run_async(model):
    return await Loop.run(USER, model, max_retries=0), OddStream.place.get()


@pytest.mark.parametrize("driver", ["asyncio", "trio", "sync"])
def test_an_async_stream_may_return_awaitables_of_any_kind(driver):
    """Every chunk has the context variables of the response, and may fail before it is awaited."""

    def answered(stream):
        if driver == "sync":
            return Loop.run_sync(USER, lambda m: stream, max_retries=0), OddStream.place.get()
        return anyio.run(run_async, lambda m: stream, backend=driver)

    stream = OddStream("a", "b")
    result, place = answered(stream)
    assert (result.unwrap().content, place) == ("ab", "outside")
    assert stream.places == ["outside", *["inside"] * 4]
    result, _ = answered(OddStream("a", OSError("broken")))
    assert (result.reason.error_type, result.reason.message) == ("OSError", "broken")
    result, _ = answered(OddStream(Odd()))  # it returns None, which is not a chunk
    assert result.reason.error_type == "NotAResponseError"


def test_a_chunk_may_be_the_result_of_another_run():
    async def stream(messages):
        yield Loop.run_sync(USER, ScriptedLLM("inner", is_async=True)).unwrap().content

    assert Loop.run_sync(USER, stream).unwrap().content == "inner"


class Stream:
    """An iterator that notes whether it was closed, and breaks at a given piece."""

    def __init__(self, *pieces):
        self.pieces = list(pieces)
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self):
        if not self.pieces:
            raise StopIteration
        piece = self.pieces.pop(0)
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self):
        self.closed += 1


def test_a_stream_that_breaks_is_closed_and_retried():
    broken, whole = Stream("Hel", ConnectionResetError("reset")), Stream("Hello")
    result, events = run(
        lambda m: broken, lambda m: whole, stages=[ask_model(restart_streams=True), ...]
    )
    assert result.unwrap().content == "Hello"
    assert broken.closed == 1
    assert [e.error for e in of(events, ModelRetried)] == ["reset"]


async def generated(stream):
    try:
        for piece in stream:
            yield piece
    finally:
        stream.close()


class AsyncStream(Stream):
    """An async stream whose close is sync."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        return next(self)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("kind", "made"),
    [(Stream, lambda stream: stream), (Stream, generated), (AsyncStream, lambda stream: stream)],
)
def test_an_invalid_chunk_ends_the_run_and_closes_the_stream(kind, made, is_async):
    stream = kind("Hel", 5)
    if is_async:
        result = anyio.run(lambda: Loop.run(USER, lambda m: made(stream)))
    else:
        result = Loop.run_sync(USER, lambda m: made(stream))
    assert result.reason.error_type == "NotAResponseError"
    assert "got int 5" in result.reason.message
    assert stream.closed == 1


def test_a_retry_shows_the_budget_that_the_event_of_the_request_shows():
    """A failed attempt used unknown tokens, so that the number that remains would become an upper bound."""
    limits, events = Limits(show_budget=True, max_total_tokens=1000), []
    with ScriptedLLM(OverloadedError(), "Hello") as model:
        Loop.run_sync(USER, model, retry_delay=0, limits=limits, on_event=events.append)
    assert model.sent[1].messages == model.sent[0].messages
    assert model.sent[0].messages[0]["content"].endswith(of(events, ModelRequested)[0].guidance)


def test_guidance_is_not_repeated_in_a_retry():
    with ScriptedLLM("", OverloadedError(), "Hello") as model:
        Loop.run_sync(USER, model, retry_delay=0)
    assert model.sent[2].messages == model.sent[1].messages
    assert model.sent[1].messages[0]["content"].count("Your last reply") == 1


@pytest.mark.parametrize("kind", ["generator", "async generator", "returns an async iterator"])
def test_an_endless_stream_ends_at_the_deadline_although_its_chunks_never_wait(kind):
    def stream(messages):
        while True:
            yield "x"

    async def stream_later(messages):
        while True:
            yield "x"

    fn = {
        "generator": stream,
        "async generator": stream_later,
        "returns an async iterator": lambda messages: stream_later(messages),  # noqa: PLW0108 - not a generator function
    }[kind]
    result = Loop.run_sync(USER, fn, max_seconds=0.05)
    assert result.stop_reason == "deadline_exceeded"
    result = anyio.run(lambda: Loop.run(USER, fn, max_seconds=0.05))
    assert result.stop_reason == "deadline_exceeded"


def noting(name, log):
    """Middleware that notes when a request passes it."""

    def middleware(request, send):
        log.append(f"{name} in")
        yield Sleep(0.001)
        answer = yield from send(request)
        log.append(f"{name} out")
        return answer

    return middleware


def test_the_first_is_the_outermost(way):
    log = []
    model = Named("m", BusyError())
    options = {"model_middleware": [noting("a", log), noting("b", log)], "retry_delay": 0}
    observed = way.run("Hi", model, **options)
    assert observed.result.unwrap().content == "from m"
    assert log == ["a in", "b in", "a in", "b in", "b out", "a out"]


def test_it_may_answer_or_change_the_request(driven):
    def answering(request, send):
        if request.messages[-1]["content"] == "Hi":
            return Response("Hello."), 1.0, 1.0
        request.opts["temperature"] = 0
        request.messages[-1]["content"] += "!"
        return (yield from send(request))

    model = Named("m")
    assert driven.run("Hi", model, model_middleware=[answering]).result.unwrap().text == "Hello."
    assert model.sent == []
    result = driven.run("Go", model, model_middleware=[answering]).result
    assert [m["content"] for m in result.messages] == ["Go", "from m"]
    assert (model.sent[0][-1]["content"], model.given[0]) == ("Go!", {"temperature": 0})


def test_it_knows_the_iteration_and_the_attempt(driven):
    seen = []

    def looking(request, send):
        seen.append((request.iteration, request.attempt))
        return (yield from send(request))

    @tool
    def look() -> str:
        return "seen"

    model = ScriptedLLM(BusyError(), calls(call("look")), "Done.")
    driven.run("Hi", model, tools=[look], model_middleware=[looking], retry_delay=0)
    assert seen == [(1, 1), (1, 2), (2, 1)]


def test_it_works_in_a_subagent(way):
    log = []
    helper = Loop(model_middleware=[noting("inner", log)]).as_tool("helper", "Helps.", Named("kid"))
    model = ScriptedLLM(calls(call("helper", "c1", task="Go.")), "Done.")
    observed = way.run("Hi", model, tools=[helper], model_middleware=[noting("outer", log)])
    assert observed.result.messages[2]["content"] == "from kid"
    assert log == [
        "outer in", "outer out", "inner in", "inner out", "outer in", "outer out",
    ]  # fmt: skip


def test_its_exception_is_the_models(driven):
    def failing(request, send):
        yield from send(request)
        raise LookupError("no")

    result = driven.run("Hi", Named("m", usage=Usage(1, 1)), model_middleware=[failing]).result
    assert (result.reason.error_type, result.reason.message) == ("LookupError", "no")


@pytest.mark.parametrize("given", [noting("a", []), [1], "ab"])
def test_anything_else_is_refused(given):
    with pytest.raises(OptionError, match="model_middleware: expected a list of functions"):
        Loop(model_middleware=given)
