"""Responses and chunks that a backend makes itself: a field of the wrong type is an `Err` that names it."""

from decimal import Decimal

import pytest

from treadle import Chunk, Err, Loop, Ok, Response, ToolCall, Usage
from treadle.messages import CallChunk

USER = [{"role": "user", "content": "Hi"}]


def error_message(made):
    """The message of the error that ends a run whose backend returns this."""
    asked = []
    result = Loop.run_sync(USER, lambda messages: asked.append(1) or made)
    assert isinstance(result, Err)
    assert (result.reason.error_type, len(asked)) == ("NotAResponseError", 1)
    assert result.messages == USER
    return result.reason.message


class TestResponse:
    """A response that a backend made itself."""

    @pytest.mark.parametrize(
        "name", ["content", "finish_reason", "model", "id", "refusal", "provider"]
    )
    def test_a_text_field_of_another_type_is_refused(self, name):
        assert error_message(Response(**{"content": "x", name: 5})) == (
            f"llm_send_fn: Response.{name}: expected text, got int 5"
        )
        assert isinstance(
            Loop.run_sync(USER, lambda m: Response(**{"content": "x", name: "y"})), Ok
        )

    @pytest.mark.parametrize(
        ("made", "text"),
        [
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
        ],
    )
    def test_invalid_calls_and_unknown_keys_are_refused(self, made, text):
        assert error_message(made).startswith(f"llm_send_fn: {text}")

    def test_a_list_of_calls_is_accepted(self):
        made = [Response(tool_calls=[ToolCall("a", "f")]), "done"]
        assert Loop.run_sync(USER, lambda m: made.pop(0)).iterations == 2


NO_USAGE = [
    ({"prompt_tokens": 1}, "usage: expected Usage, got dict"),
    (5, "usage: expected Usage, got int 5"),
    *(
        (Usage(**{name: count}), "usage: expected numbers of tokens of at least 0")
        for name in (
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cached_tokens",
            "reasoning_tokens",
        )
        for count in (-1, 1.5, True, 2**63)
    ),
]


@pytest.mark.parametrize(("usage", "text"), NO_USAGE)
def test_invalid_usage_is_refused(usage, text):
    assert error_message(Response("x", usage=usage)).startswith(f"llm_send_fn: {text}")
    assert error_message(iter([Chunk("x", usage=usage)])).startswith(f"llm_send_fn: {text}")


@pytest.mark.parametrize(
    "cost", ["0.5", -0.5, float("nan"), float("inf"), True, Decimal("0.5"), [1]]
)
def test_an_invalid_cost_is_refused(cost):
    assert error_message(Response("x", usage=Usage(1, 1, cost=cost))).startswith(
        "llm_send_fn: usage"
    )


def test_valid_usage_is_accepted():
    for usage in (
        None,
        Usage(),
        Usage(1, 2, 3, 1, 1, is_lower_bound=True, cost=0.5),
        Usage(cost=2),
    ):
        made = Response("x", usage=usage)
        assert Loop.run_sync(USER, lambda m, made=made: made).unwrap() == made


class TestChunk:
    """A piece of an answer that a backend made itself."""

    @pytest.mark.parametrize(
        ("made", "text"),
        [
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
        ],
    )
    def test_an_invalid_field_is_refused(self, made, text):
        assert error_message(iter([Chunk("x"), made])).startswith(f"llm_send_fn: {text}"[:40])

    def test_a_valid_chunk_is_accepted(self):
        made = [Chunk("x", (), "stop", Usage(1), "m", "id", {"k": 1}), Chunk(tool_calls=[])]
        assert Loop.run_sync(USER, lambda m: iter(made)).unwrap().content == "x"
