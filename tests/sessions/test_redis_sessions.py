"""`RedisSessions`: its keys, and what happens if Redis or the connection fails."""

import sys

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.redis_server import RedisServer
from tests.sessions.conversing import answer, image, run, turn, user, with_image
from tests.sessions.cutting import Cut, CuttingRelay, Lost

from treadle import MissingExtraError, OptionError
from treadle.sessions import RedisSessions, SessionConflictError, SessionError


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def store(redis_url):
    return RedisSessions(redis_url)


@pytest.fixture
def relay(redis_server):
    with CuttingRelay(redis_server.port) as relay:
        yield relay


def without_retries(url):
    client = redis.Redis.from_url(url)
    client.set_retry(Retry(NoBackoff(), 0))
    return RedisSessions(client)


def texts(store, session_id="alice"):
    return [one["content"] for one in store.session(session_id).messages()]


class TestClient:
    def test_a_client_that_decodes_its_answers_does_as_well(self, redis_url):
        with redis.Redis.from_url(redis_url, decode_responses=True) as client:
            store = RedisSessions(client)
            run(store.session("Grüße"), with_image(), answer("æ"))
            assert store.session("Grüße").messages() == [with_image(), answer("æ")]
            assert store.session("Grüße").attachments() == [image()]
            assert [info.id for info in store.sessions()] == ["Grüße"]
            assert store.delete("Grüße")

    def test_the_keys_start_with_the_prefix_and_none_remains(self, redis_url, client):
        store = RedisSessions(client, prefix="{app}")
        other = RedisSessions(redis_url)
        run(store.session("alice"), with_image())
        run(other.session("bob"), with_image())
        kinds = ("session", "turns", "attachments")
        assert {*client.scan_iter("{app}*")} == {
            b"{app}:sessions",
            *(f"{{app}}:{kind}:alice".encode() for kind in kinds),
        }
        assert (store.info("bob"), other.info("alice")) == (None, None)
        assert store.prune(max_sessions=0) == ["alice"]
        assert [*client.scan_iter("{app}*")] == []
        assert texts(other, "bob") == [with_image()["content"]]

    @pytest.mark.parametrize(
        "wrong",
        [5, None, redis.asyncio.Redis(), "localhost", "http://u:secret@h", "redis://:se/cret@h:x"],
    )
    def test_something_else_is_refused_without_repeating_it(self, wrong):
        with pytest.raises(OptionError, match=r"expected a URL|or a redis.Redis") as caught:
            RedisSessions(wrong)
        assert "cret" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_a_missing_package_is_an_error_that_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "redis", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'treadle\[redis\]'"):
            RedisSessions("redis://localhost")


class TestCredentials:
    @pytest.fixture
    def locked(self, tmp_path):
        with RedisServer(tmp_path) as server, redis.Redis(port=server.port) as client:
            client.config_set("requirepass", "hunter2")
            client.auth("hunter2")
            yield server
            client.config_set("requirepass", "")

    def test_the_password_of_a_url_is_used_and_never_shown(self, locked):
        url = f"redis://:hunter2@127.0.0.1:{locked.port}/3"
        store = RedisSessions(url)
        run(store.session("alice"), user())
        assert texts(store) == ["Hi"]
        assert (
            repr(store) == f"RedisSessions('redis://127.0.0.1:{locked.port}/3', prefix='treadle')"
        )
        assert "hunter2" not in repr(store.session("alice"))

    def test_a_wrong_password_is_an_error_without_it(self, locked):
        store = RedisSessions(f"redis://user:hunter3@127.0.0.1:{locked.port}/0")
        with pytest.raises(SessionError, match=r"^redis://127.*: could not list") as caught:
            store.sessions()
        assert "hunter3" not in str(caught.value)

    def test_a_socket_is_shown_by_its_path(self):
        store = RedisSessions("unix://user:hunter2@/run/redis.sock?db=1")
        assert repr(store) == "RedisSessions('unix:///run/redis.sock', prefix='treadle')"


