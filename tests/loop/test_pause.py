"""Approvals: which calls run before a decision, which do not, and which are pending; and the state of the pause.

The state is JSON, from which another process can continue. Every change of it is detected, and it can be signed.
It is resumed once, by a loop with the tools and stages that it needs.
"""

import copy
import json
import pathlib
import sys
from types import MappingProxyType

import pytest
from tests.deciding import on, unbound
from tests.programs import run_program

from treadle import (
    Limits,
    Loop,
    Ok,
    OptionError,
    Paused,
    Pauses,
    PendingCall,
    RunPausedError,
    RunState,
    Usage,
    approve,
    default_stages,
    deny,
    edit,
    tool,
)
from treadle.loop.pause import WAITING
from treadle.pauses import VERSION, digest_of
from treadle.stages import run_calls
from treadle.testing import ScriptedLLM, call, calls

from .conftest import (
    BATCH,
    SYNC,
    USER,
    RecordedTools,
    after_model,
    answers,
    asking,
    paused_at,
    refused,
    stored,
)
from .other_process import INNER, SCRIPT, make


class TestPausing:
    """A call that needs approval pauses the run."""

    def test_the_calls_before_it_have_run_and_the_rest_has_not(self, recorded, way):
        _, model, paused = paused_at(recorded, BATCH, way=way)
        assert isinstance(paused, Paused)
        assert recorded.done == ["note 1"]
        assert unbound(paused) == (
            PendingCall("b", "wipe", {"path": "/"}, "'wipe' needs approval"),
        )
        assert len(model.sent) == 1

    def test_it_has_the_progress_of_the_run(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        assert (paused.stop_reason, paused.output) == ("paused", None)
        assert (paused.iterations, paused.tool_calls_count) == (1, 1)
        assert paused.usage == Usage(is_lower_bound=True)
        assert paused.run.is_running
        assert [node.status for node in paused.run.nodes] == ["running"]

    def test_its_messages_are_a_valid_history_that_marks_the_calls_that_wait(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        assert answers(paused.messages) == {
            "a": "noted 1",
            "b": WAITING,
            "c": WAITING,
        }
        assert paused.run.messages == paused.messages

    def test_there_is_no_answer_to_unwrap(self, recorded):
        _, _, paused = paused_at(recorded, BATCH)
        with pytest.raises(RunPausedError, match=r"waits for approval of wipe \(b@\w{16}\)$"):
            paused.unwrap()

    def test_a_rule_may_depend_on_the_arguments(self, recorded):
        _, _, paused = paused_at(
            recorded,
            calls(call("pay", amount=100), call("pay", "b", amount=101), call("note", n=1)),
        )
        assert recorded.done == ["pay 100"]
        assert unbound(paused) == (PendingCall("b", "pay", {"amount": 101}, "pay 101?"),)

    def test_an_invalid_call_is_not_pending(self, recorded):
        _, model, result = paused_at(recorded, calls(call("wipe", "a", path=5)))
        assert isinstance(result, Ok)
        assert "expected string" in answers(model.sent[1].messages)["a"]

    def test_a_call_that_is_over_budget_is_not_pending(self, recorded):
        _, _, result = paused_at(recorded, calls(call("wipe", "a", path="/")), max_tool_calls=0)
        assert result.stop_reason == "budget_exhausted"

    def test_a_terminal_call_ends_the_run_before_an_approval_is_requested(self, recorded):
        @tool
        def end(): ...

        recorded.tools.append(end)
        script = calls(call("wipe", path="/"), call("end"))
        _, _, result = paused_at(recorded, script, output="end")
        assert (result.stop_reason, recorded.done) == ("output", [])

    def test_the_same_call_twice_waits_once_and_is_answered_twice(self, recorded):
        twice = calls(call("wipe", "a", path="/"), call("wipe", "b", path="/"))
        loop, model, paused = paused_at(recorded, twice)
        assert [one.call_id for one in paused.pending] == ["a"]
        result = SYNC.resume(loop, paused, {"a": approve}, model)
        assert recorded.done == ["wipe /"]
        assert answers(result.messages)["b"].endswith("Its result:\nwiped /")


class TestInvalidDecisions:
    """Invalid decisions are refused before anything runs."""

    @pytest.mark.parametrize(
        ("decisions", "text"),
        [
            ({"zzz": approve}, "no call 'zzz' waits.*waiting calls: b@"),
            ({"a": approve}, "no call 'a' waits"),
            ({"b": approve, "c": approve}, "no call 'c' waits"),
            (
                {"b": True},
                r"^decisions\['b@\w+'\]: expected approve, deny\(.*\) or edit.* got bool",
            ),
            ({"b": deny}, r"^decisions\['b@\w+'\]: expected approve.* got function"),
            ({"b": "approve"}, r"^decisions\['b@\w+'\]: expected approve.* got str"),
            (None, "^decisions: expected .*got NoneType"),
            ([approve], "^decisions: expected .*got list"),
        ],
    )
    def test_they_are_refused_and_the_pause_can_still_be_resumed(self, recorded, decisions, text):
        loop, model, paused = paused_at(recorded, BATCH)
        given = on(paused, decisions) if isinstance(decisions, dict) else decisions
        for use in (loop.resume_sync, loop.resume, loop.resume_stream):
            with pytest.raises(OptionError, match=text):
                use(paused, given, model)
        assert recorded.done == ["note 1"]
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_the_option_state_is_refused(self, recorded):
        loop, model, paused = paused_at(recorded, BATCH)
        with pytest.raises(OptionError, match=r"^state: a paused run continues in its own state"):
            loop.resume_sync(paused, on(paused, {"b": approve}), model, state=paused.run)

    @pytest.mark.parametrize("option", [{"max_iteration": 1}, {"max_iterations": 0}])
    def test_options_are_checked_as_for_any_run(self, recorded, option):
        loop, model, paused = paused_at(recorded, BATCH)
        with pytest.raises(OptionError):
            loop.resume_sync(paused, on(paused, {"b": approve}), model, **option)


def test_the_name_the_id_and_the_nodes_of_the_run_are_kept(recorded):
    loop, model, paused = paused_at(recorded, calls(call("note", n=0)), BATCH, name="bot")
    result = SYNC.resume(loop, stored(paused), {"b": approve}, model)
    assert (result.run.agent_name, result.run.run_id) == ("bot", paused.run.run_id)
    assert [node.step_index for node in result.run.nodes] == [0, 1, 2]
    assert [node.status for node in result.run.nodes] == ["success"] * 3


class TestOtherProcess:
    """Everything that is needed to continue is in the state."""

    def resume(self, state, decisions, script, inner=()):
        job = {"state": state, "decisions": on(state, decisions), "script": script, "inner": inner}
        done = run_program(
            [sys.executable, pathlib.Path(__file__).with_name("other_process.py")],
            input=json.dumps(job),
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
            ("x" * 100_000, "^there is no saved pause at '.*x{9}$"),
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


class Refusing:
    """A claim store for which every pause was resumed already."""

    def claim(self, pause_id, claimant, *, take_over):
        return False

    def release(self, pause_id, claimant, outcome): ...


def before_model(changed):
    """The default stages, and one that adds a tool, or replaces that of the same name."""
    return [lambda ctx: ctx.with_tools(add=[changed]), *default_stages()]


class TestStale:
    """A state can be resumed once, by a loop with the tools and stages that it needs."""

    def test_a_second_resumption_is_refused(self, recorded):
        loop, model, paused = paused_at(recorded)
        SYNC.resume(loop, paused, {"b": approve}, model)
        refused(loop, stored(paused), text="^the paused state is stale: '.*' was resumed already$")
        assert recorded.did == ["note 1", "note 3", "wipe /"]

    def test_a_refused_resumption_emits_nothing_and_does_not_call_the_model(self, recorded):
        events = []
        loop, _, paused = paused_at(recorded, pauses=Pauses(claims=Refusing()))
        with ScriptedLLM() as model:
            refused(loop, paused, model, "was resumed already", on_event=events.append)
        assert events == []

    def test_a_run_in_the_state_of_another_can_be_paused_again(self, recorded):
        """Each pause has its own id, although the runs share theirs."""
        state, loop = RunState("bot", "r1"), recorded.loop()
        for n in range(3):
            model = ScriptedLLM(calls(call("wipe", "b", path=f"/{n}")), "done")
            paused = SYNC.run(loop, model, state=state)
            state = SYNC.resume(loop, paused, {"b": approve}, model).run
        assert recorded.done == ["wipe /0", "wipe /1", "wipe /2"]

    def test_without_the_tool_it_is_refused(self, recorded):
        _, _, paused = paused_at(recorded)
        for name in ("note", "wipe"):
            others = [one for one in recorded.tools if one.name != name]
            refused(Loop(tools=others), paused, text=f"stale: tool '{name}' no longer exists, and")

    def test_with_another_schema_of_the_tool_it_is_refused(self, recorded):
        @tool(name="wipe", requires_approval=True)
        def other(path: str, force: bool = False): ...

        _, _, paused = paused_at(recorded)
        refused(Loop(tools=[recorded.tools[0], other]), paused, text="tool 'wipe' has changed")

    def test_a_tool_without_a_pending_call_may_change(self, recorded):
        _, model, paused = paused_at(recorded)
        loop = Loop(tools=[one for one in recorded.tools if one.name != "pay"])
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_the_description_and_the_function_of_a_tool_may_change(self, recorded):
        later = RecordedTools()
        later.tools[1] = tool(later.tools[1], description="Wipes.")
        _, model, paused = paused_at(recorded)
        SYNC.resume(later.loop(), paused, {"b": approve}, model)
        assert (recorded.did, later.did) == (["note 1"], ["note 3", "wipe /"])

    @pytest.mark.parametrize("name", ["wipe", "erase"])
    def test_a_call_of_a_tool_from_a_stage_runs_only_with_that_tool(self, recorded, name):
        """Whether the stage replaced a tool of the loop or added one."""
        own = RecordedTools()
        restricted = tool(own.tools[1], name=name, description="Wipes test data.")
        script = calls(call(name, "b", path="/"))
        loop, model, paused = paused_at(recorded, script, stages=before_model(restricted))
        other = tool(recorded.tools[1], name=name)
        changed = f"^a stage added or replaced tool '{name}'; .*"
        refused(loop.with_options(tools=[other]), paused, text=changed)
        tools = [recorded.tools[0], restricted]
        SYNC.resume(loop, stored(paused), {"b": approve}, model, tools=tools)
        assert (recorded.done, own.done) == ([], ["wipe /"])

    def test_a_tool_that_looks_like_the_one_that_a_stage_replaced_is_refused(self, recorded):
        own = RecordedTools()
        loop, _, paused = paused_at(recorded, stages=before_model(own.tools[1]))
        for tools in (recorded.tools, own.tools):
            refused(loop.with_options(tools=tools), paused, text="give the tools different desc")

    def test_a_tool_from_a_stage_may_be_missing_if_no_call_of_it_waits(self, recorded):
        replaced = tool(recorded.tools[0], description="Notes.")
        script = calls(call("note", "a", n=1), call("wipe", "b", path="/"))
        loop, model, paused = paused_at(recorded, script, stages=before_model(replaced))
        assert isinstance(SYNC.resume(loop, stored(paused), {"b": approve}, model), Ok)
        assert recorded.done == ["note 1", "wipe /"]

    def test_a_guard_from_a_stage_does_not_disappear_with_the_pause(self, recorded):
        guarded = tool(recorded.tools[0], requires_approval=True)
        script = calls(call("wipe", "b", path="/"))
        loop, model, paused = paused_at(recorded, script, stages=before_model(guarded))
        decisions = {"b": approve}
        refused(loop, paused, text="a stage added or replaced tool 'note'", decisions=decisions)
        tools = [guarded, *recorded.tools[1:]]
        assert isinstance(SYNC.resume(loop, stored(paused), decisions, model, tools=tools), Ok)

    @pytest.mark.parametrize("decision", [approve, deny("No."), edit({"path": "/etc"})])
    def test_the_decision_on_a_question_of_a_stage_is_none_on_a_call(self, recorded, decision):
        """The model chooses the ids of calls."""

        def ask_first(ctx):
            if ctx.approvals:
                return ctx
            return ctx.pause((PendingCall("start", "start", {}, "Start?"),))

        stages = [ask_first, ...]
        loop, model, asked = paused_at(
            recorded, calls(call("wipe", "start", path="/")), stages=stages
        )
        paused = SYNC.resume(loop, asked, {"start": decision}, model)
        assert isinstance(paused, Paused)
        assert [one.name for one in unbound(paused)] == ["wipe"]
        assert recorded.done == []

    def test_an_approval_is_of_the_arguments_that_a_person_saw(self, recorded):
        def widen(ctx):
            if ctx.approvals:
                ctx = ctx.edit_call("b", {"path": "/everything"})
            return (yield from run_calls(ctx, ctx.tool_calls))

        stages = Loop().pipeline.replace("dispatch_tools", widen)
        script = calls(call("wipe", "b", path="/a"))
        loop, model, paused = paused_at(recorded, script, stages=stages)
        again = SYNC.resume(loop, paused, {"b": approve}, model)
        assert [one.arguments for one in unbound(again)] == [{"path": "/everything"}]
        assert recorded.done == []

    @pytest.mark.parametrize("pauses", [1, 2])
    def test_an_approval_is_of_the_tool_that_a_person_saw(self, recorded, pauses):
        """A stage replaces the tool after the approval; the next person decides on another call."""

        def wipe(path: str):
            """Wipe it twice."""
            recorded.done.append("wiped twice")

        other = tool(wipe, requires_approval=True)

        def swap(ctx):
            if ctx.approvals:
                ctx = ctx.with_tools(add=[other])
            return (yield from run_calls(ctx, ctx.tool_calls))

        stages = Loop().pipeline.replace("dispatch_tools", swap)
        script = calls(*(call("wipe", call_id, path=call_id) for call_id in "bc"))
        loop, model, paused = paused_at(recorded, script, stages=stages)
        for decided, tools in (("b", recorded.tools), ("c", [other]))[:pauses]:
            paused = SYNC.resume(loop, paused, {decided: approve}, model, tools=tools)
        assert [one.id.partition("@")[0] for one in paused.pending][:1] == ["b"]
        assert recorded.done == []

    def test_without_the_stage_that_paused_it_is_refused(self, recorded):
        loop = recorded.loop(stages=after_model(asking))
        paused = SYNC.run(loop, lambda m: "Hello")
        refused(recorded.loop(), paused, text="stale: .*'asking'", decisions={"q": approve})
        assert isinstance(SYNC.resume(loop, paused, {"q": approve}, lambda m: "x"), Ok)

    def test_without_the_tool_of_a_subagent_it_is_refused(self, recorded):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        loop = Loop(tools=[recorded.loop().as_tool("child", "c", inner)])
        paused = SYNC.run(loop, ScriptedLLM(calls(call("child", "k", task="t"))))
        without = Loop(tools=[Loop().as_tool("child", "c", inner)])
        refused(without, paused, text="tool 'wipe' no longer exists")
