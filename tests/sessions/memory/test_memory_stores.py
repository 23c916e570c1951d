"""The stores of facts: what is atomic, what is merged, what is retracted, and the leases."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from treadle.errors import OptionError
from treadle.sessions.memory import (
    Cursor,
    Fact,
    MemoryStoreError,
    RedisMemories,
    Source,
    SQLiteMemories,
)

A1, A2, A3 = Cursor("a", 1, 2), Cursor("a", 2, 4), Cursor("a", 3, 6)


def fact(text, session="s", start=0, stop=2, at=1.0, scope="ann"):
    return Fact(scope, text, (Source(session, start, stop, at),))


def test_facts_are_stored_with_the_cursor(memories):
    assert memories.facts("ann") == []
    assert memories.cursors(["s"]) == {}
    given = [fact("Likes tea."), fact("Lives in Oslo.")]
    assert memories.commit("s", None, A1, facts=given)
    assert memories.facts("ann") == given
    assert memories.cursors(["s", "other"]) == {"s": A1}
    assert memories.facts("bob") == []


def test_the_facts_that_were_learned_last_are_read_alone(memories):
    """A fact is as old as its first source; one that was forgotten or retracted does not count."""
    given = [fact(f"Fact {n}.", start=2 * n, stop=2 * n + 2, at=float(n)) for n in range(6)]
    memories.commit("s", None, A1, facts=given)
    memories.commit("t", None, A1, facts=[fact("fact 0", "t", at=9.0)])

    def latest(limit):
        return [one.text for one in memories.facts("ann", limit=limit)]

    assert latest(2) == ["Fact 4.", "Fact 5."]
    assert latest(0) == []
    assert memories.facts("ann", limit=9) == memories.facts("ann")
    memories.forget("ann", [given[5].id])
    assert latest(2) == ["Fact 3.", "Fact 4."]
    memories.commit("s", A1, A2, retract_from=8)
    assert latest(2) == ["Fact 2.", "Fact 3."]
    assert len(memories.facts("ann", limit=1)[0].sources) == 1
    memories.forget_session("s")
    assert [len(one.sources) for one in memories.facts("ann", limit=2)] == [1]
    assert memories.facts("bob", limit=2) == []


def test_nothing_is_stored_if_the_cursor_is_elsewhere(memories):
    assert memories.commit("s", None, A1, facts=[fact("Likes tea.")])
    for wrong in (None, A2, Cursor("b", 1, 2)):
        assert not memories.commit("s", wrong, A3, retract_from=0, facts=[fact("Likes rum.")])
    assert not memories.commit("t", A1, A2, facts=[fact("Likes rum.", "t")])
    assert [one.text for one in memories.facts("ann")] == ["Likes tea."]
    assert memories.cursors(["s", "t"]) == {"s": A1}


def test_the_same_fact_in_other_letters_is_one_fact_with_several_sources(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea.", at=2.0)])
    memories.commit("t", None, A1, facts=[fact("likes  TEA", "t", at=3.0)])
    [found] = memories.facts("ann")
    assert found.text == "Likes tea."
    assert [source.session_id for source in found.sources] == ["s", "t"]
    assert found.created_at == 2.0


def test_the_same_fact_twice_in_one_commit_is_one_fact(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea."), fact("likes tea")])
    [found] = memories.facts("ann")
    assert found.text == "Likes tea."


def test_the_same_fact_of_two_scopes_is_two_facts(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea."), fact("Likes tea.", scope="bob")])
    assert len(memories.facts("ann")) == len(memories.facts("bob")) == 1


def test_retracting_removes_what_ends_after_a_message(memories):
    memories.commit("s", None, A1, facts=[fact("One.", stop=2)])
    memories.commit("s", A1, A2, facts=[fact("Two.", start=2, stop=4)])
    memories.commit("s", A2, A3, facts=[fact("Three.", start=4, stop=6)])
    memories.commit("s", A3, Cursor("a", 4, 2), retract_from=2)
    assert [one.text for one in memories.facts("ann")] == ["One."]
    assert memories.sources("s") == [Source("s", 0, 2, 1.0)]


def test_retracting_keeps_a_fact_that_another_session_supports(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea."), fact("Likes rum.")])
    memories.commit("t", None, A1, facts=[fact("Likes tea.", "t")])
    memories.commit("s", A1, A2, retract_from=0)
    assert [(one.text, one.sources) for one in memories.facts("ann")] == [
        ("Likes tea.", (Source("t", 0, 2, 1.0),))
    ]
    memories.commit("t", A1, A2, retract_from=0)
    assert memories.facts("ann") == []


def test_retracting_keeps_a_fact_that_an_earlier_message_supports(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea.", stop=2)])
    memories.commit("s", A1, A2, facts=[fact("Likes tea.", start=2, stop=4)])
    memories.commit("s", A2, Cursor("a", 3, 2), retract_from=2)
    [found] = memories.facts("ann")
    assert found.sources == (Source("s", 0, 2, 1.0),)
    memories.commit("s", Cursor("a", 3, 2), Cursor("b", 1, 0), retract_from=0)
    assert memories.facts("ann") == []


def test_a_commit_retracts_and_adds_in_one_step(memories):
    memories.commit("s", None, A1, facts=[fact("Likes tea.")])
    memories.commit("s", A1, A2, retract_from=0, facts=[fact("Likes rum.", at=5.0)])
    memories.commit("s", A2, A3, retract_from=0, facts=[fact("Likes rum.", at=9.0)])
    [found] = memories.facts("ann")
    assert (found.text, found.created_at) == ("Likes rum.", 9.0)


def test_facts_are_ordered_by_their_first_source(memories):
    at = {"c": 3.0, "a": 1.0, "b": 2.0}
    facts = [fact(text, start=2 * place, at=at[text]) for place, text in enumerate(at)]
    memories.commit("s", None, A1, facts=facts)
    assert [one.text for one in memories.facts("ann")] == ["a", "b", "c"]


def test_times_and_texts_come_back_exactly(memories):
    given = fact("Zoë's café: 日本 🫖 'quoted' \"twice\" {json}: [1]", at=1785953812.7239471)
    memories.commit("s/é:*", None, A1, facts=[given])
    assert memories.facts("ann") == [given]


def test_facts_can_be_forgotten(memories):
    memories.commit("s", None, A1, facts=[fact("One."), fact("Two."), fact("Three.")])
    one, _, _ = sorted(memories.facts("ann"), key=lambda fact: fact.text)
    assert memories.forget("ann", [one.id, "unknown"]) == 1
    assert sorted(fact.text for fact in memories.facts("ann")) == ["Three.", "Two."]
    assert memories.forget("ann") == 2
    assert memories.facts("ann") == memories.sources("s") == []
    assert memories.forget("ann") == 0
    assert memories.cursors(["s"]) == {"s": A1}
    assert memories.commit("s", A1, A2, retract_from=0)


def test_a_session_can_be_forgotten(memories):
    memories.commit("s", None, A1, facts=[fact("One."), fact("Two.")])
    memories.commit("t", None, A1, facts=[fact("Two.", "t")])
    memories.forget_session("s")
    memories.forget_session("unknown")
    assert [one.text for one in memories.facts("ann")] == ["Two."]
    assert memories.cursors(["s", "t"]) == {"t": A1}


def test_a_lease_belongs_to_one_until_it_is_released(memories):
    token = memories.lease("s", 60)
    assert token
    assert memories.lease("s", 60) is None
    assert memories.lease("t", 60)
    assert memories.renew("s", token, 60)
    assert not memories.renew("s", "another", 60)
    memories.release("s", "another")
    assert memories.lease("s", 60) is None
    memories.release("s", token)
    assert not memories.renew("s", token, 60)
    assert memories.lease("s", 60) not in {None, token}


def test_a_lease_ends_by_itself_unless_it_is_renewed(memories):
    token = memories.lease("s", 1.0)
    time.sleep(0.6)
    assert memories.renew("s", token, 60)
    time.sleep(0.6)
    assert memories.lease("s", 60) is None
    assert memories.renew("s", token, 0.05)
    time.sleep(0.1)
    other = memories.lease("s", 60)
    assert other
    assert not memories.renew("s", token, 60)
    memories.release("s", token)
    assert memories.lease("s", 60) is None


def test_of_many_threads_one_gets_the_lease_and_one_commits(memories):
    barrier = threading.Barrier(8)

    def compete(number):
        barrier.wait()
        token = memories.lease("s", 60)
        facts = [fact(f"By {number}.", at=float(number)), fact("Shared.", at=float(number))]
        return token, memories.commit("s", None, Cursor("a", 1, number), facts=facts)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(compete, range(8)))
    assert sum(token is not None for token, _ in outcomes) == 1
    [winner] = [number for number, (_, is_done) in enumerate(outcomes) if is_done]
    assert sorted(one.text for one in memories.facts("ann")) == [f"By {winner}.", "Shared."]
    assert memories.cursors(["s"]) == {"s": Cursor("a", 1, winner)}


def test_of_many_threads_that_move_a_cursor_at_once_one_does(memories):
    at = None
    for turn in range(20):
        barrier = threading.Barrier(4)

        def move(number, at=at, turn=turn, barrier=barrier):
            barrier.wait()
            return memories.commit("s", at, Cursor("a", turn, number))

        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(move, range(4)))
        assert sum(outcomes) == 1
        at = Cursor("a", turn, outcomes.index(True))
        assert memories.cursors(["s"]) == {"s": at}


def test_sessions_that_share_a_scope_commit_at_once_without_loss(memories):
    def learn(session):
        at = None
        for turn in range(10):
            to = Cursor("a", turn + 1, turn + 1)
            facts = [
                fact(f"{session} {turn}", session, turn, turn + 1),
                fact(f"Shared {turn}", session, turn, turn + 1),
            ]
            assert memories.commit(session, at, to, facts=facts)
            at = to

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(learn, "abcd"))
    found = memories.facts("ann")
    assert len(found) == 50
    shared = [one for one in found if one.text.startswith("Shared")]
    assert {tuple(sorted(s.session_id for s in one.sources)) for one in shared} == {tuple("abcd")}


def test_the_cursors_of_thousands_of_sessions_are_read_at_once(memories):
    memories.commit("s7", None, A1)
    ids = [f"s{number}" for number in range(3_000)]
    assert memories.cursors(ids) == {"s7": A1}
    assert memories.cursors([]) == {}


def turn():
    from treadle.sessions import StoredTurn

    return StoredTurn(0, [{"role": "user", "content": "Hi"}])


def test_what_sqlite_forgets_or_retracts_is_overwritten(tmp_path):
    memories = SQLiteMemories(tmp_path / "memories.sqlite")
    memories.commit("s", None, A1, facts=[fact("The password is xyzzy.")])
    memories.commit("s", A1, A2, facts=[fact("The code is plugh.", start=2, stop=4)])
    memories.forget("ann", [fact("The password is xyzzy.").id])
    memories.commit("s", A2, A3, retract_from=0)
    left = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"xyzzy" not in left
    assert b"plugh" not in left


def test_a_redis_that_is_not_there_is_reported_without_its_password():
    memories = RedisMemories("redis://:s3cret@127.0.0.1:1/0")
    with pytest.raises(MemoryStoreError, match="cannot be used") as caught:
        memories.facts("ann")
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(memories)
    with pytest.raises(OptionError, match="RedisMemories: expected a URL"):
        RedisMemories("nowhere")


def test_a_client_that_decodes_and_another_prefix_work(redis_url):
    client = redis.Redis.from_url(redis_url, decode_responses=True)
    with client:
        memories = RedisMemories(client, prefix="other")
        assert memories.commit("s", None, A1, facts=[fact("Likes tea.")])
        assert memories.sources("s") == [Source("s", 0, 2, 1.0)]
        assert RedisMemories(redis_url).facts("ann") == []
        assert len(RedisMemories(redis_url, prefix="other").facts("ann")) == 1
        assert all(key.startswith("other:memory:") for key in client.scan_iter())
        assert memories.forget("ann") == 1
