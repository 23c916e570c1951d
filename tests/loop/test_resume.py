"""Resuming, with decisions on pending calls, is a run like any other: awaited, streamed, steered, cancelled."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.deciding import on, unbound

from treadle import (
    CallsPlanned,
    DeadlineExceeded,
    Err,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    Limits,
    Loop,
    ModelRequested,
    ModelResponded,
    Ok,
    OptionError,
    Paused,
    Pauses,
    PendingCall,
    RunCancelled,
    RunFinished,
    RunHandle,
    RunStarted,
    UserMessageAdded,
    approve,
    default_stages,
    deny,
    edit,
    tool,
)
from treadle.sessions import Session, SQLiteSessions
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import BATCH, SYNC, USER, RecordedTools, Way, answers, of, paused_at, stored


@pytest.fixture
def paused(recorded):
    """A loop, its model and a paused run of it."""
    return paused_at(recorded)


def names(events):
    return [type(event).__name__ for event in events]


class TestEvents:
    """The events of a pause, and of the resumed run."""

    PAUSING = (
        "RunStarted IterationStarted ModelRequested ModelResponded CallsPlanned ToolStarted ToolFinished "
        "RunFinished"
    )
    RESUMED = (
        "RunStarted ToolStarted ToolFinished ToolStarted ToolFinished IterationFinished "
        "IterationStarted ModelRequested ModelResponded IterationFinished RunFinished"
    )

    def test_the_run_ends_as_paused_and_starts_as_resumed(self, recorded, way):
        events = []
        loop = recorded.loop(
            on_event=events.append, limits=Limits(max_parallel_calls=1), sequential="in_step"
        )
        model = ScriptedLLM(BATCH, "done")
        paused = way.run(loop, model)
        assert names(events) == self.PAUSING.split()
        assert events[-1] == RunFinished(
            stop_reason="paused",
            total_iterations=1,
            tool_calls_count=1,
            result=paused,
            at=0,
            usage=paused.usage,
        )
        assert events[-1].result is paused
        events.clear()
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert names(events) == self.RESUMED.split()
        assert isinstance(events[0], RunStarted)
        assert events[0].resumed
        assert events[0].limits == loop.settings.limits
        assert [tool["function"]["name"] for tool in events[0].tools] == list(loop.tools)
        assert events[0].run_id == paused.run.run_id
        assert events[-1].result is result
        assert [event.iteration for event in of(events, IterationFinished)] == [1, 2]

    def test_repairs_of_the_input_are_reported_once(self, recorded, way):
        events = []
        loop, model = recorded.loop(on_event=events.append), ScriptedLLM(BATCH, "done")
        paused = way.run(loop, model, [*USER, {"role": "assistant", "content": ""}])
        assert len(of(events, HistoryRepaired)) == 1
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert len(of(events, HistoryRepaired)) == 1
        assert result.run.repairs == paused.run.repairs != ()

    def test_the_start_of_a_run_that_was_not_paused_is_not_marked_as_resumed(self):
        events = []
        Loop.run_sync(USER, lambda m: "x", on_event=events.append)
        assert events[0].resumed is False

    def test_observers_of_iterations_see_the_whole_iteration(self, recorded):
        seen = []
        loop, model, paused = paused_at(recorded, on_iteration=seen.append)
        assert seen == []
        SYNC.resume(loop, paused, {"b": approve}, model)
        assert list(seen[0].tool_results) == ["a", "b", "c"]
        assert [one.iteration for one in seen] == [1, 2]


class TestWays:
    """A run can be resumed in every way that it can be started."""

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_streamed_to_the_pause_and_from_it(self, recorded, backend):
        loop, model = recorded.loop(), ScriptedLLM(BATCH, "done")

        async def main():
            async with loop.stream(USER, model) as events:
                first = [event async for event in events]
            check_history(events.result.messages)
            assert isinstance(events.result, Paused)
            assert events.messages == events.result.messages
            async with loop.resume_stream(
                events.result, on(events.result, {"b": approve}), model
            ) as later:
                second = [event async for event in later]
            return first, second, later.result

        first, second, result = anyio.run(main, backend=backend)
        assert (first[-1].stop_reason, second[0].resumed) == ("paused", True)
        assert isinstance(result, Ok)
        assert recorded.did == ["note 1", "note 3", "wipe /"]
        check_history(result.messages)

    def test_with_middleware(self, paused):
        loop, model, pause = paused
        seen = []

        def middleware(steps):
            seen.append("on")
            return (yield from steps)

        result = SYNC.resume(loop, pause, {"b": approve}, model, middleware=[middleware])
        assert (type(result), seen) == (Ok, ["on"])


class TestHandle:
    """The handle of a resumed run."""

    def test_it_has_the_pause_and_then_the_result(self, recorded, way):
        first, second = RunHandle(), RunHandle()
        loop, model, pause = paused_at(recorded, way=way, handle=first)
        assert first.result is pause
        assert first.messages == pause.messages
        assert first.in_flight == ()
        result = way.resume(loop, pause, {"b": approve}, model, handle=second)
        assert second.result is result
        assert (first.result, second.state) == (pause, result.run)

    def test_from_the_first_event_on_it_has_the_messages_from_before_the_pause(self, recorded, way):
        handle, seen = RunHandle(), []

        def observe(event):
            seen.append((handle.messages, handle.state.messages, handle.state.status))

        loop, model, pause = paused_at(recorded, way=way)
        way.resume(loop, pause, {"b": approve}, model, handle=handle, on_event=observe)
        assert seen[0] == (USER, USER, "running")

    def test_it_belongs_to_one_of_the_two_runs(self, recorded):
        handle = RunHandle()
        loop, model, pause = paused_at(recorded, handle=handle)
        with pytest.raises(OptionError, match="belongs to one run"):
            loop.resume_sync(pause, on(pause, {"b": approve}), model)
        assert SYNC.resume(loop, pause, {"b": approve}, model, handle=RunHandle()).unwrap()

    def test_a_paused_run_refuses_messages(self, recorded):
        handle = RunHandle()
        SYNC.run(recorded.loop(), ScriptedLLM(BATCH), handle=handle)
        assert handle.steer("hello?") is False

    def test_a_message_from_before_the_pause_is_added_after_it(self, recorded, way):
        """An accepted message is not lost, even in another process."""
        handle = RunHandle()

        @tool
        def talk():
            assert handle.steer("hurry up")

        recorded.tools.append(talk)
        loop, events = recorded.loop(), []
        model = ScriptedLLM(calls(call("talk", "t"), call("wipe", "b", path="/")), "done")
        pause = way.run(loop, model, handle=handle)
        assert pause.messages[-1] == {"role": "user", "content": "hurry up"}
        result = way.resume(loop, stored(pause), {"b": approve}, model, on_event=events.append)
        assert result.messages[-2] == {"role": "user", "content": "hurry up"}
        assert model.sent[1].messages == result.messages[:-1]
        (steered,) = of(events, UserMessageAdded)
        assert steered.messages == ({"role": "user", "content": "hurry up"},)

    @pytest.mark.parametrize("at", [IterationStarted, ModelRequested, ModelResponded, CallsPlanned])
    def test_a_message_during_the_iteration_that_pauses_is_in_the_pause(
        self, recorded, at, tmp_path
    ):
        """It is in the history, for a run that is abandoned, and in the state that another process resumes."""
        handle, accepted = RunHandle(), []

        def steer(event):
            if isinstance(event, at):
                accepted.append(handle.steer("hurry up"))

        model = ScriptedLLM(calls(call("wipe", "b", path="/")), "done")
        pause = SYNC.run(recorded.loop(on_event=steer), model, handle=handle)
        said = {"role": "user", "content": "hurry up"}
        assert accepted == [True]
        assert pause.messages[-1] == handle.messages[-1] == said
        pause.save(tmp_path / "pause.json")
        (waiting,) = Paused.load(tmp_path / "pause.json").pending
        decisions = {waiting.id: approve}
        result = recorded.loop().resume_sync(tmp_path / "pause.json", decisions, model)
        assert [message["role"] for message in result.messages] == [
            "user", "assistant", "tool", "user", "assistant",
        ]  # fmt: skip
        assert result.messages[-2] == said == model.sent[1].messages[-1]

    def test_a_message_before_a_pause_is_in_the_session_of_a_run_that_is_abandoned(
        self, recorded, tmp_path
    ):
        handle, session = RunHandle(), Session(SQLiteSessions(tmp_path / "s.db"), "s")

        def steer(messages):
            assert handle.steer("hurry up")
            return calls(call("wipe", "b", path="/"))

        model = ScriptedLLM(steer, "done", "done")
        pause = SYNC.run(recorded.loop(), model, handle=handle, session=session)
        assert session.messages()[-1] == {"role": "user", "content": "hurry up"}
        [waiting] = pause.pending
        resumed = recorded.loop().resume_sync(pause, {waiting.id: approve}, model, session=session)
        assert session.messages() == resumed.messages
        assert [m["content"] for m in resumed.messages].count("hurry up") == 1


# A resumed run that is cancelled or fails keeps the results from before and after the pause.


class TestCancelled:
    """A resumed run that is cancelled keeps the results from before and after the pause."""

    ONE_BY_ONE = {"sequential": "in_step", "limits": Limits(max_parallel_calls=1)}  # noqa: RUF012 - never changed

    @pytest.fixture
    def hanging(self, recorded):
        @tool
        async def hang():
            self.begin()
            await anyio.sleep(30)

        recorded.tools.append(hang)
        return calls(*BATCH["tool_calls"], call("hang", "h"))

    def begin(self):
        pass

    def test_through_its_handle(self, recorded, hanging, way):
        loop, model, handle = recorded.loop(**self.ONE_BY_ONE), ScriptedLLM(hanging), RunHandle()
        pause = SYNC.run(loop, model)
        self.begin = handle.cancel
        result = way.resume(loop, stored(pause), {"b": deny()}, model, handle=handle)
        assert result.reason == RunCancelled()
        texts = answers(result.messages)
        assert (texts["a"], texts["c"]) == ("noted 1", "noted 3")
        assert texts["h"].startswith("Cancelled: ")
        assert (result.iterations, result.tool_calls_count) == (1, 3)

    def test_by_its_time_limit(self, recorded, hanging, way, clock):
        loop, model = recorded.loop(**self.ONE_BY_ONE), ScriptedLLM(hanging)
        pause = SYNC.run(loop, model)
        self.begin = clock.limit.strike
        options = {"max_seconds": 9, "middleware": [clock.middleware]}
        result = way.resume(loop, stored(pause), {"b": approve}, model, **options)
        assert result.reason == DeadlineExceeded(9)
        texts = answers(result.messages)
        assert (texts["a"], texts["b"], texts["c"]) == ("noted 1", "wiped /", "noted 3")
        assert result.run.nodes[0].status == "timeout"

    @pytest.mark.parametrize("when", ["before", "as it starts"])
    def test_before_anything_ran(self, recorded, paused, way, when):
        """Nothing ran, and the results from before the pause are in the history."""
        loop, model, pause = paused
        handle = RunHandle()
        if when == "before":
            handle.cancel()

        def observe(event):
            handle.cancel()

        options = {} if when == "before" else {"on_event": observe}
        result = way.resume(loop, pause, {"b": approve}, model, handle=handle, **options)
        assert result.reason == RunCancelled()
        assert recorded.done == ["note 1"]
        assert answers(result.messages)["a"] == "noted 1"
        assert set(answers(result.messages)) == {"a", "b", "c"}
        assert handle.messages == result.messages
        assert (result.iterations, result.tool_calls_count) == (1, 1)
        assert result.run.nodes[0].status == "failed"

    def test_an_interrupt_while_an_approved_call_runs(self, recorded):
        @tool(requires_approval=True)
        def stop():
            raise KeyboardInterrupt

        recorded.tools.append(stop)
        loop, handle = recorded.loop(), RunHandle()
        model = ScriptedLLM(calls(call("note", "a", n=1), call("stop", "s")))
        pause = SYNC.run(loop, model)
        with pytest.raises(KeyboardInterrupt):
            loop.resume_sync(pause, on(pause, {"s": approve}), model, handle=handle)
        check_history(handle.messages)
        assert answers(handle.messages)["a"] == "noted 1"


class TestFailing:
    """Whatever ends a resumed run, its history is valid and complete."""

    def test_a_model_that_fails(self, paused, way):
        loop, _, pause = paused
        result = way.resume(loop, pause, {"b": approve}, ScriptedLLM(TypeError("no")))
        assert (type(result), result.stop_reason) == (Err, "llm_error")
        assert answers(result.messages) == {"a": "noted 1", "b": "wiped /", "c": "noted 3"}

    def test_a_stage_that_fails(self, recorded, paused, way):
        _, _, pause = paused

        def broken(ctx):
            raise ValueError("stage")

        loop = Loop(tools=recorded.tools)
        stages = loop.pipeline.insert_before("inject_results", broken)
        result = way.resume(Loop(tools=recorded.tools, stages=stages), pause, {"b": deny("x")}, len)
        assert (result.stop_reason, result.reason.stage) == ("pipeline_failed", "broken")
        assert answers(result.messages)["a"] == "noted 1"
        assert "did not approve this call: x" in answers(result.messages)["b"]

    def test_a_limit_that_the_iteration_reached(self, recorded, way):
        loop, model, pause = paused_at(recorded, BATCH, way=way, max_iterations=1)
        result = way.resume(loop, stored(pause), {"b": approve}, model)
        assert (result.stop_reason, result.iterations) == ("max_iterations_reached", 1)
        assert result.run.nodes[0].status == "success"
        assert len(answers(result.messages)) == 3


class TestDeciding:
    """A decision is applied, and shown in the result of the call."""

    def test_an_approved_call_runs_and_then_the_rest(self, recorded, way):
        loop, model, paused = paused_at(recorded, BATCH, way=way)
        result = way.resume(loop, stored(paused), {"b": approve}, model)
        assert isinstance(result, Ok)
        assert recorded.did == ["note 1", "note 3", "wipe /"]
        assert answers(result.messages) == {"a": "noted 1", "b": "wiped /", "c": "noted 3"}
        assert model.sent[1].messages == result.messages[:-1]
        assert (result.iterations, result.tool_calls_count, model.left) == (2, 3, 0)
        assert result.run.nodes[0].status == "success"
        assert [node.group_id for node in result.run.nodes[0].tool_calls] == ["a", "b", "c"]

    @pytest.mark.parametrize(
        ("reason", "text"),
        [
            ("not on a Friday", "Not run: a person did not approve this call: not on a Friday. "),
            ("", "Not run: a person did not approve this call. "),
        ],
    )
    def test_a_denied_call_does_not_run_and_the_rest_does(self, recorded, way, reason, text):
        loop, model, paused = paused_at(recorded, BATCH, way=way)
        result = way.resume(loop, paused, {"b": deny(reason)}, model)
        assert recorded.did == ["note 1", "note 3"]
        assert answers(model.sent[1].messages)["b"] == f"{text}Do without it, or ask."
        assert (result.tool_calls_count, result.iterations) == (2, 2)
        assert [node.group_id for node in result.run.nodes[0].tool_calls] == ["a", "c"]

    def test_a_denied_call_has_a_separate_error_status(self, recorded):
        seen = []
        loop, model, paused = paused_at(recorded, BATCH, on_iteration=seen.append)
        SYNC.resume(loop, paused, {"b": deny()}, model)
        results = seen[0].tool_results
        assert {key: (one.status, one.is_error) for key, one in results.items()} == {
            "a": ("done", False),
            "b": ("denied", True),
            "c": ("done", False),
        }

    def test_an_edited_call_runs_with_other_arguments_and_its_result_has_a_note(
        self, recorded, way
    ):
        loop, model, paused = paused_at(recorded, BATCH, way=way)
        result = way.resume(loop, paused, {"b": edit({"path": "/tmp"})}, model)  # noqa: S108
        assert recorded.did == ["note 1", "note 3", "wipe /tmp"]
        texts = answers(model.sent[1].messages)
        assert texts["b"] == (
            "wiped /tmp\n\n[note: a person changed the arguments of this call before it ran, "
            'to: {"path": "/tmp"}]'
        )
        assert (texts["a"], texts["c"]) == ("noted 1", "noted 3")
        made = result.messages[1]["tool_calls"][1]["function"]
        assert made["arguments"] == '{"path": "/"}'

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ({"path": 5}, "path: expected string, got integer 5"),
            ({}, "missing required field 'path'"),
            ({"path": "x", "force": True}, "unknown field 'force'"),
        ],
    )
    def test_an_edit_with_invalid_arguments_is_refused(self, recorded, arguments, text):
        loop, model, paused = paused_at(recorded, BATCH)
        with pytest.raises(OptionError, match=rf"^decisions\['b@\w+'\]: edit: .*{text}"):
            loop.resume_sync(paused, on(paused, {"b": edit(arguments)}), model)
        assert recorded.done == ["note 1"]
        SYNC.resume(loop, paused, {"b": approve}, model)  # the pause is still usable
        assert recorded.did[1:] == ["note 3", "wipe /"]

    def test_an_edit_has_a_copy_of_the_arguments(self, recorded):
        given = {"path": "/a"}
        decision = edit(given)
        given["path"] = "/"
        loop, model, paused = paused_at(recorded, BATCH)
        SYNC.resume(loop, paused, {"b": decision}, model)
        assert "wipe /a" in recorded.done

    def test_a_call_that_a_resolver_runs_can_be_edited_too(self):
        """The schema of its tool accepts any arguments."""
        seen = []
        rules = {"name": "act", "input_schema": {"type": "object"}}
        act = tool(rules, requires_approval=True)
        loop = Loop(tools=[act], resolve_tool=lambda made: seen.append(dict(made.input)) or "ok")
        model = ScriptedLLM(calls(call("act", "a", x=1)), "done")
        paused = SYNC.run(loop, model)
        SYNC.resume(loop, stored(paused), {"a": edit({"y": [2]})}, model)
        assert seen == [{"y": [2]}]

    def test_a_denied_call_may_be_made_again_and_is_pending_again(self, recorded):
        again = calls(call("wipe", "b2", path="/"))
        loop, model, paused = paused_at(recorded, BATCH, again)
        paused = SYNC.resume(loop, paused, {"b": deny()}, model)
        assert [one.call_id for one in paused.pending] == ["b2"]
        SYNC.resume(loop, paused, {"b2": approve}, model)
        assert recorded.did == ["note 1", "note 3", "wipe /"]


class TestSomeDecisions:
    """If a decision is missing, the run pauses again when it reaches that call."""

    FIVE = calls(
        call("note", "a", n=1),
        call("wipe", "b", path="/b"),
        call("note", "c", n=3),
        call("pay", "d", amount=500),
        call("note", "e", n=5),
    )

    def test_it_continues_to_the_next_call_without_a_decision(self, recorded, way):
        loop, model, paused = paused_at(recorded, self.FIVE, way=way)
        assert [one.call_id for one in paused.pending] == ["b", "d"]
        again = way.resume(loop, stored(paused), {"b": approve}, model)
        assert [one.call_id for one in again.pending] == ["d"]
        assert recorded.did == ["note 1", "note 3", "wipe /b"]
        assert (again.tool_calls_count, again.iterations) == (3, 1)
        assert answers(again.messages)["e"].startswith("No result yet")
        result = way.resume(loop, stored(again), {"d": deny()}, model)
        assert recorded.did == ["note 1", "note 3", "note 5", "wipe /b"]
        assert (result.tool_calls_count, result.iterations, model.left) == (4, 2, 0)

    def test_a_decision_on_a_later_call_is_kept_for_that_call(self, recorded):
        loop, model, paused = paused_at(recorded, self.FIVE)
        again = SYNC.resume(loop, stored(paused), {"d": edit({"amount": 7})}, model)
        assert recorded.done == ["note 1"]
        assert [one.call_id for one in again.pending] == ["b"]
        result = SYNC.resume(loop, stored(again), {"b": deny("no")}, model)
        assert recorded.did == ["note 1", "note 3", "note 5", "pay 7"]
        assert '{"amount": 7}' in answers(result.messages)["d"]
        assert "did not approve this call: no" in answers(result.messages)["b"]

    def test_no_decision_at_all_changes_nothing(self, recorded):
        loop, model, paused = paused_at(recorded, self.FIVE)
        again = SYNC.resume(loop, stored(paused), {}, model)
        assert unbound(again) == unbound(paused)
        assert again.pending != paused.pending
        assert recorded.done == ["note 1"]
        name, number, nonce = again.state["pause_id"].split(":")
        assert (name, number) == (paused.run.run_id, "2")
        assert nonce != paused.state["pause_id"].split(":")[2]


# A decision approves what the pause that asked for it shows, and nothing else.


SECRET = {"pauses": Pauses(secret="s3cret")}


def paying(recorded, amount, **options):
    """A signed pause of a run that waits for the approval of a payment; every run uses the same id."""
    loop, model = (
        recorded.loop(**SECRET, **options),
        ScriptedLLM(calls(call("pay", "call_1", amount=amount))),
    )
    return loop, SYNC.run(loop, model)


@pytest.fixture(params=["resume_sync", "resume", "resume_stream"])
def resume(request):
    return lambda loop, *given: getattr(loop, request.param)(*given)


class TestBound:
    """The id of a pending call carries the pause."""

    def test_a_decision_given_for_one_run_approves_nothing_in_another(self, recorded, resume):
        loop, small = paying(recorded, 500)
        _, large = paying(recorded, 1_000_000)
        decisions = {one.id: approve for one in small.pending}
        assert [one.call_id for one in small.pending] == [one.call_id for one in large.pending]
        text = rf"^decisions: no call 'call_1@\w+' waits in this pause; .*: {large.pending[0].id}$"
        with pytest.raises(OptionError, match=text):
            resume(loop, large.state, decisions, ScriptedLLM("done"))
        assert recorded.done == []
        assert isinstance(loop.resume_sync(small, decisions, ScriptedLLM("done")), Ok)
        assert recorded.done == ["pay 500"]

    def test_the_id_of_the_call_alone_is_refused(self, recorded, resume):
        loop, paused = paying(recorded, 500)
        text = rf"^decisions: no call 'call_1' waits in this pause; .*: {paused.pending[0].id}$"
        with pytest.raises(OptionError, match=text):
            resume(loop, paused, {"call_1": approve}, ScriptedLLM("done"))
        assert recorded.done == []

    def test_the_id_of_a_stage_may_have_any_form(self, way):
        """The stage finds the decision by the id that it gave."""

        def ask(ctx):
            if "a/b@c" in ctx.approvals:
                return ctx
            return ctx.pause((PendingCall("a/b@c", "ask", {}, "?"),))

        loop = Loop(stages=[ask, *default_stages()])
        paused = way.run(loop, ScriptedLLM())
        assert paused.pending[0].call_id == "a/b@c"
        assert isinstance(way.resume(loop, paused, {"a/b@c": approve}, ScriptedLLM("x")), Ok)

    def test_a_pending_call_in_a_history_of_its_own_has_no_pause(self):
        assert PendingCall("b", "wipe", {}, "?").call_id == "b"


class TestSubagent:
    """The id of a call of a subagent carries the pause of the subagent."""

    def test_a_decision_on_one_of_its_pauses_is_not_one_on_the_next(self, recorded, way):
        """A stage of the subagent asks in each iteration, with the same id."""
        asked = []

        def ask(ctx):
            if "q" in ctx.approvals:
                return ctx
            asked.append(ctx.iteration)
            return ctx.pause((PendingCall("q", "ask", {"iteration": ctx.iteration}, "?"),))

        inner = ScriptedLLM(calls(call("note", "n", n=1)), "in")
        child = recorded.loop(stages=[ask, *default_stages()]).as_tool("child", "c", inner)
        loop, model = Loop(tools=[child]), ScriptedLLM(calls(call("child", "k", task="t")), "out")
        first = way.run(loop, model)
        second = way.resume(loop, stored(first), {"k/q": approve}, model)
        assert isinstance(second, Paused)
        assert [one.arguments for one in second.pending] == [{"iteration": 2}]
        result = way.resume(loop, stored(second), {"k/q": approve}, model)
        assert (answers(result.messages), asked) == ({"k": "in"}, [1, 2])

    def test_another_pause_of_it_is_named_as_such(self, family):
        loop = family(calls(call("wipe", "w", path="/")), calls(call("wipe", "w", path="/x")))
        model = ScriptedLLM(calls(call("helper", "k", task="t")))
        first = SYNC.run(loop, model)
        old = first.pending[0].id
        assert old.startswith("k/w@")
        second = SYNC.resume(loop, first, {old: deny()}, model)
        with pytest.raises(OptionError, match="waits in this pause; waiting calls: k/w"):
            loop.resume_sync(second, {old: approve}, model)


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3), min_size=1, max_size=3),
    st.data(),
)
def test_no_decision_of_any_earlier_pause_is_accepted_later(batches, data):
    """Whatever is decided when: each pause accepts the ids of its own pending calls only."""
    recorded = RecordedTools()
    loop = Loop(tools=recorded.tools)
    script = [
        calls(*(call("wipe", f"c{n}", path=p) for n, p in enumerate(batch))) for batch in batches
    ]
    result, earlier = SYNC.run(loop, ScriptedLLM(*script, "done")), set()
    model = ScriptedLLM(*script[1:], "done")
    while isinstance(result, Paused):
        ids = [one.id for one in result.pending]
        assert earlier.isdisjoint(ids)
        for old in earlier:
            with pytest.raises(OptionError, match="waits in this pause"):
                loop.resume_sync(result, {old: approve}, model)
        earlier.update(ids)
        some = data.draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
        result = Way("sync").resume(loop, result, dict.fromkeys(some, approve), model)
