"""`session=`: a run continues a stored session, and is a turn of it when it ends."""

import dataclasses
import os
import re

import anyio
import pytest
from tests.samples import add
from tests.whole.recorder import Recorder, replay

from treadle import (
    Err,
    HistoryCompacted,
    HistoryRepaired,
    InvalidInput,
    Loop,
    MaxIterationsReached,
    Ok,
    OptionError,
    Paused,
    PausedStateError,
    RunHandle,
    SessionConflictError,
    SessionError,
    approve,
    default_stages,
    deny,
    stage,
    tool,
)
from treadle.loop.start import start_run
from treadle.sessions import Session, SQLiteSessions, compact_history
from treadle.testing import ScriptedLLM, call, calls, check_history


@tool(requires_approval=True)
def wipe(path: str) -> str:
    """Remove a file."""
    return f"{path} is gone"


class Broken(Session):
    """A session whose store has no room for another turn."""

    def save(self, loaded, turn):
        raise OSError("the disk is full")


@pytest.fixture
def session(tmp_path):
    return SQLiteSessions(tmp_path / "sessions.db").session("alice")


def seen_by(model):
    """What the model received in its last request: roles and texts."""
    return [(one["role"], one["content"]) for one in model.sent[-1].messages]


def statuses(session):
    return [(turn.status, turn.stop_reason) for turn in session.turns()]


class TestATurn:
    """What a run sees, and what it leaves."""

    def test_continues_the_turns_before_it(self, way, session):
        model = ScriptedLLM("Hello, Ann.", "You are Ann.")
        way.run(Loop(session=session), model, "I am Ann.")
        result = way.run(Loop(), model, "Who am I?", session=session)
        assert seen_by(model) == [
            ("user", "I am Ann."),
            ("assistant", "Hello, Ann."),
            ("user", "Who am I?"),
        ]
        assert session.messages() == result.messages
        assert len(result.messages) == 4

    def test_is_stored_with_the_facts_of_its_run(self, way, session):
        model = ScriptedLLM(calls(call("add", a=1, b=2)), "Three.")
        result = way.run(Loop(tools=[add]), model, "1 + 2?", session=session)
        [turn] = session.turns()
        assert (turn.status, turn.stop_reason, turn.error) == ("ok", "answered", None)
        assert (turn.iterations, turn.tool_calls_count) == (2, 1)
        assert (turn.run_id, turn.usage) == (result.run.run_id, dataclasses.asdict(result.usage))
        assert list(turn.messages) == result.messages

    def test_that_fails_is_stored_too(self, way, session):
        model = ScriptedLLM(calls(call("add", a=1, b=2)))
        result = way.run(Loop(tools=[add], max_iterations=1), model, "1 + 2?", session=session)
        assert isinstance(result, Err)
        assert isinstance(result.reason, MaxIterationsReached)
        [turn] = session.turns()
        assert (turn.status, turn.error) == ("error", str(result.reason))
        assert session.messages() == result.messages
        check_history(session.messages())

    def test_with_invalid_messages_stores_nothing(self, session):
        Loop.run_sync("Hi", ScriptedLLM("Hello."), session=session)
        result = Loop.run_sync([{"role": "nobody"}], ScriptedLLM("?"), session=session)
        assert isinstance(result.reason, InvalidInput)
        assert statuses(session) == [("ok", "answered")]

    def test_without_messages_continues_where_the_last_one_ended(self, way, session):
        model = ScriptedLLM(calls(call("add", a=1, b=2)))
        way.run(Loop(tools=[add], max_iterations=1), model, "1 + 2?", session=session)
        model = ScriptedLLM("Three.")
        way.run(Loop(tools=[add]), model, [], session=session)
        assert [role for role, _ in seen_by(model)] == ["user", "assistant", "tool"]
        assert session.messages()[-1]["content"] == "Three."

    def test_without_messages_in_an_empty_session_is_invalid(self, session):
        result = Loop.run_sync([], ScriptedLLM("?"), session=session)
        assert isinstance(result.reason, InvalidInput)
        assert not session.exists

    def test_does_not_repeat_a_system_message_that_the_session_has(self, way, session):
        system = {"role": "system", "content": "Be brief."}
        for text in ("One?", "Two?"):
            messages = [system, {"role": "user", "content": text}]
            way.run(Loop(), ScriptedLLM("Yes."), messages, session=session)
        assert [one["role"] for one in session.messages()].count("system") == 1

    def test_reports_the_repairs_of_the_messages_that_it_was_given(self, way, session):
        way.run(Loop(), ScriptedLLM("Hello."), "Hi", session=session)
        orphan = {"role": "tool", "tool_call_id": "c", "content": "3"}
        messages = [orphan, {"role": "user", "content": "And now?"}]
        seen = []
        result = way.run(
            Loop(), ScriptedLLM("Now."), messages, session=session, on_event=seen.append
        )
        [repaired] = [one for one in seen if isinstance(one, HistoryRepaired)]
        assert repaired.repairs == result.run.repairs
        assert len(repaired.repairs) == 1
        check_history(session.messages())

    def test_stores_what_a_stage_made_of_earlier_messages(self, way, session):
        @stage
        def forget(ctx):
            return ctx.replace(messages=ctx.messages[-1:]) if len(ctx.messages) > 1 else ctx

        way.run(Loop(), ScriptedLLM("Hello."), "Hi", session=session)
        stages = [forget, *default_stages()]
        way.run(Loop(stages=stages), ScriptedLLM("Again."), "Hi again", session=session)
        assert [one["content"] for one in session.messages()] == ["Hi again", "Again."]


