"""The state of a paused run: JSON that another process can go on from, and nobody can change unnoticed."""

import copy
import json
import pathlib
import subprocess
import sys
import threading
from types import MappingProxyType

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import (
    Loop,
    Ok,
    OptionError,
    Paused,
    PausedStateError,
    PendingCall,
    RunState,
    Usage,
    approve,
    deny,
    edit,
    stage,
    tool,
)
from treadle.loop.pause import VERSION, _Claims, _digest
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import SYNC, USER, Desk, answers, of, stored
from .elsewhere import make

BATCH = calls(call("note", "a", n=1), call("wipe", "b", path="/"), call("note", "c", n=3))


def paused_at(desk, *script, **options):
    loop, model = desk.loop(**options), ScriptedLLM(*(script or (BATCH,)), "done")
    return loop, model, SYNC.run(loop, model)


def refused(loop, state, model=lambda m: "x", text="paused state", decisions=None, **options):
    """Assert that a state is refused before anything runs."""
    with pytest.raises(PausedStateError, match=text):
        loop.resume_sync(state, decisions or {}, model, **options)


class TestElsewhere:
    """All that is needed to go on is in the state."""

    SCRIPT = (
        calls(
            call("look", "a", n=1),
            call("helper", "h", task="write to bob"),
            call("send", "b", to="eve"),
            call("look", "c", n=2),
        ),
    )
    INNER = (calls(call("look", "i", n=7), call("send", "j", to="bob")),)

    def elsewhere(self, state, decisions, script, inner=()):
        told = {"state": state, "decisions": decisions, "script": script, "inner": inner}
        done = subprocess.run(
            [sys.executable, pathlib.Path(__file__).with_name("elsewhere.py")],
            input=json.dumps(told),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def test_another_process_goes_on_and_a_third_after_it(self):
        ran = []
        paused = SYNC.run(make(ran, self.INNER), ScriptedLLM(*self.SCRIPT))
        assert sorted(ran) == ["look 1", "look 7"]
        assert [one.id for one in paused.pending] == ["h/j", "b"]
        decisions = {"h/j": ["edit", {"to": "robert"}]}
        second = self.elsewhere(json.dumps(paused.state), decisions, [], ["written"])
        assert (second["stop_reason"], second["ran"]) == ("paused", ["send robert"])
        decisions = {"b": ["deny", "not to eve"]}
        third = self.elsewhere(second["state"], decisions, ["all done"])
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
    """A pause comes back in whatever form it was kept."""

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
    def test_all_of_them_are_taken(self, desk, form):
        text = calls(call("wipe", "b", path="/ünï\ud83d\ude00"), text="näive ☃")
        loop, model, paused = paused_at(desk, text)
        assert isinstance(SYNC.resume(loop, form(paused), {"b": approve}, model), Ok)
        assert desk.done == ["wipe /ünï😀"]

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            (None, "^expected a Paused, its state, or that as JSON text, got NoneType$"),
            (5, "^expected a Paused.* got int$"),
            (USER, "^expected a Paused.* got list$"),
            ({}, "^expected a Paused.* got dict$"),
            ({"version": VERSION}, "^expected a Paused.* got dict$"),
            ("", "^the paused state is no JSON: "),
            ("{", "^the paused state is no JSON: "),
            (b"\xff\xfe\xfd", "^the paused state is no JSON: "),
            ("null", "^expected a Paused.* got str$"),
            ("[" * 100_000, "JSON"),
            ('{"digest": ""}', "of version None, and this is 1$"),
            ({"digest": "x", "version": VERSION + 1}, "of version 2, and this is 1$"),
            ({"digest": "x", "version": VERSION}, "was changed"),
            ({"digest": None, "version": VERSION}, "was changed"),
            ({"digest": "ä" * 64, "version": VERSION}, "was changed"),
            ({"digest": "x", "version": VERSION, "more": {1, 2}}, "changed|JSON"),
            ({"digest": "x", "version": VERSION, 5: 1, "5": 1}, "changed|JSON"),
        ],
    )
    def test_anything_else_is_refused_with_what_it_is(self, desk, given, text):
        refused(desk.loop(), given, text=text)

    def test_a_pause_is_left_as_it_is_by_whoever_resumes(self, desk):
        loop, model, paused = paused_at(desk)
        before = copy.deepcopy(paused.state)
        SYNC.resume(loop, paused, {"b": edit({"path": "/x"})}, model)
        assert paused.state == before

    def test_a_pause_with_everything_in_it_comes_back_whole(self, desk):
        """Reasons, twins, held calls, errors, refusals, unknown keys, signatures, usage and cost."""
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
            desk, calls(call("note", "z", n=9)), completion, max_tool_calls=4, price=lambda r: 0.5
        )
        assert paused.usage == Usage(3, 4, 7, is_lower_bound=True, cost=0.5)
        result = SYNC.resume(loop, stored(paused), {"b": approve}, model)
        made = result.messages[3]
        assert (made["content"], made["reasoning"]) == ("Let me see.", "because")
        assert made["tool_calls"][3]["signature"] == "s"
        told = answers(result.messages)
        assert list(told) == ["z", "a", "bad", "twin", "b", "over", "late"]
        assert (told["a"], told["b"], told["over"]) == ("noted 1", "wiped /", "noted 2")
        assert told["twin"].endswith("Its result:\nnoted 1")
        assert "there is no tool named 'nope'" in told["bad"]
        assert "the budget of 4 tool calls is spent" in told["late"]
        assert result.usage.cost == 0.5


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
    batch = calls(
        call("look", "y", n=1), call("nope", "n"), *TestElsewhere.SCRIPT[0]["tool_calls"][1:]
    )
    paused = SYNC.run(make(ran, TestElsewhere.INNER), ScriptedLLM(first, batch))
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

    def test_a_forged_pause_object_is_refused_too(self, desk):
        loop, _, paused = paused_at(desk)
        forged = Paused(paused.pending, paused.messages, {**paused.state, "iteration": 0})
        refused(loop, forged, text="was changed")

    def test_the_state_itself_is_taken(self):
        """What is refused above is refused for the change alone."""
        model, inner = ScriptedLLM("done"), ["inner"]
        loop = make([], inner)
        result = SYNC.resume(loop, STATE, {"h/j": deny(), "b": deny()}, model)
        assert isinstance(result, Ok)


