"""`JSONToolModel`: models without native tool use call tools, by scripted models and by a real one."""

import asyncio
import json
from dataclasses import dataclass

import jsonschema
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.samples import add

from treadle import Err, Loop, Ok, OptionError, Output, tool
from treadle.events import TextDelta
from treadle.messages import Chunk, Response, Usage
from treadle.messages.decode import to_response
from treadle.messages.stream import StreamAccumulator
from treadle.pipeline import stage
from treadle.providers import JSONToolModel, backend
from treadle.providers.json_tools.conversation import plain_messages
from treadle.providers.json_tools.offer import Offer, offer_of
from treadle.providers.json_tools.reply import read_reply, translated
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, check_history

from .histories import PIXEL, histories


def function(name, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": f"Do {name}.", "parameters": schema},
    }


NUMBER = {"type": "integer"}
ADD = function("add", a=NUMBER, b=NUMBER)
CLOCK = {"type": "function", "function": {"name": "clock"}}
NAMED = {"type": "function", "function": {"name": "add"}}
OFFER = offer_of({"tools": [ADD, CLOCK]}, is_parallel=False)
QUESTION = [{"role": "user", "content": "1 + 2?"}]
CALL = '{"tool": "add", "arguments": {"a": 1, "b": 2}}'
ANSWER = '{"answer": "It is three."}'
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}


def calls_of(reply):
    return [(call.name, call.arguments) for call in reply[1]]


# ---------------------------------------------------------------- what is offered


def accepts(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("opts", "accepted", "rejected"),
    [
        (
            {},
            [CALL, ANSWER, '{"tool": "clock", "arguments": {}}'],
            [
                '{"tool": "sub", "arguments": {}}',
                '{"tool": "add", "arguments": {"a": "1", "b": 2}}',
                '{"tool": "add", "arguments": {"a": 1, "b": 2, "c": 3}}',
                '{"tool": "add"}',
                '{"answer": 3}',
                '{"answer": "3", "tool": "clock", "arguments": {}}',
            ],
        ),
        ({"tool_choice": "required"}, [CALL], [ANSWER]),
        ({"tool_choice": NAMED}, [CALL], [ANSWER, '{"tool": "clock", "arguments": {}}']),
        (
            {"parallel_tool_calls": True},
            [f'{{"calls": [{CALL}, {CALL}]}}', ANSWER],
            [CALL, '{"calls": []}'],
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "integer"}},
                }
            },
            [CALL, '{"answer": 3}'],
            [ANSWER],
        ),
        ({"response_format": {"type": "json_object"}}, ['{"answer": {"x": 1}}'], [ANSWER]),
    ],
)
def test_the_schema_accepts_the_calls_and_answers_that_are_offered(opts, accepted, rejected):
    schema = offer_of({"tools": [ADD, CLOCK], **opts}, is_parallel=False).schema()
    for text in accepted:
        assert accepts(schema, json.loads(text)), text
    for text in rejected:
        assert not accepts(schema, json.loads(text)), text


@pytest.mark.parametrize("opts", [{}, {"tools": []}, {"tools": [ADD], "tool_choice": "none"}])
def test_nothing_is_offered_without_tools(opts):
    assert offer_of(opts, is_parallel=False) is None


@pytest.mark.parametrize(
    "choice", ["some", {"type": "function", "function": {"name": "sub"}}, {"type": "x"}, 3]
)
def test_a_choice_that_names_no_tool_is_an_error(choice):
    with pytest.raises(OptionError, match="names none of the tools: add"):
        offer_of({"tools": [ADD], "tool_choice": choice}, is_parallel=False)