class TestTheEnd:
    """A turn is stored however its run ends, and then the result is returned."""

    def test_of_a_run_that_is_cancelled_by_its_handle(self, way, session):
        handle = RunHandle()

        def model(_messages):
            handle.cancel()
            return "too late"

        result = way.run(Loop(handle=handle), model, "Hi", session=session)
        assert result.stop_reason == "cancelled"
        assert statuses(session) == [("error", "cancelled")]
        assert session.messages() == result.messages

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_of_a_run_whose_task_is_cancelled(self, backend, session):
        async def model(_messages):
            scope.cancel()
            await anyio.sleep(60)

        async def main():
            nonlocal scope
            with anyio.CancelScope() as scope:
                await Loop.run("Hi", model, session=session)

        scope = None
        anyio.run(main, backend=backend)
        assert statuses(session) == [("error", "cancelled")]
        assert session.messages() == [{"role": "user", "content": "Hi"}]

    def test_of_a_stream(self, session):
        async def main():
            async with Loop.stream("Hi", ScriptedLLM("Hello."), session=session) as events:
                async for _ in events:
                    pass
            return events.result

        result = anyio.run(main)
        assert session.messages() == result.messages

    def test_that_is_abandoned_stores_nothing(self, session):
        steps = Loop.steps("Hi", ScriptedLLM("Hello."), session=session)
        next(steps)
        steps.close()
        assert not session.exists


