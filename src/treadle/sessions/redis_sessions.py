"""`RedisSessions`: sessions in Redis, for processes of several machines."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from treadle.databases.redis import address_of, client_of, decoded
from treadle.errors import SessionConflictError, SessionError
from treadle.messages import JSONDict
from treadle.redaction import redacted
from treadle.sessions.base import BaseSessions, to_append
from treadle.sessions.store import SessionInfo, StoredTurn

if TYPE_CHECKING:
    import redis

TOKEN = 16
"""The length of the random text before each stored turn."""

DONE = -1
"""What a script returns after it has changed something; else it returns the number of turns of the session."""

# The first commands read each key, so that a key of another type ends the script before anything is changed. Redis
# never stops a script after its first change, and has none of its changes on the disk, or all.
# A client sends an append again if the connection breaks, since it cannot know whether the first one was executed.
# The second finds the token of the first.
_APPEND = """
local meta, turns, parts, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, version, token, incarnation = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local messages, count = ARGV[5], tonumber(ARGV[6])
local found = tonumber(redis.call('HGET', meta, 'version') or 0)
redis.call('HLEN', parts)
redis.call('ZSCORE', index, id)
local there = redis.call('LINDEX', turns, version)
if there and string.sub(there, 1, #token) == token then return -1 end
if found ~= version then return found end
local time = redis.call('TIME')
local now = string.format('%d.%06d', time[1], time[2])
if version == 0 then redis.call('HSET', meta, 'incarnation', incarnation, 'created_at', now) end
redis.call('HSET', meta, 'version', version + count, 'messages', messages, 'updated_at', now)
for place = 7, 6 + count do redis.call('RPUSH', turns, token .. ARGV[place]) end
for place = 7 + count, #ARGV, 2 do
  if redis.call('HEXISTS', parts, ARGV[place]) == 0 then
    redis.call('HSET', parts, ARGV[place], redis.call('HLEN', parts) .. ' ' .. ARGV[place + 1])
  end
end
redis.call('ZADD', index, now, id)
return -1
"""

_DELETE = """
local meta, turns, parts, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, version = ARGV[1], tonumber(ARGV[2])
local found = tonumber(redis.call('HGET', meta, 'version') or 0)
if version and found ~= version then return found end
if found == 0 then return 0 end
redis.call('ZREM', index, id)
redis.call('DEL', meta, turns, parts)
return -1
"""


class RedisSessions(BaseSessions):
    """A `SessionStore` in Redis, which processes of several machines may use at the same time. Extra ``redis``.

    A stored turn is as safe as Redis is set to keep it: a restart loses the latest ones unless Redis has
    ``appendonly yes`` and ``appendfsync always``. Its ``maxmemory-policy`` must be ``noeviction``, the default.

    These keys are used, where *ID* is the id of a session:

    * ``PREFIX:session:ID``: a hash with the facts about it.
    * ``PREFIX:turns:ID``: a list of its turns, each after a random text of its `append`.
    * ``PREFIX:attachments:ID``: a hash from digests to a number and a content part.
    * ``PREFIX:sessions``: a sorted set of the ids, by the time of the latest turn.

    A script accesses all of them, so with a cluster, the prefix has to be a hash tag, such as ``{treadle}``.

    Args:
        redis: a URL, such as ``redis://localhost:6379/0`` or ``unix:///run/redis.sock``, or a `redis.Redis`.
        prefix: the start of all keys.

    Raises:
        MissingExtraError: redis-py is not installed.
        OptionError: it is neither, or the URL is invalid.
    """

    def __init__(self, redis: str | redis.Redis, *, prefix: str = "treadle") -> None:
        self._client = client_of(redis, "RedisSessions")
        self._prefix = prefix
        self._append = self._client.register_script(_APPEND)
        self._delete = self._client.register_script(_DELETE)

    def __repr__(self) -> str:
        return f"RedisSessions({address_of(self._client)!r}, prefix={self._prefix!r})"

    def append(
        self,
        session_id: str,
        version: int,
        turns: Sequence[StoredTurn],
        attachments: Mapping[str, JSONDict],
    ) -> None:
        """Append turns to a session, all of them or none.

        Raises:
            SessionError: nothing was stored. If the connection broke meanwhile and could not be made again, it is
                not known whether it was; the text says so.
        """
        lines, parts = to_append(session_id, turns, attachments)
        token, incarnation = os.urandom(TOKEN // 2).hex(), os.urandom(8).hex()
        pairs = [text for pair in parts.items() for text in pair]
        head = [session_id, version, token, incarnation, turns[-1].end, len(lines)]
        what = f"a turn of session {session_id!r}"
        with self._reporting(f"could not store {what}"):
            self._client.ping()  # so that a server that does not answer is known not to have the turn
        unknown = f"it is not known whether {what} was stored, load the session to see"
        with self._reporting(f"could not store {what}", unknown):
            found = self._append(self._keys(session_id), [*head, *lines, *pairs])
        if found != DONE:
            raise SessionConflictError(session_id, version, int(found))

    def info(self, session_id: str) -> SessionInfo | None:
        """The facts about a session; None if it does not exist."""
        with self._reporting(f"could not read session {session_id!r}"):
            found = self._client.hgetall(self._key("session", session_id))
        return _info(session_id, found)

    def turns(
        self, session_id: str, *, before: int | None = None, limit: int | None = None
    ) -> list[StoredTurn]:
        """Some turns of a session, the latest first; none if it does not exist."""
        end = -1 if before is None else before - 1
        start = 0 if limit is None else end + 1 - limit
        if before is not None:
            start = max(start, 0)
        if limit == 0 or before == 0:
            return []
        with self._reporting(f"could not read turns of session {session_id!r}"):
            found = self._client.lrange(self._key("turns", session_id), start, end)
        return [StoredTurn.from_json(decoded(line)[TOKEN:]) for line in reversed(found)]

    def attachments(
        self, session_id: str, digests: Sequence[str] | None = None
    ) -> dict[str, JSONDict]:
        """The attachments of a session by digest, in the order in which they were stored."""
        key = self._key("attachments", session_id)
        if digests is not None and not digests:
            return {}
        with self._reporting(f"could not read attachments of session {session_id!r}"):
            if digests is None:
                found = self._client.hgetall(key)
            else:
                found = dict(zip(digests, self._client.hmget(key, digests), strict=True))
        numbered = [
            (int(number), decoded(digest), part)
            for digest, value in found.items()
            if value is not None
            for number, part in [decoded(value).split(" ", 1)]
        ]
        return {digest: json.loads(part) for _, digest, part in sorted(numbered)}

    def sessions(
        self, *, prefix: str = "", updated_after: float | None = None, limit: int | None = None
    ) -> list[SessionInfo]:
        """The sessions, the one that was updated last first."""
        least = "-inf" if updated_after is None else f"({updated_after!r}"
        count = limit if limit is not None and not prefix else -1
        with self._reporting("could not list the sessions"):
            found = self._client.zrevrangebyscore(
                f"{self._prefix}:sessions", "+inf", least, start=0, num=count
            )
            ids = [one for one in map(decoded, found) if one.startswith(prefix)][:limit]
            with self._client.pipeline(transaction=False) as batch:
                for session_id in ids:
                    batch.hgetall(self._key("session", session_id))
                facts = batch.execute()
        infos = map(_info, ids, facts)
        return [info for info in infos if info is not None]  # one may have been deleted meanwhile

    def delete(self, session_id: str, version: int | None = None) -> bool:
        """Delete a session with all that is stored about it, in one atomic step."""
        with self._reporting(f"could not delete session {session_id!r}"):
            found = self._delete(
                self._keys(session_id), [session_id, "" if version is None else version]
            )
        if version is not None and found not in {DONE, version}:
            raise SessionConflictError(session_id, version, int(found))
        return bool(found == DONE)

    # Access to Redis

    def _key(self, kind: str, session_id: str) -> str:
        return f"{self._prefix}:{kind}:{session_id}"

    def _keys(self, session_id: str) -> list[str]:
        """The keys of a script."""
        kinds = ("session", "turns", "attachments")
        return [*(self._key(kind, session_id) for kind in kinds), f"{self._prefix}:sessions"]

    @contextlib.contextmanager
    def _reporting(self, problem: str, unknown: str | None = None) -> Generator[None]:
        """Raise errors of Redis as `SessionError`.

        Args:
            problem: what could not be done.
            unknown: what is not known if the connection breaks.
        """
        from redis import exceptions  # noqa: PLC0415 - an extra

        try:
            yield
        except exceptions.RedisError as error:
            is_cut = isinstance(error, (exceptions.ConnectionError, exceptions.TimeoutError))
            text = unknown if is_cut and unknown else problem
            raise SessionError(
                f"{address_of(self._client)}: {text}: {redacted(str(error))}"
            ) from error


def _info(session_id: str, found: Mapping[Any, Any]) -> SessionInfo | None:
    if not found:
        return None
    facts = {decoded(name): decoded(value) for name, value in found.items()}
    return SessionInfo(
        session_id,
        int(facts["version"]),
        int(facts["messages"]),
        float(facts["created_at"]),
        float(facts["updated_at"]),
        facts["incarnation"],
    )
