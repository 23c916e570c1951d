"""The state of a paused run: every change of it is detected, and it can be signed."""

import copy

import pytest

from treadle import (
    Loop,
    Ok,
    Paused,
    Pauses,
    approve,
    deny,
)
from treadle.pauses import digest_of
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, paused_at, refused, stored
from .other_process import INNER, SCRIPT, make


def leaves(value, path=()):
    """The path of every leaf of a JSON value, the empty containers among them."""
    if isinstance(value, dict) and value:
        return [p for key in value for p in leaves(value[key], (*path, key))]
    if isinstance(value, list) and value:
        return [p for index in range(len(value)) for p in leaves(value[index], (*path, index))]
    return [path]


def changed(state, path, value):
    """A copy of a state with another value at a path."""
    made = copy.deepcopy(state)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def rich_state():
    """A state with a value in nearly every field: a subagent, a denied call, a suppressed one."""
    ran = []
    first = calls(call("look", "x", n=1))
    batch = calls(call("look", "y", n=1), call("nope", "n"), *SCRIPT[0]["tool_calls"][1:])
    paused = SYNC.run(make(ran, INNER), ScriptedLLM(first, batch))
    return make(ran), stored(paused)


LOOP, STATE = rich_state()


LEAVES = leaves(STATE)


class TestTampered:
    """A state that was changed is refused, whatever the change."""

    def test_a_change_of_any_leaf_is_refused(self):
        flips = {str: lambda v: v + "x", int: lambda v: v + 1, float: lambda v: v + 1.0}
        assert len(LEAVES) > 100
        for path in LEAVES:
            value = STATE
            for key in path:
                value = value[key]
            flip = flips.get(type(value), lambda v: "x" if v is None else not v)
            text = "version" if path == ("version",) else "was changed, or signed with another"
            refused(LOOP, changed(STATE, path, flip(value)), text=text)

    def test_an_added_or_removed_key_is_refused(self):
        for path in [path for path in LEAVES if path[:-1]] + [("version",)]:
            forged = copy.deepcopy(STATE)
            at = forged
            for key in path[:-1]:
                at = at[key]
            if isinstance(at, dict):
                at["more"] = 1
                refused(LOOP, forged)
                del at["more"]
            del at[path[-1]]
            refused(LOOP, forged)

    def test_a_forged_pause_object_is_refused_too(self, recorded):
        loop, _, paused = paused_at(recorded)
        forged = Paused(paused.pending, paused.messages, {**paused.state, "iteration": 0})
        refused(loop, forged, text="was changed")

    def test_the_unchanged_state_is_accepted(self):
        """So that the states above are refused only because of the change."""
        model, inner = ScriptedLLM("done"), ["inner"]
        loop = make([], inner)
        result = SYNC.resume(loop, STATE, {"h/j": deny(), "b": deny()}, model)
        assert isinstance(result, Ok)


class TestSigned:
    """Without the secret a state can be neither made nor changed."""

    @pytest.mark.parametrize(
        ("signed", "opened"),
        [("ß☃", "ß☃"), (b"\xff\x00", b"\xff\x00"), ("s", b"s"), ("ß".encode(), "ß")],
    )
    def test_the_same_secret_is_accepted_as_text_or_as_bytes(self, recorded, signed, opened):
        _, model, paused = paused_at(recorded, pauses=Pauses(secret=signed))
        loop = recorded.loop(pauses=Pauses(secret=opened))
        assert isinstance(SYNC.resume(loop, stored(paused), {"b": approve}, model), Ok)

    @pytest.mark.parametrize(
        ("signed", "opened"),
        [("one", "another"), (None, "one"), ("one", None), ("one", "one "), (b"1", b"\x01")],
    )
    def test_another_secret_or_none_is_refused(self, recorded, signed, opened):
        _, _, paused = paused_at(recorded, pauses=Pauses(secret=signed))
        refused(
            recorded.loop(pauses=Pauses(secret=opened)),
            paused.state,
            text="signed with another secret",
        )

    def test_an_unsigned_digest_is_refused_if_there_is_a_secret(self, recorded):
        loop, _, paused = paused_at(recorded, pauses=Pauses(secret=b"s"))
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["approvals"] = {"b": {"runs": True, "reason": "", "arguments": None}}
        refused(loop, {**forged, "digest": digest_of(forged, None)}, text="signed with another")

    def test_without_a_secret_it_detects_mistakes_only(self, recorded):
        """As in the guide: a state that leaves the program has to be signed."""
        loop, model, paused = paused_at(recorded)
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["context"]["tool_calls"]["value"][1]["input"] = {"path": "/etc"}
        forged["digest"] = digest_of(forged, None)
        SYNC.resume(loop, forged, {"b": approve}, model)
        assert "wipe /etc" in recorded.done

    def test_the_state_of_a_subagent_has_its_own_signature(self, recorded):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        subagent = recorded.loop(pauses=Pauses(secret=b"inner")).as_tool("child", "c", inner)
        loop = Loop(tools=[subagent], pauses=Pauses(secret=b"outer"))
        model = ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = SYNC.run(loop, model)
        other = recorded.loop(pauses=Pauses(secret=b"other")).as_tool("child", "c", inner)
        changed_subagent = Loop(tools=[other], pauses=Pauses(secret=b"outer"))
        refused(changed_subagent, paused, text="signed with another", decisions={"k/i": approve})
        inner._script.append("inner done")
        assert isinstance(SYNC.resume(loop, paused, {"k/i": approve}, model), Ok)
