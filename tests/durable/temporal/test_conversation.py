"""Conversations as chains of changes: what a request adds to a workflow, and what a worker makes of it."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.durable.temporal import StoredValueError
from treadle.durable.temporal.conversation import Conversation, Conversations


class Values(dict):
    """A store in memory, which counts what is read."""

    reads = 0

    async def get(self, key):
        self.reads += 1
        return dict.get(self, key)

    async def put(self, key, value):
        self[key] = value


def message(text, role="user"):
    return {"role": role, "content": str(text)}


def messages(*texts):
    return [message(text) for text in texts]


def in_json(value):
    return json.loads(json.dumps(value))


class Chain:
    """Both sides: what a workflow sends is what a worker gets."""

    def __init__(self, **options):
        self.values = Values()
        self.sender = Conversation()
        self.worker = Conversations(self.values, **options)

    def send(self, request, worker=None):
        delta = self.sender.delta(request)
        received = asyncio.run((worker or self.worker).add(in_json(delta.data)))
        assert received == in_json(request)
        assert delta.ref in self.values
        self.sender.stored(delta)
        return delta.data

    def cold(self):
        return Conversations(self.values)


class TestWhatIsSent:
    def test_a_growing_conversation_costs_what_is_new(self):
        chain, history, sizes = Chain(), messages("go"), []
        for number in range(50):
            history = [*history, message(number, "assistant"), message(number, "tool")]
            data = chain.send([message("You help.", "system"), *history])
            sizes.append(len(json.dumps(data)))
            if number:
                assert data["pieces"] == [[0, 2 * number + 2], *history[-2:]]
        assert max(sizes[1:]) - min(sizes[1:]) <= 4  # the digits of the numbers

    def test_the_first_request_is_whole_and_the_next_one_names_it(self):
        chain = Chain()
        first = chain.send(messages("a"))
        assert first == {"base": None, "pieces": messages("a")}
        ref = chain.sender.ref
        assert chain.send(messages("a", "b")) == {"base": ref, "pieces": [[0, 1], *messages("b")]}

    @pytest.mark.parametrize(
        ("request_", "pieces"),
        [
            ("abcd", [[0, 4]]),
            ("ab", [[0, 2]]),
            ("abxd", [[0, 2], message("x"), [3, 4]]),
            ("cde", [[2, 4], message("e")]),
            ("Scde", [message("S"), [2, 4], message("e")]),
            ("bcda", [[1, 4], [0, 1]]),
            ("aabcd", [[0, 1], message("a"), [1, 4]]),
            ("", []),
        ],
    )
    def test_an_edit_costs_what_is_new_in_it(self, request_, pieces):
        chain = Chain()
        chain.send(messages(*"abcd"))
        assert chain.send(messages(*request_))["pieces"] == pieces
        chain.send(messages(*"abcdef"))

    def test_another_conversation_has_no_base(self):
        chain = Chain()
        chain.send(messages("a"))
        assert chain.send(messages("b")) == {"base": None, "pieces": messages("b")}

    def test_values_that_python_takes_as_equal_are_told_apart(self):
        chain = Chain()
        for value in (1, 1.0, True, 1):
            request = [{"role": "user", "content": "x", "flag": value}]
            assert chain.send(request) == {"base": None, "pieces": request}

    def test_a_request_that_was_not_received_is_no_base(self):
        chain = Chain()
        chain.send(messages("a"))
        ref = chain.sender.ref
        chain.sender.delta(messages("a", "lost"))
        assert chain.send(messages("a", "b"))["base"] == ref

    def test_a_forgotten_conversation_is_sent_as_a_whole(self):
        chain = Chain()
        chain.send(messages("a"))
        chain.sender.forget()
        assert chain.send(messages("a", "b")) == {"base": None, "pieces": messages("a", "b")}

    def test_a_sender_goes_on_from_what_another_one_stored(self):
        chain = Chain()
        chain.send(messages("a", "b"))
        ref = chain.sender.ref
        chain.sender = Conversation(ref, messages("a", "b"))
        assert chain.send(messages("a", "b", "c"))["base"] == ref

    @given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=6))
    def test_any_sequence_of_requests_is_received_as_sent(self, requests):
        chain = Chain()
        for texts in requests:
            chain.send(messages(*texts))
            cold = asyncio.run(chain.cold().messages(chain.sender.ref))
            assert cold == messages(*texts)


class TestWorkers:
    def test_another_worker_reads_the_chain(self):
        chain = Chain()
        for length in range(1, 20):
            chain.send(messages(*range(length)))
        assert chain.values.reads == 0
        chain.send(messages(*range(20)), chain.cold())
        assert chain.values.reads == 19

    def test_a_worker_that_has_a_part_reads_the_rest(self):
        chain, other = Chain(), None
        for length in range(1, 10):
            chain.send(messages(*range(length)))
        other = chain.cold()
        chain.send(messages(*range(10)), other)
        chain.values.reads = 0
        chain.send(messages(*range(11)))  # the one between is the other worker's
        assert chain.values.reads == 1

    def test_a_request_that_is_made_again_changes_nothing(self):
        chain = Chain()
        chain.send(messages("a"))
        delta = chain.sender.delta(messages("a", "b"))
        first = asyncio.run(chain.worker.add(delta.data))
        count = len(chain.values)
        assert asyncio.run(chain.worker.add(delta.data)) == first
        assert asyncio.run(chain.cold().add(delta.data)) == first
        assert len(chain.values) == count

    def test_what_a_caller_changes_is_not_kept(self):
        chain = Chain()
        chain.send(messages("a"))
        delta = chain.sender.delta(messages("a", "b"))
        asyncio.run(chain.worker.add(delta.data))[0]["content"] = "changed"
        assert asyncio.run(chain.worker.messages(delta.ref)) == messages("a", "b")

    def test_the_memory_for_conversations_is_bounded(self):
        one = len(json.dumps(message("x" * 1000), separators=(",", ":")))
        chain = Chain(cache_bytes=3 * one)
        refs = []
        for letter in "abcd":
            chain.send(messages(letter * 1000))
            refs.append(chain.sender.ref)
        asyncio.run(chain.worker.messages(refs[1]))  # read last, so the next one goes first
        chain.send(messages("e" * 1000))
        chain.values.reads = 0
        for ref in (refs[1], refs[3], chain.sender.ref):
            asyncio.run(chain.worker.messages(ref))
        assert chain.values.reads == 0
        asyncio.run(chain.worker.messages(refs[0]))
        assert chain.values.reads == 1

    def test_a_conversation_larger_than_the_memory_is_read_each_time(self):
        chain = Chain(cache_bytes=10)
        for length in range(1, 4):
            chain.send(messages(*range(length)))
        assert chain.values.reads == 1 + 2


class TestDamage:
    def test_a_missing_link_is_an_error_that_names_it(self):
        chain = Chain()
        chain.send(messages("a"))
        lost = chain.sender.ref
        chain.send(messages("a", "b"))
        del chain.values[lost]
        with pytest.raises(StoredValueError, match=f"'{lost}' is not in") as caught:
            asyncio.run(chain.cold().messages(chain.sender.ref))
        assert caught.value.key == lost

    def test_a_changed_link_is_an_error(self):
        chain = Chain()
        chain.send(messages("a"))
        chain.values[chain.sender.ref] = b'{"base":null,"pieces":[]}'
        with pytest.raises(StoredValueError, match="was changed"):
            asyncio.run(chain.cold().messages(chain.sender.ref))

    @pytest.mark.parametrize("content", [b"\xff", b"[]", b'{"base":null}'])
    def test_a_value_that_is_no_link_is_an_error(self, content):
        from treadle.durable.temporal.blob_store import put_content

        chain = Chain()
        key = asyncio.run(put_content(chain.values, content))
        with pytest.raises(StoredValueError, match=f"'{key}' is no part of a conversation"):
            asyncio.run(chain.worker.messages(key))

    def test_a_link_that_does_not_fit_the_one_before_is_an_error(self):
        chain = Chain()
        chain.send(messages("a"))
        data = {"base": chain.sender.ref, "pieces": [[0, 2]]}
        with pytest.raises(StoredValueError, match="messages 0 to 2 of a conversation with 1"):
            asyncio.run(chain.worker.add(data))
