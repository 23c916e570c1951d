"""`RedisRates`: the requests of a rate limit, counted in Redis for processes of several machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from treadle.databases.redis import address_of, client_of

if TYPE_CHECKING:
    import redis

    from treadle.providers.middleware.rate_limit import CountedRequest

TIMEOUT = 1.0
"""How long a client made from a URL waits for an answer, in seconds: requests to the model wait meanwhile."""
RETRIES = 1
"""How often such a client connects again, since Redis closes connections that were idle."""

# Times are microseconds of the clock of Redis. The sorted set has the times of the requests of the last minute,
# and the hash their tokens, with the total. A client sends an admission again if the connection breaks; the second
# one finds the first. Requests of the future are forgotten: a clock that was put back would keep them for longer.
_ADMIT = """
local sent, tokens, paused = KEYS[1], KEYS[2], KEYS[3]
local id, asked = ARGV[1], tonumber(ARGV[2])
local most_requests = tonumber(ARGV[3]) or math.huge
local most_tokens = tonumber(ARGV[4]) or math.huge
if redis.call('ZSCORE', sent, id) then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function forget(first, last)
  for _, old in ipairs(redis.call('ZRANGEBYSCORE', sent, first, last)) do
    redis.call('HINCRBY', tokens, 'total', 0 - redis.call('HGET', tokens, old))  -- -0 is no integer
    redis.call('HDEL', tokens, old)
  end
  redis.call('ZREMRANGEBYSCORE', sent, first, last)
end
forget('-inf', string.format('%.0f', now - 60000000))
forget(string.format('(%.0f', now), '+inf')
local count = redis.call('ZCARD', sent)
local total = redis.call('HGET', tokens, 'total') or 0
local free_at, leaving = now, 0
while leaving < count and (count - leaving >= most_requests or total + asked > most_tokens) do
  local oldest = redis.call('ZRANGE', sent, leaving, leaving, 'WITHSCORES')
  free_at = oldest[2] + 60000000
  total = total - redis.call('HGET', tokens, oldest[1])
  leaving = leaving + 1
end
local delay = math.max(free_at - now, redis.call('PTTL', paused) * 1000)
if delay > 0 then return delay end
redis.call('ZADD', sent, string.format('%.0f', now), id)
redis.call('HSET', tokens, id, asked)
redis.call('HINCRBY', tokens, 'total', asked)
redis.call('EXPIRE', sent, 61)
redis.call('EXPIRE', tokens, 61)
return 0
"""

_CORRECT = """
local counted = redis.call('HGET', KEYS[1], ARGV[1])
if counted then
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'total', ARGV[2] - counted)
end
"""

_PAUSE = """
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
end
"""


class RedisRates:
    """A `RateStore` in Redis, for `RateLimit` in processes of several machines. Extra ``redis``.

    All processes have to set the same limits. The clock is that of Redis, so the clocks of machines may differ.
    Requests that a killed process has sent count like others.

    These keys are used, where *KEY* is a provider, or a provider and a model. They expire after a minute:

    * ``PREFIX:sent:KEY``: a sorted set of the requests of the last minute.
    * ``PREFIX:tokens:KEY``: a hash with the tokens of each.
    * ``PREFIX:paused:KEY``: exists while a server has asked for no requests.

    A script accesses all of them, so with a cluster, the prefix has to be a hash tag, such as ``{treadle}``.

    Args:
        redis: a URL, such as ``redis://localhost:6379/0`` or ``unix:///run/redis.sock``, or a `redis.Redis`.
        prefix: the start of all keys. Accounts with separate limits need separate prefixes.

    Raises:
        MissingExtraError: redis-py is not installed.
        OptionError: it is neither, or the URL is invalid.
    """

    def __init__(self, redis: str | redis.Redis, *, prefix: str = "treadle") -> None:
        self._client = client_of(redis, "RedisRates", timeout=TIMEOUT, retries=RETRIES)
        self._prefix = prefix
        self._admit = self._client.register_script(_ADMIT)
        self._correct = self._client.register_script(_CORRECT)
        self._pause = self._client.register_script(_PAUSE)

    def __repr__(self) -> str:
        return f"RedisRates({address_of(self._client)!r}, prefix={self._prefix!r})"

    def admit(
        self,
        key: str,
        sent: CountedRequest,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        now: float,  # noqa: ARG002 - the clock of this process
    ) -> float:
        """Count a request, if the limits allow it now."""
        sent.id = sent.id or os.urandom(8).hex()
        limits = [requests_per_minute or "", tokens_per_minute or ""]
        keys = [self._key(kind, key) for kind in ("sent", "tokens", "paused")]
        return int(self._admit(keys, [sent.id, sent.tokens, *limits])) / 1e6

    def correct(self, key: str, sent: CountedRequest, tokens: int) -> None:
        """Count a request that was admitted with the tokens that it had."""
        self._correct([self._key("tokens", key)], [sent.id, tokens])

    def pause(self, key: str, seconds: float, now: float) -> None:  # noqa: ARG002 - as above
        """Admit no request for some seconds."""
        self._pause([self._key("paused", key)], [max(1, round(seconds * 1_000))])

    def _key(self, kind: str, key: str) -> str:
        return f"{self._prefix}:{kind}:{key}"
