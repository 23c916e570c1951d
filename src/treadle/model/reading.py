"""Reads the stream of a model piece by piece, and closes it if it breaks off."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Generator
from contextvars import Context
from typing import Any

from treadle.effects import in_context, is_awaitable

log = logging.getLogger("treadle.model")

END = object()
"""Takes the place of the piece after the last one."""


def close_unawaited(raw: Any) -> None:
    """Close a coroutine that was never awaited, to avoid Python's warning."""
    if inspect.iscoroutine(raw) and inspect.getcoroutinestate(raw) == inspect.CORO_CREATED:
        raw.close()


async def next_of(iterator: Any, context: Context) -> Any:
    """The next piece, or `END`."""
    import anyio.to_thread  # noqa: PLC0415 - slow to import

    if isinstance(iterator, AsyncIterator):
        return await in_context(_anext(iterator), context)  # pyright: ignore[reportUnknownArgumentType]
    following = functools.partial(context.run, next, iterator, END)
    return await anyio.to_thread.run_sync(following, abandon_on_cancel=True)


async def _anext(iterator: AsyncIterator[Any]) -> Any:
    # Not `anext(iterator, END)`: it crashes CPython 3.11 if `__anext__` raises at once.
    try:
        return await iterator.__anext__()
    except StopAsyncIteration:
        return END


@contextlib.contextmanager
def _logged() -> Generator[None]:
    """Log an exception of closing: the caller has to see the earlier one, which broke off the response."""
    try:
        yield
    except Exception:
        log.debug("closing a broken stream failed", exc_info=True)


def close(iterator: Any, context: Context) -> Any:
    """Close a stream, if it can be closed; the result may be an awaitable."""
    with _logged():
        for name in ("aclose", "close"):
            close = getattr(iterator, name, None)
            if callable(close):
                return context.run(close)
    return None


async def close_async(iterator: Any, context: Context) -> None:
    """Close a stream on an event loop."""
    with _logged():
        closed = close(iterator, context)
        if is_awaitable(closed):
            await in_context(closed, context)