class TestAPause:
    """A paused run is stored with its state, and its continuation takes its place."""

    def paused(self, way, session):
        model = ScriptedLLM(calls(call("wipe", "w", path="/a")), "Gone.")
        result = way.run(Loop(tools=[wipe]), model, "Wipe it.", session=session)
        assert isinstance(result, Paused)
        return model, result

    def test_is_resumed_from_the_session(self, way, session):
        model, paused = self.paused(way, session)
        assert session.pause() == paused.state
        check_history(session.messages())
        loop = Loop(tools=[wipe])
        result = way.resume(loop, session.pause(), {"w": approve}, model, session=session)
        assert isinstance(result, Ok)
        assert session.messages() == result.messages
        assert [one["content"] for one in session.messages()[2:]] == ["/a is gone", "Gone."]
        assert statuses(session) == [("paused", "paused"), ("ok", "answered")]
        assert session.pause() is None

    def test_is_over_once_the_session_went_on(self, way, session):
        model, paused = self.paused(way, session)
        way.run(Loop(), ScriptedLLM("Fine."), "Never mind.", session=session)
        before = session.messages()
        with pytest.raises(PausedStateError, match="the last turn of the session is not the pause"):
            way.resume(Loop(tools=[wipe]), paused, {"w": approve}, model, session=session)
        assert session.messages() == before
        check_history(before)

    @pytest.mark.parametrize("decision", [approve, deny("no")])
    def test_whose_turn_could_not_be_stored_is_taken_over_on_purpose(self, way, session, decision):
        """The session still has the pause, and what it says about the call is true although it ran."""
        loop, model = (
            Loop(tools=[wipe], session=session),
            ScriptedLLM(calls(call("wipe", path="a"))),
        )
        [waiting] = way.run(loop, model).pending
        broken = loop.with_options(session=Broken(session.store, session.id))
        with pytest.raises(SessionError, match="the disk is full"):
            way.resume(broken, session.pause(), {waiting.id: approve}, ScriptedLLM("Gone."))
        assert (
            "If it was resumed since, this call may have run." in session.messages()[-1]["content"]
        )
        with pytest.raises(PausedStateError, match="calls that were approved may have run"):
            way.resume(loop, session.pause(), {waiting.id: decision}, ScriptedLLM("Gone."))
        again = ScriptedLLM("Gone.")
        decisions = {waiting.id: decision}
        assert way.resume(loop, session.pause(), decisions, again, take_over=True).output == "Gone."
        told = seen_by(again)[-1][1]
        if decision is approve:
            assert told == "a is gone"
        else:
            assert told.startswith("Unknown: 'wipe' may have been started, and whether it ran")
            assert "A person decided not to run it again: no." in told
        assert session.pause() is None

    def test_that_is_not_that_of_the_session_stays_free(self, way, session):
        loop, model = Loop(tools=[wipe]), ScriptedLLM(calls(call("wipe", path="a")))
        paused = way.run(loop, model)
        [waiting] = paused.pending
        with pytest.raises(PausedStateError, match="not the pause that is resumed"):
            way.resume(loop, paused, {waiting.id: approve}, ScriptedLLM(), session=session)
        result = way.resume(loop, paused, {waiting.id: deny("no")}, model := ScriptedLLM("No."))
        assert result.output == "No."
        assert seen_by(model)[-1][1].startswith("Not run: a person did not approve this call: no.")


class TestConflicts:
    """Two runs of one session at the same time, and stores that cannot be used."""

    def test_the_second_to_end_gets_an_error_with_its_result(self, way, session):
        def model(_messages):
            Loop.run_sync("Meanwhile", ScriptedLLM("First."), session=session)
            return "Second."

        with pytest.raises(SessionConflictError, match="expected 0 turns, found 1") as caught:
            way.run(Loop(), model, "Hi", session=session)
        assert caught.value.result.output == "Second."
        assert [one["content"] for one in session.messages()] == ["Meanwhile", "First."]

    def test_a_store_that_fails_to_save_leaves_the_result(self, way, session):
        with pytest.raises(SessionError, match="could not be stored: the disk is full") as caught:
            way.run(Loop(), ScriptedLLM("Hello."), "Hi", session=Broken(session.store, session.id))
        assert caught.value.result.output == "Hello."
        assert isinstance(caught.value.__cause__, OSError)

    def test_a_store_that_cannot_be_read_keeps_the_run_from_starting(self, way, tmp_path):
        (tmp_path / "other.db").write_text("no database, but long enough to look at" * 100)
        session = SQLiteSessions(tmp_path / "other.db").session("alice")
        model = ScriptedLLM("Hello.")
        with pytest.raises(SessionError, match=re.escape(f"{os.fspath(tmp_path / 'other.db')}")):
            way.run(Loop(), model, "Hi", session=session)
        assert model.sent == []

    def test_a_cancellation_is_not_hidden_by_a_store_that_fails(self, session, caplog):
        async def main():
            with anyio.CancelScope() as scope:

                async def model(_messages):
                    scope.cancel()
                    await anyio.sleep(60)

                await Loop.run("Hi", model, session=Broken(session.store, session.id))
            return scope.cancelled_caught

        assert anyio.run(main)
        assert "the turn of a cancelled run could not be stored" in caplog.text


