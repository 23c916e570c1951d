"""Streams: those that break off, and those whose pieces are hard to put together."""

from __future__ import annotations

from collections.abc import Iterator

from torture_suite.evidence import Evidence
from torture_suite.protocol import STREAMING, Fault, Scenario
from torture_suite.script import Broken, Chunked, JSONDict, call, calls, says
from torture_suite.toolbox import PING, WEATHER, answers_fit

BERN, BASEL = {"city": "Bern"}, {"city": "Basel"}
BOTH = calls(call("get_weather", BERN), call("get_weather", BASEL))
HALVES = ('{"city": ', '"Bern"}', '{"city": ', '"Basel"}')
NEEDS = frozenset({STREAMING})
BREAK = ConnectionError("the connection was closed in the middle of the answer")
LONG = says("It will be sunny unless it rains")


def _head(index: int, call_id: str, arguments: str = "") -> JSONDict:
    function = {"name": "get_weather", "arguments": arguments}
    return {
        "tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]
    }


def _part(index: int, arguments: str) -> JSONDict:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


def _no_half_answer(evidence: Evidence) -> Iterator[str]:
    answer = evidence.outcome.answer if evidence.outcome is not None else None
    if answer and evidence.error is None and "done" not in answer:
        yield f"half of an answer is given out as the whole: {answer!r}"


SCENARIOS = (
    Scenario(
        name="stream-whole",
        complaint="A streamed call is run twice.",
        source="agno-agi/agno#2336",
        script=(calls(call("get_weather", BERN), text="Let me look."), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
        answer="done",
    ),
    Scenario(
        name="stream-breaks-in-text",
        complaint="The connection breaks in the middle of an answer, and the half is the answer.",
        source="wazuh/wazuh-dashboard#1530",
        script=(Broken(LONG, 4, BREAK), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        checks={"lost": _no_half_answer},
    ),
    Scenario(
        name="stream-ends-in-text",
        complaint="A stream that just ends, without a finish reason, is taken for a finished answer.",
        source="NousResearch/hermes-agent#32086",
        script=(Broken(LONG, 4), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        checks={"lost": _no_half_answer},
    ),
    Scenario(
        name="stream-breaks-in-arguments",
        complaint="A call whose arguments broke off is run with the part that arrived.",
        source="NousResearch/hermes-agent#6847",
        script=(Broken(calls(call("get_weather", BERN)), 3, BREAK), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        at_most={"get_weather": 0},
    ),
    Scenario(
        name="stream-ends-in-arguments",
        complaint="A stream ends silently in the middle of a call, and the call is run.",
        source="CommandCodeAI/command-code#785",
        script=(Broken(calls(call("get_weather", BERN)), 3), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        at_most={"get_weather": 0},
    ),
    Scenario(
        name="stream-ends-before-arguments",
        complaint="A stream ends after a tool's name, and the tool is run with no arguments.",
        source="NousResearch/hermes-agent#81017",
        script=(Broken(calls(call("ping")), 2), says("done")),
        tools=(PING,),
        needs=NEEDS,
        at_most={"ping": 0},
    ),
    Scenario(
        name="stream-breaks-after-tools-ran",
        complaint="The stream of the last answer breaks, and the work before it is done all over again.",
        source="AtomicBot-ai/atomic-agent#339",
        script=(calls(call("get_weather", BERN)), Broken(LONG, 3, BREAK), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
        checks={"lost": _no_half_answer},
    ),
    Scenario(
        name="stream-of-calls-that-interleave",
        complaint="Pieces of two calls come in turn, and end up in one.",
        source="QwenLM/Qwen-Agent#943",
        script=(
            Chunked(
                BOTH,
                (
                    _head(0, "call_a"),
                    _head(1, "call_b"),
                    _part(0, HALVES[0]),
                    _part(1, HALVES[2]),
                    _part(0, HALVES[1]),
                    _part(1, HALVES[3]),
                ),
            ),
            says("done"),
        ),
        tools=(WEATHER,),
        needs=NEEDS,
        runs={"get_weather": 2},
        answer="done",
        checks={"lost": answers_fit},
    ),
    Scenario(
        name="stream-of-calls-with-one-index",
        complaint="A provider gives every call the index 0, and their arguments run together.",
        source="huggingface/smolagents#1958",
        script=(
            Chunked(
                BOTH,
                (
                    _head(0, "call_a", HALVES[0] + HALVES[1]),
                    _head(0, "call_b", HALVES[2] + HALVES[3]),
                ),
            ),
            says("done"),
        ),
        tools=(WEATHER,),
        needs=NEEDS,
        runs={"get_weather": 2},
        answer="done",
        checks={"lost": answers_fit},
    ),
    Scenario(
        name="stream-of-nothing",
        complaint="A stream without a single chunk ends the run with nothing.",
        source="nugget/thane-ai-agent#167",
        script=(Chunked(says("")), says("done")),
        tools=(WEATHER,),
        needs=NEEDS,
        faults=(Fault(()),),
        may_stop=True,
    ),
)
