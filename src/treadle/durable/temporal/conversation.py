"""Conversations as chains of changes, so that a request to a model costs a workflow only what is new in it.

Each link of a chain is stored by the worker that is asked first, under the digest of its content. It has the
digest of the link before it, and says which of that link's messages remain, and what is new::

    {"base": "9f86d081...", "pieces": [[0, 41], {"role": "assistant", ...}, {"role": "tool", ...}]}

A piece is a range of the messages before, or a new message. So a compacted, repaired or cut history is a link as
well, and costs what is new in it.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from treadle.durable.temporal.blob_store import (
    BlobStore,
    StoredValueError,
    get_content,
    put_content,
)
from treadle.messages import JSONDict, is_dict, is_list, is_mapping, sha256
from treadle.messages.json_text import canonical_json

CACHE_BYTES = 64 * 2**20
"""How much a worker keeps of the conversations that it has read last, as JSON."""


class Delta:
    """A request's messages, as a change of those before.

    Args:
        base: the digest of the link before; None if there is none.
        pieces: ranges of its messages, and new messages.
        messages: all messages.
    """

    def __init__(
        self, base: str | None, pieces: list[Any], messages: Sequence[Mapping[str, Any]]
    ) -> None:
        self.data: JSONDict = {"base": base, "pieces": pieces}
        self.messages = messages

    @cached_property
    def ref(self) -> str:
        """The digest of the link."""
        return sha256(_content(self.data))


class Conversation:
    """The workflow's side: what the store has of a conversation. It reads and writes nothing.

    Args:
        ref: the digest of the link that is stored; None if there is none.
        messages: the messages that it leads to.
    """

    def __init__(self, ref: str | None = None, messages: Sequence[Mapping[str, Any]] = ()) -> None:
        self.ref = ref
        self._messages = messages

    def delta(self, messages: Sequence[Mapping[str, Any]]) -> Delta:
        """Compare a request's messages with what is stored.

        Args:
            messages: all of them, which must not be changed later. Comparing them is fast if they are the same
                objects as in the request before.
        """
        known, count = self._messages, len(messages)
        kept = 0
        for one, other in zip(known, messages, strict=False):
            if not _are_same(one, other):
                break
            kept += 1
        pieces: list[Any] = [[0, kept]] if kept else []
        if kept in {count, len(known)}:
            return Delta(self.ref, [*pieces, *messages[kept:]], messages)
        places = _places(known, kept)
        place = kept
        while kept < count:
            found = places.get(canonical_json(messages[kept]), ())
            if not found:
                pieces.append(messages[kept])
                kept += 1
                continue
            start = end = next((one for one in found if one >= place), found[0])
            while end < len(known) and kept < count and _are_same(known[end], messages[kept]):
                end, kept = end + 1, kept + 1
            pieces.append([start, end])
            place = end
        is_whole = not any(map(is_list, pieces))
        return Delta(None if is_whole else self.ref, pieces, messages)

    def stored(self, delta: Delta) -> None:
        """Continue from a change: a worker has reported back on the call that it was sent with."""
        self.ref, self._messages = delta.ref, delta.messages

    def forget(self) -> None:
        """Send the whole conversation next time: the store has lost it."""
        self.ref, self._messages = None, ()


class Conversations:
    """The worker's side: reads conversations from a store, and adds to them.

    Those that were read last are kept in memory. All methods must be called on one event loop.

    Args:
        store: has the links.
        cache_bytes: how much is kept, in bytes of JSON.
    """

    def __init__(self, store: BlobStore, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[str, list[str]] = OrderedDict()
        self._bytes = 0

    async def add(self, data: Mapping[str, Any]) -> list[JSONDict]:
        """Store a link; adding it again does no harm.

        Args:
            data: that of a `Delta`.

        Returns:
            All messages, which the caller may change.

        Raises:
            StoreError: the store could not be read or written.
            StoredValueError: the conversation before is missing in the store, or is not what was stored.
        """
        ref = await put_content(self._store, _content(data))
        texts = self._cached.get(ref)
        if texts is None:
            base = data["base"]
            texts = _applied(data, await self._texts(base) if base else [], ref)
            self._forget(base)  # the next request goes on from the new link
            self._keep(ref, texts)
        return _parsed(texts)

    async def messages(self, ref: str) -> list[JSONDict]:
        """Read all messages up to a link.

        Args:
            ref: the digest of the link.

        Returns:
            The messages, which the caller may change.

        Raises:
            StoreError: the store could not be read.
            StoredValueError: a link is missing in the store, or is not what was stored.
        """
        return _parsed(await self._texts(ref))

    async def _texts(self, ref: str) -> list[str]:
        """All messages up to a link, as JSON."""
        links: list[tuple[str, JSONDict]] = []
        at: str | None = ref
        while at is not None and at not in self._cached:
            link = _link(at, await get_content(self._store, at))
            links.append((at, link))
            at = link["base"]
        texts = [] if at is None else self._cached[at]
        for key, link in reversed(links):
            texts = _applied(link, texts, key)
        self._keep(ref, texts)
        return texts

    def _keep(self, ref: str, texts: list[str]) -> None:
        """Keep a conversation as the one that was read last, and forget old ones that are too much."""
        self._forget(ref)
        self._cached[ref] = texts
        self._bytes += sum(len(text) for text in texts)
        while self._bytes > self._cache_bytes and self._cached:
            self._forget(next(iter(self._cached)))

    def _forget(self, ref: str | None) -> None:
        if ref is not None and (texts := self._cached.pop(ref, None)) is not None:
            self._bytes -= sum(len(text) for text in texts)


def _content(link: Mapping[str, Any]) -> bytes:
    return canonical_json(link).encode()


def _parsed(texts: Sequence[str]) -> list[JSONDict]:
    return json.loads(f"[{','.join(texts)}]")


def _link(key: str, content: bytes) -> JSONDict:
    """Parse a link.

    Raises:
        StoredValueError: it is none.
    """
    try:
        link = json.loads(content)
    except ValueError:
        link = None
    if not is_dict(link) or link.keys() != {"base", "pieces"}:
        raise StoredValueError(key, "is no part of a conversation")
    return link


def _applied(link: Mapping[str, Any], before: list[str], key: str) -> list[str]:
    """The messages up to a link, as JSON.

    Args:
        link: the link.
        before: the messages up to the one before.
        key: the digest of the link, for errors.
    """
    texts: list[str] = []
    for piece in link["pieces"]:
        if is_mapping(piece):
            texts.append(canonical_json(piece))
            continue
        start, end = piece
        if not 0 <= start < end <= len(before):
            raise StoredValueError(
                key, f"refers to messages {start} to {end} of a conversation with {len(before)}"
            )
        texts += before[start:end]
    return texts


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    # Python takes 1, 1.0 and True as equal.
    return one is other or (one == other and canonical_json(one) == canonical_json(other))


def _places(messages: Sequence[Mapping[str, Any]], start: int) -> dict[str, list[int]]:
    """Where each message is, from a place on, by its JSON."""
    places: dict[str, list[int]] = {}
    for place in range(start, len(messages)):
        places.setdefault(canonical_json(messages[place]), []).append(place)
    return places
