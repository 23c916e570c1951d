"""The methods of a session, apart from what runs use."""

import time

import pytest
from tests.sessions.conversing import (
    Counting,
    answer,
    compacted,
    ended,
    exchange,
    image,
    run,
    summary,
    system,
    turn,
    user,
    with_image,
)

from treadle.sessions import Session, SessionConflictError, SessionError, SQLiteSessions


@pytest.fixture
def session(store):
    return store.session("alice")


PAUSE = {"pause_id": "p1", "version": 1}


class TestReading:
    def test_a_session_exists_from_its_first_turn_on(self, session):
        assert (session.exists, session.info(), session.messages()) == (False, None, [])
        assert (session.turns(), session.pause(), session.attachments()) == ([], None, [])
        run(session, user(), answer())
        assert session.exists
        assert session.info().version == len(session.turns()) == 1

    @pytest.mark.parametrize("wrong", ["", "a\x00b", "a\x7f", "a\x85", "x" * 201, None, "\udc00"])
    def test_an_invalid_id_is_refused(self, store, wrong):
        with pytest.raises(SessionError, match="expected 1 to 200 characters without control"):
            store.session(wrong)

    def test_the_messages_are_those_that_the_turns_have_left(self, session):
        store = session.store
        store.append("alice", 0, [turn(0, user("1"), answer("2"), user("3"), answer("4"))], {})
        store.append("alice", 1, [turn(3, answer("4b"), user("5"))], {})
        store.append("alice", 2, [turn(1)], {})
        store.append("alice", 3, [turn(1, answer("2b"), user("3b"), answer("4c"))], {})
        store.append("alice", 4, [turn(4, user("5b"))], {})
        texts = [message["content"] for message in session.messages()]
        assert texts == ["1", "2b", "3b", "4c", "5b"]
        for start in (*range(-6, 7), None):
            for stop in (*range(-6, 7), None):
                found = session.messages(0 if start is None else start, stop)
                assert [one["content"] for one in found] == texts[
                    0 if start is None else start : stop
                ]

    def test_messages_at_the_end_are_read_without_the_turns_before(self, session):
        for number in range(40):
            run(session, user(f"{number}"), answer())
        counting = Counting(session.store)
        assert Session(counting, "alice").messages(-2) == [user("39"), answer()]
        assert counting.turns_read == 1

    def test_turns_come_the_oldest_first(self, session):
        turns = [turn(number, user(str(number))) for number in range(250)]
        session.store.append("alice", 0, turns, {})
        assert session.turns() == turns

    def test_a_pause_is_that_of_the_latest_turn(self, session):
        run(session, user(), answer(), status="paused", pause=PAUSE)
        assert session.pause() == PAUSE
        run(session, user(), answer())
        assert session.pause() is None

    def test_attachments_are_listed_once_in_order(self, session):
        cached = image("cat") | {"cache_control": {"type": "ephemeral"}}
        run(session, with_image("dog"), answer())
        run(session, with_image("cat"), answer())
        run(session, {"role": "user", "content": [cached, image("dog"), image("cow")]}, answer())
        assert session.attachments() == [image("dog"), image("cat"), image("cow")]

    def test_a_session_that_is_replaced_while_it_is_read_is_a_conflict(self, session):
        class Replacing(Counting):
            def turns(self, session_id, **options):
                found = super().turns(session_id, **options)
                self._store.delete("alice")
                self._store.append("alice", 0, [turn(0, user("other"))] * 5, {})
                return found

        for number in range(5):
            run(session, user(f"{number}"), answer())
        read = Session(Replacing(session.store), "alice")
        for act in (read.load, read.messages, read.turns, lambda: read.fork("bob")):
            with pytest.raises(SessionConflictError):
                act()
        assert not session.store.session("bob").exists


