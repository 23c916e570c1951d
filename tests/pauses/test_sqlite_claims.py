"""Claims in an SQLite file."""

import stat

import pytest

from treadle import Ok, OptionError, SQLiteClaims, approve, deny
from treadle.testing import ScriptedLLM

from .claiming import make, paused_in


def test_its_file_is_private_and_there_is_no_other(tmp_path):
    folder = tmp_path / "claims"
    folder.mkdir()
    loop = make(tmp_path, claims=SQLiteClaims(folder / "c.db"))
    paused = paused_in(tmp_path)
    assert not list(folder.iterdir())
    loop.resume_sync(paused, {paused.pending[0].id: approve}, ScriptedLLM("done"))
    assert list(folder.iterdir()) == [folder / "c.db"]
    assert stat.S_IMODE((folder / "c.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("path", ["", ":memory:", None, 5])
def test_its_path_is_that_of_a_file(path):
    with pytest.raises(OptionError, match=r"^SQLiteClaims: expected the path of a file"):
        SQLiteClaims(path)


def test_a_file_that_cannot_be_used_is_an_error_before_anything_runs(tmp_path):
    import sqlite3

    (tmp_path / "notes").write_text("These are notes, and no database. " * 9)
    loop = make(tmp_path, claims=SQLiteClaims(tmp_path / "notes"))
    paused = paused_in(tmp_path)
    decisions = {paused.pending[0].id: deny()}
    with pytest.raises(sqlite3.DatabaseError):
        loop.resume_sync(paused, decisions, len)
    assert isinstance(make(tmp_path).resume_sync(paused, decisions, ScriptedLLM("x")), Ok)
