"""`Fallback`: which models are asked, with what, and what listeners see."""

import io
import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from treadle import Loop, ModelRetried, Response, Telemetry, TextDelta, Usage, tool
from treadle.cli.progress import make_progress
from treadle.errors import OptionError
from treadle.messages import Chunk, NotAResponseError
from treadle.providers.middleware import Fallback, is_fallback_error
from treadle.testing import call, calls, check_history

from .flaky import BusyError, CodeError, InvalidError, Named, TooManyError, UnauthorizedError


def run(way, first, *others, **options):
    given = {key: options.pop(key) for key in ("on", "retries_first") if key in options}
    options = {"retry_delay": 0, "max_retries": 0, **options}
    return way.run("Hi", first, model_middleware=[Fallback(*others, **given)], **options)


def retried(observed):
    return [
        (event.attempt, event.error_type, event.model, event.next_model)
        for event in observed.events
        if isinstance(event, ModelRetried)
    ]


def test_the_next_models_are_asked_in_order(way):
    first, second = Named("a", BusyError("x")), Named("b", UnauthorizedError())
    third, fourth = Named("c"), Named("d")
    observed = run(way, first, second, third, fourth)
    response = observed.result.unwrap()
    assert (response.text, response.model, response.provider) == ("from c", "c", "p")
    assert [len(one.sent) for one in (first, second, third, fourth)] == [1, 1, 1, 0]
    assert second.sent == third.sent == first.sent
    assert retried(observed) == [
        (1, "BusyError", "a", "b"),
        (1, "UnauthorizedError", "b", "c"),
    ]
    assert observed.result.usage.is_lower_bound


def test_a_model_that_responds_is_the_only_one(way):
    first, second = Named("a"), Named("b")
    observed = run(way, first, second)
    assert observed.result.unwrap() == Response("from a")
    assert (second.sent, retried(observed)) == ([], [])


def test_the_retries_come_after_the_fallback(way):
    """Every attempt of `ask_model` starts with the first model."""
    first, second = Named("a", BusyError(), BusyError()), Named("b", BusyError())
    observed = run(way, first, second, max_retries=3)
    assert observed.result.unwrap().text == "from b"
    assert retried(observed) == [
        (1, "BusyError", "a", "b"),
        (1, "BusyError", None, None),
        (2, "BusyError", "a", "b"),
    ]


def test_the_first_retries_may_go_to_the_first_model_alone(way):
    first, second = Named("a", *[BusyError()] * 3), Named("b")
    observed = run(way, first, second, max_retries=3, retries_first=2)
    assert observed.result.unwrap().text == "from b"
    assert [row[0::3] for row in retried(observed)] == [(1, None), (2, None), (3, "b")]
    first, second = Named("a", UnauthorizedError()), Named("b")
    assert run(way, first, second, retries_first=2).result.unwrap().text == "from b"


def test_if_all_fail_a_temporary_error_is_retried_and_else_the_last_one_is_the_reason(driven):
    first, second = Named("a", BusyError("busy")), Named("b", UnauthorizedError("key"))
    assert run(driven, first, second, max_retries=1).result.unwrap().text == "from a"
    first, second = Named("a", BusyError("busy")), Named("b", UnauthorizedError("key"))
    assert run(driven, first, second).result.reason.message == "busy"
    first, second = Named("a", CodeError("model_not_found")), Named("b", UnauthorizedError("key"))
    assert run(driven, first, second, max_retries=1).result.reason.message == "key"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (BusyError(), True),
        (TooManyError(1), True),
        (ConnectionResetError(), True),
        (UnauthorizedError(), True),
        (CodeError("context_length_exceeded"), True),
        (CodeError("insufficient_quota"), True),
        (CodeError("model_not_found"), True),
        (NotAResponseError("a page"), True),
        (OptionError("no key"), True),
        (ExceptionGroup("", [BusyError(), UnauthorizedError()]), True),
        (ExceptionGroup("", [BusyError(), InvalidError()]), False),
        (InvalidError(), False),
        (CodeError("invalid_value"), False),
        (ValueError(), False),
    ],
    ids=repr,
)
def test_the_errors_that_another_model_may_not_have(error, expected):
    assert is_fallback_error(error) is expected
    model = Named("b")
    result = run_sync(Named("a", error), Fallback(model))
    assert len(model.sent) == expected
    assert result.stop_reason == ("answered" if expected else "llm_error")


def run_sync(model, *middleware, **options):
    return Loop.run_sync("Hi", model, model_middleware=middleware, max_retries=0, **options)


def test_the_next_model_is_asked_at_once_if_a_server_asks_for_a_long_wait():
    """Although the first retries go to the first model; a short wait is made."""
    first, second = Named("a", TooManyError(3600)), Named("b")
    result = Loop.run_sync("Hi", first, model_middleware=[Fallback(second, retries_first=2)])
    assert (result.unwrap().text, len(first.sent)) == ("from b", 1)
    first = Named("a", TooManyError(0.01), TooManyError(61))
    result = Loop.run_sync("Hi", first, model_middleware=[Fallback(second, retries_first=2)])
    assert (result.unwrap().text, len(first.sent)) == ("from b", 2)


def test_another_model_is_asked_if_a_server_asks_not_to_retry():
    class NeverError(BusyError):
        headers = {"x-should-retry": "false"}  # noqa: RUF012 - an exception of a test

    assert run_sync(Named("a", NeverError()), Fallback(Named("b"))).unwrap().text == "from b"


