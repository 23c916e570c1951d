"""The world of a run that is interrupted: models and tools, which outlive the processes of the run."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from treadle import ToolResult, labels
from treadle.effects import Call, Effect, Mode, Steps, is_awaitable, map_effects
from treadle.loop.subagent import Subagent
from treadle.tools import Tool, ToolCallTable, as_tool

from .memory import MemoryJournal

REAL = {labels.CHAT, labels.EXECUTE_TOOL}
"""The calls of models and tools."""


class World:
    """Performs the calls of models and tools. A call that is made again has the outcome that it had before.

    A call is known by its label, its key and the number of outcomes of calls with both in the journal, so that an
    attempt after a failed one is another call.

    Attributes:
        ran: how often each call was performed.
        once: the calls that must not be performed twice.
    """

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self._outcomes: dict[Any, tuple[Any, Exception | None]] = {}
        self._mutexes: dict[Any, threading.Lock] = {}
        self.ran: Counter[Any] = Counter()
        self.once: set[Any] = set()

    def __call__(self, steps: Steps[Any]) -> Steps[Any]:
        """The middleware of each process of the run."""
        return map_effects(steps, self._change)

    def _change(self, effect: Effect) -> Effect:
        if not (isinstance(effect, Call) and effect.label in REAL):
            return effect
        known = effect.label, effect.key
        place = (*known, self._journal.counts[known])
        if effect.once:
            self.once.add(place)
        fn = self._async if effect.mode is Mode.ASYNC else self._sync
        mutex = self._mutexes.setdefault(place, threading.Lock())

        def act(*args: Any) -> Any:
            return fn(effect.fn, place, mutex, args)

        async def act_later(*args: Any) -> Any:
            return await fn(effect.fn, place, mutex, args)

        return effect.replace(fn=act_later if effect.mode is Mode.ASYNC else act)

    def _sync(
        self, fn: Callable[..., Any], place: Any, mutex: threading.Lock, args: tuple[Any, ...]
    ) -> Any:
        with mutex:  # a thread of the process that ended may still perform it
            if place in self._outcomes:
                return self._known(place, args)
            self.ran[place] += 1
            try:
                made = fn(*args)
            except Exception as error:
                self._outcomes[place] = None, error
                raise
            if not is_awaitable(made):
                self._outcomes[place] = made, None
                return made
        return self._awaited(made, place)

    async def _async(
        self, fn: Callable[..., Any], place: Any, mutex: threading.Lock, args: tuple[Any, ...]
    ) -> Any:
        del mutex
        if place in self._outcomes:
            return self._known(place, args)
        self.ran[place] += 1
        return await self._awaited(fn(*args), place)

    async def _awaited(self, made: Any, place: Any) -> Any:
        try:
            outcome = await made
        except Exception as error:
            self._outcomes[place] = None, error
            raise
        self._outcomes[place] = outcome, None
        return outcome

    def _known(self, place: Any, args: tuple[Any, ...]) -> Any:
        outcome, error = self._outcomes[place]
        if error is not None:
            raise error
        if not isinstance(outcome, tuple):
            return outcome
        if isinstance(outcome[0], ToolResult):
            for one in args:
                if isinstance(one, ToolCallTable):
                    one.complete(outcome[0])
        now = args[-1].now()
        return outcome[0], now, now


def repeatable(options: dict[str, Any]) -> dict[str, Any]:
    """The options with tools that may run again, also those of subagents."""
    return {**options, "tools": [_repeatable(as_tool(one)) for one in options.get("tools", ())]}


def _repeatable(one: Tool) -> Tool:
    if isinstance(one.steps, Subagent):
        tools = [_repeatable(made) for made in one.steps.loop.tools.values() if not made.terminal]
        loop = one.steps.loop.with_options(tools=tools)
        steps = Subagent(loop, one.steps._messages)
        return dataclasses.replace(one, steps=steps)
    return dataclasses.replace(one, idempotent=True)