class TestSigned:
    """With a secret nobody else can make or change a state."""

    @pytest.mark.parametrize("secret", ["s", b"s", "ß☃", b"\xff\x00"])
    def test_the_same_secret_opens_it(self, desk, secret):
        loop, model, paused = paused_at(desk, pause_secret=secret)
        assert isinstance(SYNC.resume(loop, stored(paused), {"b": approve}, model), Ok)

    def test_text_and_its_bytes_are_one_secret(self, desk):
        _, model, paused = paused_at(desk, pause_secret="s")
        assert SYNC.resume(desk.loop(pause_secret=b"s"), paused, {"b": approve}, model).unwrap()

    @pytest.mark.parametrize(
        ("signed", "opened"),
        [("one", "another"), (None, "one"), ("one", None), ("one", "one "), (b"1", b"\x01")],
    )
    def test_another_secret_or_none_is_refused(self, desk, signed, opened):
        _, _, paused = paused_at(desk, pause_secret=signed)
        refused(desk.loop(pause_secret=opened), paused.state, text="signed with another secret")

    def test_a_digest_that_anybody_can_work_out_is_no_signature(self, desk):
        loop, _, paused = paused_at(desk, pause_secret="s")
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["approvals"] = {"b": {"runs": True, "reason": "", "arguments": None}}
        refused(loop, {**forged, "digest": _digest(forged, None)}, text="signed with another")

    def test_without_a_secret_it_tells_mistakes_only(self, desk):
        """So the guide says: whoever lets a state out of hand has to sign it."""
        loop, model, paused = paused_at(desk)
        forged = {key: value for key, value in paused.state.items() if key != "digest"}
        forged["tool_calls"][1]["input"] = {"path": "/etc"}
        forged["digest"] = _digest(forged, None)
        SYNC.resume(loop, forged, {"b": approve}, model)
        assert "wipe /etc" in desk.done

    def test_the_state_of_a_child_is_signed_with_that_of_its_parent(self, desk):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        child = desk.loop(pause_secret="inner").as_tool("child", "c", inner)
        loop = Loop(tools=[child], pause_secret="outer")
        model = ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = SYNC.run(loop, model)
        other = desk.loop(pause_secret="other").as_tool("child", "c", inner)
        changed_child = Loop(tools=[other], pause_secret="outer")
        refused(changed_child, paused, text="signed with another", decisions={"k/i": approve})
        inner._script.append("inner done")
        assert isinstance(SYNC.resume(loop, paused, {"k/i": approve}, model), Ok)


