"""`InMemoryCache`: responses in memory, the latest used ones."""

from __future__ import annotations

import threading
from collections import OrderedDict

from treadle.errors import OptionError
from treadle.forks import renew_after_fork

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
        """See `CacheStore.get`."""
        with self._mutex:
            text = self._texts.get(key)
            if text is not None:
                self._texts.move_to_end(key)
            return text

    def put(self, key: str, text: str, /) -> None:
        """See `CacheStore.put`."""
        with self._mutex:
            self._texts[key] = text
            self._texts.move_to_end(key)
            while len(self._texts) > self._most:
                self._texts.popitem(last=False)
