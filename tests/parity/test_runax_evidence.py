"""Parity with RunaxAI: fingerprints, evidence, and duplicates."""

import hashlib
import json

import pytest

from treadle import tool
from treadle.events import CallNotRun
from treadle.testing import call, calls
from treadle.tools import NotRun, fingerprint

from .conftest import answers
from .places import look, looks


def suppressed(events):
    found = [event for event in events if isinstance(event, CallNotRun)]
    return [(event.call.id, event.reason) for event in found]


# Fingerprints


def test_a_fingerprint_is_the_sha256_of_name_and_arguments():
    """Of their canonical JSON, so that the order of keys and white space do not matter."""
    key = json.dumps(["look", {"a": 1, "b": [2]}], separators=(",", ":")).encode()
    assert fingerprint("look", {"b": [2], "a": 1}) == hashlib.sha256(key).hexdigest()


def test_the_order_of_keys_does_not_make_another_call(planned):
    """The same arguments in another order, and with other white space, are the same call."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    texts = ['{"a": 1, "b": 2}', '{"b":2,\n"a":1}']
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": text}}
        for n, text in enumerate(texts)
    ]
    result, _, events = planned(*map(calls, made), "3", tools=[add])
    assert result.tool_calls_count == 1
    assert suppressed(events) == [("c1", NotRun.NO_NEW_EVIDENCE)]


def test_a_tool_may_name_the_fields_that_count(planned):
    """``dedupe_fields``: other arguments do not make it another call."""

    @tool(dedupe_fields=["query"])
    def search(query: str, why: str) -> str:
        return f"{query}: nothing, though {why}"

    script = [
        calls(call("search", "one", query="a", why="I wonder")),
        calls(call("search", "two", query="a", why="I still wonder")),
        calls(call("search", "three", query="b", why="I wonder")),
        "Nothing.",
    ]
    result, _, events = planned(*script, tools=[search])
    assert suppressed(events) == [("two", NotRun.NO_NEW_EVIDENCE)]
    assert result.tool_calls_count == 2


def test_calls_whose_arguments_cannot_be_parsed_are_not_duplicates_of_each_other(planned):
    """They are answered as malformed. (In RunaxAI all such calls collide, as ``{}``.)"""
    batch = looks("a", "b", "c")
    for made, text in zip(batch["tool_calls"], ('{"place"', '{"place":', "{}"), strict=True):
        made["function"]["arguments"] = text
    result, plans, events = planned(batch, "Sorry.", tools=[look])
    assert suppressed(events) == []
    assert plans[0].not_run == {}
    one, other, empty = answers(result)
    assert "not valid JSON" in one
    assert "not valid JSON" in other
    assert "missing required field 'place'" in empty


# ResultCache


def test_an_identical_call_without_new_evidence_is_suppressed(planned):
    """Reason: duplicate without new evidence. It is answered with its earlier result."""
    result, plans, events = planned(looks("a"), looks("a"), "Done.", tools=[look])
    assert dict(plans[1].not_run) == {"a_2": NotRun.NO_NEW_EVIDENCE}
    assert suppressed(events) == [("a_2", NotRun.NO_NEW_EVIDENCE)]
    assert result.tool_calls_count == 1
    first, second = answers(result)
    assert first == "a is empty"
    assert "in iteration 1" in second
    assert "a is empty" in second


def test_an_identical_call_after_new_evidence_runs_again(planned):
    """The new evidence may have changed its result."""
    result, _, events = planned(looks("a"), looks("b"), looks("a"), "Done.", tools=[look])
    assert suppressed(events) == []
    assert result.tool_calls_count == 3


@pytest.mark.parametrize("place", ["a", "b", "c"])
def test_every_call_of_a_batch_counts_as_made(planned, place):
    """Whichever of them is repeated, first or last. (In RunaxAI only the last one counts.)"""
    result, _, events = planned(looks("a", "b", "c"), looks(place), "Done.", tools=[look])
    assert suppressed(events) == [(f"{place}_2", NotRun.NO_NEW_EVIDENCE)]
    assert result.tool_calls_count == 3


def test_a_call_that_failed_may_be_retried(planned):
    """An error is not evidence. (RunaxAI suppresses every executed call, whatever its result.)"""
    outcomes = iter([OSError("not yet"), "at last"])

    @tool
    def fetch() -> str:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    result, _, events = planned(calls(call("fetch")), calls(call("fetch")), "Done.", tools=[fetch])
    assert suppressed(events) == []
    assert answers(result) == ["Error: OSError: not yet", "at last"]
