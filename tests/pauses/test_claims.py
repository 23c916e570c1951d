"""`claim_store` is asked once for each attempt to resume, and told how that ends."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from tests.deciding import on
from tests.loop.conftest import SYNC, Way, paused_at

from treadle import (
    Loop,
    Ok,
    PausedStateError,
    Pauses,
    RunHandle,
    SQLiteClaims,
    ToolStarted,
    approve,
)
from treadle.pauses import ProcessClaims
from treadle.pauses.resume_holder import ResumeHolder
from treadle.testing import ScriptedLLM, call, calls


class Store:
    """A store that notes what it is asked, and the thread."""

    def __init__(self, answer=True):
        self.answer = answer
        self.log = []
        self.threads = set()

    def claim(self, pause_id, claimant, *, take_over):
        self.threads.add(threading.current_thread())
        self.log.append(("claim", pause_id, claimant, take_over))
        return self.answer

    def release(self, pause_id, claimant, outcome):
        self.threads.add(threading.current_thread())
        self.log.append((outcome, pause_id, claimant))


class AsyncStore(Store):
    """The same, with async methods."""

    async def claim(self, pause_id, claimant, *, take_over):
        await anyio.sleep(0)
        return super().claim(pause_id, claimant, take_over=take_over)

    async def release(self, pause_id, claimant, outcome):
        await anyio.sleep(0)
        super().release(pause_id, claimant, outcome)


class TestStore:
    """A store of the user, for several processes."""

    @pytest.mark.parametrize("kind", [Store, AsyncStore])
    @pytest.mark.parametrize("take_over", [False, True])
    def test_it_claims_the_pause_and_ends_the_claim_once_there_is_a_result(
        self, recorded, way, kind, take_over
    ):
        store = kind()
        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=store))
        assert store.log == []
        result = way.resume(loop, paused, {"b": approve}, model, take_over=take_over)
        assert isinstance(result, Ok)
        (_, pause_id, claimant, took_over), end = store.log
        assert (pause_id, took_over) == (paused.state["pause_id"], take_over)
        assert ResumeHolder.parse(claimant).is_running()
        assert end == ("done", pause_id, claimant)

    @pytest.mark.parametrize("kind", [Store, AsyncStore])
    def test_one_that_refuses_ends_it_before_anything_happens(self, recorded, way, kind):
        store, events = kind(answer=False), []
        loop, model, paused = paused_at(
            recorded, pauses=Pauses(claims=store), on_event=events.append
        )
        events.clear()
        with pytest.raises(PausedStateError, match=r"was resumed already$"):
            way.resume(loop, paused, {"b": approve}, model)
        assert (recorded.done, events) == (["note 1"], [])
        assert [each[0] for each in store.log] == ["claim", "undone"]

    def test_each_attempt_has_a_claimant_of_its_own(self, recorded):
        store = Store(answer=False)
        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=store))
        for _ in range(2):
            with pytest.raises(PausedStateError):
                SYNC.resume(loop, paused, {"b": approve}, model)
        claimants = [each[2] for each in store.log]
        assert len(set(claimants)) == 2
        assert claimants[0] == claimants[1]

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_one_that_blocks_does_not_block_the_event_loop(self, recorded, backend):
        """It may query a database, so it is called in a thread."""
        store = Store()
        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=store))
        Way(backend).resume(loop, paused, {"b": approve}, model)
        assert threading.current_thread() not in store.threads

    def test_a_stream_is_refused_too(self, recorded):
        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=Store(answer=False)))

        async def main():
            given = (paused, on(paused, {"b": approve}), model)
            async with loop.resume_stream(*given) as events:
                return [event async for event in events]

        with pytest.raises(PausedStateError, match="was resumed already"):
            anyio.run(main)

    def test_its_exception_is_raised_to_the_caller(self, recorded):
        class Broken(Store):
            def claim(self, pause_id, claimant, *, take_over):
                raise ConnectionError("no database")

        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=Broken()))
        with pytest.raises(ConnectionError, match="no database"):
            SYNC.resume(loop, paused, {"b": approve}, model)
        assert recorded.done == ["note 1"]

    def test_the_result_is_returned_even_if_the_claim_cannot_be_ended(self, recorded, caplog):
        class Broken(Store):
            def release(self, pause_id, claimant, outcome):
                raise ConnectionError("no database")

        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=Broken()))
        with caplog.at_level(logging.ERROR, "treadle.loop"):
            assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)
        [record] = caplog.records
        assert "could not be released" in record.getMessage()
        assert isinstance(record.exc_info[1], ConnectionError)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    @pytest.mark.parametrize("kind", [Store, AsyncStore])
    def test_it_is_told_of_an_interruption(self, recorded, backend, kind):
        store, scope = kind(), []

        def stop(event):
            if isinstance(event, ToolStarted):
                scope[0].cancel()

        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=store))

        async def main():
            with anyio.CancelScope() as made:
                scope.append(made)
                await loop.resume(paused, on(paused, {"b": approve}), model, on_event=stop)

        anyio.run(main, backend=backend)
        assert [each[0] for each in store.log] == ["claim", "interrupted"]

    @pytest.mark.parametrize(("take_over", "outcome"), [(False, "undone"), (True, "interrupted")])
    def test_a_run_that_is_cancelled_before_it_begins_consumes_nothing(
        self, recorded, way, take_over, outcome
    ):
        """One that took the pause over leaves it as it was: calls may have run before."""
        store = Store()
        loop, model, paused = paused_at(recorded, pauses=Pauses(claims=store))
        handle = RunHandle()
        handle.cancel()
        options = {"handle": handle, "take_over": take_over}
        result = way.resume(loop, paused, {"b": approve}, model, **options)
        assert result.stop_reason == "cancelled"
        assert result.messages[:3] == paused.messages[:3]
        assert [each[0] for each in store.log] == ["claim", outcome]
        assert recorded.done == ["note 1"]

    @pytest.mark.parametrize("is_saved", [False, True])
    def test_a_pause_is_resumed_after_a_run_that_was_cancelled_before_it_began(
        self, recorded, way, is_saved, tmp_path
    ):
        loop, model, paused = paused_at(recorded)
        given, path = paused, tmp_path / "pause.json"
        if is_saved:
            paused.save(path)
            given = path
        decisions = on(paused, {"b": approve})
        handle = RunHandle()
        handle.cancel()

        def resume(**options):
            if way.name == "sync":
                return loop.resume_sync(given, decisions, model, **options)
            return anyio.run(
                lambda: loop.resume(given, decisions, model, **options), backend=way.name
            )

        assert resume(handle=handle).stop_reason == "cancelled"
        assert resume().stop_reason == "answered"
        assert recorded.did == ["note 1", "note 3", "wipe /"]

    def test_the_pause_of_a_subagent_is_claimed_with_that_of_its_parent(self, recorded):
        store = Store()
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")), "inner")
        subagent = recorded.loop(pauses=Pauses(claims=store))
        loop = Loop(tools=[subagent.as_tool("child", "c", inner)])
        model = ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = SYNC.run(loop, model)
        assert isinstance(SYNC.resume(loop, paused, {"k/i": approve}, model), Ok)
        assert store.log == []


def test_of_resumptions_in_several_threads_one_runs_the_calls(recorded):
    """Also without a store: the table of the process is the default."""
    loop, model, paused = paused_at(recorded)
    start = threading.Barrier(8)

    def resumed(_):
        start.wait()
        try:
            return type(SYNC.resume(loop, paused, {"b": approve}, model))
        except PausedStateError:
            return None

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(resumed, range(8)))
    assert (outcomes.count(Ok), outcomes.count(None)) == (1, 7)
    assert recorded.did == ["note 1", "note 3", "wipe /"]


def has(claims, claimant, *, take_over=False):
    """Whether a claimant has the pause now; a store may also refuse with an exception."""
    try:
        return claims.claim("p", claimant, take_over=take_over)
    except PausedStateError:
        return False


@pytest.fixture(params=[ProcessClaims, SQLiteClaims])
def claims(request, tmp_path):
    return request.param() if request.param is ProcessClaims else SQLiteClaims(tmp_path / "c.db")


class TestStores:
    """The stores of treadle: the table of a process, which is the default, and SQLite."""

    @pytest.mark.parametrize("take_over", [False, True])
    def test_of_several_threads_one_claims(self, claims, take_over):
        start = threading.Barrier(8)
        if take_over:
            claims.claim("p", "before", take_over=False)
            claims.release("p", "before", "interrupted")

        def work(_):
            start.wait()
            return has(claims, str(ResumeHolder.here()), take_over=take_over)

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(work, range(8))) == [False] * 7 + [True]

    def test_an_interrupted_one_is_taken_over_once_and_on_purpose(self, claims):
        one, two, three = (str(ResumeHolder.here()) for _ in range(3))
        assert has(claims, one)
        assert not has(claims, two, take_over=True)  # it is running
        claims.release("p", one, "interrupted")
        with pytest.raises(PausedStateError, match=r"interrupted; .* pass take_over=True$"):
            claims.claim("p", two, take_over=False)
        assert has(claims, two, take_over=True)
        claims.release("p", one, "interrupted")  # it no longer has the pause
        assert not has(claims, three, take_over=True)
        claims.release("p", two, "done")
        assert not has(claims, three, take_over=True)

    def test_one_that_was_undone_is_free(self, claims):
        assert has(claims, "one")
        claims.release("p", "another", "undone")
        assert not has(claims, "two")
        claims.release("p", "one", "undone")
        assert has(claims, "two")

    def test_a_forgotten_claim_leaves_no_note_that_it_was_interrupted(self, monkeypatch):
        monkeypatch.setattr("treadle.pauses.claims.MAX_CLAIMS", 1)
        claims = ProcessClaims()
        claims.claim("a", "one", take_over=False)
        claims.release("a", "one", "interrupted")
        claims.claim("b", "two", take_over=False)
        assert claims.claim("a", "three", take_over=False)
        assert not claims.claim("a", "four", take_over=True)  # three is running

    def test_a_process_remembers_a_bounded_number(self, monkeypatch):
        monkeypatch.setattr("treadle.pauses.claims.MAX_CLAIMS", 2)
        claims = ProcessClaims()
        claimed = [claims.claim(name, f"{n}", take_over=False) for n, name in enumerate("aabccba")]
        assert claimed == [True, False, True, True, False, False, True]
