"""The contents of runs: large ones, encrypted ones, and what cannot be read."""

import sys

import pytest
from cryptography.fernet import Fernet
from tests.durable.journaling import START, chat, keys, paused, stored, waiting

from treadle import MissingExtraError, OptionError
from treadle.durable import EncryptedPayloads, SQLiteJournal
from treadle.errors import JournalError
from treadle.tools import edit

SECRET = "My secret"  # noqa: S105 - the text of a message


def files_of(path):
    """The files of large contents."""
    return sorted(path.with_name("journal.db-files").glob("*"))


class TestLarge:
    def test_they_are_in_files_of_their_own_and_read_from_them(self, path):
        journal = SQLiteJournal(path, max_inline=1_000)
        text = "x" * 5_000
        stored(journal, "r", chat(1, "short"), chat(2, text), outcome=paused("a@1"))
        assert len(files_of(path)) == 1
        assert path.stat().st_size < 100_000
        assert [entry.outcome for entry in journal.entries("r")] == ["short", text]

    def test_one_of_each_kind_may_be_large(self, path):
        journal = SQLiteJournal(path, max_inline=0)
        stored(journal, "r", chat(1), outcome=paused("a@1"))
        journal.decide("r", {"a@1": edit({"n": 2})})
        journal.steer("r", "Hi")
        run = journal.open("r", None)
        assert (run.start, keys(run.log), run.outcome) == (START, ["1"], paused("a@1"))
        assert run.decisions["a@1"]["arguments"] == {"n": 2}
        assert [message["content"] for _, message in run.messages()] == ["Hi"]
        run.close()
        assert journal.run("r").waiting == waiting("a@1")
        assert len(files_of(path)) == 6

    def test_the_same_content_of_a_run_is_stored_once(self, path):
        journal = SQLiteJournal(path, max_inline=1_000)
        same = chat(1, "x" * 5_000)
        stored(journal, "r", same, same)
        assert len(files_of(path)) == 1

    def test_the_largest_size_is_part_of_it(self, path):
        journal = SQLiteJournal(path, max_inline=1_000, max_payload=10_000)
        run = journal.open("r", START)
        with pytest.raises(JournalError) as caught:
            run.add([chat(1), chat(2, "x" * 10_000)])
        assert "run 'r': the outcome of chat '2' is too large for the journal: 10," in str(
            caught.value
        )
        assert "bytes, at most max_payload=10,000; have the tool return" in str(caught.value)
        run.add([chat(3, "x" * 9_000)])
        run.close()
        assert keys(journal.entries("r")) == ["3"]

    def test_a_file_that_was_changed_or_lost_is_an_error(self, path):
        journal = SQLiteJournal(path, max_inline=1_000)
        stored(journal, "r", chat(1, "x" * 5_000))
        (file,) = files_of(path)
        file.write_bytes(file.read_bytes()[:-1])
        for why in ("the file was changed", "No such file or directory"):
            with pytest.raises(JournalError) as caught:
                journal.open("r", None)
            assert f"{file}: could not read run 'r': outcome 1 of its log: " in str(caught.value)
            assert why in str(caught.value)
            file.unlink(missing_ok=True)

    @pytest.mark.parametrize("name", ["max_inline", "max_payload"])
    @pytest.mark.parametrize("size", [-1, 1.5, None])
    def test_a_wrong_size_is_refused(self, name, size):
        with pytest.raises(OptionError, match=f"SQLiteJournal: {name}: expected 0 or more bytes"):
            SQLiteJournal("a.db", **{name: size})


@pytest.fixture
def key():
    return Fernet.generate_key()


