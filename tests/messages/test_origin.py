"""The origin of a message: what only one server reads goes back to it, and to no other."""

import dataclasses

import pytest

from treadle import Loop, Response, ToolCall, tool
from treadle.messages import History, estimate_tokens, for_sdk
from treadle.messages.origin import has_bound_values
from treadle.providers.middleware import Fallback, ResponseCache
from treadle.testing import ScriptedLLM, check_history

A, B = {"treadle": {"origin": "x@a"}}, {"treadle": {"origin": "x@b"}}
CALL = {"id": "c", "type": "function", "function": {"name": "n", "arguments": "{}"}}
SIGNED = {**CALL, "extra_content": {"google": {"thought_signature": "eA=="}}}
TEXT, IMAGE = {"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": "u"}}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def said(**keys):
    return {"role": "assistant", "content": None, **keys}


BOUND = {
    "a key": (said(content="t", reasoning_content="hm"), said(content="t")),
    "a key of a call": (said(tool_calls=[SIGNED]), said(tool_calls=[CALL])),
    "a part": (said(content=[THOUGHT, TEXT]), said(content=[TEXT])),
    "a key of a part": (said(content=[{**TEXT, "signature": "s"}]), said(content=[TEXT])),
    "the only part": (said(content=[THOUGHT], tool_calls=[CALL]), said(tool_calls=[CALL])),
    "a key beside a refusal": (said(refusal="no", x={"y": 1}), said(refusal="no")),
    "a part whose type is no text": (said(content=[TEXT, {"type": ["x"]}]), said(content=[TEXT])),
}


@pytest.mark.parametrize("case", BOUND)
class TestBound:
    def test_its_own_server_receives_it(self, case):
        message, _ = BOUND[case]
        assert for_sdk([{**message, **A}], "x@a") == [message]
        assert for_sdk([{**message, **A}]) == [message]

    def test_another_server_receives_the_rest(self, case):
        message, rest = BOUND[case]
        given = {**message, **A}
        assert for_sdk([given], "x@b") == [rest]
        assert given == {**message, **A}

    def test_without_an_origin_everyone_receives_it(self, case):
        (sent,) = for_sdk([BOUND[case][0]], "x@b")
        assert sent is BOUND[case][0]

    def test_it_is_found(self, case):
        message, rest = BOUND[case]
        assert has_bound_values(message)
        assert not has_bound_values(rest)


@pytest.mark.parametrize(
    "message",
    [said(content="t", annotations=[], audio=None), said(content=[TEXT, IMAGE], name="n")],
)
def test_what_every_server_reads_and_empty_values_are_not_bound(message):
    assert not has_bound_values(message)


@pytest.mark.parametrize("mark", ["x@a", None, 5, {}, {"origin": 5}, {"origin": None}, [1]])
def test_a_malformed_origin_counts_as_none(mark):
    message = said(content="t", x=1)
    assert for_sdk([{**message, "treadle": mark}], "x@b") == [message]


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_other_messages_lose_the_key_alone(role):
    message = {"role": role, "content": "t", "tool_call_id": "c", "cache_control": 1}
    assert for_sdk([{**message, **A}], "x@b") == [message]


@pytest.mark.parametrize("keys", [{"reasoning_details": [1]}, {"content": [THOUGHT]}, {"x": "y"}])
def test_a_message_without_anything_for_the_server_is_left_out(keys):
    user = {"role": "user", "content": "q"}
    assert for_sdk([user, {**said(**keys), **A}, user], "x@b") == [user, user]


def test_messages_of_two_origins_are_not_joined():
    ask = {"role": "user", "content": "q"}
    one, other = said(content="a", x=1, **A), said(content="b", x=2, **B)
    check_history([ask, one, other])
    result = Loop.run_sync([ask, one, other, ask], ScriptedLLM("Yes."))
    assert list(result.messages[:4]) == [ask, one, other, ask]


def test_the_key_is_no_part_of_an_estimate():
    assert estimate_tokens([said(content="t", **A)]) == estimate_tokens([said(content="t")])


