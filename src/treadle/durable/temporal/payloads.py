"""Large values of workflows: in the store, by the digest of their content; a history has only the digest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from treadle.durable.temporal.store import Store, get_content, put_content
from treadle.messages import JSONDict, canonical_json

INLINE_BYTES = 32_768
"""The largest value that a history has itself, as JSON. The server refuses values of more than two megabytes."""
READ_SECONDS = 30.0
"""How long a workflow waits for a value of the store."""


class Payloads:
    """Puts large values into a store, and reads them.

    Args:
        store: the store; None leaves all values where they are.
        main: the event loop on which the store is read for workflows.
    """

    def __init__(self, store: Store | None, main: asyncio.AbstractEventLoop | None = None) -> None:
        self.store = store
        self._main = main

    def is_large(self, data: Any) -> bool:
        """Whether a value belongs in the store."""
        return self.store is not None and len(canonical_json(data)) > INLINE_BYTES

    async def pack(self, data: Any) -> JSONDict:
        """Put a value into the store if it is large; return what stands for it."""
        if self.store is None:
            return {"data": data}
        text = canonical_json(data)
        if len(text) <= INLINE_BYTES:
            return {"data": data}
        return {"ref": await put_content(self.store, text.encode())}

    async def unpack(self, packed: Mapping[str, Any]) -> Any:
        """Return the value that `pack` was given.

        Raises:
            StoreError: the store could not be read.
            StoredValueError: the value is missing in the store, or there is no store.
        """
        if "data" in packed:
            return packed["data"]
        if self.store is None:
            raise RuntimeError(
                "a value of the run is in a store, and none was given: pass the store of the workers as store="
            )
        return json.loads(await get_content(self.store, packed["ref"]))

    def unpack_in_workflow(self, packed: Mapping[str, Any]) -> Any:
        """As `unpack`, in the thread of a workflow. A value never changes, so a replay reads the same."""
        if "data" in packed:
            return packed["data"]
        if self._main is None:
            raise AssertionError("unreachable: a worker has an event loop")
        reading = asyncio.run_coroutine_threadsafe(self.unpack(packed), self._main)
        return reading.result(READ_SECONDS)