@pytest.mark.parametrize("form", [{}, {"json_schema": 3}, {"json_schema": {"schema": 3}}])
def test_a_response_format_without_its_schema_is_an_error(form):
    with pytest.raises(OptionError, match="response_format: expected json_schema"):
        offer_of(
            {"tools": [ADD], "response_format": {"type": "json_schema", **form}}, is_parallel=False
        )


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CALL, (None, [("add", '{"a": 1, "b": 2}')])),
        (ANSWER, ("It is three.", [])),
        ('{"answer": null}', ("null", [])),
        ('{"answer": {"x": 1}}', ('{"x": 1}', [])),
        ('{"tool": "clock"}', (None, [("clock", "{}")])),
        ('{"tool": "nope", "arguments": {}}', (None, [("nope", "{}")])),
        ('{"tool": "add", "arguments": "{}"}', (None, [("add", "{}")])),
        ('{"tool": "add", "arguments": [1]}', (None, [("add", "[1]")])),
        (f'{{"calls": [{CALL}, {{"tool": "clock"}}]}}', (None, [("add", '{"a": 1, "b": 2}'), ("clock", "{}")])),
        (f"[{CALL}]", (None, [("add", '{"a": 1, "b": 2}')])),
        (f"{CALL}\n{CALL}", (None, [("add", '{"a": 1, "b": 2}')] * 2)),
        (f"Let me see.\n```json\n{CALL}\n```", ("Let me see.", [("add", '{"a": 1, "b": 2}')])),
        ('{"name": "clock", "parameters": {}}', (None, [("clock", "{}")])),
        ('{"name": "Anna", "age": 3}', ('{"name": "Anna", "age": 3}', [])),
        ("It is three.", ("It is three.", [])),
        ("A set is {1, 2}.", ("A set is {1, 2}.", [])),
        ("", ("", [])),
        # malformed: the model is shown the error of its call
        ('{"tool": "add", "arguments": {"a": 1,', (None, [("add", '{"a": 1,')])),
        ('{"tool": "ad', (None, [("ad", '{"tool": "ad')])),
        ('{"calls": [{"tool": "add", "arguments": {"a"', (None, [("add", '{"a"')])),
        ('{"tool": "add", "arguments": {"a": {"tool": "b"}, }', (None, [("add", '{"a": {"tool": "b"}, }')])),
        ('{"tool": "clock", "arguments": ', (None, [("clock", "{")])),
        ('{"tool": "clock", "arguments":\n\n', (None, [("clock", "{")])),
        # cut off in the answer
        ('{"answer": "It is th', ("It is th", [])),
        ('```json\n{"answer": "A\\nB \\u00e9 \\ud83d\\ude00"}\n```', ("A\nB é 😀", [])),
        ('{"answer": "C:\\path"}', ("C:\\path", [])),
    ],
)  # fmt: skip
def test_a_response_is_read(text, expected):
    reply = read_reply(text, OFFER)
    assert (reply[0], calls_of(reply)) == expected


@pytest.mark.parametrize(
    "text",
    [
        f"You could write {CALL}.",
        f"You could write {CALL}",
        f"{CALL} would add them.",
        f"For example:\n```json\n{CALL}\n```\nwould add them.",
        f"`{CALL}`",
        f"1. {CALL}\n2. {CALL}",
        f"<think>\n{CALL}",
        f"<think>a</think>\n<think>\n{CALL}",
    ],
)
def test_a_call_that_is_quoted_does_not_act(text):
    assert read_reply(text, OFFER) == (text, ())


def test_an_answer_in_json_is_the_text_of_the_answer():
    offer = Offer(OFFER.functions, may_answer=True, is_parallel=False, answer={"type": "string"})
    assert read_reply('{"answer": "x"}', offer) == ('"x"', ())


def test_many_braces_and_deep_nesting_are_text():
    for text in ("{" * 100_000, '{"a":' * 5_000, "[" * 5_000):
        assert read_reply(text, OFFER) == (text, ())


json_texts = st.sampled_from(
    [
        CALL,
        ANSWER,
        '{"answer": "',
        '{"tool": "',
        "```json\n",
        "\\u",
        "\\",
        "\\N",
        "\\ud83d\\ude00",
        "\\udc00",
        "\\ud83d",
        '"',
        "}",
    ]
)
replies = st.lists(st.text(max_size=12) | json_texts, max_size=6).map("".join)


@given(replies, st.lists(st.integers(1, 12), min_size=1, max_size=8), st.booleans())
def test_streamed_and_whole_responses_are_the_same(text, sizes, has_schema):
    answer = {"type": "object"} if has_schema else None
    offer = Offer(OFFER.functions, may_answer=True, is_parallel=False, answer=answer)
    pieces, place = [], 0
    while place < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(Chunk(text[place : place + size], ends_with_reason=True))
        place += size
    accumulator = StreamAccumulator()
    for chunk in translated(iter([*pieces, Chunk(finish_reason="stop")]), offer):
        accumulator.add(chunk)
    streamed, whole = (
        accumulator.response(),
        translated(Response(text, finish_reason="stop"), offer),
    )
    assert (streamed.content or "", streamed.tool_calls) == (whole.content or "", whole.tool_calls)
    assert streamed.finish_reason == whole.finish_reason


def test_the_text_of_an_answer_is_streamed_as_it_arrives():
    pieces = ['{"ans', 'wer": "It', " is \\u00", 'e9"', "}"]
    assert [chunk.text for chunk in translated(iter(pieces), OFFER)] == [
        "",
        "It",
        " is ",
        "é",
        "",
        "",
    ]


