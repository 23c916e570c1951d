"""Parity with Planck: the notes on repeated calls, truncation, and the order of results."""

import threading

import pytest

from treadle import presets, tool
from treadle.events import RepeatWarned
from treadle.stages import circuit_breaker
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers
from .places import each_look, look

# Notes on repeated calls


def noted(result):
    """The answers that have a note, and the count in it."""
    found = [answer.partition("[note: this is call number ")[2] for answer in answers(result)]
    return [int(note.split()[0]) if note else None for note in found]


def test_the_third_and_each_later_identical_call_gets_a_note(run):
    """The result comes first, then the count and the advice; below three there is no note.

    In Planck every such call runs, as it does here with Planck's preset; by default it is suppressed.
    """
    events = []
    llm = ScriptedLLM(*each_look(*["here"] * 5), "Empty.")
    result = run("?", llm, **presets.planck(), tools=[look], on_event=events.append)
    assert noted(result) == [None, None, 3, 4, 5]
    assert answers(result)[1] == "here is empty"
    assert answers(result)[2].startswith("here is empty\n\n[note: ")
    assert "change the arguments, try another approach" in answers(result)[2]
    assert [event.count for event in events if isinstance(event, RepeatWarned)] == [3, 4, 5]


def test_with_the_preset_repeated_calls_have_a_note_and_no_other_restriction(run):
    """``presets.planck()``: no duplicate is suppressed, no loop is detected; a hundred steps are the limit.

    Planck has no limit at all.
    """
    result = run("?", lambda messages: each_look("here")[0], **presets.planck(), tools=[look])
    assert (result.stop_reason, result.tool_calls_count) == ("max_iterations_reached", 100)
    assert noted(result) == [None, None, *range(3, 101)]


def test_other_arguments_do_not_add_up(run):
    """Calls of one tool with the same arguments are counted over the whole turn, consecutive or not."""
    places = ["here", "there", "here", "there", "yonder", "here"]
    result = run("?", ScriptedLLM(*each_look(*places), "Empty."), **presets.planck(), tools=[look])
    assert noted(result) == [None, None, None, None, None, 3]


def test_calls_with_equal_decoded_arguments_are_identical(run):
    """Key order and white space of the arguments do not matter."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    texts = ['{"a":1,"b":2}', '{"b": 2, "a": 1}', '{ "a" : 1, "b" : 2 }']
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": text}}
        for n, text in enumerate(texts)
    ]
    result = run("?", ScriptedLLM(*map(calls, made), "3"), **presets.planck(), tools=[add])
    assert noted(result) == [None, None, 3]


def test_a_new_user_message_resets_the_counts(run):
    """They are kept for one turn only."""
    options = {**presets.planck(), "tools": [look]}
    one = run("?", ScriptedLLM(*each_look("here", "here"), "Empty."), **options)
    messages = [*one.messages, {"role": "user", "content": "Sure?"}]
    two = run(messages, ScriptedLLM(*each_look("here", "here"), "Sure."), **options)
    assert noted(two) == [None] * 4


def test_failed_calls_get_no_note(run):
    """The note is for successful results; failures are counted by the circuit breaker."""

    @tool
    def fail() -> str:
        raise RuntimeError("no")

    llm = ScriptedLLM(*[calls(call("fail"))] * 4, "No.")
    result = run(
        "?", llm, **presets.planck(), tools=[fail], stages=[circuit_breaker(threshold=9), ...]
    )
    assert noted(result) == [None] * 4


def test_the_note_is_added_after_truncation(run):
    """It is added after long output was truncated. (In Planck it is cut off.)"""

    @tool
    def read() -> str:
        return "x" * 60_000

    llm = ScriptedLLM(*[calls(call("read"))] * 3, "Long.")
    result = run("?", llm, **presets.planck(), tools=[read])
    assert noted(result) == [None, None, 3]
    assert "more bytes]\n\n[note: " in answers(result)[2]


# Results


@pytest.mark.parametrize(
    ("text", "kept", "note"),
    [
        ("line\n" * 2_500, 2_000 * 5 - 1, "[cut: 500 more lines, 2,501 more bytes]"),
        ("x" * 50_001, 50_000, "[cut: 0 more lines, 1 more bytes]"),
        ("é" * 30_000, 25_000, "[cut: 0 more lines, 10,000 more bytes]"),
    ],
    ids=["lines", "bytes", "bytes of UTF-8"],
)
def test_long_output_is_truncated_with_a_note(run, text, kept, note):
    """2,000 lines or 50,000 bytes, whichever comes first, and how much is missing."""

    @tool
    def read() -> str:
        return text

    (answer,) = answers(run("?", ScriptedLLM(calls(call("read")), "Long."), tools=[read]))
    assert answer == f"{text[:kept]}\n{note}"


@pytest.mark.parametrize(
    "text",
    ["x" * 50_000, "line\n" * 2_000, "\n".join(["line"] * 2_000)],
    ids=["bytes", "lines", "lines without a last newline"],
)
def test_output_up_to_the_limits_is_not_truncated(run, text):
    """At the limit nothing is truncated."""

    @tool
    def read() -> str:
        return text

    assert answers(run("?", ScriptedLLM(calls(call("read")), "Long."), tools=[read])) == [text]


@pytest.mark.parametrize("value", [b"\x89PNG\x00", bytearray(5), "\x89PN\0"])
def test_binary_output_becomes_a_placeholder(run, value):
    """Bytes, and text with NUL characters, are described by their size."""

    @tool
    def read():
        return value

    contents = answers(run("?", ScriptedLLM(calls(call("read")), "Binary."), tools=[read]))
    assert contents == ["(binary output, 5 bytes)"]


def test_results_are_in_the_order_of_the_calls(run):
    """Whichever ends first, the history has them in the order of the calls.

    In Planck they are in the order of completion.
    """
    done, finished = [threading.Event() for _ in range(3)], []

    @tool
    def work(n: int) -> int:
        if n < 2:
            assert done[n + 1].wait(timeout=5)
        finished.append(n)
        done[n].set()
        return n

    llm = ScriptedLLM(calls(*(call("work", n=n) for n in range(3))), "Done.")
    result = run("Work.", llm, tools=[work])
    assert finished == [2, 1, 0]
    assert answers(result) == ["0", "1", "2"]