class TestStale:
    """A state is good for one resumption, by a loop that has what it needs."""

    def test_resumed_twice_it_is_refused(self, desk):
        loop, model, paused = paused_at(desk)
        SYNC.resume(loop, paused, {"b": approve}, model)
        refused(loop, stored(paused), text="^the paused state is stale: '.*' was resumed already$")
        assert desk.did == ["note 1", "note 3", "wipe /"]

    def test_refused_it_tells_nothing_and_asks_nobody(self, desk):
        events = []
        loop, _, paused = paused_at(desk, claim_pause=lambda pause_id: False)
        with ScriptedLLM() as model:
            refused(loop, paused, model, "was resumed already", on_event=events.append)
        assert events == []

    def test_a_run_that_goes_on_in_the_record_of_another_can_be_paused_again(self, desk):
        """Each pause has an id of its own, though the runs share theirs."""
        state, loop = RunState("bot", "r1"), desk.loop()
        for n in range(3):
            model = ScriptedLLM(calls(call("wipe", "b", path=f"/{n}")), "done")
            paused = SYNC.run(loop, model, state=state)
            state = SYNC.resume(loop, paused, {"b": approve}, model).run
        assert desk.done == ["wipe /0", "wipe /1", "wipe /2"]

    def test_where_the_tool_is_gone_it_is_refused(self, desk):
        _, _, paused = paused_at(desk)
        for name in ("note", "wipe"):
            others = [one for one in desk.tools if one.name != name]
            refused(
                Loop(tools=others), paused, text=f"stale: tool '{name}' is not there any more, and"
            )

    def test_where_the_tool_takes_something_else_it_is_refused(self, desk):
        @tool(name="wipe", requires_approval=True)
        def other(path: str, force: bool = False): ...

        _, _, paused = paused_at(desk)
        refused(Loop(tools=[desk.tools[0], other]), paused, text="tool 'wipe' is not what it was")

    def test_a_tool_that_no_call_is_of_may_change(self, desk):
        _, model, paused = paused_at(desk)
        loop = Loop(tools=[one for one in desk.tools if one.name != "pay"])
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_a_description_and_what_it_does_may_change(self, desk):
        later = Desk()
        later.tools[1] = tool(later.tools[1], description="Wipes.")
        _, model, paused = paused_at(desk)
        SYNC.resume(later.loop(), paused, {"b": approve}, model)
        assert (desk.did, later.did) == (["note 1"], ["note 3", "wipe /"])

    def test_where_the_stage_that_paused_is_gone_it_is_refused(self, desk):
        loop = desk.loop(stages=[asking, *default_stages()])
        paused = SYNC.run(loop, lambda m: "Hello")
        refused(desk.loop(), paused, text="stale: .*'asking'", decisions={"q": approve})
        assert isinstance(SYNC.resume(loop, paused, {"q": approve}, lambda m: "x"), Ok)

    def test_where_a_childs_tool_has_changed_it_is_refused(self, desk):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        loop = Loop(tools=[desk.loop().as_tool("child", "c", inner)])
        paused = SYNC.run(loop, ScriptedLLM(calls(call("child", "k", task="t"))))
        without = Loop(tools=[Loop().as_tool("child", "c", inner)])
        refused(without, paused, text="tool 'wipe' is not there any more")


@stage
def asking(ctx):
    """A stage that asks a person something of its own."""
    if "q" in ctx.approvals:
        return ctx
    return ctx.pause((PendingCall("q", "asking", {"text": ctx.response.content}, "May it say so?"),))