def test_if_all_are_busy_the_shortest_wait_counts():
    first, second = Named("a", TooManyError(3600)), Named("b", TooManyError(0.01))
    result = Loop.run_sync("Hi", first, model_middleware=[Fallback(second)])
    assert result.unwrap().text == "from a"
    first, second = Named("a", TooManyError(7200)), Named("b", TooManyError(3600))
    reason = Loop.run_sync("Hi", first, model_middleware=[Fallback(second)]).reason
    assert "asked to wait 3,600 s, more than max_retry_delay=60" in str(reason)


def test_on_decides_in_place_of_the_default():
    model = Named("b")
    assert (
        run_sync(Named("a", BusyError()), Fallback(model, on=lambda error: False)).stop_reason
        == "llm_error"
    )
    assert model.sent == []
    assert run_sync(Named("a", ValueError()), Fallback(model, on=lambda error: True)).unwrap()


def test_a_stream_that_showed_text_is_not_continued_by_another_model(way):
    """Whatever ``on`` says."""
    first, second = Named("a", ["Once ", ConnectionResetError("reset")]), Named("b")
    observed = run(way, first, second, max_retries=3, on=lambda error: True)
    assert second.sent == []
    assert len(first.sent) == 1
    assert observed.result.stop_reason == "llm_error"
    assert observed.result.messages[-1] == {"role": "assistant", "content": "Once "}


def test_a_stream_without_text_is_given_up(way):
    thought = Chunk(extra={"reasoning": "Hm."})
    first, second = Named("a", [thought, ConnectionResetError()]), Named("b", ["Hel", "lo"])
    observed = run(way, first, second)
    assert observed.result.unwrap().text == "Hello"
    kinds = [type(e) for e in observed.events if isinstance(e, (ModelRetried, TextDelta))]
    assert kinds == [ModelRetried, TextDelta, TextDelta]
    assert observed.result.messages[-1] == {"role": "assistant", "content": "Hello"}


def test_another_model_gets_the_tools_and_options_but_not_the_name_of_the_first():
    @tool
    def look() -> str:
        return "seen"

    first, second = Named("a", BusyError()), Named("b")
    options = {"model": "a", "temperature": 0, "stop": ["x"]}
    run_sync(first, Fallback(second), tools=[look], llm_opts=options)
    assert first.given[0].pop("model") == "a"
    assert second.given == first.given
    assert [one["function"]["name"] for one in second.given[0]["tools"]] == ["look"]


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


@pytest.mark.parametrize("takes_parts", [False, True])
def test_a_model_that_takes_no_parts_gets_texts(takes_parts):
    asked = calls(call("look", "c1"))
    messages = [
        {"role": "user", "content": "Hi"},
        asked,
        {"role": "tool", "tool_call_id": "c1", "content": [IMAGE]},
        {"role": "user", "content": "And?"},
    ]
    first = Named("a", BusyError(), takes_parts=True)
    second = Named("b", takes_parts=takes_parts)
    result = Loop.run_sync(messages, first, model_middleware=[Fallback(second)])
    assert result.unwrap().text == "from b"
    assert first.sent[0][2]["content"] == [IMAGE]
    assert isinstance(second.sent[0][2]["content"], list if takes_parts else str)
    if not takes_parts:
        assert IMAGE in second.sent[0][3]["content"]
    check_history(result.messages)


def test_a_named_model_is_opened_when_it_is_needed(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    fallback = Fallback("openai:gpt-5-mini", Named("c"))
    assert run_sync(Named("a"), fallback).unwrap().text == "from a"
    result = run_sync(Named("a", BusyError()), fallback)  # it has no key: the next one is asked
    assert result.unwrap().text == "from c"
    with pytest.raises(OptionError, match="'nobody:x' is unknown"):
        Fallback("nobody:x")


def test_it_is_logged(caplog):
    with caplog.at_level(logging.WARNING, "treadle"):
        run_sync(Named("a", BusyError()), Fallback(Named("b")))
    assert [record.message for record in caplog.records] == [
        "iteration 1: the model a failed (BusyError); calling b"
    ]


def test_the_usage_of_a_failed_model_is_unknown(driven):
    second = Named("b", usage=Usage(3, 2))
    observed = run(driven, Named("a", BusyError()), second, max_total_tokens=100)
    assert observed.result.usage == Usage(3, 2, is_lower_bound=True)


def test_it_needs_models():
    with pytest.raises(OptionError, match="expected at least one model"):
        Fallback()
    with pytest.raises(OptionError, match="expected a callable"):
        Fallback(5)


def test_the_command_shows_the_switch():
    stream = io.StringIO()
    with make_progress(stream) as progress:
        run_sync(Named("a", BusyError("busy")), Fallback(Named("b")), on_event=progress)
    assert "iteration 1: a failed, calling b: BusyError: busy\n" in stream.getvalue()


def test_the_command_shows_no_text_so_a_broken_stream_is_retried():
    model = Named("a", ["Once ", ConnectionResetError()], ["Whole."])
    with make_progress(io.StringIO()) as progress:
        result = Loop.run_sync("Hi", model, on_event=progress, retry_delay=0)
    assert result.unwrap().text == "Whole."


def test_the_switch_is_a_span_event():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_sync(
        Named("a", BusyError("busy")),
        Fallback(Named("b")),
        telemetry=Telemetry(tracer_provider=provider),
    )
    (event,) = [
        event
        for span in exporter.get_finished_spans()
        for event in span.events
        if "retry" in event.name
    ]
    assert event.attributes["treadle.next_model"] == "b"