class TestEncryption:
    def test_no_file_has_a_text_of_a_run(self, path, key):
        codec = EncryptedPayloads(key)
        journal = SQLiteJournal(path, codec=codec, max_inline=1_000)
        start = {"messages": SECRET, "name": "agent"}
        run = journal.open("r", start)
        run.add([chat(1, SECRET), chat(2, SECRET * 1_000)])
        journal.steer("r", SECRET)
        run.finish({**paused("a@1"), "result": SECRET})
        run.close()
        journal.decide("r", {"a@1": edit({"n": SECRET})})
        texts = [one.read_bytes() for one in path.parent.glob("**/*") if one.is_file()]
        assert len(texts) > 1
        assert not any(SECRET.encode() in text for text in texts)
        found = SQLiteJournal(path, codec=codec).open("r", None)
        assert found.start == start
        assert [entry.outcome for entry in found.log] == [SECRET, SECRET * 1_000]
        assert found.decisions["a@1"]["arguments"] == {"n": SECRET}
        assert [message["content"] for _, message in found.messages()] == [SECRET]
        found.close()
        assert journal.run("r").agent_name == "agent"

    def test_a_key_is_replaced_while_older_runs_are_still_read(self, path, key):
        stored(SQLiteJournal(path, codec=EncryptedPayloads(key)), "old", chat(1))
        new = Fernet.generate_key()
        journal = SQLiteJournal(path, codec=EncryptedPayloads(new.decode(), key))
        stored(journal, "new", chat(2))
        assert keys(journal.entries("old")) == ["1"]
        only_new = SQLiteJournal(path, codec=EncryptedPayloads(new))
        assert keys(only_new.entries("new")) == ["2"]
        with pytest.raises(JournalError, match=r"could not read run 'old': .*another key"):
            only_new.entries("old")

    def test_a_wrong_key_is_an_error_and_changes_nothing(self, path, key):
        stored(SQLiteJournal(path, codec=EncryptedPayloads(key)), "r", chat(1))
        wrong = SQLiteJournal(path, codec=EncryptedPayloads(Fernet.generate_key()))
        with pytest.raises(
            JournalError,
            match=r"could not read run 'r': .*: it was encrypted with another key, was not encrypted",
        ):
            wrong.open("r", START)
        assert wrong.run("r").driver is None
        assert keys(SQLiteJournal(path, codec=EncryptedPayloads(key)).entries("r")) == ["1"]

    def test_a_run_is_read_with_the_codec_that_stored_it_only(self, path, key):
        encrypted, plain = SQLiteJournal(path, codec=EncryptedPayloads(key)), SQLiteJournal(path)
        stored(encrypted, "encrypted", chat(1))
        stored(plain, "plain", chat(1))
        with pytest.raises(JournalError, match=r"it is not JSON; was it stored with a codec\?"):
            plain.open("encrypted", None)
        with pytest.raises(JournalError, match="another key, was not encrypted, or was changed"):
            encrypted.open("plain", None)
        assert {run.id for run in plain.runs()} == {"encrypted", "plain"}

    @pytest.mark.parametrize("wrong", ["", "short", b"x" * 44, 5, None])
    def test_what_is_no_key_is_refused_and_not_shown(self, key, wrong):
        with pytest.raises(OptionError, match=r"expected keys of Fernet.generate_key\(\)") as error:
            EncryptedPayloads(key, wrong)
        assert error.value.__cause__ is None
        assert key.decode() not in str(error.value)

    def test_an_object_does_not_show_its_keys(self, key):
        assert key.decode() not in repr(EncryptedPayloads(key))

    def test_without_the_extra_the_error_names_it(self, key, monkeypatch):
        monkeypatch.setitem(sys.modules, "cryptography.fernet", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'treadle\[encryption\]'"):
            EncryptedPayloads(key)


class Failing:
    """A codec that fails."""

    def encode(self, data):
        raise RuntimeError("no key server")

    def decode(self, data):
        raise RuntimeError("no key server")


class TestCodecs:
    def test_one_that_fails_is_an_error_and_nothing_is_stored(self, path):
        stored(SQLiteJournal(path), "r", chat(1))
        journal = SQLiteJournal(path, codec=Failing())
        with pytest.raises(
            JournalError, match=r"run 'new': .* could not be encoded: no key server"
        ):
            journal.open("new", START)
        with pytest.raises(JournalError, match=r"could not read run 'r': .*: no key server"):
            journal.open("r", None)
        assert [run.id for run in journal.runs()] == ["r"]

    def test_what_is_no_codec_is_refused(self):
        with pytest.raises(OptionError, match="codec: expected an object with encode and decode"):
            SQLiteJournal("a.db", codec="key")
