"""A run with a journal that is a turn of a session: the turn is stored once, however often it is interrupted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.ways import ASYNCIO, TRIO, Way
from tests.whole.guard_scripts import pay, send

from treadle import Loop, approve, tool
from treadle.errors import LeaseLostError, SessionConflictError
from treadle.sessions import SQLiteSessions
from treadle.testing import ScriptedLLM, call, calls, check_history

from .interrupting import RUN, Durable
from .memory import ENDS, MemoryJournal


def conversation(store: Any) -> Any:
    """A session with one turn."""
    session = store.session("s")
    Loop.run_sync("Hello.", ScriptedLLM("Hi."), session=session)
    return session


def turn_of(way: Way, session: Any) -> Durable:
    """A run that continues it: it pays, waits for a person, and answers."""
    model = ScriptedLLM(calls(call("pay", "c1", n=1), call("send", "c2", to="Bob")), "Done.")
    options = {"tools": [pay, send], "session": session}
    return Durable(way, "Pay and send.", model, options, ({"c2": approve},))


def test_a_turn_is_stored_once(driven: Way, tmp_path: Path):
    """Also if the process ends between storing it and recording that."""
    first = conversation(SQLiteSessions(tmp_path / "s.db"))
    whole = turn_of(driven, first)
    expected = whole.run()
    assert [turn.status for turn in first.turns()] == ["ok", "paused", "ok"]
    for at in range(1, whole.journal.writes + 1):
        session = conversation(SQLiteSessions(tmp_path / f"{at}.db"))
        one = turn_of(driven, session)
        one.journal.interrupt(at, is_stored=False)
        result = one.run()
        check_history(result.messages)
        turns = session.turns()
        assert [turn.status for turn in turns] == ["ok", "paused", "ok"]
        assert [turn.run_id for turn in turns[1:]] == [RUN, RUN]
        assert session.messages() == result.messages
        if not one.unknown:
            assert result.messages == expected.messages


def test_another_turn_is_still_a_conflict(driven: Way, tmp_path: Path):
    session = conversation(SQLiteSessions(tmp_path / "s.db"))

    def model(messages: Any) -> str:
        Loop.run_sync("Me first.", ScriptedLLM("Yes."), session=session)
        return "Done."

    with pytest.raises(SessionConflictError):
        driven.run("Go.", model, session=session, journal=MemoryJournal(), run_id=RUN)
    assert len(session.turns()) == 2


def test_a_turn_that_another_turn_follows_is_recognized(tmp_path: Path):
    """The process ended after its turn was stored, and the conversation went on before it was taken up."""
    session = conversation(SQLiteSessions(tmp_path / "s.db"))
    one = Durable(TRIO, "Go.", ScriptedLLM("Done."), {"session": session})
    one.journal.interrupt(4, is_stored=False)  # the outcome of storing the turn
    with pytest.raises(ENDS):
        one.process()
    assert len(session.turns()) == 2
    Loop.run_sync("And then?", ScriptedLLM("Nothing."), session=session)
    assert one.process().output == "Done."
    assert len(session.turns()) == 3


@pytest.mark.parametrize("way", [ASYNCIO, TRIO], ids=repr)
def test_a_cancelled_task_stores_no_turn(way: Way, tmp_path: Path):
    session = conversation(SQLiteSessions(tmp_path / "s.db"))
    scopes: list[anyio.CancelScope] = []
    asked: list[int] = []

    async def model(messages: Any) -> str:
        asked.append(len(messages))
        if len(asked) == 1:
            scopes[-1].cancel()
            await anyio.sleep(60)
        return "Done."

    options = {"session": session, "journal": MemoryJournal(), "run_id": RUN}

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            await Loop.run("Go.", model, **options)

    way.call(cancelled)
    assert len(session.turns()) == 1
    result = way.call(Loop.run, "Go.", model, **options)
    assert (result.output, asked) == ("Done.", [3, 3])
    assert session.messages() == result.messages
    assert way.call(Loop.run, "Go.", model, **options) == result
    assert len(session.turns()) == 2


def test_a_process_that_was_fenced_off_stores_no_turn(driven: Way, tmp_path: Path):
    """Another one has taken the run over; this one is stopped, and its end is not that of the turn."""
    session, journal = conversation(SQLiteSessions(tmp_path / "s.db")), MemoryJournal()

    @tool
    async def lose() -> str:
        """Lose the lease."""
        run = journal.opened[-1]
        run.is_lost = True
        run.stops[0]()
        await anyio.sleep(60)
        return "late"

    options = {"tools": [lose], "session": session, "journal": journal, "run_id": RUN}
    with pytest.raises(LeaseLostError):
        driven.run("Go.", ScriptedLLM(calls(call("lose", "c1")), "Done."), **options)
    assert len(session.turns()) == 1
    assert journal.parts[RUN][-1]["outcome"] is None
