"""The state of a paused run is JSON, from which another process can continue."""

import copy
import json
import pathlib
import subprocess
import sys
from types import MappingProxyType

import pytest
from tests.deciding import on

from treadle import (
    Limits,
    Ok,
    Usage,
    approve,
    edit,
)
from treadle.pauses import VERSION
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, paused_at, refused, stored
from .other_process import INNER, SCRIPT, make


class TestOtherProcess:
    """Everything that is needed to continue is in the state."""

    def resume(self, state, decisions, script, inner=()):
        job = {"state": state, "decisions": on(state, decisions), "script": script, "inner": inner}
        done = subprocess.run(
            [sys.executable, pathlib.Path(__file__).with_name("other_process.py")],
            input=json.dumps(job),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def test_another_process_continues_and_a_third_one_after_it(self):
        ran = []
        paused = SYNC.run(make(ran, INNER), ScriptedLLM(*SCRIPT))
        assert sorted(ran) == ["look 1", "look 7"]
        assert [one.call_id for one in paused.pending] == ["h/j", "b"]
        decisions = {"h/j": ["edit", {"to": "robert"}]}
        second = self.resume(json.dumps(paused.state), decisions, [], ["written"])
        assert (second["stop_reason"], second["ran"]) == ("paused", ["send robert"])
        decisions = {"b": ["deny", "not to eve"]}
        third = self.resume(second["state"], decisions, ["all done"])
        assert (third["stop_reason"], third["ran"]) == ("answered", ["look 2"])
        assert answers(third["messages"]) == {
            "a": "saw 1",
            "h": "written",
            "b": "Not run: a person did not approve this call: not to eve. Do without it, or ask.",
            "c": "saw 2",
        }
        assert third["run_id"] == paused.run.run_id
        assert (third["iterations"], third["tool_calls_count"]) == (2, 3)


class TestForms:
    """A run can be resumed from every form of its pause."""

    @pytest.mark.parametrize(
        "form",
        [
            lambda paused: paused,
            lambda paused: paused.state,
            stored,
            lambda paused: MappingProxyType(paused.state),
            lambda paused: json.dumps(paused.state),
            lambda paused: json.dumps(paused.state, indent=2, sort_keys=True),
            lambda paused: json.dumps(paused.state, ensure_ascii=False).encode(),
        ],
        ids=["the pause", "state", "from JSON", "a mapping", "text", "another text", "bytes"],
    )
    def test_every_form_is_accepted(self, recorded, form):
        text = calls(call("wipe", "b", path="/ünï\ud83d\ude00"), text="näive ☃")
        loop, model, paused = paused_at(recorded, text)
        assert isinstance(SYNC.resume(loop, form(paused), {"b": approve}, model), Ok)
        assert recorded.done == ["wipe /ünï😀"]

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (
                None,
                "^expected a Paused, .* or the path of a saved pause, got NoneType$",
            ),
            (5, "^expected a Paused.* got int$"),
            (USER, "^expected a Paused.* got list$"),
            ({}, "^expected a Paused.* got dict$"),
            ({"version": VERSION}, "^expected a Paused.* got dict$"),
            ("", "^'.*' is not a saved pause$"),
            ("{", "^the paused state is not JSON: "),
            (b"\xff\xfe\xfd", "^the paused state is not JSON: "),
            (b"null", "^expected a Paused.* got bytes$"),
            (b"[" * 100_000, "JSON"),
            ("null", "^there is no saved pause at '.*null'$"),
            ("\0", "^there is no saved pause at "),
            ("x" * 100_000, "^there is no saved pause at '.*x{9}...'$"),
            ('{"digest": ""}', f"has version None, expected {VERSION}$"),
            (
                {"digest": "x", "version": VERSION + 1},
                f"has version {VERSION + 1}, expected {VERSION}$",
            ),
            ({"digest": "x", "version": VERSION}, "was changed"),
            ({"digest": None, "version": VERSION}, "was changed"),
            ({"digest": "ä" * 64, "version": VERSION}, "was changed"),
            ({"digest": "x", "version": VERSION, "more": {1, 2}}, "changed|JSON"),
            ({"digest": "x", "version": VERSION, 5: 1, "5": 1}, "changed|JSON"),
        ],
    )
    def test_anything_else_is_refused_with_the_problem(self, recorded, given, text):
        refused(recorded.loop(), given, text=text)

    def test_resuming_does_not_change_the_paused_object(self, recorded):
        loop, model, paused = paused_at(recorded)
        before = copy.deepcopy(paused.state)
        SYNC.resume(loop, paused, {"b": edit({"path": "/x"})}, model)
        assert paused.state == before

    def test_a_pause_with_every_kind_of_call_is_restored_completely(self, recorded):
        """Reasons, duplicates, calls not run, errors, refusals, unknown keys, signatures, usage and cost."""
        answer = calls(
            call("note", "a", n=1),
            call("nope", "bad"),
            call("note", "twin", n=1),
            {**call("wipe", "b", path="/"), "signature": "s"},
            call("note", "over", n=2),
            call("note", "late", n=3),
            text="Let me see.",
        )
        completion = {
            "id": "x1",
            "model": "m1",
            "choices": [{"message": {**answer, "reasoning": "because"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        }
        loop, model, paused = paused_at(
            recorded,
            calls(call("note", "z", n=9)),
            completion,
            max_tool_calls=4,
            limits=Limits(cost_of=lambda r: 0.5),
        )
        assert paused.usage == Usage(3, 4, 7, is_lower_bound=True, cost=1.0)
        result = SYNC.resume(loop, stored(paused), {"b": approve}, model)
        made = result.messages[3]
        assert (made["content"], made["reasoning"]) == ("Let me see.", "because")
        assert made["tool_calls"][3]["signature"] == "s"
        texts = answers(result.messages)
        assert list(texts) == ["z", "a", "bad", "twin", "b", "over", "late"]
        assert (texts["a"], texts["b"], texts["over"]) == ("noted 1", "wiped /", "noted 2")
        assert texts["twin"].endswith("Its result:\nnoted 1")
        assert "there is no tool named 'nope'" in texts["bad"]
        assert "the budget of 4 tool calls is spent" in texts["late"]
        assert result.usage.cost == 1.0
