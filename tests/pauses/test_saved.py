"""A saved pause is resumed by one process, and taken over on purpose if that one was interrupted."""

import json
import os
import stat

import anyio
import pytest
from tests.loop.conftest import BATCH, SYNC, paused_at

from treadle import (
    Loop,
    Ok,
    OptionError,
    Paused,
    PausedStateError,
    Pauses,
    SQLiteClaims,
    approve,
    tool,
)
from treadle.events import RunStarted
from treadle.pauses.resume_holder import ResumeHolder
from treadle.pauses.saved import FileClaims
from treadle.testing import ScriptedLLM, call, calls

from .claiming import job, make, outcomes, paid, paused_in, started, until


@pytest.fixture
def saved(tmp_path):
    """A saved pause of a payment; its folder has nothing else."""
    folder = tmp_path / "pauses"
    folder.mkdir()
    path = folder / "approval.json"
    paused_in(tmp_path).save(path)
    return path


@pytest.fixture
def approved(saved):
    """The decisions on it: as a user interface makes them from the file."""
    return {one.id: approve for one in Paused.load(saved, "s3cret").pending}


def names(path):
    return sorted(one.name for one in path.parent.iterdir())


class TestSaving:
    """A pause is written as a whole, for its owner only."""

    def test_an_earlier_pause_is_replaced_whatever_its_permissions(self, saved, tmp_path):
        saved.chmod(0o644)
        paused = paused_in(tmp_path)
        paused.save(saved)
        assert Paused.load(saved, "s3cret").state == paused.state
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600

    def test_it_takes_its_place_when_the_disk_has_it(self, saved, tmp_path, monkeypatch):
        def fail(_):
            raise OSError("Input/output error")

        before = saved.read_bytes()
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output error"):
            paused_in(tmp_path).save(saved)
        assert (names(saved), saved.read_bytes()) == (["approval.json"], before)

    def test_another_file_is_not_overwritten(self, tmp_path):
        contents = [b"", b"notes", b"{}", b"[1]", b"\xff", b'{"digest']
        files = {tmp_path / f"notes {n}": content for n, content in enumerate(contents)}
        for path, content in files.items():
            path.write_bytes(content)
        os.mkfifo(tmp_path / "pipe")
        paused = paused_in(tmp_path)
        for path in (*files, tmp_path, tmp_path / "pipe"):
            with pytest.raises(PausedStateError, match="is not a saved pause; it is not overwr"):
                paused.save(path)
        assert {path: path.read_bytes() for path in files} == files

    def test_a_pause_that_is_being_resumed_is_not_replaced(self, saved, tmp_path):
        saved.rename(saved.with_name("approval.json.claimed"))
        with pytest.raises(PausedStateError, match=r"was claimed at .* take_over=True"):
            paused_in(tmp_path).save(saved)

    def test_a_pause_without_a_state_cannot_be_saved(self, tmp_path):
        with pytest.raises(PausedStateError, match="has no state"):
            Paused(()).save(tmp_path / "p")


class TestLoading:
    """A user interface shows the pending calls without resuming."""

    def test_it_has_what_the_pause_had(self, recorded, tmp_path):
        usage = {"prompt_tokens": 3, "completion_tokens": 4}
        answer = {"choices": [{"message": BATCH}], "usage": usage}
        loop, model, paused = paused_at(recorded, answer)
        paused.save(tmp_path / "p")
        loaded = Paused.load(tmp_path / "p")
        assert (loaded.pending, loaded.state) == (paused.pending, paused.state)
        assert (loaded.usage, loaded.iterations, loaded.tool_calls_count) == (paused.usage, 1, 1)
        assert loaded.run.run_id == paused.run.run_id
        assert isinstance(SYNC.resume(loop, loaded, {"b": approve}, model), Ok)

    @pytest.mark.parametrize("secret", [None, "other", b"other"])
    def test_one_that_was_changed_is_refused(self, saved, secret):
        with pytest.raises(PausedStateError, match="was changed, or signed with another secret"):
            Paused.load(saved, secret)

    def test_a_missing_one_is_refused(self, tmp_path):
        with pytest.raises(PausedStateError, match=r"^there is no saved pause at '.*nothing'$"):
            Paused.load(tmp_path / "nothing")


