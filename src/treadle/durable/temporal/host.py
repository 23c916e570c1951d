"""What the workflows and the activities of one worker share: its loops, its store, and the listeners of its runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle.durable.temporal.fitness import check_loop
from treadle.effects import Call
from treadle.errors import OptionError, did_you_mean
from treadle.loop.subagent import Subagent

if TYPE_CHECKING:
    from treadle.loop.loop import Loop

log = logging.getLogger("treadle.durable")

Deliver = Callable[[Any], Awaitable[None] | None]


class Host:
    """What the workflows and the activities of one worker share.

    Args:
        loops: the loops that the worker runs, by name.

    Raises:
        OptionError: a loop cannot run as a workflow; the text says why.
    """

    def __init__(self, loops: Mapping[str, Loop[Any]]) -> None:
        for name, loop in loops.items():
            check_loop(loop, name)
        self._loops = dict(loops)
        self._main = asyncio.get_running_loop()
        self._relays: dict[str, Relay] = {}
        self.local_calls: dict[str, Call] = {}

    def loop(self, path: str) -> Loop[Any]:
        """The loop of a name, or of a subagent of it: ``name/tool``.

        Raises:
            OptionError: the worker has no such loop.
        """
        name, *tools = path.split("/")
        if name not in self._loops:
            known = ", ".join(map(repr, self._loops))
            raise OptionError(
                f"loop: the worker has no loop {name!r}{did_you_mean(name, list(self._loops))}; it has {known}"
            )
        loop = self._loops[name]
        for tool in tools:
            steps = loop.tools[tool].steps if tool in loop.tools else None
            if not isinstance(steps, Subagent):
                raise OptionError(f"loop: {path!r}: the worker has no subagent {tool!r}")
            loop = steps.loop_with_model
        return loop

    def relay(self, run_id: str) -> Relay | None:
        """The relay to the listeners of a run whose workflow is in this process; None if there is none."""
        return self._relays.get(run_id)

    def open_relay(self, run_id: str, deliver: Deliver) -> Relay:
        """Make the relay of a run, in place of an earlier one of that run."""
        relay = self._relays[run_id] = Relay(self._main, deliver)
        return relay

    def close_relay(self, run_id: str, relay: Relay) -> None:
        """Forget the relay of a run that has ended."""
        if self._relays.get(run_id) is relay:
            del self._relays[run_id]


class Relay:
    """Passes the events of a run to its listeners, in order, on the event loop of the worker.

    The listeners may block or wait there. In a workflow they may not.

    Args:
        main: the event loop of the worker.
        deliver: passes an event to the listeners; what it returns is awaited.
    """

    def __init__(self, main: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        self._main = main
        self._deliver = deliver
        self._waiting: list[Any] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, event: Any) -> None:
        """Add an event, in any thread."""
        self._main.call_soon_threadsafe(self._add, event)

    def _add(self, event: Any) -> None:
        self._waiting.append(event)
        if self._task is None:
            self._task = self._main.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while self._waiting:
            event = self._waiting.pop(0)
            try:
                delivered = self._deliver(event)
                if delivered is not None:
                    await delivered
            except Exception:
                log.exception("a listener raised at %s", type(event).__name__)
        self._task = None