class TestClaims:
    """Who may resume a pause is asked once for each try."""

    @pytest.mark.parametrize("is_async", [False, True])
    def test_it_is_asked_with_the_id_of_the_pause(self, desk, way, is_async):
        asked, answer = [], [True]

        def claim(pause_id):
            asked.append(pause_id)
            return answer[0]

        async def claim_later(pause_id):
            await anyio.sleep(0)
            return claim(pause_id)

        option = claim_later if is_async else claim
        loop, model, paused = paused_at(desk, claim_pause=option)
        assert isinstance(way.resume(loop, paused, {"b": approve}, model), Ok)
        assert asked == [paused.state["pause_id"]]
        answer[0] = False
        with pytest.raises(PausedStateError, match="was resumed already"):
            way.resume(loop, paused, {"b": approve}, model)

    def test_a_stream_is_refused_too(self, desk):
        loop, model, paused = paused_at(desk, claim_pause=lambda pause_id: False)

        async def main():
            async with loop.resume_stream(paused, {"b": approve}, model) as events:
                return [event async for event in events]

        with pytest.raises(PausedStateError, match="was resumed already"):
            anyio.run(main)

    def test_what_it_raises_comes_out(self, desk):
        def claim(pause_id):
            raise ConnectionError("no database")

        loop, model, paused = paused_at(desk, claim_pause=claim)
        with pytest.raises(ConnectionError, match="no database"):
            loop.resume_sync(paused, {"b": approve}, model)
        assert desk.done == ["note 1"]

    def test_of_many_at_once_one_gets_it(self, desk):
        loop, model, paused = paused_at(desk)
        outcomes, start = [], threading.Barrier(8)

        def work():
            start.wait()
            try:
                outcomes.append(type(loop.resume_sync(paused, {"b": approve}, model)))
            except PausedStateError:
                outcomes.append(None)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (outcomes.count(Ok), outcomes.count(None)) == (1, 7)
        assert desk.did == ["note 1", "note 3", "wipe /"]

    def test_a_process_remembers_a_bounded_number(self, monkeypatch):
        monkeypatch.setattr("treadle.loop.pause.MAX_CLAIMS", 2)
        claims = _Claims()
        assert [claims.claim(name) for name in "aabc"] == [True, False, True, True]
        assert [claims.claim(name) for name in "cba"] == [False, False, True]

    def test_a_childs_pause_is_claimed_with_that_of_its_parent(self, desk):
        asked = []
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")), "inner")
        child = desk.loop(claim_pause=lambda pause_id: asked.append(pause_id))
        loop = Loop(tools=[child.as_tool("child", "c", inner)])
        model = ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = SYNC.run(loop, model)
        assert isinstance(SYNC.resume(loop, paused, {"k/i": approve}, model), Ok)
        assert asked == []


class TestNotJSON:
    """What cannot be put aside ends the run, with a reason and a valid history."""

    @pytest.mark.parametrize(
        "value", [{1, 2}, object(), float("nan"), float("inf"), {(1, 2): 3}, {1: 2}, [{1: 2}], b"x"]
    )
    def test_something_in_the_memo_that_is_no_json(self, desk, way, value):
        def keep(ctx):
            return ctx.remember("mine", value)

        loop = desk.loop(stages=[keep, *default_stages()])
        result = way.run(loop, ScriptedLLM(BATCH))
        assert result.stop_reason == "pipeline_failed"
        assert (result.reason.stage, result.reason.error_type) == (
            "dispatch_tools",
            "PausedStateError",
        )
        assert "cannot be put aside" in result.reason.message
        assert answers(result.messages)["a"] == "noted 1"
        assert desk.done == ["note 1"]
        assert (result.run.status, result.run.nodes[0].status) == ("failed", "failed")

    def test_the_model_is_not_told_that_a_call_waits_when_nobody_will_be_asked(self, desk):
        loop = desk.loop(stages=[lambda ctx: ctx.remember("mine", {1}), *default_stages()])
        assert "waits" not in answers(SYNC.run(loop, ScriptedLLM(BATCH)).messages)["b"]

    def test_a_memo_that_holds_itself(self, desk):
        knot = []
        knot.append(knot)
        loop = desk.loop(stages=[lambda ctx: ctx.remember("mine", knot), *default_stages()])
        assert SYNC.run(loop, ScriptedLLM(BATCH)).stop_reason == "pipeline_failed"

    @pytest.mark.parametrize(
        "waiting",
        [
            ("text",),
            (PendingCall("q", "asking", {"x": {1, 2}}, "?"),),
            (PendingCall("q", "asking", MappingProxyType({"x": object()}), "?"),),
        ],
    )
    def test_what_a_stage_waits_for(self, desk, waiting):
        loop = desk.loop(stages=[lambda ctx: ctx.pause(waiting)])
        result = SYNC.run(loop, lambda m: "Hello")
        assert (result.stop_reason, result.reason.error_type) == (
            "pipeline_failed",
            "PausedStateError",
        )

    def test_a_stage_that_nothing_can_enter(self, desk):
        """It stands within another item's way, so that the run could never go on from there."""
        inner = plug_with(Adapter(lambda ctx: ctx, lambda ctx, _: ctx), [asking])
        result = SYNC.run(desk.loop(stages=[inner, *default_stages()]), lambda m: "Hello")
        assert (result.stop_reason, result.reason.error_type) == (
            "pipeline_failed",
            "PausedStateError",
        )
        assert "nothing can enter at stage 'plug/asking'" in result.reason.message

    def test_what_json_takes_comes_back(self, desk):
        seen = []
        kept = {"n": [1, 2.5, None, True, "ü"], "deep": {"a": {"b": []}}}

        def keep(ctx):
            seen.append(ctx.memo.get("mine"))
            return ctx.remember("mine", kept)

        loop, model = desk.loop(stages=[keep, *default_stages()]), ScriptedLLM(BATCH, "done")
        SYNC.resume(loop, SYNC.run(loop, model), {"b": approve}, model)
        assert seen == [None, kept]


