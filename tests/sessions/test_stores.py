"""What every store does."""

import os
import threading

import pytest
from tests.sessions.conversing import answer, image, turn, user

from treadle import OptionError
from treadle.sessions import SessionConflictError, SessionError, StoredTurn

WHOLE = StoredTurn(
    start=0,
    messages=[user("Grüße \ud83d \x00 \u2028"), answer("x" * 100_000)],
    status="paused",
    stop_reason="paused",
    created_at=12.25,
    run_id="r1",
    iterations=2,
    tool_calls_count=3,
    usage={"input_tokens": 1, "cost": 0.25},
    error="it failed",
    view={"through": 0, "pinned": [], "memo": {"session.x": [1, None]}},
    pause={"pause_id": "p"},
)


class TestTurns:
    def test_a_turn_is_read_as_it_was_stored(self, store):
        store.append("s", 0, [WHOLE], {})
        assert store.turns("s") == [WHOLE]

    def test_the_latest_turn_comes_first(self, store):
        turns = [turn(number, user(str(number))) for number in range(5)]
        store.append("s", 0, turns[:2], {})
        store.append("s", 2, turns[2:], {})
        assert store.turns("s") == turns[::-1]

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"limit": 2}, [4, 3]),
            ({"limit": 9}, [4, 3, 2, 1, 0]),
            ({"limit": 0}, []),
            ({"before": 3}, [2, 1, 0]),
            ({"before": 3, "limit": 1}, [2]),
            ({"before": 3, "limit": 9}, [2, 1, 0]),
            ({"before": 9, "limit": 2}, []),
            ({"before": 0}, []),
        ],
    )
    def test_some_turns_are_read_by_their_number(self, store, options, expected):
        store.append("s", 0, [turn(number, user()) for number in range(5)], {})
        found = [one.start for one in store.turns("s", **options)]
        if options == {
            "before": 9,
            "limit": 2,
        }:  # turns 7 and 8, which there are not, or the latest ones
            assert found in ([], [4, 3])
        else:
            assert found == expected

    def test_there_are_none_of_a_session_that_does_not_exist(self, store):
        store.append("other", 0, [turn()], {})
        assert store.turns("s") == []
        assert store.info("s") is None
        assert store.attachments("s") == {}

    def test_a_turn_that_is_no_json_data_is_refused_and_changes_nothing(self, store):
        with pytest.raises(SessionError, match="session 's': a turn is not JSON data"):
            store.append("s", 0, [turn(0, user()), turn(1, {"role": "user", "content": {1}})], {})
        assert store.info("s") is None

    def test_at_least_one_turn_is_stored(self, store):
        with pytest.raises(SessionError, match="expected at least one turn"):
            store.append("s", 0, [], {})
        assert store.info("s") is None

    def test_an_invalid_id_is_refused(self, store):
        for wrong in ("", "a\n", "x" * 201, 5, "\ud800"):
            with pytest.raises(SessionError, match="the id of a session: expected 1 to 200"):
                store.append(wrong, 0, [turn()], {})

    def test_an_id_may_have_any_other_character(self, store):
        names = ["a b", "a:b", "a*", "a'b\"", "{a}", "æ%_?", "👩‍🚀", "x" * 200]
        for name in names:
            store.append(name, 0, [turn(0, user(name))], {})
        assert [store.turns(name)[0].messages[0]["content"] for name in names] == names
        assert {info.id for info in store.sessions()} == {*names}


