"""Messages, streams and JSON are read in time linear in their size, whatever a model or a caller sends."""

import contextlib

import pytest
from tests.growth import is_linear

from treadle import Loop
from treadle.messages import CallChunk, Chunk, Response, ToolCall, parse_object
from treadle.messages.json_text import MalformedJSONError
from treadle.messages.repair import repair_history
from treadle.messages.sanitizing import sendable_json, valid_arguments, valid_name
from treadle.messages.stream import StreamAccumulator
from treadle.testing.history import history_problems
from treadle.tools import tool
from treadle.tools.output import Output, PartialReader, make_output

# Streams

PIECES = {
    "text": lambda _: Chunk("abc"),
    "reasoning": lambda _: Chunk(extra={"reasoning": "abc"}),
    "details of the reasoning": lambda _: Chunk(extra={"reasoning_details": [{"text": "abc"}]}),
    "arguments without an id": lambda _: Chunk(tool_calls=(CallChunk(0, "", "", "ab"),)),
    "whole calls without ids": lambda _: Chunk(tool_calls=(CallChunk(0, "", "a", "{}"),)),
    "calls of one index": lambda n: Chunk(tool_calls=(CallChunk(0, f"c{n}", "a", "{}"),)),
    "many calls": lambda n: Chunk(tool_calls=(CallChunk(n, f"c{n}", "a", "{}"),)),
    "signatures of a call": lambda _: Chunk(tool_calls=(CallChunk(0, "c", "", "", {"s": "ab"}),)),
}


@pytest.mark.parametrize("piece", PIECES.values(), ids=PIECES.keys())
def test_a_stream_is_assembled_in_time_linear_in_the_number_of_its_pieces(piece):
    def make(size):
        pieces = [piece(number) for number in range(size)]

        def assemble():
            stream = StreamAccumulator()
            for one in pieces:
                stream.add(one)
            stream.response()

        return assemble

    assert is_linear(make, 2_000)


@pytest.mark.parametrize(
    "text", ['{"value": [' + "1," * 9, '{"value": "' + "x" * 9, '{"value": "\\u00e9']
)
def test_a_partial_output_is_read_in_time_linear_in_its_length(text):
    output = make_output(Output(list[int]), {})
    head, repeated = text[:11], text[11:] or "x"

    def make(size):
        pieces = [head, *[repeated] * size]

        def read():
            reader = PartialReader(output, output.tools)
            name = next(iter(output.tools))
            for piece in pieces:
                list(reader.add(Chunk(tool_calls=(CallChunk(0, "", name, piece),))))
                name = ""

        return read

    assert is_linear(make, 500)


# JSON

TEXTS = {
    "cut off after escaped quotes": lambda n: '{"a": "' + '\\"[' * n,
    "cut off in brackets": lambda n: '{"a":' + "[" * n,
    "deeply nested": lambda n: '{"a":' * n + "1" + "}" * n,
    "brackets in a text": lambda n: '{"a":"' + "[{" * n + '"}',
    "a long number": lambda n: '{"a":' + "1" * n + "}",
    "a long fraction": lambda n: '{"a":1.' + "1" * n + "}",
    "a large exponent": lambda n: '{"a":1e' + "9" * n + "}",
    "white space": lambda n: " " * n + "x",
    "many fields": lambda n: "{" + ",".join(f'"{i}":1' for i in range(n)) + "}",
    "lone surrogates": lambda n: '{"a":"' + "\\ud800" * n + '"}',
    "a control character at the end": lambda n: '{"a":"' + "\\u00e9" * n + '\n"}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_arguments_are_parsed_in_time_linear_in_their_length(text):
    def make(size):
        made = text(size)

        def parse():
            valid_arguments(made)
            with contextlib.suppress(MalformedJSONError):
                sendable_json(parse_object(made))

        return parse

    assert is_linear(make, 20_000)


# Histories


def asked(calls, results):
    function = {"name": "a", "arguments": "{}"}
    return [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": id_, "type": "function", "function": function} for id_ in calls],
        },
        *[{"role": "tool", "tool_call_id": id_, "content": "r"} for id_ in results],
    ]


def answers(content):
    return lambda n: [
        {"role": "user", "content": "x"},
        *[{"role": "assistant", "content": content} for _ in range(n)],
    ]


HISTORIES = {
    "results in another order": lambda n: asked(range(n), reversed(range(n))),
    "results of other calls": lambda n: asked(range(n), range(n, 2 * n)),
    "one id": lambda n: asked([1] * n, [1] * n),
    "texts that follow each other": answers("x"),
    "parts that follow each other": answers([{"type": "text", "text": "x"}]),
}


def with_text_ids(messages):
    for message in messages:
        if "tool_call_id" in message:
            message["tool_call_id"] = str(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"] = str(call["id"])
            call["function"] = dict(call["function"])
    return messages


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES.keys())
def test_a_history_is_repaired_and_checked_in_time_linear_in_its_length(history):
    def make(size):
        messages = with_text_ids(history(size))

        def check():
            list(history_problems(messages))
            repair_history(with_text_ids(history(size)))

        return check

    assert is_linear(make, 500)


def test_messages_are_joined_as_one_after_another():
    def message(content):
        return {"role": "assistant", "content": content}

    part = {"type": "image_url", "image_url": {"url": "x"}}
    history, _ = repair_history(
        [{"role": "user", "content": "x"}, *map(message, ["a", "b", [part], "c", "d"])]
    )
    assert history[1]["content"] == [
        {"type": "text", "text": "a\n\nb"},
        part,
        {"type": "text", "text": "c"},
        {"type": "text", "text": "d"},
    ]


# Calls

CALLS = {
    "the same call": lambda n: ToolCall(f"c{n}", "add", "{}"),
    "the same id": lambda n: ToolCall("c", "add", f'{{"n": {n}}}'),
    "no ids": lambda n: ToolCall("", "add", f'{{"n": {n}}}'),
    "calls that wait for others": lambda n: ToolCall(f"c{n}", "alone", f'{{"n": {n}}}'),
    "calls that need approval": lambda n: ToolCall(f"c{n}", "asking", f'{{"n": {n}}}'),
    "calls over a limit": lambda n: ToolCall(f"c{n}", "once", f'{{"n": {n}}}'),
    "unknown names": lambda n: ToolCall(f"c{n}", f"nope{n}", "{}"),
    "invalid arguments": lambda n: ToolCall(f"c{n}", "add", '{"n": "x"}'),
    "malformed arguments": lambda n: ToolCall(f"c{n}", "add", '{"n": '),
}


def add(n: int = 0):
    return "r"


TOOLS = [
    tool(add),
    tool(add, name="alone", parallel_safe=False),
    tool(add, name="asking", requires_approval=True),
    tool(add, name="once", max_uses=1),
]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_response_takes_time_linear_in_the_number_of_its_calls(call):
    def make(size):
        calls = tuple(map(call, range(size)))

        def model(messages, tools):
            return Response(None, calls) if len(messages) == 1 else "Done."

        return lambda: Loop.run_sync("Hi", model, tools=TOOLS)

    assert is_linear(make, 300)


def test_an_invalid_name_is_replaced_in_linear_time():
    assert is_linear(lambda n: lambda: valid_name("\u00e9 a" * n), 10_000)