def test_a_history_knows_whether_it_has_origins():
    user = {"role": "user", "content": "q"}
    assert not History([user]).has_origins
    assert History([user, said(x=1, **A)]).has_origins
    assert History([user]).append(said(x=1, **A)).has_origins


# Runs


class Model:
    """A model that returns its responses in order, and keeps what it received."""

    def __init__(self, *responses):
        self.responses = list(responses)
        self.received = []

    def __call__(self, messages):
        self.received.append(messages)
        return self.responses.pop(0)


class Declared(Model):
    """An adapter that declares its server."""

    provider = "acme"
    model = "acme-1"

    def __init__(self, url, *responses):
        super().__init__(*responses)
        self.endpoint_url = url


class Named(Model):
    """An adapter that names its origin."""

    origin = "acme@one"


def other(messages):
    return Response("Hi.", extra={"reasoning_content": "hm"})


REASONED = Response("Hi.", extra={"reasoning_details": [{"format": "acme", "signature": "s"}]})


@pytest.mark.parametrize(
    ("model", "origin"),
    [
        (Declared("https://Acme.AI/v1", REASONED), "acme@acme.ai"),
        (Declared("https://k:pw@acme.ai:443/v1?x=/y", REASONED), "acme@acme.ai"),
        (Declared("http://acme.ai:8000", REASONED), "acme@acme.ai:8000"),
        (Declared("", REASONED), f"{__name__}.Declared"),
        (Named(REASONED), "acme@one"),
        (other, f"{__name__}.other"),
    ],
)
def test_a_message_has_the_origin_of_its_model(model, origin):
    result = Loop.run_sync("q", model)
    assert result.messages[-1]["treadle"] == {"origin": origin}
    check_history(result.messages)


def test_a_plain_response_has_no_origin():
    assert "treadle" not in Loop.run_sync("q", Model(Response("Hi."))).messages[-1]


def test_a_server_cannot_name_another_origin():
    extra = {"x": 1, "treadle": {"origin": "acme@one"}}
    (_, message) = Loop.run_sync("q", Model(Response("Hi.", extra=extra))).messages
    assert message["treadle"] == {"origin": f"{__name__}.Model"}


def test_a_third_partys_values_go_back_to_it_and_to_no_other():
    acme = Declared("https://acme.ai", REASONED, Response("Yes."))
    first = Loop.run_sync("q", acme)
    ask = {"role": "user", "content": "q"}
    stranger = Declared("https://b.ai", Response("Well.", extra={"x": 1}))
    second = Loop.run_sync([*first.messages, ask], stranger)
    Loop.run_sync([*second.messages, ask], acme)
    (received,) = stranger.received
    assert received[1] == {"role": "assistant", "content": "Hi."}
    assert acme.received[1][1] == {**received[1], **REASONED.extra}
    assert acme.received[1][3] == {"role": "assistant", "content": "Well."}


def test_a_request_that_moves_to_another_model_is_made_for_that_one():
    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def broken(messages):
        if len(messages) > 1:
            raise ConnectionError
        return dataclasses.replace(REASONED, tool_calls=(ToolCall("c", "look", extra={"s": 1}),))

    spare = Model(Response("Seen."))
    result = Loop.run_sync("q", broken, tools=[look], model_middleware=[Fallback(spare)])
    ((_, message, _),) = spare.received
    assert message == said(
        content="Hi.", tool_calls=[{**CALL, "function": message["tool_calls"][0]["function"]}]
    )
    assert result.messages[1]["treadle"]["origin"].endswith("broken")
    assert result.messages[1]["tool_calls"][0]["s"] == 1


def test_a_cached_response_keeps_its_origin():
    cache, model = ResponseCache(), Declared("https://acme.ai", REASONED)
    for _ in range(2):
        result = Loop.run_sync("q", model, model_middleware=[cache])
    assert result.response.is_cached
    assert result.messages[-1]["treadle"] == {"origin": "acme@acme.ai"}
