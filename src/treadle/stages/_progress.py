"""The progress of a call: what its tool reports while it runs, and the values that a generator yields."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from treadle import effects
from treadle.codec import finite
from treadle.effects import Reporter
from treadle.events import ToolProgress
from treadle.messages import ToolCall, copy_json, safe_str
from treadle.tools import Invoke, ToolContext, tool_result, truncate


@dataclass(slots=True, eq=False)
class ProgressReporter:
    """Emits `ToolProgress` for one attempt of a call, from whichever thread its tool runs in."""

    iteration: int
    call: ToolCall
    has_listeners: bool
    is_generator: bool
    is_over: bool = False
    _notifier: effects.Notifier | None = None
    _now: Callable[[], float] = time.time

    def report(self, message: str, progress: float | None, data: Any) -> None:
        """Emit what a tool reports with `ToolContext.report`, unless its attempt is over."""
        notifier = self._notifier
        if notifier is None or notifier.is_over or not self.has_listeners:
            return
        share = None if progress is None else finite(progress)
        notifier.notify(
            ToolProgress(
                iteration=self.iteration,
                call=self.call,
                message=truncate(safe_str(message)),
                progress=None if share is None else min(1.0, max(0.0, share)),
                data=data,
                at=self._now(),
            )
        )

    def _take(self, value: Any) -> None:
        """Report a value that a generator yielded: a text as the message, anything else as data, too."""
        if self.has_listeners:
            is_text = isinstance(value, str)
            message = value if is_text else tool_result(self.call.id, value).content
            self.report(message, None, None if is_text else copy_json(value))

    def end(self) -> None:
        """Report nothing from now on: the attempt has ended, or was cancelled."""
        self.is_over = True
        if self._notifier is not None:
            self._notifier.end()

    def wrap(self, invoke: Invoke, reporter: Reporter, *, is_async: bool) -> Invoke:
        """Wrap the invocation of a tool, where it is called; a generator is run to its end."""
        self._now = reporter.now
        notifier = self._notifier = effects.Notifier(reporter, on_loop=is_async)
        notifier.is_over = self.is_over

        def run(arguments: Mapping[str, Any], context: ToolContext | None) -> Any:
            value: Any = invoke(arguments, context)
            if self.is_generator and isinstance(value, Generator):
                return effects.last_value(value, notifier, self._take)  # pyright: ignore[reportUnknownArgumentType]
            return value

        async def run_async(arguments: Mapping[str, Any], context: ToolContext | None) -> Any:
            try:
                value: Any = invoke(arguments, context)
                if self.is_generator and isinstance(value, AsyncGenerator):
                    value = await effects.last_async_value(value, notifier, self._take)  # pyright: ignore[reportUnknownArgumentType]
                else:
                    value = await value
                await notifier.delivered()
            finally:
                notifier.end()
            return value

        return run_async if is_async else run