class TestTruncation:
    @pytest.fixture
    def filled(self, session):
        run(session, user("1"), *exchange("a"), answer("2"))
        parallel = exchange("b")
        parallel[0]["tool_calls"] += exchange("c")[0]["tool_calls"]
        run(session, user("3"), *parallel, exchange("c")[1], answer("4"))
        return session  # 0 user 1 call 2 result 3 answer 4 user 5 calls 6 result 7 result 8 answer

    @pytest.mark.parametrize("remaining", [0, 1, 3, 4, 5, 8])
    def test_messages_at_the_end_are_removed(self, filled, remaining):
        before = filled.messages()
        filled.truncate(remaining)
        assert filled.messages() == before[:remaining] == filled.load()["messages"]
        assert [one.status for one in filled.turns()] == ["ok", "ok", "edit"]
        assert filled.turns()[-1].created_at == pytest.approx(time.time(), abs=60)

    def test_to_its_length_changes_nothing(self, filled):
        filled.truncate(9)
        assert filled.info().version == 2

    @pytest.mark.parametrize(("split", "nearest"), [(2, 1), (6, 5), (7, 8)])
    def test_a_call_is_not_separated_from_its_result(self, filled, split, nearest):
        with pytest.raises(
            SessionError, match=f"'alice': {split} messages would separate .* is {nearest}$"
        ):
            filled.truncate(split)
        with pytest.raises(SessionError, match="would separate"):
            filled.fork("bob", split)
        assert filled.info().version == 2
        assert not filled.store.session("bob").exists

    @pytest.mark.parametrize("wrong", [-1, 10])
    def test_a_wrong_number_is_refused(self, filled, wrong):
        with pytest.raises(SessionError, match=f"expected 0 to 9 messages to remain, got {wrong}"):
            filled.truncate(wrong)

    def test_a_session_that_does_not_exist_is_an_error(self, session):
        for act in (
            lambda: session.truncate(0),
            lambda: session.fork("b"),
            lambda: [*session.export()],
        ):
            with pytest.raises(SessionError, match="there is no session 'alice'"):
                act()

    def test_a_pause_is_over(self, session):
        run(session, user(), answer(), status="paused", pause=PAUSE)
        session.truncate(1)
        assert session.pause() is None
        assert session.load()["pause_id"] is None

    def test_the_summary_of_what_remains_is_kept(self, session):
        run(session, system(), user("1"), answer("1"))
        run(session, user("2"), answer("2"), memo=compacted(3, "first"))
        run(session, user("3"), answer("3"), memo=compacted(4, "second"))  # 2 pinned, 2 covered
        pinned = [system(), summary("second")]
        assert session.load()["messages"] == [*pinned, user("3"), answer("3")]
        assert session.load()["through"] == 5
        session.truncate(6)
        assert session.load()["messages"] == [*pinned, user("3")]
        session.truncate(5)
        assert session.load()["messages"] == pinned
        session.truncate(4)
        loaded = session.load()
        assert loaded["memo"] == compacted(2, "first")
        assert loaded["messages"] == [system(), summary("first"), user("2")]
        session.truncate(2)
        loaded = session.load()
        assert (loaded["memo"], loaded["through"]) == ({}, 0)
        assert loaded["messages"] == [system(), user("1")]

    def test_a_summary_of_messages_that_were_replaced_since_is_not_used_again(self, session):
        run(session, *[user("1"), answer("1"), user("2"), answer("2")], memo=compacted(4, "old"))
        session.truncate(2)
        run(session, user("2b"), answer("2b"), user("3b"), answer("3b"))
        session.truncate(5)
        loaded = session.load()
        assert loaded["memo"] == {}
        assert loaded["messages"][2:] == [user("2b"), answer("2b"), user("3b")]

    def test_a_first_turn_with_a_summary_of_too_much_is_shown_as_a_whole(self, session):
        run(session, user("1"), answer("1"), user("2"), memo=compacted(2))
        session.truncate(1)
        assert session.load()["messages"] == [user("1")]
        assert session.load()["memo"] == {}


class TestFork:
    def test_a_fork_has_all_turns_and_attachments_and_goes_its_own_way(self, session):
        run(session, with_image(), answer("1"))
        run(session, user("2"), answer("2"), status="paused", pause=PAUSE)
        fork = session.fork("bob")
        assert fork.turns() == session.turns()
        assert fork.attachments() == session.attachments() == [image()]
        assert fork.pause() == PAUSE
        before = session.messages()
        run(fork, user("3"), answer("3"))
        assert session.messages() == before
        assert len(fork.messages()) == 6
        session.delete()
        assert fork.messages()[:4] == before

    def test_a_fork_may_have_the_first_messages_only(self, session):
        run(session, user("1"), answer("1"))
        run(session, user("2"), answer("2"))
        fork = session.fork("bob", 3)
        assert fork.messages() == session.messages()[:3]
        assert [one.status for one in fork.turns()] == ["ok", "ok", "edit"]
        assert session.fork("carl", 4).turns() == session.turns()

    def test_a_fork_has_the_summary_of_what_it_has(self, session):
        run(session, user("1"), answer("1"), user("2"), answer("2"), memo=compacted(2, "first"))
        run(session, user("3"), answer("3"), memo=compacted(3, "second"))
        assert session.fork("bob").load() == session.load()
        fork = session.fork("carl", 3)
        assert fork.load()["messages"] == [summary("first"), user("2")]
        run(fork, answer("2b"))
        assert fork.messages() == [user("1"), answer("1"), user("2"), answer("2b")]
        assert session.load()["messages"] == [summary("second"), user("3"), answer("3")]
        assert session.fork("dora", 1).load()["messages"] == [user("1")]

    def test_another_session_is_not_overwritten(self, session):
        run(session, user(), answer())
        with pytest.raises(SessionError, match="there is a session 'alice' already"):
            session.fork("alice")
        assert len(session.turns()) == 1


def test_a_deleted_session_does_not_exist(session):
    run(session, user(), answer())
    assert session.delete() is True
    assert not session.exists
    assert session.delete() is False


def test_a_change_that_another_was_faster_with_is_a_conflict(session):
    run(session, user("1"), answer("1"))
    loaded = session.load()
    run(session, user("2"), answer("2"))
    with pytest.raises(SessionConflictError, match="load it again") as caught:
        session.save(loaded, ended([*loaded["messages"], user("2b")]))
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert session.messages() == [user("1"), answer("1"), user("2"), answer("2")]


def test_a_session_shows_its_store_and_its_id(tmp_path):
    store = SQLiteSessions(tmp_path / "a.db")
    assert repr(store.session("alice")) == f"Session({store!r}, 'alice')"
