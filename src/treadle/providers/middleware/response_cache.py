"""`ResponseCache`: a request that was answered before is answered from a store."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections import OrderedDict
from typing import Any, Protocol

from treadle import labels
from treadle.codec import restore, to_json_line
from treadle.effects import NOW, Call, Mode, Steps, call_mode
from treadle.errors import OptionError
from treadle.forks import renew_after_fork
from treadle.messages import Ending, Response, Usage, sha256
from treadle.model import ModelRequest, SendRequest, TimedResponse

log = logging.getLogger("treadle.model")

FORMAT = 1
"""The version of what is stored, a part of every key."""


class CacheStore(Protocol):
    """Where a `ResponseCache` keeps responses; the methods may be async."""

    def get(self, key: str, /) -> Any:
        """The text under a key; None if there is none.

        Args:
            key: 64 hexadecimal digits.
        """
        ...

    def put(self, key: str, text: str, /) -> Any:
        """Keep a text under a key.

        Args:
            key: 64 hexadecimal digits.
            text: JSON.
        """
        ...


MAX_ENTRIES = 1_000


class InMemoryCache:
    """A `CacheStore` in memory. It is thread-safe; a forked child has a copy.

    Args:
        max_entries: the number of responses; the one that was not used for the longest time is removed.

    Raises:
        OptionError: the number is below 1.
    """

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        if max_entries < 1:
            raise OptionError(
                f"InMemoryCache: max_entries: expected at least 1, got {max_entries!r}"
            )
        self._most = max_entries
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._mutex = threading.Lock()
        renew_after_fork(self, InMemoryCache._renew)

    def _renew(self) -> None:
        self._mutex = threading.Lock()

    def get(self, key: str, /) -> str | None:
        """The text under a key; None if there is none."""
        with self._mutex:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
            return text

    def put(self, key: str, text: str, /) -> None:
        """Keep a text under a key."""
        with self._mutex:
            self._texts[key] = text
            self._texts.move_to_end(key)
            while len(self._texts) > self._most:
                self._texts.popitem(last=False)


class ResponseCache:
    """Middleware that answers a request from a store, if the same request was answered before.

    Requests are the same if their model, provider, messages, tools and options are. A response from the store has
    ``is_cached=True`` and no usage, and costs nothing; listeners receive no pieces of it. Only complete responses
    are stored: none that is blank, a refusal, or cut off by a limit or a filter. An error of the store is logged,
    and the model is asked.

    A callable that does not show its model, such as a function, is identified by its name and module alone.

    Args:
        store: the store; by default a new `InMemoryCache`. See also `SQLiteCache`.
        namespace: a part of every key, such as the base URL of a server, or a version of what the caller does
            with the responses.
    """

    def __init__(self, store: CacheStore | None = None, *, namespace: str = "") -> None:
        self._store = InMemoryCache() if store is None else store
        self._namespace = namespace
        is_quick = isinstance(self._store, InMemoryCache)
        self._modes = [
            Mode.INLINE if is_quick else call_mode(method)
            for method in (self._store.get, self._store.put)
        ]

    def __call__(self, request: ModelRequest, send: SendRequest) -> Steps[TimedResponse]:
        """Answer a request from the store, or send it."""
        key = request_key(request, self._namespace)
        if key is None:
            return (yield from send(request))
        found = yield from self._found(key, request)
        if found is not None:
            now = yield NOW
            return found, now, now
        answer = yield from send(request)
        text = _stored(answer[0])
        if text is not None:
            yield from self._called(self._store.put, self._modes[1], request, key, text)
        return answer

    def _found(self, key: str, request: ModelRequest) -> Steps[Response | None]:
        text = yield from self._called(self._store.get, self._modes[0], request, key)
        if text is None:
            return None
        try:
            response: Response = restore(Response, json.loads(text))
        except (TypeError, ValueError):
            log.warning("the cache has no response under the key %s; the model is asked", key)
            return None
        return dataclasses.replace(
            response, usage=Usage(cost=0.0), is_cached=True, is_streamed=False, times=None
        )

    def _called(self, method: Any, mode: Mode, request: ModelRequest, *args: str) -> Steps[Any]:
        """Call the store; None if it fails."""
        try:
            return (
                yield Call(method, *args, mode=mode, label=labels.CACHE, key=str(request.iteration))
            )
        except Exception:  # another program's file, or a server that is down
            log.warning("the response cache failed; the model is asked", exc_info=True)
            return None


def request_key(request: ModelRequest, namespace: str) -> str | None:
    """The SHA-256 of everything that a response depends on; None for a request with values that are no JSON."""
    parts = [FORMAT, namespace, *request.model.identity(), request.messages, request.opts]
    try:
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    return sha256(text.encode("ascii"))


def _stored(response: Response) -> str | None:
    """A response as JSON; None for one that is not kept."""
    if response.is_blank or response.refusal is not None or response.ending is not Ending.COMPLETE:
        return None
    text = to_json_line(response)
    # What JSON cannot represent became text.
    return text if restore(Response, json.loads(text)) == response else None
