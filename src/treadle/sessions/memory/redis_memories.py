"""`RedisMemories`: facts in Redis, for processes on several machines."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections import defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.databases.redis import address_of, client_of, decoded
from treadle.redaction import redacted
from treadle.sessions.memory.facts import Cursor, Fact, Source, by_age
from treadle.sessions.memory.store import MemoryStoreError

if TYPE_CHECKING:
    import redis

_RENEW = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
return 0
"""
_RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class RedisMemories:
    """A `MemoryStore` in Redis.

    Extra ``redis``. These keys are used:

    * ``PREFIX:memory:facts:SCOPE``: a hash from ids to facts with their sources.
    * ``PREFIX:memory:ages:SCOPE``: a sorted set of these ids, by the time at which the fact was learned.
    * ``PREFIX:memory:session:ID``: a set of the facts of a session, each a scope and an id.
    * ``PREFIX:memory:cursor:ID``: how far a session was read.
    * ``PREFIX:memory:lease:ID``: the token of the worker that reads it; it expires.

    A change is a transaction that watches the keys that it depends on, and is tried again if one of them was
    changed meanwhile.

    Args:
        redis: a URL, such as ``redis://localhost:6379/0`` or ``unix:///run/redis.sock``, or a `redis.Redis`.
        prefix: the start of all keys.

    Raises:
        MissingExtraError: redis-py is not installed.
        OptionError: it is neither, or the URL is invalid.
    """

    def __init__(self, redis: str | redis.Redis, *, prefix: str = "treadle") -> None:
        self._client = client_of(redis, "RedisMemories")
        self._prefix = prefix

    def __repr__(self) -> str:
        return f"RedisMemories({address_of(self._client)!r}, prefix={self._prefix!r})"

    def facts(self, scope: str, *, limit: int | None = None) -> list[Fact]:
        """The facts of a scope, the oldest first."""
        with self._reporting():
            if limit is None:
                values: Any = self._client.hvals(self._scope(scope))
                return by_age(_fact(scope, one) for one in values)
            ids: Any = self._client.zrevrange(self._ages(scope), 0, limit - 1) if limit else ()
            return by_age(self._read(self._client, scope, map(decoded, ids)).values())

    def sources(self, session_id: str) -> list[Source]:
        """The sources of facts in a session, each once."""
        with self._reporting():
            found: set[Source] = set()
            for scope, ids in self._facts_of(self._client, session_id).items():
                for fact in self._read(self._client, scope, ids).values():
                    found.update(one for one in fact.sources if one.session_id == session_id)
        return sorted(found, key=lambda one: one.start)

    def cursors(self, session_ids: Collection[str]) -> dict[str, Cursor]:
        """How far each of some sessions was read; those that were never read are missing."""
        if not session_ids:
            return {}
        with self._reporting():
            values = self._client.mget([self._cursor(one) for one in session_ids])
        pairs = zip(session_ids, values, strict=True)
        return {one: Cursor(*json.loads(value)) for one, value in pairs if value is not None}

    def commit(
        self,
        session_id: str,
        expected: Cursor | None,
        cursor: Cursor,
        *,
        retract_from: int | None = None,
        facts: Sequence[Fact] = (),
    ) -> bool:
        """Move the cursor of a session, together with the facts that follow from this, in one atomic step."""

        def change(pipe: Any) -> bool:
            value = pipe.get(self._cursor(session_id))
            if (None if value is None else Cursor(*json.loads(value))) != expected:
                return False
            self._change(pipe, session_id, retract_from, facts)
            values = [cursor.incarnation, cursor.turns, cursor.messages]
            pipe.set(self._cursor(session_id), json.dumps(values))
            return True

        return self._atomically(change, session_id, {fact.scope for fact in facts})

    def lease(self, session_id: str, seconds: float) -> str | None:
        """Reserve a session for one worker, so that two do not do the same work."""
        token = secrets.token_hex(16)
        with self._reporting():
            key = self._lease(session_id)
            return token if self._client.set(key, token, nx=True, px=_ms(seconds)) else None

    def renew(self, session_id: str, token: str, seconds: float) -> bool:
        """Let a lease end in so many seconds from now; False if it has ended."""
        with self._reporting():
            key = self._lease(session_id)
            return bool(self._client.eval(_RENEW, 1, key, token, _ms(seconds)))

    def release(self, session_id: str, token: str) -> None:
        """End a lease; one that has ended is ignored."""
        with self._reporting():
            self._client.eval(_RELEASE, 1, self._lease(session_id), token)

    def forget(self, scope: str, fact_ids: Collection[str] | None = None) -> int:
        """Remove facts. Their sessions are not read again because of it."""

        def change(pipe: Any) -> int:
            ids = pipe.hkeys(self._scope(scope)) if fact_ids is None else set(fact_ids)
            known = self._read(pipe, scope, map(decoded, ids))
            pipe.multi()
            for fact_id, fact in known.items():
                pipe.hdel(self._scope(scope), fact_id)
                pipe.zrem(self._ages(scope), fact_id)
                for session_id in {one.session_id for one in fact.sources}:
                    pipe.srem(self._session(session_id), _member(scope, fact_id))
            return len(known)

        return self._atomically(change, None, {scope})

    def forget_session(self, session_id: str) -> None:
        """Remove a session from the sources of all facts, and its cursor."""

        def change(pipe: Any) -> None:
            self._change(pipe, session_id, 0, ())
            pipe.delete(self._cursor(session_id))

        self._atomically(change, session_id, set())

    # Transactions

    def _atomically(self, change: Any, session_id: str | None, scopes: set[str]) -> Any:
        """Make a change, again and again until nothing that it has read was changed meanwhile.

        Args:
            change: reads what it needs from a pipeline, and then writes to it.
            session_id: the session that it depends on, with the scopes of the facts of the session.
            scopes: further scopes that it depends on.
        """
        from redis import WatchError  # noqa: PLC0415 - an extra

        with self._reporting(), self._client.pipeline() as pipe:
            while True:
                try:
                    if session_id is not None:
                        pipe.watch(self._cursor(session_id), self._session(session_id))
                        scopes = scopes | self._facts_of(pipe, session_id).keys()
                    if scopes:
                        pipe.watch(*map(self._scope, scopes))
                    result = change(pipe)
                    pipe.execute()
                except WatchError:
                    continue
                return result

    def _change(
        self, pipe: Any, session_id: str, retract_from: int | None, facts: Sequence[Fact]
    ) -> None:
        """Retract and add facts of a session; the pipeline is left in a transaction, for further writes."""
        wanted: defaultdict[str, set[str]] = defaultdict(set)
        if retract_from is not None:
            wanted.update(self._facts_of(pipe, session_id))
        for fact in facts:
            wanted[fact.scope].add(fact.id)
        before = {scope: self._read(pipe, scope, ids) for scope, ids in wanted.items()}
        after = {scope: dict(known) for scope, known in before.items()}
        if retract_from is not None:
            for known in after.values():
                for fact_id, fact in known.items():
                    known[fact_id] = _without(fact, session_id, retract_from)
        for fact in facts:
            known = after[fact.scope]
            known[fact.id] = _with(known.get(fact.id), fact)
        pipe.multi()
        for scope, known in after.items():
            for fact_id, fact in known.items():
                if fact != before[scope].get(fact_id):
                    self._write(pipe, session_id, fact_id, fact)

    def _write(self, pipe: Any, session_id: str, fact_id: str, fact: Fact) -> None:
        """Replace a fact, or remove one without sources."""
        scope, member = self._scope(fact.scope), _member(fact.scope, fact_id)
        if fact.sources:
            rows = [[s.session_id, s.start, s.stop, s.created_at] for s in fact.sources]
            pipe.hset(scope, fact_id, json.dumps([fact.text, rows]))
            pipe.zadd(self._ages(fact.scope), {fact_id: fact.created_at})
        else:
            pipe.hdel(scope, fact_id)
            pipe.zrem(self._ages(fact.scope), fact_id)
        has_it = any(source.session_id == session_id for source in fact.sources)
        (pipe.sadd if has_it else pipe.srem)(self._session(session_id), member)

    def _facts_of(self, client: Any, session_id: str) -> dict[str, set[str]]:
        """The ids of the facts of a session, by scope."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for member in client.smembers(self._session(session_id)):
            scope, fact_id = json.loads(member)
            found[scope].add(fact_id)
        return dict(found)

    def _read(self, client: Any, scope: str, ids: Iterable[str]) -> dict[str, Fact]:
        """Some facts of a scope by id; those that do not exist are missing."""
        wanted = sorted(ids)
        values: list[Any] = client.hmget(self._scope(scope), wanted) if wanted else []
        pairs = zip(wanted, values, strict=True)
        return {one: _fact(scope, value) for one, value in pairs if value is not None}

    # Access to Redis

    @contextlib.contextmanager
    def _reporting(self) -> Generator[None]:
        """Raise errors of Redis as `MemoryStoreError`."""
        from redis import RedisError  # noqa: PLC0415 - an extra

        try:
            yield
        except RedisError as error:
            raise MemoryStoreError(
                f"{address_of(self._client)}: the memories cannot be used: {redacted(str(error))}"
            ) from error

    def _scope(self, scope: str) -> str:
        return f"{self._prefix}:memory:facts:{scope}"

    def _ages(self, scope: str) -> str:
        return f"{self._prefix}:memory:ages:{scope}"

    def _session(self, session_id: str) -> str:
        return f"{self._prefix}:memory:session:{session_id}"

    def _cursor(self, session_id: str) -> str:
        return f"{self._prefix}:memory:cursor:{session_id}"

    def _lease(self, session_id: str) -> str:
        return f"{self._prefix}:memory:lease:{session_id}"


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _member(scope: str, fact_id: str) -> str:
    return json.dumps([scope, fact_id])


def _fact(scope: str, value: str | bytes) -> Fact:
    text, rows = json.loads(value)
    return Fact(scope, text, tuple(Source(*row) for row in rows))


def _without(fact: Fact, session_id: str, start: int) -> Fact:
    """A fact without its sources in a session that end after a message."""
    kept = (one for one in fact.sources if one.session_id != session_id or one.stop <= start)
    return Fact(fact.scope, fact.text, tuple(kept))


def _with(known: Fact | None, fact: Fact) -> Fact:
    """A known fact with the sources of the same fact."""
    if known is None or not known.sources:
        return fact
    sources: Mapping[Any, Source] = {
        (one.session_id, one.start): one for one in (*fact.sources, *known.sources)
    }
    ordered = sorted(sources.values(), key=lambda one: (one.created_at, one.session_id, one.start))
    return Fact(fact.scope, known.text, tuple(ordered))
