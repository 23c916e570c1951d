"""What a backend returns becomes a response; anything else is an error that describes it."""

import json
from decimal import Decimal

import pytest
from pydantic import BaseModel

from treadle import Err, LLMError, Loop, Ok, Response, ToolCall, Usage
from treadle.messages import CallChunk, Chunk, NotAResponseError
from treadle.messages.decode import to_chunk, to_response, to_usage
from treadle.messages.measurement import COUNTS

USER = [{"role": "user", "content": "Hi"}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
COMPLETION = {
    "id": "x1",
    "model": "m1",
    "choices": [
        {
            "message": {"role": "assistant", "content": "Hi", "tool_calls": [CALL]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
}


def message(**more):
    return {"role": "assistant", "content": "Hi", **more}


class TestForms:
    """Every form that a response may have."""

    def test_text(self):
        assert to_response("Hi") == Response("Hi")

    def test_a_response_is_itself(self):
        response = Response("Hi")
        assert to_response(response) is response

    def test_an_assistant_message(self):
        assert to_response(message(tool_calls=[CALL])) == Response(
            "Hi", (ToolCall("c1", "add", '{"a": 1}'),)
        )

    @pytest.mark.parametrize(
        "given", [{"content": "Hi"}, {"content": "Hi", "tool_calls": None}, message(tool_calls=[])]
    )
    def test_a_minimal_message(self, given):
        assert to_response(given) == Response("Hi")

    def test_a_chat_completion(self):
        response = to_response(COMPLETION)
        assert (response.content, response.finish_reason) == ("Hi", "tool_calls")
        assert (response.model, response.id) == ("m1", "x1")
        assert response.tool_calls == (ToolCall("c1", "add", '{"a": 1}'),)
        assert response.usage == Usage(3, 4, 7)

    def test_an_object_with_model_dump(self):
        class Message(BaseModel):
            role: str = "assistant"
            content: str = "Hi"
            refusal: str | None = None

        assert to_response(Message()) == Response("Hi")

    def test_a_real_openai_completion(self):
        chat = pytest.importorskip("openai.types.chat")
        given = {**COMPLETION, "object": "chat.completion", "created": 1}
        given["choices"] = [{**COMPLETION["choices"][0], "index": 0}]
        response = to_response(chat.ChatCompletion.model_validate(given))
        assert (response.content, response.usage) == ("Hi", Usage(3, 4, 7))
        assert response.tool_calls[0].name == "add"
        assert response.extra == {}

    def test_content_of_parts_becomes_their_text_and_the_parts_are_kept(self):
        parts = [
            {"type": "text", "text": "Hi "},
            {"type": "thinking"},
            {"type": "text", "text": "you"},
        ]
        response = to_response(message(content=parts))
        assert response.content == "Hi you"
        assert response.extra == {"content": parts}
        assert response.extra["content"][0] is not parts[0]

    @pytest.mark.parametrize("part", ["Hi", {"text": "you"}, {"type": 5, "text": "you"}, None, 5])
    def test_invalid_parts_are_dropped_but_their_text_is_kept(self, part):
        """With them, a provider would refuse every later request of the conversation."""
        parts = [{"type": "text", "text": "Hi "}, part]
        response = to_response(message(content=parts))
        assert response.content == ("Hi you" if isinstance(part, dict) else "Hi ")
        assert response.extra == {}

    def test_a_finish_reason_that_is_not_text_is_converted_to_text(self):
        given = {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "finish_reason": 5}]}
        assert to_response(given).finish_reason == "5"
        assert to_chunk({"choices": [{"finish_reason": 5}]}).finish_reason == "5"

    def test_a_refusal(self):
        response = to_response(message(content=None, refusal="No."))
        assert (response.content, response.refusal, response.text) == (None, "No.", "No.")

    @pytest.mark.parametrize("refusal", [5, True, ["No."], {"text": "No."}])
    def test_a_refusal_that_is_no_text_is_dropped(self, refusal):
        """It could not be sent back, and could not be joined with an earlier assistant message."""
        given = message(content="Well.", refusal=refusal)
        assert to_response(given) == Response("Well.")
        result = Loop.run_sync(
            [{"role": "user", "content": "Go."}, message(content="So")], lambda _: given
        )
        assert result.messages[1:] == [message(content="So\n\nWell.")]

    def test_unknown_keys_are_kept_as_copies(self):
        given = message(
            reasoning={"steps": [1]}, tool_calls=[{**CALL, "signature": "s", "index": 0}]
        )
        response = to_response(given)
        assert response.extra == {"reasoning": {"steps": [1]}}
        assert response.extra["reasoning"] is not given["reasoning"]
        assert response.tool_calls[0].extra == {"signature": "s"}

    @pytest.mark.parametrize(
        ("call", "made"),
        [
            ({"function": {"name": "f", "arguments": {"a": 1}}}, ToolCall("", "f", '{"a": 1}')),
            ({"function": {"name": "f"}}, ToolCall("", "f", "")),
            ({"function": {"name": "f", "arguments": None}}, ToolCall("", "f", "")),
            ({"function": {"name": "f", "arguments": ""}}, ToolCall("", "f", "")),
            ({"id": None, "function": {"name": "f"}}, ToolCall("", "f", "")),
            ({"id": 7, "function": {"name": ""}}, ToolCall("", "", "")),
            (
                {"function": {"name": "f", "arguments": {"a": {1}}}},
                ToolCall("", "f", '{"a": "{1}"}'),
            ),
            ({"function": {"name": "f", "arguments": {(1,): 1}}}, ToolCall("", "f", "{(1,): 1}")),
        ],
    )
    def test_calls_in_the_forms_of_other_servers(self, call, made):
        assert to_response(message(tool_calls=[call])).tool_calls == (made,)


class Unshown:
    def __repr__(self):
        raise RuntimeError("no text")


class Model(BaseModel):
    content: str


WRONG = [
    ([10**5000], "got list"),
    (Unshown(), "got Unshown"),
    (Model, "got ModelMetaclass"),
    (None, "got nothing"),
    (5, "got int 5"),
    (b"Hi", "got bytes b'Hi'"),
    (["Hi"], "got list ['Hi']"),
    (object, "got type <class 'object'>"),
    ({}, "got a dict with no keys"),
    ({"errs": "x", "code": 1}, "got a dict with errs, code"),
    ({"choices": []}, "expected a chat completion with choices[0].message, got list []"),
    ({"choices": None}, "expected a chat completion with choices[0].message, got nothing"),
    ({"choices": [{}]}, "expected a chat completion with choices[0].message, got list [{}]"),
    ({"choices": [{"message": None}]}, "expected a chat completion with choices[0].message"),
    ({"role": "user", "content": "x"}, "expected a message of the role assistant, got str 'user'"),
    (message(content=5), "message.content: expected text or a list of parts, got int 5"),
    (message(tool_calls="add"), "message.tool_calls: expected a list, got str 'add'"),
    (message(tool_calls=["add"]), "a call needs a function with a name, got str 'add'"),
    (message(tool_calls=[{"function": {}}]), "a call needs a function with a name, got dict"),
    (message(tool_calls=[{"function": None}]), "a call needs a function with a name, got dict"),
]


@pytest.mark.parametrize(("raw", "text"), WRONG)
def test_anything_else_is_an_error_that_describes_the_value(raw, text):
    with pytest.raises(NotAResponseError) as caught:
        to_response(raw)
    assert str(caught.value).startswith("llm_send_fn: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("raw", [raw for raw, _ in WRONG[:8]])
def test_in_a_run_it_is_an_err_without_a_retry(raw):
    asked = []
    result = Loop.run_sync(USER, lambda m: asked.append(1) or raw)
    assert isinstance(result, Err)
    assert isinstance(result.reason, LLMError)
    assert result.reason.error_type == "NotAResponseError"
    assert len(asked) == result.reason.attempts == 1


USED = {"prompt_tokens": 1, "completion_tokens": 2}


class TestUsage:
    """Usage that was not reported is unknown, not zero."""

    @pytest.mark.parametrize(
        ("raw", "usage"),
        [
            (None, None),
            ({}, None),
            ({"cost": 0.1}, Usage(is_lower_bound=True, cost=0.1)),
            ({"prompt_tokens": None, "completion_tokens": None}, None),
            ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None),
            ({"prompt_tokens": 0, "cost": 0.1}, Usage(is_lower_bound=True, cost=0.1)),
            ({"prompt_tokens": 3, "completion_tokens": 0}, Usage(3)),
            ({"prompt_tokens": 3}, Usage(3, is_lower_bound=True)),
            ({"completion_tokens": 4}, Usage(0, 4, is_lower_bound=True)),
            ({"total_tokens": 7}, Usage(0, 0, 7, is_lower_bound=True)),
            ({"prompt_tokens": 3, "total_tokens": 7}, Usage(3, 4, 7)),
            ({"completion_tokens": 4, "total_tokens": 7}, Usage(3, 4, 7)),
            ({"completion_tokens": 4, "total_tokens": 2}, Usage(0, 4, 2)),
            ({"input_tokens": 3, "output_tokens": 4}, Usage(3, 4)),
            (
                {
                    "prompt_tokens": 3,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 2},
                    "completion_tokens_details": {"reasoning_tokens": 1},
                },
                Usage(3, 4, 7, 2, 1),
            ),
            (  # xAI's count of the response is without its reasoning, its total is with it
                {
                    "prompt_tokens": 32,
                    "completion_tokens": 9,
                    "total_tokens": 135,
                    "completion_tokens_details": {"reasoning_tokens": 94},
                },
                Usage(32, 103, 135, 0, 94),
            ),
            (
                {
                    "input_tokens": 3,
                    "output_tokens": 0,
                    "input_tokens_details": {"cached_tokens": 2},
                },
                Usage(3, 0, 3, 2),
            ),
            ({"input_tokens": 3, "output_tokens": 1, "prompt_tokens_details": None}, Usage(3, 1)),
            (Usage(1, 2), Usage(1, 2)),
            ("x", None),
        ],
    )
    def test_the_keys_of_both_apis_are_read(self, raw, usage):
        assert to_usage(raw) == usage


class TestChunks:
    """Pieces of a streamed answer."""

    @pytest.mark.parametrize(
        ("raw", "chunk"),
        [
            ("Hi", Chunk("Hi")),
            (Chunk("Hi"), Chunk("Hi")),
            ({"choices": []}, Chunk(ends_with_reason=True)),
            ({"choices": None}, Chunk(ends_with_reason=True)),
            (
                {"choices": [{"delta": {"role": "assistant", "content": "Hi"}}]},
                Chunk("Hi", ends_with_reason=True),
            ),
            (
                {"choices": [{"delta": {"content": [{"type": "text", "text": "Hi"}]}}]},
                Chunk("Hi", ends_with_reason=True),
            ),
            (
                {"choices": [{"delta": {}, "finish_reason": "stop"}], "id": "x", "model": "m"},
                Chunk(finish_reason="stop", id="x", model="m", ends_with_reason=True),
            ),
            (
                {"choices": [{"delta": {"reasoning": "hm"}}], "usage": USED},
                Chunk(extra={"reasoning": "hm"}, usage=Usage(1, 2), ends_with_reason=True),
            ),
            ({"choices": [], "usage": USED}, Chunk(usage=Usage(1, 2), ends_with_reason=True)),
            (  # Moonshot
                {"choices": [{"delta": {}, "finish_reason": "stop", "usage": USED}]},
                Chunk(finish_reason="stop", usage=Usage(1, 2), ends_with_reason=True),
            ),
            (  # Groq
                {"choices": [], "x_groq": {"id": "r", "usage": USED}},
                Chunk(usage=Usage(1, 2), ends_with_reason=True),
            ),
            ({"choices": [], "x_groq": {"id": "r"}}, Chunk(ends_with_reason=True)),
            ({"choices": [], "x_groq": None}, Chunk(ends_with_reason=True)),
        ],
    )
    def test_every_form(self, raw, chunk):
        assert to_chunk(raw) == chunk

    @pytest.mark.parametrize(
        ("call", "made"),
        [
            ({"index": 1, "id": "c", "function": {"name": "f"}}, CallChunk(1, "c", "f")),
            ({"index": 1, "function": {"arguments": '{"a'}}, CallChunk(1, "", "", '{"a')),
            ({"function": {"arguments": {"a": 1}}}, CallChunk(0, "", "", json.dumps({"a": 1}))),
            ({"index": None, "id": None, "function": None}, CallChunk()),
            ({"index": "0", "id": 5, "function": {"name": 5}}, CallChunk()),
            ({"function": {"arguments": {"a": {1}}}}, CallChunk(0, "", "", '{"a": "{1}"}')),
            ({"function": {"arguments": {(1,): 1}}}, CallChunk(0, "", "", "{(1,): 1}")),
            ({"index": 0, "extra_content": {"s": 1}}, CallChunk(extra={"extra_content": {"s": 1}})),
        ],
    )
    def test_pieces_of_calls(self, call, made):
        assert to_chunk({"choices": [{"delta": {"tool_calls": [call]}}]}).tool_calls == (made,)

    @pytest.mark.parametrize("raw", [None, 5, b"x", {"delta": {}}, {"delta": None, "x": 1}])
    def test_anything_else_is_an_error_that_describes_the_value(self, raw):
        text = "^llm_send_fn: a chunk is text, a Chunk or a chat-completion chunk, got "
        with pytest.raises(NotAResponseError, match=text):
            to_chunk(raw)


WRONG_FIELDS = [
    *(
        (Response(**{"content": "x", name: 5}), f"Response.{name}: expected text, got int 5")
        for name in ("content", "finish_reason", "model", "id", "refusal", "provider")
    ),
    (Response("x", extra=["a"]), "Response.extra: expected a mapping, got list ['a']"),
    (Response("x", extra=None), "Response.extra: expected a mapping, got nothing"),
    (
        Response("x", extra={"content": 5}),
        "Response.extra['content']: expected a list of parts, each with a type, got int 5",
    ),
    (
        Response("x", extra={"content": [1]}),
        "Response.extra['content']: expected a list of parts, each with a type, got list",
    ),
    (
        Response("x", extra={"refusal": 5}),
        "Response.extra['refusal']: expected text, got int 5",
    ),
    (
        Response("x", extra={1: 2}),
        "Response.extra: expected keys that are text, got int 1",
    ),
    (
        Response(tool_calls=(ToolCall("a", "f", extra={1: 2}),)),
        "ToolCall.extra: expected keys that are text, got int 1",
    ),
    (
        Response(tool_calls=None),
        "Response.tool_calls: expected a tuple of calls, got nothing",
    ),
    (
        Response(tool_calls="ab"),
        "Response.tool_calls: expected a tuple of calls, got str 'ab'",
    ),
    (Response(tool_calls=({"id": "a"},)), "Response.tool_calls: expected calls, got dict"),
    (Response(tool_calls=(ToolCall(5, "f"),)), "ToolCall.id: expected text, got int 5"),
    (
        Response(tool_calls=(ToolCall("a", None),)),
        "ToolCall.name: expected text, got nothing",
    ),
    (
        Response(tool_calls=(ToolCall("a", "f", {"n": 1}),)),
        "ToolCall.arguments: expected text, got dict {'n': 1}",
    ),
    (
        Response(tool_calls=(ToolCall("a", "f", extra=[]),)),
        "ToolCall.extra: expected a mapping, got list []",
    ),
    (Chunk(None), "Chunk.text: expected text, got nothing"),
    (Chunk(b"x"), "Chunk.text: expected text, got bytes b'x'"),
    (Chunk(finish_reason=5), "Chunk.finish_reason: expected text, got int 5"),
    (Chunk(model=5), "Chunk.model: expected text, got int 5"),
    (Chunk(id=5), "Chunk.id: expected text, got int 5"),
    (Chunk(extra=5), "Chunk.extra: expected a mapping, got int 5"),
    (Chunk(tool_calls=5), "Chunk.tool_calls: expected a tuple of calls, got int 5"),
    (Chunk(tool_calls=(CallChunk(id=5),)), "CallChunk.id: expected text, got int 5"),
    (
        Chunk(tool_calls=(CallChunk(name=None),)),
        "CallChunk.name: expected text, got nothing",
    ),
    (
        Chunk(tool_calls=(CallChunk(arguments={}),)),
        "CallChunk.arguments: expected text, got dict {}",
    ),
    (
        Chunk(tool_calls=(CallChunk(extra=None),)),
        "CallChunk.extra: expected a mapping, got nothing",
    ),
    (
        Chunk(tool_calls=(CallChunk(index="0"),)),
        "CallChunk.index: expected a number, got str '0'",
    ),
    (Chunk(tool_calls=({"id": "a"},)), "Chunk.tool_calls: expected calls, got dict"),
    (Chunk(extra={1: 2}), "Chunk.extra: expected keys that are text, got int 1"),
    (Chunk(extra={"content": 5}), "Chunk.extra['content']: expected a list of parts"),
    (
        Chunk(tool_calls=(CallChunk(extra={1: 2}),)),
        "CallChunk.extra: expected keys that are text, got int 1",
    ),
    *(
        (kind("x", usage=usage), text.replace("KIND", kind.__name__))
        for kind in (Response, Chunk)
        for usage, text in [
            ({"prompt_tokens": 1}, "KIND.usage: expected Usage, got dict"),
            (5, "KIND.usage: expected Usage, got int 5"),
            *(
                (Usage(**{name: count}), "usage: expected numbers of tokens of at least 0")
                for name in COUNTS
                for count in (-1, 1.5, True, 2**63)
            ),
            *(
                (Usage(1, 1, cost=cost), "usage.cost: expected US dollars, got ")
                for cost in ("0.5", -0.5, float("nan"), float("inf"), True, Decimal("0.5"), [1])
            ),
        ]
    ),
]


@pytest.mark.parametrize(("made", "text"), WRONG_FIELDS)
def test_an_invalid_field_is_refused(made, text):
    asked = []
    answer = iter([Chunk("x"), made]) if isinstance(made, Chunk) else made
    result = Loop.run_sync(USER, lambda messages: asked.append(1) or answer)
    assert isinstance(result, Err)
    assert (result.reason.error_type, len(asked)) == ("NotAResponseError", 1)
    assert result.messages == USER
    assert result.reason.message.startswith(f"llm_send_fn: {text}")


@pytest.mark.parametrize("name", ["content", "finish_reason", "model", "id", "refusal", "provider"])
def test_a_text_is_accepted(name):
    made = Response(**{"content": "x", name: "y"})
    assert isinstance(Loop.run_sync(USER, lambda m: made), Ok)


def test_a_list_of_calls_is_accepted():
    made = [Response(tool_calls=[ToolCall("a", "f")]), "done"]
    assert Loop.run_sync(USER, lambda m: made.pop(0)).iterations == 2


def test_valid_usage_is_accepted():
    for usage in (None, Usage(), Usage(1, 2, 3, 1, 1, True, 0.5), Usage(cost=2)):
        made = Response("x", usage=usage)
        assert Loop.run_sync(USER, lambda m, made=made: made).unwrap() == made


def test_a_valid_chunk_is_accepted():
    made = [Chunk("x", (), "stop", Usage(1), "m", "id", {"k": 1}), Chunk(tool_calls=[])]
    assert Loop.run_sync(USER, lambda m: iter(made)).unwrap().content == "x"
