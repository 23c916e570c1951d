"""Responses and chunks that a backend makes itself: a field of the wrong type is an `Err` that names it."""

from decimal import Decimal

import pytest

from treadle import Chunk, Err, Loop, Ok, Response, ToolCall, Usage
from treadle.messages import CallChunk
from treadle.messages.measurement import COUNTS

USER = [{"role": "user", "content": "Hi"}]


WRONG = [
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
        (kind("x", usage=usage), text)
        for kind in (Response, Chunk)
        for usage, text in [
            ({"prompt_tokens": 1}, "usage: expected Usage, got dict"),
            (5, "usage: expected Usage, got int 5"),
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


@pytest.mark.parametrize(("made", "text"), WRONG)
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
