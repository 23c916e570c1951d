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
    summary,
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

    def test_a_run_that_changed_nothing_stores_nothing(self, session):
        run(session, user("1"), answer("1"))
        run(session, memo={"other": 1}, status="error")
        assert session.info().version == 1

    def test_an_empty_run_of_a_new_session_does_not_create_it(self, session):
        run(session)
        assert not session.exists

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
    CATS = summary("They spoke of cats.", image("cat"))
    """The summary of the filled session."""

    @pytest.fixture
    def filled(self, session):
        """Messages 0 to 6; the summary covers the first 4, with one system message and one image."""
        run(session, system(), with_image("cat"), answer("1"))
        run(session, user("2"), answer("2"))
        run(session, user("3"), memo=compacted(4, attachments=[image("cat")]))
        run(session, answer("3"))
        return session

    def test_a_run_sees_the_system_messages_the_summary_and_what_came_after_it(self, filled):
        assert filled.load() == {
            "version": 4,
            "messages": [system(), self.CATS, answer("2"), user("3"), answer("3")],
            "memo": compacted(2, attachments=[image("cat")]),
            "through": 4,
            "pinned": 2,
            "pause_id": None,
        }
        assert len(filled.messages()) == 7

    def test_an_attachment_that_is_still_seen_is_not_repeated_by_the_summary(self, session):
        memo = compacted(1, attachments=[image("cat"), image("dog")])
        memo["session.compaction"]["kept"] = 2
        run(session, user("1"), answer("1"), with_image("cat"), answer("2"), memo=memo)
        run(session, with_image("dog"), answer("3"))
        assert session.load()["messages"][0] == summary("They spoke of cats.", image("dog"))

    def test_a_new_summary_alone_is_stored(self, filled):
        run(filled, memo=compacted(4, "more"))
        assert filled.info().version == 5
        assert filled.load()["messages"] == [system(), summary("more"), answer("3")]
        assert filled.turns()[-1].messages == []

    def test_the_same_summary_is_not_stored_again(self, filled):
        run(filled)
        run(filled, tokens=100)
        assert filled.info().version == 4

    def test_other_entries_of_the_memo_are_kept_by_their_names(self, filled):
        memo = filled.load()["memo"]
        run(filled, user("4"), memo=memo | {"session.facts": [1], "cache": 2})
        assert filled.load()["memo"] == memo | {"session.facts": [1]}

    @pytest.mark.parametrize(
        "memo",
        [
            pytest.param({}, id="a stage removed it from the memo"),
            pytest.param({"session.compaction": {"covered": 0}}, id="it no longer fits"),
        ],
    )
    def test_a_state_that_a_run_lost_stays_while_its_summary_is_in_the_history(self, filled, memo):
        before = filled.load()
        run(filled, user("4"), memo=memo | {"session.facts": [1]})
        after = filled.load()
        assert after["memo"] == before["memo"] | {"session.facts": [1]}
        assert after["messages"] == [*before["messages"], user("4")]
        assert (after["through"], after["pinned"]) == (4, 2)

    def test_a_state_that_covers_nothing_makes_no_summary(self, session):
        """The strategies of compaction alone make messages shorter."""
        state = {"covered": 0, "shortened": 2, "summary": ""}
        run(session, user("1"), answer("1"), memo={"session.compaction": state})
        assert session.load() == EMPTY | {
            "version": 1,
            "messages": [user("1"), answer("1")],
            "memo": {"session.compaction": {**state, "attachments": []}},
        }

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
            assert len(loaded["messages"]) == 13  # with the summary
            read[total] = counting.turns_read
        assert read[20] == read[200] <= 12  # 6 turns have the messages

    def test_an_attachment_that_the_store_has_lost_is_an_error(self, filled):
        class Lossy(Counting):
            def attachments(self, session_id, digests=None):
                return {}

        with pytest.raises(SessionError, match="attachments are missing from the store"):
            Session(Lossy(filled.store), "alice").load()