# ---------------------------------------------------------------- conversations


def exchange(*results, text=None):
    calls = [
        {"id": f"c{index}", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for index in range(len(results))
    ]
    said = {"role": "assistant", "content": text, "tool_calls": calls, "reasoning": "Hm."}
    return [
        said,
        *({"role": "tool", "tool_call_id": f"c{i}", "content": r} for i, r in enumerate(results)),
    ]


def test_calls_and_results_become_plain_messages():
    history = [*QUESTION, *exchange("3"), {"role": "user", "content": "Sure?"}]
    _, question, said, result = plain_messages(history, OFFER)
    assert question == QUESTION[0]
    assert said == {
        "role": "assistant",
        "content": '{"tool": "add", "arguments": {}}',
        "reasoning": "Hm.",
    }
    assert result == {"role": "user", "content": "Result of add:\n3\n\nSure?"}


def test_parallel_calls_become_one_message_and_their_results_another():
    said, results = plain_messages(exchange("3", "Error: no", text="Two."), None)
    assert said["content"].startswith('Two.\n\n{"calls": [')
    assert results["content"] == "Result of add:\n3\n\nResult of add:\nError: no"


def test_content_parts_of_a_result_are_kept():
    (_, result) = plain_messages(exchange([IMAGE]), None)
    assert result["content"] == [{"type": "text", "text": "Result of add:"}, IMAGE]


def test_the_tools_are_described_in_the_system_message():
    (system, _) = plain_messages([{"role": "system", "content": "Be brief."}, *QUESTION], OFFER)
    assert system["content"].startswith("Be brief.\n\nYou can call these tools:\n\nadd: Do add.")
    (added, _) = plain_messages(QUESTION, OFFER)
    assert added["role"] == "system"


@given(histories(), st.sampled_from([None, OFFER]))
def test_any_history_becomes_a_valid_one_without_tools_and_is_not_changed(history, offer):
    before = json.dumps(history)
    plain = plain_messages(history, offer)
    check_history(plain)
    assert json.dumps(history) == before
    assert not any(message["role"] == "tool" or "tool_calls" in message for message in plain)
    after_results = [
        one
        for one, last in zip(plain[1:], plain, strict=False)
        if one["role"] == last["role"] == "user"
    ]
    assert not after_results
    shown = json.dumps(plain)
    assert all(json.dumps(m["content"])[1:-1] in shown for m in history if m["role"] == "user")


# ---------------------------------------------------------------- runs


def is_plain(request):
    return "tools" not in request.opts and all(m["role"] != "tool" for m in request.messages)


def streamed(text, size=5):
    pieces = [text[place : place + size] for place in range(0, len(text), size)]
    usage = Usage(10, 5)
    return [*map(Chunk, pieces), Chunk(finish_reason="stop", usage=usage, ends_with_reason=True)]


def run(model, driver, **options):
    options = {"tools": [add], "retry_delay": 0.01, **options}
    if driver == "run_sync":
        return Loop.run_sync(QUESTION, model, **options)
    if driver == "asyncio":
        return asyncio.run(Loop.run(QUESTION, model, **options))
    return trio.run(lambda: Loop.run(QUESTION, model, **options))


@pytest.mark.parametrize("driver", ["run_sync", "asyncio", "trio"])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("form", [str, streamed])
def test_a_run_calls_a_tool_and_answers(driver, is_async, form):
    events = []
    scripted = ScriptedLLM(form(CALL), form(ANSWER), is_async=is_async)

    result = run(JSONToolModel(scripted), driver, on_event=events.append)

    assert isinstance(result, Ok)
    assert result.output == "It is three."
    check_history(result.messages)
    assert result.messages[2]["content"] == "3"
    assert all(map(is_plain, scripted.sent))
    assert scripted.sent[0].opts["response_format"]["type"] == "json_schema"
    assert scripted.sent[1].messages[-1]["content"] == "Result of add:\n3"
    if form is streamed:
        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert ("".join(texts), len(texts)) == ("It is three.", 3)
        assert result.usage.total_tokens == 30


def test_a_malformed_call_is_answered_so_that_the_model_corrects_it():
    result = run(
        JSONToolModel(ScriptedLLM('{"tool": "add", "arguments": {"a": 1', CALL, ANSWER)), "run_sync"
    )
    assert result.output == "It is three."
    assert result.messages[2]["content"].startswith("Error: the call of 'add' was not run")
    check_history(result.messages)


def test_parallel_calls_run_in_one_iteration():
    scripted = ScriptedLLM(
        f'{{"calls": [{CALL}, {{"tool": "add", "arguments": {{"a": 3, "b": 4}}}}]}}', ANSWER
    )
    result = run(JSONToolModel(scripted, parallel_tool_calls=True), "run_sync")
    assert (result.output, result.tool_calls_count) == ("It is three.", 2)
    assert "calls" in json.dumps(scripted.sent[0].opts["response_format"])


@pytest.mark.parametrize("kind", ["json_object", None])
def test_the_constraint_can_be_looser(kind):
    scripted = ScriptedLLM(ANSWER)
    run(JSONToolModel(scripted, response_format=kind), "run_sync")
    assert scripted.sent[0].opts == ({"response_format": {"type": kind}} if kind else {})


def test_an_answer_in_json_needs_no_constraint_by_the_server():
    scripted = ScriptedLLM(CALL, '{"answer": {"value": 3}}')
    model = JSONToolModel(scripted, response_format=None)
    result = run(model, "run_sync", output=Output(Sum, mode="json"))
    assert result.output == Sum(3)
    assert [sent.opts for sent in scripted.sent] == [{}, {}]


def test_an_unknown_constraint_is_an_error():
    with pytest.raises(OptionError, match="response_format: expected 'json_schema'"):
        JSONToolModel(ScriptedLLM(), response_format="xml")


def test_a_function_of_messages_alone_is_not_constrained():
    result = run(JSONToolModel(lambda messages: CALL if len(messages) < 4 else ANSWER), "run_sync")
    assert result.output == "It is three."


def test_options_reach_the_model_and_unknown_ones_are_errors():
    seen = []

    def model(messages, temperature=1):
        seen.append(temperature)
        return ANSWER

    run(JSONToolModel(model), "run_sync", llm_opts={"temperature": 0.5})
    assert seen == [0.5]
    result = run(JSONToolModel(model), "run_sync", llm_opts={"temprature": 0.5})
    assert isinstance(result, Err)
    assert "did you mean 'temperature'" in str(result.reason)


@dataclass
class Sum:
    value: int


@pytest.mark.parametrize(
    ("mode", "reply"),
    [
        ("json", '{"answer": {"value": 3}}'),
        ("tool", '{"tool": "Sum", "arguments": {"value": 3}}'),
    ],
)
def test_typed_output_works_in_both_modes(mode, reply):
    scripted = ScriptedLLM(CALL, reply)
    result = run(JSONToolModel(scripted), "run_sync", output=Output(Sum, mode=mode))
    assert isinstance(result, Ok), result
    assert result.output == Sum(3)


def test_the_last_attempt_at_an_output_is_constrained_to_the_output_tool():
    scripted = ScriptedLLM(ANSWER, ANSWER, '{"tool": "Sum", "arguments": {"value": 3}}')
    result = run(JSONToolModel(scripted), "run_sync", output=Sum)
    assert result.output == Sum(3)
    schema = scripted.sent[-1].opts["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["tool"] == {"const": "Sum"}


def test_a_request_without_tools_passes_through():
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    scripted = ScriptedLLM('{"tool": "add"}')
    answer = to_response(
        JSONToolModel(scripted)(
            [*QUESTION], response_format=schema, tools=[ADD], tool_choice="none"
        )
    )
    assert (answer.content, answer.tool_calls) == ('{"tool": "add"}', ())
    assert scripted.sent[0].opts == {"response_format": schema}
    assert scripted.sent[0].messages == QUESTION


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_that_breaks_off_runs_no_call(is_async):
    broken = [Chunk(CALL, ends_with_reason=True)]
    scripted = ScriptedLLM(broken, streamed(ANSWER), is_async=is_async)
    result = run(JSONToolModel(scripted), "asyncio", max_retries=1)
    assert (result.output, result.tool_calls_count) == ("It is three.", 0)


def test_a_stream_that_breaks_off_emits_no_text_that_was_not_shown():
    broken = [Chunk("It is", ends_with_reason=True)]
    chunks = JSONToolModel(ScriptedLLM(broken))([*QUESTION], tools=[ADD])
    assert [chunk.text for chunk in chunks] == ["", ""]


def test_streams_are_closed_when_the_run_is_cancelled():
    closed = []

    class Stream:
        """As the stream of an SDK: a connection stays open until it is closed."""

        def __aiter__(self):
            return self

        async def __anext__(self):
            await asyncio.sleep(60)

        async def close(self):
            closed.append("closed")

    async def model(messages, **opts):
        return Stream()

    result = run(JSONToolModel(model), "asyncio", max_seconds=0.1)
    assert isinstance(result, Err)
    assert closed == ["closed"]


def test_reasoning_usage_and_names_pass_through():
    message = {"role": "assistant", "content": CALL, "reasoning": "Hm."}
    completion = {
        "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
        "model": "m",
    }
    answer = JSONToolModel(ScriptedLLM(completion))([*QUESTION], tools=[ADD])
    assert answer.extra == {"reasoning": "Hm."}
    assert (answer.usage.total_tokens, answer.model, answer.finish_reason) == (7, "m", "stop")


def test_it_shows_the_model_that_it_calls_and_closes_it():
    class Backend:
        model, provider, opts = "m", "p", {"temperature": 0.5}
        endpoint_url = "http://127.0.0.1:1"
        closed = 0

        def __call__(self, messages, **opts):
            return ANSWER

        def close(self):
            self.closed += 1

    inner = Backend()
    model = JSONToolModel(inner)
    assert model.endpoint_url == "http://127.0.0.1:1"
    assert (model.model, model.provider, model.opts) == ("m", "p", {"temperature": 0.5})
    model.close()
    assert inner.closed == 1


def test_a_name_opens_the_model(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    model = JSONToolModel("openai:gpt-4.1", response_format=None)
    assert (model.model, model.provider) == ("gpt-4.1", "openai")


@given(st.lists(replies, min_size=1, max_size=4), st.booleans())
def test_no_text_breaks_a_run(texts, is_streamed):
    form = streamed if is_streamed else str
    script = iter([form(text) for text in texts])
    last = form(ANSWER)

    def model(messages, **opts):
        found = next(script, last)
        return iter(found) if is_streamed else found

    result = run(JSONToolModel(model), "run_sync")
    check_history(result.messages)
    assert result.stop_reason != "llm_error"


# ---------------------------------------------------------------- a real model


@pytest.fixture(scope="module")
def bare():
    """The endpoint of a real model whose template drops ``tools``."""
    from treadle.providers.local import LocalModel

    with LocalModel(threads=1) as model:
        yield lambda **opts: backend(
            "openai:local", base_url=model.base_url, api_key=model.api_key, **opts
        )


@tool
def get_weather(city: str) -> str:
    """Get the weather in a city."""
    return f"{city}: 18 degrees, drizzle"


@pytest.mark.local
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[get_weather], [get_weather, add]])
def test_a_real_model_is_constrained_to_calls_and_answers(bare, stream, tools):
    model = JSONToolModel(bare(stream=stream, temperature=0, max_tokens=80))
    asked = [{"role": "user", "content": "What's the weather in Lima?"}]

    result = asyncio.run(Loop.run(asked, model, tools=tools, max_iterations=3))

    check_history(result.messages)
    assert result.stop_reason != "llm_error", result
    said = [message for message in result.messages if message["role"] == "assistant"]
    calls = [call["function"] for message in said for call in message.get("tool_calls", ())]
    names = {one.name for one in tools}
    assert all(call["name"] in names for call in calls)


@stage
def call_first(ctx):
    """Left alone, a model of 135 million parameters answers at once."""
    return ctx.with_request(tool_choice="required") if ctx.iteration == 1 else ctx


@pytest.mark.local
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[get_weather], [add, get_weather]])
def test_a_real_model_that_has_to_call_a_tool_calls_the_right_one_and_answers(bare, stream, tools):
    model = JSONToolModel(bare(stream=stream, temperature=0, max_tokens=80))
    asked = [{"role": "user", "content": "What's the weather in Lima?"}]
    stages = [call_first, *default_stages()]

    result = asyncio.run(Loop.run(asked, model, tools=tools, stages=stages, max_iterations=4))

    check_history(result.messages)
    assert isinstance(result, Ok), result
    function = result.messages[1]["tool_calls"][0]["function"]
    assert function["name"] == "get_weather"
    assert json.loads(function["arguments"])["city"].lower() == "lima"
    assert result.messages[2]["content"].endswith("18 degrees, drizzle")


@pytest.mark.local
def test_a_real_model_calls_the_named_tool_even_if_it_does_not_fit(bare):
    model = JSONToolModel(bare(temperature=0, max_tokens=80))
    asked = [{"role": "user", "content": "What's the weather in Lima?"}]
    choice = {"tool_choice": {"type": "function", "function": {"name": "add"}}}

    result = asyncio.run(
        Loop.run(asked, model, tools=[get_weather, add], llm_opts=choice, max_iterations=1)
    )

    (call,) = result.messages[1]["tool_calls"]
    assert call["function"]["name"] == "add"
    assert json.loads(call["function"]["arguments"]).keys() == {"a", "b"}
    assert not result.messages[2]["content"].startswith("Error")
