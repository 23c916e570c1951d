"""Conversations that arrive broken; to refuse one with an error is as good as to mend it."""

from __future__ import annotations

from collections.abc import Iterator

from torture_suite.evidence import Evidence, whole_text
from torture_suite.protocol import GIVEN_HISTORY, Scenario
from torture_suite.script import JSONDict, call, calls, says

NEEDS = frozenset({GIVEN_HISTORY})
ASK: JSONDict = {"role": "user", "content": "How many apples are there?"}
GO_ON: JSONDict = {"role": "user", "content": "Go on."}


def _answer(call_id: str, text: str = "42 apples") -> JSONDict:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


COUNT = calls(call("count", {"what": "apples"}, id="call_a"))


def _given(
    name: str, complaint: str, source: str, *prompt: JSONDict, is_strict: bool = False
) -> Scenario:
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(says("done"),),
        prompt=prompt,
        needs=NEEDS,
        is_strict=is_strict,
    )


def _result_is_sent(evidence: Evidence) -> Iterator[str]:
    if evidence.asked and "42 apples" not in whole_text(evidence.asked[0].messages):
        yield "the result in the given history is not in the request"


SCENARIOS = (
    Scenario(
        name="history-that-ends-with-a-result",
        complaint="A run cannot go on from the result of a tool.",
        source="HKUDS/OpenHarness#19",
        script=(says("done"),),
        prompt=(ASK, COUNT, _answer("call_a")),
        needs=NEEDS,
        answer="done",
        checks={"lost": _result_is_sent},
    ),
    _given(
        "history-with-an-unanswered-call",
        "A call without an answer in a stored conversation: 400 for every later request.",
        "langchain-ai/langchain#25716",
        ASK,
        COUNT,
        GO_ON,
    ),
    _given(
        "history-that-ends-with-a-call",
        "A run that was killed leaves a call at the end, and cannot be resumed.",
        "agno-agi/agno#4345",
        ASK,
        COUNT,
    ),
    _given(
        "history-with-half-of-its-answers",
        "One of two parallel calls was answered before the run was interrupted.",
        "microsoft/semantic-kernel#12708",
        ASK,
        calls(
            call("count", {"what": "apples"}, id="call_a"),
            call("count", {"what": "pears"}, id="call_b"),
        ),
        _answer("call_a"),
        GO_ON,
    ),
    _given(
        "history-with-an-answer-to-nothing",
        "Truncating a conversation cuts off a call and leaves its answer.",
        "microsoft/semantic-kernel#12708",
        _answer("call_a"),
        GO_ON,
    ),
    _given(
        "history-with-an-answer-twice",
        "Two answers for the same call are refused by the provider.",
        "NorthlandPositronics/Cogtrix#2278",
        ASK,
        COUNT,
        _answer("call_a"),
        _answer("call_a", "42 apples, again"),
        GO_ON,
    ),
    _given(
        "history-with-a-blank-reply",
        "An empty reply in a stored conversation breaks it for good.",
        "open-webui/open-webui#25083",
        ASK,
        says(""),
        GO_ON,
        is_strict=True,
    ),
    _given(
        "history-with-malformed-arguments",
        "Malformed arguments in a stored conversation make every retry fail.",
        "local-inference-lab/vllm#684",
        ASK,
        calls(call("count", '{"what": "app', id="call_a")),
        _answer("call_a", "Error: no JSON"),
        GO_ON,
        is_strict=True,
    ),
)
