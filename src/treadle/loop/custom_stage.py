"""Custom stages: each checks the context that it received and the one that it returns."""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from dataclasses import replace
from types import FunctionType
from typing import Any
from weakref import WeakSet

from treadle.context import Context
from treadle.effects import Steps, is_awaitable
from treadle.loop.stage_guard import protect, review
from treadle.pipeline import Stage
from treadle.pipeline.compiler import Kind, kind_of

_CHECKED: WeakSet[Any] = WeakSet()
"""The functions that `checked` made."""


def checked(stage: Stage[..., Any]) -> Stage[..., Any]:
    """Copy a custom stage so that it checks its contexts.

    Args:
        stage: a plain function, a generator or an ``async def``. A copy that this function made is returned
            unchanged, as it arrives with ``Loop(stages=loop.pipeline)``.

    Returns:
        A stage of the same kind, with the same name, fields and options.
    """
    fn: Any = stage.fn
    if isinstance(fn, FunctionType) and fn in _CHECKED:
        return stage

    def plain(ctx: Context, /, *args: Any, **options: Any) -> Any:
        protect(ctx)
        after = fn(ctx, *args, **options)
        return _awaited(ctx, after) if is_awaitable(after) else _reviewed(ctx, after)

    def generator(ctx: Context, /, *args: Any, **options: Any) -> Steps[Any]:
        protect(ctx)
        return _reviewed(ctx, (yield from fn(ctx, *args, **options)))

    async def coroutine(ctx: Context, /, *args: Any, **options: Any) -> Any:
        protect(ctx)
        return _reviewed(ctx, await fn(ctx, *args, **options))

    wrappers: dict[Kind, Any] = {Kind.GENERATOR: generator, Kind.CALL: coroutine}
    wrapper = functools.wraps(fn)(wrappers.get(kind_of(fn, stage.name), plain))
    _CHECKED.add(wrapper)
    return replace(stage, fn=wrapper)


async def _awaited(before: Context, after: Awaitable[Any]) -> Any:
    return _reviewed(before, await after)


def _reviewed(before: Context, after: Any) -> Any:
    """Review the returned context; the pipeline refuses any other value."""
    # The name in the trace is the full one, such as ``embedded.stage``.
    return review(before.stage, before, after) if isinstance(after, Context) else after