class TestStagesOfOnesOwn:
    """Any stage may pause a run; it is entered again with the decision."""

    @pytest.mark.parametrize("kind", ["plain", "steps", "async"])
    def test_it_is_entered_once_more(self, way, kind):
        entered = []

        def plain(ctx):
            entered.append(dict(ctx.approvals))
            return asking(ctx)

        def steps(ctx):
            yield from ()
            return plain(ctx)

        async def later(ctx):
            await anyio.sleep(0)
            return plain(ctx)

        made = stage({"plain": plain, "steps": steps, "async": later}[kind], name="mine")
        loop = Loop(stages=[*default_stages()[:2], made, *default_stages()[2:]])
        paused = way.run(loop, ScriptedLLM("Hello"))
        assert paused.pending[0].arguments == {"text": "Hello"}
        assert paused.messages == [*USER, {"role": "assistant", "content": "Hello"}]
        result = way.resume(loop, stored(paused), {"q": approve}, ScriptedLLM())
        assert (result.unwrap().content, result.iterations) == ("Hello", 1)
        assert result.messages == paused.messages
        assert entered == [{}, {"q": approve}]

    def test_it_may_make_of_a_denial_what_it_likes(self, way):
        @stage
        def gate(ctx):
            said = ctx.approvals.get("q")
            if said is None:
                return asking(ctx)
            return ctx if said.runs else ctx.replace(guidance=f"Say it otherwise: {said.reason}.")

        loop = Loop(stages=[gate, *default_stages()])
        paused = way.run(loop, ScriptedLLM("Darn"))
        again = way.resume(loop, paused, {"q": deny("no swearing")}, ScriptedLLM())
        assert again.stop_reason == "answered"

    def test_it_may_pause_in_each_iteration_and_with_nothing_to_decide(self, way):
        def rest(ctx):
            if ctx.memo.get("rested") == ctx.iteration:
                return ctx
            return ctx.remember("rested", ctx.iteration).pause(())

        loop = Loop(stages=[rest, *default_stages()], tools=Desk().tools)
        model = ScriptedLLM(calls(call("note", n=1)), "done")
        first = way.run(loop, model)
        assert (first.stop_reason, first.pending) == ("paused", ())
        second = way.resume(loop, stored(first), {}, model)
        assert (second.stop_reason, second.iterations) == ("paused", 2)
        assert isinstance(way.resume(loop, stored(second), {}, model), Ok)

    def test_events_of_the_iteration_are_told_when_it_is_over(self, way):
        from treadle import IterationFinished, IterationStarted  # noqa: PLC0415

        events = []
        loop = Loop(stages=[asking, *default_stages()], on_event=events.append)
        paused = way.run(loop, ScriptedLLM("Hello"))
        assert (len(of(events, IterationStarted)), of(events, IterationFinished)) == (1, [])
        way.resume(loop, paused, {"q": approve}, ScriptedLLM())
        assert (len(of(events, IterationStarted)), len(of(events, IterationFinished))) == (1, 1)


def test_options_for_the_secret_and_the_claim_are_looked_at():
    for option in ({"pause_secret": ""}, {"claim_pause": "x"}):
        with pytest.raises(OptionError):
            Loop(**option)


def test_check_history_holds_at_the_pause_of_a_streamed_answer(desk):
    """The calls came in pieces, and wait as others do."""
    chunk = {"choices": [{"delta": {"tool_calls": [{"index": 0, **call("wipe", "b", path="/")}]}}]}
    loop = desk.loop()
    paused = SYNC.run(loop, ScriptedLLM([chunk, {"choices": [{"finish_reason": "stop"}]}]))
    check_history(paused.messages)
    assert paused.pending[0].id == "b"
