"""Reasoning in a stream: the pieces of one block become one item of `reasoning_details`."""

from treadle.messages import Chunk, StreamAccumulator


def joined(*pieces):
    stream = StreamAccumulator()
    for piece in pieces:
        stream.add(Chunk(extra={"reasoning_details": [piece]}))
    return stream.response().extra["reasoning_details"]


def text(text, index=0, **keys):
    return {"type": "reasoning.text", "text": text, "index": index, **keys}


def test_pieces_of_one_block_become_one_item_with_its_signature():
    signature = {"type": "reasoning.text", "signature": "c2ln", "index": 0, "text": None}
    assert joined(text("I ", signature=None), text("think."), signature) == [
        {"type": "reasoning.text", "index": 0, "text": "I think.", "signature": "c2ln"}
    ]


def test_pieces_of_several_blocks_stay_apart_and_in_order():
    encrypted = {"type": "reasoning.encrypted", "data": "eA==", "index": 0}
    given = [text("a"), encrypted, text("b", 1), text("c", 1, part=1), text("d", 1, part=1, id="x")]
    assert joined(*given, text("e", 1, part=1, id="y")) == [
        text("a"),
        encrypted,
        text("b", 1),
        text("cd", 1, part=1, id="x"),
        text("e", 1, part=1, id="y"),
    ]


def test_items_without_an_index_stay_as_they_came():
    given = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.text", "text": "b"}, "c"]
    assert joined(*given) == given


def test_pieces_are_not_changed():
    first, second = text("a"), text("b")
    joined(first, second)
    assert (first, second) == (text("a"), text("b"))