class TestBrokenConnections:
    @pytest.mark.parametrize("plan", [[Cut], [Lost], [Cut, Cut, Lost], [Lost, Cut]])
    def test_a_turn_that_is_sent_again_is_stored_once(self, store, relay, plan):
        relayed = RedisSessions(relay.url)
        run(relayed.session("alice"), user("1"))
        relay.plan[:] = [step() for step in plan]
        run(relayed.session("alice"), answer("2"), with_image())
        assert relay.plan == []
        assert texts(store) == ["1", "2", with_image()["content"]]
        assert store.info("alice").version == 2

    def test_a_turn_that_is_sent_again_after_another_one_came_is_stored_once(self, store, relay):
        relay.plan[:] = [Cut(lambda: run(store.session("alice"), answer("theirs")))]
        run(RedisSessions(relay.url).session("alice"), user("mine"))
        assert texts(store) == ["mine", "theirs"]

    def test_a_turn_that_was_lost_and_then_outrun_is_a_conflict(self, store, relay):
        relayed = RedisSessions(relay.url)
        relay.plan[:] = [Lost(lambda: run(store.session("alice"), user("theirs")))]
        with pytest.raises(SessionConflictError, match="expected 0 turns, found 1"):
            relayed.append("alice", 0, [turn(0, user("mine"))], {})
        assert texts(store) == ["theirs"]

    @pytest.mark.parametrize(("step", "stored"), [(Cut, ["1", "2"]), (Lost, ["1"])])
    def test_if_it_cannot_be_known_whether_a_turn_was_stored_the_error_says_so(
        self, store, relay, step, stored
    ):
        relayed = without_retries(relay.url)
        run(relayed.session("alice"), user("1"))
        relay.plan[:] = [step()]
        with pytest.raises(
            SessionError,
            match="it is not known whether a turn of session 'alice' was stored, load the session",
        ):
            run(relayed.session("alice"), answer("2"))
        assert texts(store) == stored

    def test_if_no_connection_can_be_made_the_turn_is_known_not_to_be_stored(self, store, relay):
        relayed = without_retries(relay.url)
        loaded = relayed.session("alice").load()
        relay.is_closed = True
        relayed._client.close()
        for act in (
            lambda: relayed.append("alice", loaded["version"], [turn(0, user())], {}),
            relayed.sessions,
            lambda: relayed.delete("alice"),
            lambda: relayed.info("alice"),
            lambda: relayed.turns("alice"),
            lambda: relayed.attachments("alice"),
        ):
            with pytest.raises(SessionError, match=r"^redis://127\.0\.0\.1:\d+/0: could not "):
                act()
        assert not store.session("alice").exists

    def test_a_server_that_has_forgotten_the_scripts_gets_them_again(self, store, client):
        run(store.session("alice"), user("1"))
        client.script_flush()
        run(store.session("alice"), answer("2"))
        client.script_flush()
        assert store.delete("alice", 2)


class TestRefusals:
    """Redis does not execute a script: nothing is changed, not even a part."""

    @pytest.mark.parametrize(
        "key", ["session:alice", "turns:alice", "attachments:alice", "sessions"]
    )
    def test_a_key_of_another_type_is_an_error(self, store, client, key):
        client.set(f"treadle:{key}", "theirs")
        with pytest.raises(
            SessionError, match=r"could not store a turn of session 'alice'.*WRONGTYPE"
        ):
            store.append("alice", 0, [turn(0, user())], {"d": image()})
        assert [*client.scan_iter()] == [f"treadle:{key}".encode()]

    def test_a_server_without_memory_is_an_error(self, tmp_path):
        with RedisServer(tmp_path) as server, redis.Redis(port=server.port) as client:
            store = RedisSessions(server.url)
            session = store.session("alice")
            run(session, user("1"))
            client.config_set("maxmemory", "3mb")
            stored = ["1"]
            with pytest.raises(SessionError, match=r"could not store a turn .*OOM|used memory"):
                for number in range(1_000):
                    run(session, user(f"{number}" * 10_000))
                    stored.append(f"{number}" * 10_000)
            assert texts(store) == stored
            assert len(stored) > 1
            client.config_set("maxmemory", "0")
            run(session, user("more"))
            assert texts(store) == [*stored, "more"]
            assert [info.messages for info in store.sessions()] == [len(stored) + 1]


def test_turns_that_are_missing_are_an_error(store, client):
    for number in range(3):
        run(store.session("alice"), user(f"{number}"))
    client.delete("treadle:turns:alice")
    for act in (store.session("alice").load, store.session("alice").turns):
        with pytest.raises(SessionError, match="turns are missing from the store"):
            act()