class TestAChangedHistory:
    """What stages make of the messages that a run sees, where the older ones are summarized."""

    PAST = (system(), user("1"), answer("1"), user("2"))
    """The messages that the summary covers."""
    CATS = summary("They spoke of cats.")

    @pytest.fixture
    def filled(self, session):
        run(session, *self.PAST, answer("2"), user("3"), memo=compacted(4))
        run(session, answer("3"))
        return session

    def left(self, session, *history, **changes):
        """A run, without compaction unless it has another memo, leaves a history."""
        loaded = session.load()
        memo = changes.pop("memo", loaded["memo"])
        session.save(loaded, ended(list(history), memo, **changes))
        return session.load()

    @pytest.mark.parametrize("is_compacting", [True, False])
    @pytest.mark.parametrize(
        ("before", "start", "stored"),
        [
            ([system("Other.")], 4, [system("Other."), answer("2"), user("4")]),
            ([], 4, [answer("2"), user("4")]),
            ([system(), system("New.")], 4, [system("New."), answer("2"), user("4")]),
            ([system()], 5, [user("4")]),
        ],
    )
    def test_the_system_messages_are_those_that_the_run_left(
        self, filled, before, start, stored, is_compacting
    ):
        """What the run put in place of the earlier ones is stored after what the summary covers."""
        memo = compacted(len(before) + 1 if is_compacting else 2)
        loaded = self.left(filled, *before, self.CATS, answer("2"), user("4"), memo=memo)
        assert loaded["messages"] == [*before, self.CATS, answer("2"), user("4")]
        assert loaded["pinned"] == len(before) + 1
        assert filled.turns()[-1].start == start
        assert filled.turns()[-1].messages == stored
        assert filled.messages()[:4] == list(self.PAST)

    def test_a_message_before_the_summary_is_stored_and_counts_as_covered(self, filled):
        """A stage that begins each history with it adds it to the next one itself."""
        today = user("It is Monday.")
        after = [answer("2"), user("3"), answer("3")]
        loaded = self.left(filled, today, system(), self.CATS, *after)
        assert loaded["messages"] == [system(), self.CATS, *after]
        assert filled.messages() == [*self.PAST, today, system(), *after]

    def test_the_calls_in_the_text_of_an_edited_summary_are_not_listed_again(self, session):
        memo = compacted(1, "Notes.")
        calls = {"calls": [["f", "clock({})", "noon"]], "unlisted": 3}
        memo["session.compaction"] |= calls
        run(session, user("1"), answer("1"), memo=memo)
        [shown, reply] = session.load()["messages"]
        assert "clock({}): noon\n(3 earlier" in shown["content"]
        edited = {**shown, "content": shown["content"].replace("noon", "****")}
        assert self.left(session, edited, reply)["messages"] == [edited, reply]

    def test_a_summary_that_was_replaced_by_another_message_is_gone(self, filled):
        history = [system(), user("My own notes."), answer("2"), user("3"), answer("3")]
        loaded = self.left(filled, *history)
        assert loaded["messages"] == history
        assert (loaded["memo"], loaded["pinned"]) == ({}, 1)
        assert filled.messages() == [*self.PAST, *history[1:]]

    def test_after_that_shortened_messages_make_no_summary(self, filled):
        self.left(filled, system(), user("4"))
        state = {"covered": 0, "shortened": 1, "summary": ""}
        loaded = self.left(filled, system(), user("4"), memo={"session.compaction": state})
        assert loaded["messages"] == [system(), user("4")]
        assert loaded["memo"]["session.compaction"]["covered"] == 0

    def test_a_summary_that_was_removed_before_compaction_is_still_shown(self, filled):
        """`compact_history` finds the first message that is not covered, and shows the summary before it."""
        history = [system(), answer("2"), user("3"), answer("3")]
        loaded = self.left(filled, *history, memo=compacted(1))
        assert loaded["messages"] == [system(), self.CATS, *history[1:]]
        assert filled.messages() == [*self.PAST, *history[1:]]

    def test_a_message_of_the_user_that_looks_like_a_summary_is_stored(self, filled):
        """Such as one of a history that was compacted elsewhere."""
        imported = summary("From elsewhere.")
        run(filled, imported, answer("4"))
        assert filled.messages()[-2:] == [imported, answer("4")]
        history = [system(), answer("2"), imported, answer("4")]
        assert self.left(filled, *history)["messages"] == history


class TestTokens:
    """The next turn starts with the tokens of the last one, as the provider counted them."""

    def test_are_those_of_all_messages_that_a_run_sees(self, session):
        run(session, user("1"), answer("1"), tokens=70)
        assert session.load()["memo"] == {
            "compaction": {"tokens": 70, "upto": 2, "documents": False}
        }
        run(session, with_image(), answer("2"), memo=compacted(1), tokens=80)
        facts = {"tokens": 80, "upto": 4, "documents": True}  # with the summary
        assert session.load()["memo"]["compaction"] == facts

    def test_are_not_known_after_a_turn_without_them(self, session):
        run(session, user("1"), answer("1"), tokens=70)
        run(session, user("2"), tokens=None)
        assert session.load()["memo"] == {}

    def test_are_not_known_after_messages_were_removed(self, session):
        run(session, user("1"), answer("1"), memo=compacted(1), tokens=70)
        session.truncate(1)
        assert session.load()["memo"] == compacted(1)

    def test_are_copied_by_a_fork(self, session):
        run(session, user("1"), answer("1"), memo=compacted(1), tokens=70)
        assert session.fork("bob").load() == session.load()
        assert "compaction" not in session.fork("carl", 1).load()["memo"]


class TestAPauseAfterACompaction:
    """The resumed run has its whole history again, so that is what is loaded; its end has the summary."""

    def test_keeps_what_other_stages_remember(self, session):
        memo = compacted(1) | {"session.facts": [1]}
        run(session, user("1"), *exchange(), memo=memo, status="paused", pause=PAUSE)
        assert session.load()["memo"] == {"session.facts": [1]}


class EMPTY_INFO:
    version = 0


class TestAttachments:
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
