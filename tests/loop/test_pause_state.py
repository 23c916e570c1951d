"""The state of a paused run is good for one resumption, and each change of it is noticed."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import (
    Loop,
    Ok,
    Paused,
    approve,
    deny,
)
from treadle.loop.pause import _digest
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
    """A copy of a state with another value somewhere."""
    made = copy.deepcopy(state)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return made


def rich_state():
    """A state with something in nearly every field: a child, a denied call, a suppressed one."""
    ran = []
    first = calls(call("look", "x", n=1))
    batch = calls(call("look", "y", n=1), call("nope", "n"), *SCRIPT[0]["tool_calls"][1:])
    paused = SYNC.run(make(ran, INNER), ScriptedLLM(first, batch))
    return make(ran), stored(paused)


LOOP, STATE = rich_state()


LEAVES = leaves(STATE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


class TestTampered:
    """A state that is not as it was made is refused, whatever was changed in it."""

    def test_every_leaf_counts(self):
        flips = {str: lambda v: v + "x", int: lambda v: v + 1, float: lambda v: v + 1.0}
        assert len(LEAVES) > 100
        for path in LEAVES:
            value = STATE
            for key in path:
                value = value[key]
            flip = flips.get(type(value), lambda v: "x" if v is None else not v)
            text = "version" if path == ("version",) else "was changed, or signed with another"
            refused(LOOP, changed(STATE, path, flip(value)), text=text)

    @given(st.sampled_from(LEAVES), JSON)
    def test_any_leaf_for_any_other_value(self, path, value):
        forged = changed(STATE, path, value)
        if json.dumps(forged, sort_keys=True) != json.dumps(STATE, sort_keys=True):
            refused(LOOP, forged)

    def test_a_key_more_or_less_anywhere_counts(self):
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

    def test_the_state_itself_is_taken(self):
        """What is refused above is refused for the change alone."""
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
    def test_the_same_secret_opens_it_as_text_or_as_bytes(self, recorded, signed, opened):
        _, model, paused = paused_at(recorded, pause_secret=signed)
        loop = recorded.loop(pause_secret=opened)
        assert isinstance(SYNC.resume(loop, stored(paused), {"b": approve}, model), Ok)

    @pytest.mark.parametrize(
        ("signed", "opened"),
        [("one", "another"), (None, "one"), ("one", None), ("one", "one "), (b"1", b"\x01")],
    )
    def test_another_secret_or_none_is_refused(self, recorded, signed, opened):
        _, _, paused = paused_at(recorded, pause_secret=signed)
        refused(recorded.loop(pause_secret=opened), paused.state, text="signed with another secret")

    def test_a_digest_that_anyone_can_compute_is_no_signature(self, recorded):
        loop, _, paused = paused_at(recorded, pause_secret=b"s")
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["approvals"] = {"b": {"runs": True, "reason": "", "arguments": None}}
        refused(loop, {**forged, "digest": _digest(forged, None)}, text="signed with another")

    def test_without_a_secret_it_detects_mistakes_only(self, recorded):
        """As the guide says: a state that leaves the program has to be signed."""
        loop, model, paused = paused_at(recorded)
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["tool_calls"][1]["input"] = {"path": "/etc"}
        forged["digest"] = _digest(forged, None)
        SYNC.resume(loop, forged, {"b": approve}, model)
        assert "wipe /etc" in recorded.done

    def test_the_state_of_a_child_is_signed_with_that_of_its_parent(self, recorded):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        child = recorded.loop(pause_secret=b"inner").as_tool("child", "c", inner)
        loop = Loop(tools=[child], pause_secret=b"outer")
        model = ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = SYNC.run(loop, model)
        other = recorded.loop(pause_secret=b"other").as_tool("child", "c", inner)
        changed_child = Loop(tools=[other], pause_secret=b"outer")
        refused(changed_child, paused, text="signed with another", decisions={"k/i": approve})
        inner._script.append("inner done")
        assert isinstance(SYNC.resume(loop, paused, {"k/i": approve}, model), Ok)
