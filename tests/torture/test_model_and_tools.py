"""The scripted model of the torture suite, and its tools."""

import asyncio
import inspect
from typing import Literal, get_type_hints

import pytest
from torture_suite import (
    Log,
    Model,
    Scenario,
    ScenarioOver,
    TooManyCalls,
)
from torture_suite.model import MAX_CALLS
from torture_suite.script import (
    NO_ID,
    Broken,
    Chunked,
    ModelError,
    Raw,
    Reply,
    always,
    call,
    calls,
    says,
)
from torture_suite.toolbox import WEATHER

ASK = {"role": "user", "content": "Hi."}


def model(*script):
    return Model(Scenario("s", "c", "t", script), Log())


def made(message):
    return model(message).reply([ASK])


# The model


def test_the_model_follows_its_script_and_then_is_done():
    scripted = model(says("one"))

    assert [scripted.reply([ASK])["content"] for _ in range(3)] == ["one", "done", "done"]


def test_the_model_gives_calls_ids_that_are_unique_unless_the_script_says_otherwise():
    scripted = model(calls(call("a"), call("b")), calls(call("a", id=""), call("b", id=NO_ID)))

    ids = [one.get("id") for _ in range(2) for one in scripted.reply([ASK])["tool_calls"]]

    assert ids == ["call_0_0", "call_0_1", "", None]


def test_the_model_keeps_copies_of_what_it_was_asked():
    scripted, messages = model(says("one")), [dict(ASK)]

    reply = scripted.reply(messages, [{"type": "function"}])
    messages[0]["content"] = reply["content"] = "changed"

    assert scripted.asked[0].messages == [ASK]
    assert scripted.asked[0].tools == [{"type": "function"}]
    assert scripted.asked[0].message == says("one")


def test_the_model_refuses_to_be_asked_for_ever():
    scripted = Model(Scenario("s", "c", "t", always(says("again"))), Log())
    for _ in range(MAX_CALLS):
        scripted.reply([ASK])

    assert not scripted.overrun
    with pytest.raises(TooManyCalls):
        scripted.reply([ASK])
    assert scripted.overrun


def test_the_model_refuses_when_the_scenario_is_over():
    scripted = model()
    scripted.log.released.set()

    with pytest.raises(ScenarioOver):
        scripted.reply([ASK])


def test_the_model_raises_what_the_script_says_and_notes_it():
    error = ModelError(429, "slow down")
    scripted = model(error)

    with pytest.raises(ModelError, match="429"):
        scripted.reply([ASK])
    assert scripted.asked[0].error is error
    assert (error.status_code, error.response.headers["retry-after"]) == (429, "0.01")


def test_a_completion_has_what_providers_return():
    asked = calls(call("ping"))
    scripted = model(asked, Reply(says("cut"), finish_reason="length", usage=None), Raw(42))

    first, second, third = (scripted.completion([ASK]) for _ in range(3))

    assert first["choices"][0]["finish_reason"] == "tool_calls"
    assert first["usage"]["total_tokens"] == 15
    assert second["choices"][0]["finish_reason"] == "length"
    assert "usage" not in second
    assert third == 42


def together(chunks):
    """The text, the arguments of each call, and the finish reason that chunks say."""
    text, arguments, reason = "", {}, None
    for chunk in chunks:
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
            for one in choice["delta"].get("tool_calls") or []:
                index = one["index"]
                arguments[index] = arguments.get(index, "") + one["function"]["arguments"]
    return text.strip(), list(arguments.values()), reason


def test_a_stream_says_what_the_reply_would_have_said():
    whole = calls(call("a", {"x": 1}), call("b", {"y": 2}), text="let me see")

    streamed = together(model(whole).stream([ASK]))

    assert streamed == ("let me see", ['{"x": 1}', '{"y": 2}'], "tool_calls")


def test_a_broken_stream_stops_after_its_pieces():
    error = ConnectionError("gone")

    text, _, reason = together(model(Broken(says("one two three"), 3)).stream([ASK]))
    broken = model(Broken(says("one two three"), 2, error))

    assert (text, reason) == ("one two", None)
    with pytest.raises(ConnectionError):
        list(broken.stream([ASK]))
    assert broken.asked[0].error is error


def test_a_broken_stream_is_an_error_for_who_does_not_stream():
    with pytest.raises(ConnectionError):
        model(Broken(says("one"))).reply([ASK])


def test_a_stream_can_be_of_given_chunks():
    chunked = Chunked(says("ab"), ({"content": "a"}, {"content": "b"}))

    assert together(model(chunked).stream([ASK])) == ("ab", [], "stop")
    assert made(chunked) == says("ab")
    assert list(model(Chunked(says(""))).stream([ASK])) == []


def test_the_model_has_async_forms():
    async def main():
        return await model(says("one")).areply([ASK]), [
            chunk async for chunk in model(says("one")).astream([ASK])
        ]

    reply, chunks = asyncio.run(main())

    assert reply == says("one")
    assert together(chunks)[0] == "one"


# Tools


def test_a_tool_notes_what_it_was_handed_and_what_became_of_it():
    log = Log()
    tool = WEATHER.made(log)

    result = asyncio.run(tool.fn(city="Bern"))

    (run,) = log.runs
    assert (run.tool, run.given, run.result) == ("get_weather", {"city": "Bern"}, result)
    assert run.succeeded
    assert run.is_marked
    assert run.overlap == 1


def test_a_tool_is_strict_about_names_as_any_function_is():
    tool = WEATHER.made(Log())

    for arguments in ({}, {"city": "Bern", "mood": "happy"}):
        with pytest.raises(TypeError):
            asyncio.run(tool.fn(**arguments))
    assert tool.fn.__closure__ is not None


def test_a_tool_can_be_had_as_a_function_written_by_hand():
    log = Log()
    function = WEATHER.made(log).function

    asyncio.run(function("Bern", days=2))

    assert log.runs[0].given == {"city": "Bern", "days": 2}
    assert str(inspect.signature(function)).startswith("(city: str, days: int | None = None")
    assert get_type_hints(function)["unit"] == Literal["celsius", "fahrenheit"] | None
    assert function.__name__ == "get_weather"
    assert inspect.iscoroutinefunction(function)


def test_nothing_is_noted_after_the_scenario_is_over():
    log = Log()
    run = log.begin("late", {})
    log.released.set()
    log.end(run, "too late")

    assert not run.succeeded