class TestVersions:
    def test_a_turn_is_appended_to_the_version_that_was_read_only(self, store):
        store.append("s", 0, [turn(0, user("first"))], {})
        for version in (0, 2, 9):
            with pytest.raises(SessionConflictError, match=f"expected {version} turns, found 1"):
                store.append("s", version, [turn(1, user("second"))], {"d": image()})
        assert [one.messages[0]["content"] for one in store.turns("s")] == ["first"]
        assert store.attachments("s") == {}

    def test_a_session_that_does_not_exist_has_no_turns(self, store):
        with pytest.raises(SessionConflictError) as caught:
            store.append("s", 1, [turn(0, user())], {})
        error = caught.value
        assert (error.session_id, error.expected, error.found) == ("s", 1, 0)
        assert store.info("s") is None

    def test_the_facts_are_those_of_the_turns(self, store):
        store.append("s", 0, [turn(0, user(), answer()), turn(2, user())], {})
        first = store.info("s")
        assert (first.id, first.version, first.messages) == ("s", 2, 3)
        assert first.created_at == first.updated_at
        store.append("s", 2, [turn(1)], {})
        second = store.info("s")
        assert (second.version, second.messages) == (3, 1)
        assert second.created_at == first.created_at < second.updated_at
        assert second.incarnation == first.incarnation

    def test_a_session_of_the_same_id_is_known_to_be_another_one(self, store):
        found = set()
        for _ in range(2):
            store.append("s", 0, [turn()], {})
            found.add(store.info("s").incarnation)
            store.delete("s")
        assert len(found) == 2


class TestAttachments:
    def test_each_is_stored_once_in_the_order_in_which_it_came(self, store):
        many = {f"d{number}": image(str(number)) for number in range(300)}
        store.append("s", 0, [turn()], {"z": image("z"), "b": image("b")})
        store.append("s", 1, [turn()], {"b": image("other"), "a": image("a")} | many)
        expected = {"z": image("z"), "b": image("b"), "a": image("a")} | many
        assert store.attachments("s") == expected
        assert [*store.attachments("s")] == [*expected]

    def test_some_are_read_by_their_digests(self, store):
        store.append("s", 0, [turn()], {name: image(name) for name in "abc"})
        assert [*store.attachments("s", ["c", "a", "missing"])] == ["a", "c"]
        assert store.attachments("s", []) == {}

    def test_each_session_has_its_own(self, store):
        store.append("s", 0, [turn()], {"d": image("s")})
        store.append("t", 0, [turn()], {"d": image("t")})
        assert store.attachments("s") == {"d": image("s")}


class TestList:
    @pytest.fixture
    def filled(self, store):
        for name in ("a1", "b1", "a2", "b2", "a%"):
            store.append(name, 0, [turn(0, user())], {})
        store.append("a1", 1, [turn(1, answer())], {})
        return store

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, ["a1", "a%", "b2", "a2", "b1"]),
            ({"limit": 2}, ["a1", "a%"]),
            ({"limit": 0}, []),
            ({"prefix": "a"}, ["a1", "a%", "a2"]),
            ({"prefix": "b", "limit": 1}, ["b2"]),
            ({"prefix": "a%"}, ["a%"]),
            ({"prefix": "A"}, []),
        ],
    )
    def test_the_one_updated_last_comes_first(self, filled, options, expected):
        found = filled.sessions(**options)
        assert [info.id for info in found] == expected
        assert found == [filled.info(info.id) for info in found]

    def test_only_those_updated_after_a_time(self, filled):
        after = filled.info("b2").updated_at
        assert [info.id for info in filled.sessions(updated_after=after)] == ["a1", "a%"]

    def test_an_empty_store_has_none(self, store):
        assert store.sessions() == []


