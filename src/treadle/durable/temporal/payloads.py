"""The values of workflows: large ones are in the store, by the digest of their content; a history has the digest.

Every value passes through a codec on its way to the server and back, on the event loop of the worker or of the
caller. So no workflow waits for a store.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.converter import DataConverter, PayloadCodec

from treadle.durable.temporal.blob_store import BlobStore, get_content, put_content
from treadle.errors import TreadleError

INLINE_BYTES = 32_768
"""The largest value that a history has itself, if there is a store."""
ENGINE_BYTES = 2_000_000
"""The largest value without a store, as JSON. The server refuses more than 2 MiB, with its metadata."""
TASK_BYTES = 3_000_000
"""The most that a workflow sends at once. The server refuses messages of more than 4 MiB."""
_STORED = b"treadle/stored"


class ValueTooLargeError(TreadleError, ValueError):
    """A value is larger than the server takes; the text names the value and its size."""

    retryable = False


def checked_size(data: Any, what: str) -> int:
    """The size of a value as it is sent to the server, in bytes.

    Raises:
        ValueTooLargeError: the server does not take it.
    """
    size = len(json.dumps(data, separators=(",", ":")))
    if size > ENGINE_BYTES:
        raise ValueTooLargeError(
            f"{what}: {size:,} bytes as JSON; Temporal takes at most {ENGINE_BYTES:,}. Give the workers and the "
            "callers a store, which has larger ones"
        )
    return size


class StoreCodec(PayloadCodec):
    """Puts large values into a store, after another codec, such as one that encrypts them.

    Args:
        store: the store; None leaves all values where they are.
        inner: the other codec; None if there is none.
    """

    def __init__(self, store: BlobStore | None, inner: PayloadCodec | None) -> None:
        self._store = store
        self._inner = inner

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encode payloads, and put the large ones into the store.

        Raises:
            StoreError: the store could not be written.
        """
        made = [*payloads] if self._inner is None else await self._inner.encode(payloads)
        return list(await asyncio.gather(*map(self._stored, made)))

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decode payloads, with those that are in the store.

        Raises:
            StoreError: the store could not be read.
            StoredValueError: the value is missing in the store.
            RuntimeError: there is no store.
        """
        found = list(await asyncio.gather(*map(self._read, payloads)))
        return found if self._inner is None else await self._inner.decode(found)

    async def _stored(self, payload: Payload) -> Payload:
        if self._store is None or len(payload.data) <= INLINE_BYTES:
            return payload
        key = await put_content(self._store, payload.SerializeToString(deterministic=True))
        return Payload(metadata={"encoding": _STORED}, data=key.encode())

    async def _read(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != _STORED:
            return payload
        if self._store is None:
            raise RuntimeError(
                "a value of the run is in a store, and none was given: pass the store of the workers as store="
            )
        return Payload.FromString(await get_content(self._store, payload.data.decode()))


def with_store(client: Client, store: BlobStore | None) -> Client:
    """The client with a store for its large values."""
    config = client.config()
    config["data_converter"] = converter_with_store(config["data_converter"], store)
    return Client(**config)


def converter_with_store(converter: DataConverter, store: BlobStore | None) -> DataConverter:
    """The data converter with a store for its large values."""
    codec = StoreCodec(store, converter.payload_codec)
    return dataclasses.replace(converter, payload_codec=codec)