class TestResuming:
    """The file has the claim, so that it is resumed once."""

    @pytest.mark.parametrize("form", [str, lambda path: path], ids=["text", "path"])
    def test_it_is_removed_when_there_is_a_result(self, way, saved, approved, tmp_path, form):
        result = way.resume(make(tmp_path), form(saved), approved, ScriptedLLM("done"))
        assert isinstance(result, Ok)
        assert (paid(tmp_path), names(saved)) == (["5"], [])

    @pytest.fixture
    def paused_twice(self, recorded, way, tmp_path):
        """A loop, its model and a saved pause whose run pauses again; the ids of the first call that waits."""
        loop, model, paused = paused_at(recorded, BATCH, calls(call("wipe", "c", path="/c")))
        paused.save(tmp_path / "p")
        return loop, model, {paused.pending[0].id: approve}

    def test_it_has_the_next_pause_when_the_run_pauses_again(self, paused_twice, way, tmp_path):
        (loop, model, decisions), path = paused_twice, tmp_path / "p"
        again = way.resume(loop, path, decisions, model)
        assert isinstance(again, Paused)
        assert (names(path), Paused.load(path).state) == (["p"], again.state)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        again.save(path)  # as a caller does who does not know
        result = way.resume(loop, path, {again.pending[0].id: approve}, model)
        assert isinstance(result, Ok)
        assert names(path) == []

    def test_a_next_pause_that_cannot_be_saved_is_returned_nevertheless(
        self, paused_twice, way, tmp_path, monkeypatch, caplog
    ):
        (loop, model, decisions), path = paused_twice, tmp_path / "p"

        def full(_):
            raise OSError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            again = way.resume(loop, path, decisions, model)
        assert "could not be saved" in caplog.text
        assert names(path) == []
        again.save(path)
        assert isinstance(way.resume(loop, path, {again.pending[0].id: approve}, model), Ok)

    def test_the_next_pause_does_not_replace_a_file_that_was_put_there_meanwhile(
        self, paused_twice, way, tmp_path, caplog
    ):
        (loop, model, decisions), path = paused_twice, tmp_path / "p"

        def put(event):
            if isinstance(event, RunStarted):
                path.write_text("notes")

        again = way.resume(loop.with_options(on_event=put), path, decisions, model)
        assert isinstance(again, Paused)
        assert "there is another file at" in caplog.text
        assert (names(path), path.read_text()) == (["p"], "notes")

    def test_a_file_that_was_taken_over_does_not_get_the_next_pause(self, saved):
        claims, other = FileClaims(saved, take_over=False), str(ResumeHolder.here())
        pause_id, mine = claims.state["pause_id"], str(ResumeHolder.here())
        claims.claim(pause_id, mine, take_over=False)
        [claimed] = saved.parent.iterdir()
        claimed.rename(saved.with_name(f"approval.json.claimed-{other}"))
        claims.keep(mine, {"digest": "of the next pause"})
        assert names(saved) == [f"approval.json.claimed-{other}"]

    def test_as_a_stream_too(self, saved, approved, tmp_path):
        async def main():
            loop = make(tmp_path)
            async with loop.resume_stream(saved, approved, ScriptedLLM("done")) as events:
                return [name async for _ in events for name in names(saved)]

        during = set(anyio.run(main))
        assert {name.partition("-")[0] for name in during} == {"approval.json.claimed"}
        assert (paid(tmp_path), names(saved)) == (["5"], [])

    @pytest.mark.parametrize(
        ("options", "decisions", "error"),
        [
            ({"pauses": Pauses(secret="wrong")}, None, PausedStateError),
            ({"tools": []}, None, PausedStateError),
            ({}, {"a": approve}, OptionError),
            ({}, {"other@0123456789abcdef": approve}, OptionError),
            ({"max_iterations": 0}, None, OptionError),
        ],
        ids=["secret", "tools", "no pause", "another pause", "option"],
    )
    def test_a_failed_check_leaves_it_as_it_was(
        self, saved, approved, tmp_path, options, decisions, error
    ):
        before = saved.read_bytes()
        with pytest.raises(error):
            make(tmp_path).resume_sync(saved, decisions or approved, len, **options)
        assert (names(saved), saved.read_bytes()) == (["approval.json"], before)
        assert isinstance(make(tmp_path).resume_sync(saved, approved, ScriptedLLM("x")), Ok)

    def test_a_store_that_refuses_undoes_the_claim_of_the_file(self, saved, approved, tmp_path):
        """The pause was resumed from elsewhere."""
        paused = Paused.load(saved, "s3cret")
        loop = make(tmp_path)
        loop.resume_sync(paused, approved, ScriptedLLM("done"))
        with pytest.raises(PausedStateError, match="was resumed already"):
            loop.resume_sync(saved, approved, ScriptedLLM("done"))
        assert (names(saved), paid(tmp_path)) == (["approval.json"], ["5"])

    def test_a_claim_that_is_undone_does_not_replace_a_file_that_was_put_there(
        self, saved, approved, tmp_path
    ):
        class Refusing:
            def claim(self, pause_id, claimant, *, take_over):
                saved.write_text("notes")
                return False

            def release(self, pause_id, claimant, outcome): ...

        loop = make(tmp_path, claims=Refusing())
        with pytest.raises(PausedStateError, match="was resumed already"):
            loop.resume_sync(saved, approved, ScriptedLLM("done"))
        assert (names(saved), saved.read_text()) == (
            ["approval.json", "approval.json.claimed"],
            "notes",
        )

    def test_a_link_stays_what_it_is(self, saved, approved, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(saved)
        make(tmp_path).resume_sync(link, approved, ScriptedLLM("done"))
        assert (names(saved), link.is_symlink()) == ([], True)

    def test_a_pause_that_was_replaced_meanwhile_is_not_taken_for_it(
        self, saved, approved, tmp_path
    ):
        """The pause is read first, so that a failed check leaves it; the claim checks that it is the same."""
        loop = make(tmp_path)
        run = loop.resume(saved, approved, ScriptedLLM("done"))
        paused_in(tmp_path).save(saved)

        async def main():
            await run

        with pytest.raises(PausedStateError, match="was replaced by another pause meanwhile"):
            anyio.run(main)
        assert (names(saved), paid(tmp_path)) == (["approval.json"], [])


class TestInterrupted:
    """A run that was interrupted keeps its claim until another takes it over."""

    @pytest.mark.parametrize("store", [False, True], ids=["file", "SQLite too"])
    def test_a_cancelled_one_is_taken_over_on_purpose_only(self, recorded, tmp_path, store):
        @tool(requires_approval=True)
        async def rest():
            recorded.done.append("rest")
            if len(recorded.done) == 1:
                await anyio.sleep_forever()
            return "rested"

        claims = SQLiteClaims(tmp_path / "claims.db") if store else None
        loop, path = Loop(tools=[rest], pauses=Pauses(claims=claims)), tmp_path / "p"
        paused = SYNC.run(loop, ScriptedLLM(calls(call("rest", "r"))))
        paused.save(path)
        decisions = {paused.pending[0].id: approve}

        async def interrupted():
            async with anyio.create_task_group() as group:
                group.start_soon(loop.resume, path, decisions, len)
                while not recorded.done:
                    await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()

        anyio.run(interrupted)
        for given in (path, paused):
            with pytest.raises(PausedStateError, match=r"claimed.* take_over=True"):
                loop.resume_sync(given, decisions, len)
        assert recorded.done == ["rest"]
        result = loop.resume_sync(path, decisions, ScriptedLLM("done"), take_over=True)
        assert isinstance(result, Ok)
        for given in (path, paused):
            with pytest.raises(PausedStateError, match=r"no saved pause|was resumed already"):
                loop.resume_sync(given, decisions, len, take_over=True)
        assert recorded.done == ["rest", "rest"]

    def test_a_claim_that_was_not_needed_is_no_error(self, saved, approved, tmp_path):
        model = ScriptedLLM("done")
        assert isinstance(make(tmp_path).resume_sync(saved, approved, model, take_over=True), Ok)


@pytest.mark.parametrize("form", ["file", "SQLite"])
class TestProcesses:
    """Of several processes, one resumes."""

    COUNT = 5

    def shared(self, folder, form):
        """How the processes share a paused run: its file, or its state and a table of claims."""
        paused, path = paused_in(folder), folder / "approval.json"
        ids = [one.id for one in paused.pending]
        if form == "SQLite":
            text = json.dumps(paused.state)
            return {"given": text, "decisions": ids, "claims": folder / "claims.db"}
        paused.save(path)
        return {"given": path, "decisions": ids}

    def test_of_several_that_resume_at_the_same_time_one_does(self, tmp_path, form):
        shared = self.shared(tmp_path, form)
        done = outcomes(started(self.COUNT, job(tmp_path, **shared)))
        assert done[0] == "ok"
        assert all(one.startswith("refused: ") for one in done[1:])
        assert paid(tmp_path) == ["5"]

    def test_one_that_was_killed_is_taken_over_by_one(self, tmp_path, form):
        shared, hold = self.shared(tmp_path, form), tmp_path / "hold"
        hold.touch()
        [first] = started(1, job(tmp_path, **shared))
        until(lambda: paid(tmp_path) == ["5"])
        [refused] = outcomes(started(1, job(tmp_path, **shared, take_over=True)))
        assert f"was claimed by process {first.pid} on " in refused
        assert refused.endswith(" UTC, which is still running")
        first.kill()
        first.communicate()
        [refused] = outcomes(started(1, job(tmp_path, **shared)))
        assert f"process {first.pid} on " in refused
        assert "which has ended since; calls that were approved may have run;" in refused
        assert refused.endswith("pass take_over=True")
        assert paid(tmp_path) == ["5"]
        hold.unlink()
        done = outcomes(started(self.COUNT, job(tmp_path, **shared, take_over=True)))
        assert done[0] == "ok"
        assert all(one.startswith("refused: ") for one in done[1:])
        assert paid(tmp_path) == ["5", "5"]
