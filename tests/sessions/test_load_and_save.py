"""What a run loads from a session, and the turn that it stores."""

import pytest
from tests.sessions.conversing import (
    Counting,
    answer,
    compacted,
    ended,
    exchange,
    image,
    run,
    system,
    user,
    with_image,
)

from treadle.sessions import Session, SessionError, StoredTurn

EMPTY = {"version": 0, "messages": [], "memo": {}, "through": 0, "pinned": 0, "pause_id": None}
PAUSE = {"pause_id": "p1"}


@pytest.fixture
def session(store):
    return store.session("alice")


class TestWithoutSummary:
    def test_a_new_session_is_empty(self, session):
        assert session.load() == EMPTY

    def test_a_turn_has_what_was_added_and_what_the_run_says(self, session):
        run(session, user("1"), answer("1"))
        run(
            session,
            user("2"),
            status="error",
            stop_reason="llm_error",
            run_id="r2",
            iterations=3,
            tool_calls_count=4,
            error="no answer",
            at=7.5,
        )
        assert session.turns()[1] == StoredTurn(
            start=2,
            messages=[user("2")],
            status="error",
            stop_reason="llm_error",
            created_at=7.5,
            run_id="r2",
            iterations=3,
            tool_calls_count=4,
            usage={"input_tokens": 5},
            error="no answer",
        )
        assert session.load() == EMPTY | {
            "version": 2,
            "messages": [user("1"), answer("1"), user("2")],
        }

    def test_a_message_that_the_run_changed_is_stored_again_with_all_after_it(self, session):
        run(session, user("1"), answer("1"), user("2"), answer("2"))
        loaded = session.load()
        history = [user("1"), answer("changed"), user("2"), answer("2")]
        session.save(loaded, ended(history))
        assert (session.turns()[1].start, len(session.turns()[1].messages)) == (1, 3)
        assert session.messages() == history == session.load()["messages"]

    def test_messages_that_the_run_took_out_are_gone(self, session):
        run(session, user("1"), answer("1"), user("2"), answer("2"))
        session.save(session.load(), ended([user("1"), answer("1")]))
        assert session.messages() == [user("1"), answer("1")]

    def test_a_run_that_changed_nothing_stores_nothing(self, session):
        run(session, user("1"), answer("1"))
        run(session, memo={"other": 1}, status="error")
        assert session.info().version == 1

    def test_an_empty_run_of_a_new_session_does_not_create_it(self, session):
        run(session)
        assert not session.exists

    def test_a_pause_is_stored_and_the_continued_run_replaces_its_messages(self, session):
        waiting = exchange("a", "Not run yet")
        run(session, user("1"), *waiting, status="paused", pause=PAUSE)
        loaded = session.load()
        assert loaded["pause_id"] == "p1"
        history = [user("1"), *exchange("a", "noon"), answer("It is noon.")]
        session.save(loaded, ended(history))
        assert session.messages() == history
        assert session.turns()[1].start == 2
        assert (session.pause(), session.load()["pause_id"]) == (None, None)

    def test_a_pause_without_new_messages_is_stored(self, session):
        run(session, user("1"), answer("1"))
        run(session, status="paused", pause=PAUSE)
        assert session.pause() == PAUSE

    def test_a_resumed_run_that_added_nothing_ends_the_pause(self, session):
        run(session, user("1"), answer("1"), status="paused", pause=PAUSE)
        run(session, status="error", error="it failed")
        assert session.pause() is None
        assert session.turns()[1].error == "it failed"