class TestDeletion:
    def test_nothing_remains(self, store):
        store.append("s", 0, [turn(0, user())], {"d": image()})
        store.append("t", 0, [turn(0, answer())], {})
        assert store.delete("s") is True
        assert (store.info("s"), store.turns("s"), store.attachments("s")) == (None, [], {})
        assert [info.id for info in store.sessions()] == ["t"]
        assert store.turns("t") == [turn(0, answer())]
        store.append("s", 0, [turn(0, answer())], {})
        assert store.turns("s") == [turn(0, answer())]
        assert store.attachments("s") == {}

    @pytest.mark.parametrize("is_empty", [True, False])
    def test_a_session_that_does_not_exist_is_not_deleted(self, store, is_empty):
        if not is_empty:
            store.append("t", 0, [turn()], {})
        assert store.delete("s") is False
        assert store.delete("s", 0) is False
        with pytest.raises(SessionConflictError, match="expected 2 turns, found 0"):
            store.delete("s", 2)

    def test_a_version_that_was_appended_to_is_not_deleted(self, store):
        store.append("s", 0, [turn(), turn()], {})
        with pytest.raises(SessionConflictError, match="expected 1 turns, found 2"):
            store.delete("s", 1)
        assert store.info("s").version == 2
        assert store.delete("s", 2) is True


class TestRetention:
    @pytest.fixture
    def filled(self, store):
        for name in ("a1", "b1", "a2", "b2"):
            store.append(name, 0, [turn(0, user())], {})
        return store

    def test_sessions_that_were_not_updated_are_deleted(self, filled):
        before = filled.info("a2").updated_at
        assert filled.prune(updated_before=before) == ["b1", "a1"]
        assert [info.id for info in filled.sessions()] == ["b2", "a2"]

    def test_the_latest_sessions_are_kept(self, filled):
        assert filled.prune(max_sessions=1, prefix="a") == ["a1"]
        assert filled.prune(max_sessions=3) == []
        assert filled.prune(max_sessions=0) == ["b2", "a2", "b1"]

    def test_either_limit_is_enough(self, filled):
        before = filled.info("b1").updated_at
        assert filled.prune(updated_before=before, max_sessions=2) == ["b1", "a1"]

    def test_a_session_that_gets_a_turn_meanwhile_is_kept(self, filled):
        class Busy(type(filled)):
            def sessions(self, **options):
                found = super().sessions(**options)
                self.append("a1", 1, [turn(1, answer())], {})
                return found

        filled.__class__ = Busy
        assert filled.prune(max_sessions=2) == ["b1"]
        assert filled.info("a1").version == 2

    @pytest.mark.parametrize("options", [{}, {"prefix": "a"}, {"max_sessions": -1}])
    def test_wrong_options_are_refused(self, filled, options):
        with pytest.raises(OptionError, match="prune: "):
            filled.prune(**options)
        assert len(filled.sessions()) == 4


class TestSharing:
    def test_threads_share_a_store_and_a_session(self, store):
        count = 10

        def work(name):
            for number in range(count):
                while True:
                    info = store.info("s")
                    version = 0 if info is None else info.version
                    try:
                        store.append("s", version, [turn(version, user(f"{name}{number}"))], {})
                        break
                    except SessionConflictError:
                        continue

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [one.messages[0]["content"] for one in reversed(store.turns("s"))]
        assert sorted(found) == sorted(
            f"{name}{number}" for name in "abcd" for number in range(count)
        )
        for name in "abcd":  # each thread's own turns are in order
            assert [text for text in found if text.startswith(name)] == [
                f"{name}{number}" for number in range(count)
            ]

    def test_a_fork_uses_the_store_of_its_parent(self, store):
        store.append("s", 0, [turn(0, user("parent"))], {})
        child = os.fork()
        if child == 0:
            try:
                store.append("s", 1, [turn(1, user("child"))], {})
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        store.append("s", 2, [turn(2, user("parent again"))], {})
        assert [one.messages[0]["content"] for one in store.turns("s")] == [
            "parent again",
            "child",
            "parent",
        ]

    def test_another_object_sees_the_same_sessions(self, store, request, tmp_path):
        store.append("s", 0, [WHOLE], {})
        others = {
            "SQLiteSessions": lambda: type(store)(tmp_path / "sessions.db"),
            "RedisSessions": lambda: type(store)(request.getfixturevalue("redis_url")),
        }
        other = others[type(store).__name__]()
        assert other.turns("s") == [WHOLE]
        assert other.info("s") == store.info("s")