class TestCompaction:
    """What a compaction left out is not loaded again, and stays in the record."""

    @pytest.mark.parametrize("has_stage", [True, False])
    def test_the_next_turn_starts_with_the_summary(self, way, session, has_stage):
        """Also in a loop without the stage."""
        loop = Loop(stages=[compact_history(lambda _: "Notes.", max_tokens=500), ...])
        for number in range(6):
            model = ScriptedLLM(f"Answer {number} " + "a" * 500)
            way.run(loop, model, f"Question {number} " + "q" * 500, session=session)
        before, model = session.load()["messages"], ScriptedLLM("Last.")
        assert before[0]["content"].startswith("[Previous conversation summary]\nNotes.")
        assert len(before) < 12
        assert before[1:] == session.messages()[1 - len(before) :]
        way.run(loop if has_stage else Loop(), model, "Last?", session=session)
        assert seen_by(model)[0][1] == before[0]["content"]
        if not has_stage:
            assert seen_by(model)[:-1] == [(one["role"], one["content"]) for one in before]
            assert session.load()["messages"][:-2] == before
        assert len(session.messages()) == 14
        assert session.messages()[0]["content"].startswith("Question 0")

    def test_a_stage_that_edits_the_summary_edits_that_of_the_next_turns(self, way, session):
        @stage
        def redact(ctx):
            text = ctx.messages[0]["content"].replace("Ann", "***")
            return ctx.replace(messages=[{**ctx.messages[0], "content": text}, *ctx.messages[1:]])

        stages = [compact_history(lambda _: "Ann asked.", max_tokens=500), *default_stages()]
        for number in range(6):
            text = f"Question {number} " + "q" * 500
            way.run(Loop(stages=stages), ScriptedLLM("a" * 500), text, session=session)
        before = session.messages()
        loop = Loop(stages=[redact, *default_stages()])
        way.run(loop, ScriptedLLM("Last."), "Last?", session=session)
        model = ScriptedLLM("Yes.")
        way.run(Loop(), model, "Really?", session=session)
        assert seen_by(model)[0][1].startswith("[Previous conversation summary]\n*** asked.")
        assert session.messages()[:-4] == before
        assert len(session.messages()) == 16

    def test_a_run_that_pauses_after_it_is_stored_once(self, way, session):
        stages = [compact_history(lambda _: "Notes.", max_tokens=500, keep_recent=2)]
        loop = Loop(tools=[add, wipe], stages=[*stages, *default_stages()])
        script = calls(call("add", a=1, b=2)), calls(call("wipe", "w", path="/a")), "Gone."
        model, seen = ScriptedLLM(*script), []
        way.run(loop, model, "Wipe it. " + "q" * 2_500, session=session, on_event=seen.append)
        assert any(isinstance(one, HistoryCompacted) for one in seen)
        result = way.resume(loop, session.pause(), {"w": approve}, model, session=session)
        assert isinstance(result, Ok)
        assert session.messages() == result.messages
        summary, *others = session.load()["messages"]
        assert summary["content"].startswith("[Previous conversation summary]\nNotes.")
        assert others == result.messages[-len(others) :]
        assert len(others) < len(result.messages)

    def test_a_turn_begins_with_the_tokens_that_the_provider_counted_in_the_last(
        self, way, session
    ):
        """The texts are short: only the counts of the provider are above the threshold."""
        stages = [compact_history(lambda _: "Notes.", max_tokens=1_000), *default_stages()]
        loop, seen = Loop(stages=stages), []
        for number, tokens in enumerate([300, 600, 990, 1_020, 100]):
            usage = {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}
            message = {"role": "assistant", "content": f"Answer {number} " + "a" * 200}
            model = ScriptedLLM({"choices": [{"message": message}], "usage": usage})
            text = f"Question {number} " + "q" * 200
            way.run(loop, model, text, session=session, on_event=seen.append)
        compacted = [one for one in seen if isinstance(one, HistoryCompacted)]
        assert [1_000 < one.tokens_before < 1_100 for one in compacted] == [True, True]
        assert len(session.load()["messages"]) < 10


def test_a_replay_needs_no_store(session):
    loop = Loop(tools=[add])
    recorder = Recorder()
    script = calls(call("add", "a", a=1, b=2)), "Three."
    options = {"session": session, "middleware": [recorder]}
    result = loop.with_options(**options).run_sync("1 + 2?", ScriptedLLM(*script))
    session.delete()
    steps, _ = start_run(loop.with_options(session=session), "1 + 2?", ScriptedLLM())
    again = replay(steps, recorder.log, lambda _event: None)
    assert again.messages == result.messages
    assert not session.exists


def test_a_subagent_has_no_session(session):
    with pytest.raises(OptionError, match="session: a subagent has none"):
        Loop(session=session, llm_send_fn=ScriptedLLM()).as_tool("helper", "Helps.")


def test_an_object_that_is_no_session_is_refused():
    with pytest.raises(OptionError, match=r"session: expected a session, such as SQLiteSessions"):
        Loop(session="alice")
