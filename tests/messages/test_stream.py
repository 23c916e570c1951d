"""Assembling the pieces of a streamed response."""

import pytest

from treadle import Usage
from treadle.messages import CallChunk, Chunk, ToolCall
from treadle.messages.decode import to_chunk, to_response
from treadle.messages.stream import StreamAccumulator


def assembled(*raw):
    assembler = StreamAccumulator()
    for piece in raw:
        assembler.add(to_chunk(piece))
    return assembler.response()


def delta(finish_reason=None, **parts):
    return {"choices": [{"delta": parts, "finish_reason": finish_reason}]}


def piece(index=0, call_id="", name="", arguments="", **extra):
    return Chunk(tool_calls=(CallChunk(index, call_id, name, arguments, extra),))


def test_texts_are_joined():
    response = assembled("Hel", "", "lo")
    assert (response.content, response.finish_reason, response.usage) == ("Hello", None, None)


def test_an_empty_stream_has_no_text():
    assert assembled().content is None
    assert assembled().is_blank


def test_a_field_is_kept_from_whichever_chunk_has_it():
    response = assembled(
        {**delta(content="Hi"), "id": "x", "model": "m"},
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}},
    )
    assert (response.content, response.finish_reason) == ("Hi", "stop")
    assert (response.id, response.model, response.usage) == ("x", "m", Usage(3, 4))


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (
            [Usage(10, 1), Usage(10, 4), Usage(10, 9, 19, 3, 2, cost=0.5)],
            Usage(10, 9, 19, 3, 2, cost=0.5),
        ),
        ([Usage(10, is_lower_bound=True), Usage(0, 9, is_lower_bound=True)], Usage(10, 9)),
        ([Usage(10, 9, cost=0.5), Usage(is_lower_bound=True)], Usage(10, 9, cost=0.5)),
        ([Usage(10, 9, 30), Usage(10, 9)], Usage(10, 9, 30)),
        (
            [Usage(10, is_lower_bound=True), Usage(12, is_lower_bound=True)],
            Usage(12, is_lower_bound=True),
        ),
    ],
    ids=["cumulated", "first the prompt", "then nothing", "a larger total", "only the prompt"],
)
def test_of_usage_in_several_chunks_the_largest_counts_are_used(reported, usage):
    """No server reports counts that have to be added."""
    assert assembled("Hi", *(Chunk(usage=one) for one in reported)).usage == usage


def test_a_response_knows_that_it_was_streamed():
    assert assembled("Hi").is_streamed
    assert not to_response("Hi").is_streamed
    assert assembled("Hi") == to_response("Hi")


def test_the_pieces_of_calls_are_joined_by_index_in_any_order():
    response = assembled(
        piece(1, "b", "g"),
        piece(0, "a", "f", '{"x"'),
        piece(1, arguments='{"y": 2}'),
        piece(0, arguments=": 1}"),
    )
    assert response.tool_calls == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", '{"y": 2}'))


def test_a_call_whose_arguments_never_began_has_none():
    assert assembled(piece(0, "a", "f")).tool_calls == (ToolCall("a", "f", ""),)


def test_an_id_that_every_piece_repeats_is_one_id():
    response = assembled(piece(0, "a", "f"), piece(0, "a", "", '{"x"'), piece(0, "a", "", ": 1}"))
    assert response.tool_calls == (ToolCall("a", "f", '{"x": 1}'),)


def test_another_id_at_the_same_index_is_another_call():
    """Some servers give every call of an answer the index 0, or none."""
    response = assembled(
        piece(0, "a", "f", '{"x": 1}'), piece(0, "b", "g", '{"y"'), piece(0, "", "", ": 2}")
    )
    assert response.tool_calls == (ToolCall("a", "f", '{"x": 1}'), ToolCall("b", "g", '{"y": 2}'))


@pytest.mark.parametrize("indexes", [(0, 0), (None, None)])
def test_without_ids_a_name_at_the_same_index_is_another_call(indexes):
    """As Google's OpenAI-compatible server sends them: each call complete, with the same index, and no id."""
    pieces = [
        {"index": index, "id": "", "function": {"name": name, "arguments": arguments}}
        for index, name, arguments in zip(indexes, "fg", ('{"x": 1}', "{}"), strict=True)
    ]
    calls = (ToolCall("", "f", '{"x": 1}'), ToolCall("", "g", "{}"))
    assert assembled(delta("stop", tool_calls=pieces)).tool_calls == calls
    one, other = ([piece] for piece in pieces)
    assert assembled(delta(tool_calls=one), delta("stop", tool_calls=other)).tool_calls == calls


def test_a_name_may_come_in_pieces_without_an_id():
    response = assembled(piece(0, "", "get_"), piece(0, "", "time"), piece(0, arguments="{}"))
    assert response.tool_calls == (ToolCall("", "get_time", "{}"),)


def test_unknown_keys_are_joined_or_replaced():
    """Texts and lists are joined, everything else is replaced; on the message and on its calls."""
    response = assembled(
        delta(reasoning="be", details=[1], score=1),
        delta("stop", reasoning="cause", details=[2], score=2, late="x"),
    )
    assert response.extra == {"reasoning": "because", "details": [1, 2], "score": 2, "late": "x"}
    response = assembled(
        piece(0, "a", "f", signature="s1"), piece(0, signature="s2", more={"k": 1})
    )
    assert response.tool_calls[0].extra == {"signature": "s1s2", "more": {"k": 1}}


def test_a_null_keeps_the_earlier_value():
    response = assembled(delta(reasoning="because"), delta("stop", reasoning=None))
    assert response.extra == {"reasoning": "because"}


def test_the_pieces_of_a_refusal_are_joined():
    assert assembled(delta(refusal="N"), delta("stop", refusal="o.")).refusal == "No."
    made = assembled(delta(refusal=5), delta("stop", content="Well."))
    assert (made.refusal, made.extra) == (None, {})


def test_a_stream_of_completions_without_a_finish_reason_is_incomplete():
    with pytest.raises(ConnectionError, match="the stream ended before the answer did"):
        assembled(delta(content="Hel"))


def blocks(*pieces):
    stream = StreamAccumulator()
    for piece in pieces:
        stream.add(Chunk(extra={"reasoning_details": [piece]}))
    return stream.response().extra["reasoning_details"]


def thought(text, index=0, **keys):
    return {"type": "reasoning.text", "text": text, "index": index, **keys}


def test_pieces_of_one_block_become_one_item_with_its_signature():
    signature = {"type": "reasoning.text", "signature": "c2ln", "index": 0, "text": None}
    assert blocks(thought("I ", signature=None), thought("think."), signature) == [
        {"type": "reasoning.text", "index": 0, "text": "I think.", "signature": "c2ln"}
    ]


def test_pieces_of_several_blocks_stay_apart_and_in_order():
    encrypted = {"type": "reasoning.encrypted", "data": "eA==", "index": 0}
    given = [
        thought("a"),
        encrypted,
        thought("b", 1),
        thought("c", 1, part=1),
        thought("d", 1, part=1, id="x"),
    ]
    assert blocks(*given, thought("e", 1, part=1, id="y")) == [
        thought("a"),
        encrypted,
        thought("b", 1),
        thought("cd", 1, part=1, id="x"),
        thought("e", 1, part=1, id="y"),
    ]


def test_items_without_an_index_stay_as_they_came():
    given = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}, "c"]
    assert blocks(*given) == given


def test_pieces_are_not_changed():
    first, second = thought("a"), thought("b")
    blocks(first, second)
    assert (first, second) == (thought("a"), thought("b"))