class TestWithSummary:
    @pytest.fixture
    def filled(self, session):
        """Messages 0 to 7; the summary covers the first 4, with one system message and one image."""
        run(session, system(), with_image("cat"), answer("1"))
        run(session, user("2"), answer("2"))
        run(session, user("3"), memo=compacted(4, attachments=[image("cat")]))
        run(session, answer("3"))
        return session

    def test_a_run_sees_the_system_messages_and_what_came_after_the_summary(self, filled):
        assert filled.load() == {
            "version": 4,
            "messages": [system(), answer("2"), user("3"), answer("3")],
            "memo": compacted(1, attachments=[image("cat")]),
            "through": 4,
            "pinned": 1,
            "pause_id": None,
        }
        assert len(filled.messages()) == 7

    def test_what_is_added_comes_after_the_whole_past(self, filled):
        run(filled, user("4"), answer("4"))
        assert filled.turns()[-1].start == 7
        assert filled.messages()[-3:] == [answer("3"), user("4"), answer("4")]

    def test_a_later_summary_covers_more_of_the_session(self, filled):
        run(filled, user("4"), system("Be kind."), answer("4"), memo=compacted(6, "more"))
        loaded = filled.load()
        assert loaded["messages"] == [system(), system("Be kind."), answer("4")]
        assert (loaded["through"], loaded["pinned"]) == (9, 2)
        assert loaded["memo"] == compacted(2, "more")
        assert len(filled.messages()) == 10

    def test_a_new_summary_alone_is_stored(self, filled):
        run(filled, memo=compacted(3, "more"))
        assert filled.info().version == 5
        assert filled.load()["messages"] == [system(), answer("3")]
        assert filled.turns()[-1].messages == []

    def test_the_same_summary_is_not_stored_again(self, filled):
        run(filled)
        assert filled.info().version == 4

    def test_other_entries_of_the_memo_are_kept_by_their_names(self, filled):
        memo = filled.load()["memo"]
        run(filled, user("4"), memo=memo | {"session.facts": [1], "cache": 2})
        assert filled.load()["memo"] == memo | {"session.facts": [1]}

    def test_a_memo_without_a_summary_leaves_the_view_as_it_was(self, filled):
        run(filled, user("4"), memo={"session.facts": [1]})
        loaded = filled.load()
        assert (loaded["through"], loaded["pinned"]) == (4, 1)
        assert loaded["memo"] == {"session.facts": [1]}
        assert loaded["messages"][-1] == user("4")

    def test_a_seen_message_that_the_run_changed_is_replaced_in_the_session(self, filled):
        loaded = filled.load()
        history = [system(), answer("2"), user("changed"), answer("3")]
        filled.save(loaded, ended(history, loaded["memo"]))
        assert filled.turns()[-1].start == 5
        assert filled.load()["messages"] == history
        assert filled.messages()[:5] == [
            system(),
            with_image("cat"),
            answer("1"),
            user("2"),
            answer("2"),
        ]

    @pytest.mark.parametrize(
        "history",
        [
            [system("Other."), answer("2"), user("3"), answer("3"), user("4")],
            [answer("2"), user("3"), answer("3"), user("4")],
            [system(), system("New."), answer("2"), user("4")],
        ],
    )
    def test_a_run_that_changes_system_messages_gets_back_what_it_left(self, filled, history):
        loaded = filled.load()
        covered = sum(message["role"] == "system" for message in history)
        filled.save(loaded, ended(history, compacted(covered)))
        assert filled.load()["messages"] == history
        assert filled.messages()[:4] == [system(), with_image("cat"), answer("1"), user("2")]

    def test_only_the_turns_that_the_view_shows_are_read(self, session):
        read = {}
        for total in (20, 200):
            while (session.info() or EMPTY_INFO).version < total:
                run(session, user("Hi"), answer("Hello"))
            loaded = session.load()
            covered = len(loaded["messages"]) - 10
            run(session, user("Hi"), answer("Hello"), memo=compacted(covered))
            counting = Counting(session.store)
            loaded = Session(counting, "alice").load()
            assert len(loaded["messages"]) == 12
            read[total] = counting.turns_read
        assert read[20] == read[200] <= 12  # 6 turns have the messages

    def test_an_attachment_that_the_store_has_lost_is_an_error(self, filled):
        class Lossy(Counting):
            def attachments(self, session_id, digests=None):
                return {}

        with pytest.raises(SessionError, match="attachments are missing from the store"):
            Session(Lossy(filled.store), "alice").load()


class EMPTY_INFO:
    version = 0


class TestAttachments:
    def test_those_of_new_messages_are_stored_with_the_turn(self, session):
        run(session, with_image("cat"), answer())
        run(session, with_image("dog"), answer())
        assert session.attachments() == [image("cat"), image("dog")]

    def test_those_of_a_summary_are_stored_also_if_no_message_has_them(self, session):
        run(session, user(), answer(), memo=compacted(1, attachments=[image("cow")]))
        assert session.attachments() == [image("cow")]
        assert session.load()["memo"]["session.compaction"]["attachments"] == [image("cow")]

    def test_those_that_are_known_are_not_sent_to_the_store_again(self, session):
        sent = []

        class Watched(Counting):
            def append(self, session_id, version, turns, attachments):
                sent.append(list(attachments.values()))
                self._store.append(session_id, version, turns, attachments)

        watched = Session(Watched(session.store), "alice")
        run(watched, with_image("cat"), answer())
        run(watched, user(), memo=compacted(2, attachments=[image("cat")]))
        run(watched, answer(), user(), answer())
        run(watched, user())
        assert sent == [[image("cat")], [image("cat")], [], []]
