"""What the workflows and the activities of a worker share: its loops, its store, the listeners of its runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from temporalio import workflow

from treadle.context import Context
from treadle.durable.temporal.conversation import Conversations
from treadle.durable.temporal.fitness import check_loop, is_limit
from treadle.durable.temporal.subagents import has_subagents, with_child_workflows
from treadle.effects import Call
from treadle.errors import OptionError, did_you_mean
from treadle.events import SubagentEvent
from treadle.loop.subagent import Subagent
from treadle.pipeline import Pipeline, stage
from treadle.telemetry import no_telemetry
from treadle.tools import toolset

if TYPE_CHECKING:
    from treadle.durable.temporal.blob_store import BlobStore
    from treadle.loop.loop import Loop

log = logging.getLogger("treadle.durable")

Deliver = Callable[[Any], Awaitable[None] | None]
MAX_RELAYS = 10_000
"""The number of runs whose listeners are kept, for the time in which they are not in the memory of the worker."""
HAND_OVER = "hand_over"
"""The stage after which a run with a long history goes on in a new one."""


class Host:
    """What the workflows and the activities of one worker share.

    Args:
        loops: the loops that the worker runs, by name.
        store: has large values, and the conversations; None leaves them in the histories.
        max_events: the number of events of a history from which a run goes on in a new one; None leaves it to the
            server to suggest that.

    Raises:
        OptionError: a loop cannot run as a workflow; the text says why.
    """

    def __init__(
        self, loops: Mapping[str, Loop[Any]], store: BlobStore | None, max_events: int | None
    ) -> None:
        for name, loop in loops.items():
            check_loop(loop, name)
        self._loops = dict(loops)
        self._max_events = max_events
        self._main = asyncio.get_running_loop()
        self._relays: dict[str, Relay] = {}
        self._of_workflows: dict[str, Loop[Any]] = {}
        self.conversations = None if store is None else Conversations(store)
        self.local_calls: dict[str, tuple[Call, str, str, str | None]] = {}
        self._marks: set[str] = set()
        for name in loops:
            self.loop_of_workflows(name)  # raises before a run starts, if something does not fit

    # Loops

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
            loop = steps.loop
        return loop

    def outer_loops(self, path: str) -> list[Loop[Any]]:
        """The loops of the runs around one of a subagent, the nearest first."""
        parts = path.split("/")
        return [self.loop("/".join(parts[:end])) for end in range(len(parts) - 1, 0, -1)]

    def loop_of_workflows(self, path: str) -> Loop[Any]:
        """The loop as its workflows run it: its subagents are child workflows, and a long history ends."""
        if path not in self._of_workflows:
            loop = self.loop(path)
            stages: Any = loop.settings.stages
            if stages is None:
                stages = [...]
            given = stages.components if isinstance(stages, Pipeline) else list(stages)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            changes: dict[str, Any] = {
                "stages": [*given, stage(self._hand_over, HAND_OVER)],
                "telemetry": no_telemetry(),
            }
            middleware = loop.settings.model_middleware
            if any(map(is_limit, middleware)):
                changes["model_middleware"] = tuple(one for one in middleware if not is_limit(one))
            if has_subagents(loop.tools):
                changes["tools"] = with_child_workflows(toolset(loop.settings.tools), path)
            self._of_workflows[path] = loop.with_options(**changes)
        return self._of_workflows[path]

    def _hand_over(self, ctx: Context) -> Context:
        """Pause the run, without a call that waits, if the history of its workflow is long."""
        info = workflow.info()
        most = self._max_events
        is_long = most is not None and info.get_current_history_length() >= most
        if (is_long or info.is_continue_as_new_suggested()) and ctx.decision is None:
            return ctx.pause(())
        return ctx

    # Calls that must not be made twice

    def mark(self) -> str:
        """Make a mark, which lets this process make one call, once.

        The workflow has it in its history before the call is made. If the outcome is lost, the workflow asks for
        the call again, with the same mark; another process does not have it, and this one has used it.
        """
        mark = os.urandom(8).hex()
        self._marks.add(mark)
        return mark

    def use(self, mark: str) -> bool:
        """Use a mark; return whether this process had it."""
        try:
            self._marks.remove(mark)
        except KeyError:
            return False
        return True

    # Listeners

    def relay(self, key: str) -> Relay | None:
        """The relay to the listeners of a part of a run; None if its workflow is in another process."""
        return self._relays.get(key)

    def open_relay(
        self, key: str, deliver: Deliver | None, outer: Mapping[str, Any] | None
    ) -> Relay | None:
        """Open the relay of a part of a run.

        If the run was in the memory of this worker before, the listeners that know it are those of the relay.

        Args:
            key: the key of the part.
            deliver: passes an event to the listeners; None if there are none.
            outer: what a subagent knows of the outer run; None if the run is not a subagent.

        Returns:
            None without a listener.
        """
        listeners = [] if deliver is None else [deliver]
        if outer is not None and outer["has_listeners"]:
            listeners.append(self._to_outer(outer["relay"], outer["call_id"]))
        if not listeners:
            return None
        if key not in self._relays:
            self._relays[key] = Relay(self._main, listeners)
            if len(self._relays) > MAX_RELAYS:  # runs that went on elsewhere
                del self._relays[next(iter(self._relays))]
        return self._relays[key]

    def _to_outer(self, key: str, call_id: str) -> Deliver:
        """What passes the events of a subagent to the listeners of its outer run."""

        def deliver(event: Any) -> None:
            relay = self.relay(key)
            if relay is not None:
                relay.put(SubagentEvent(call_id=call_id, event=event))

        return deliver

    def close_relay(self, key: str) -> None:
        """Forget the relay of a part that has ended."""
        self._relays.pop(key, None)


class Relay:
    """Passes the events of a run to its listeners, in order, on the event loop of the worker.

    The listeners may block or wait there. In a workflow they may not.

    Args:
        main: the event loop of the worker.
        listeners: each is passed an event; what it returns is awaited.

    Attributes:
        has_events: whether the listeners have received its first event.
    """

    def __init__(self, main: asyncio.AbstractEventLoop, listeners: list[Deliver]) -> None:
        self._main = main
        self._listeners = listeners
        self._waiting: deque[Any] = deque()
        self._task: asyncio.Task[None] | None = None
        self.has_events = False

    def put(self, event: Any) -> None:
        """Add an event, in any thread."""
        self.has_events = True
        self._main.call_soon_threadsafe(self._add, event)

    def _add(self, event: Any) -> None:
        self._waiting.append(event)
        if self._task is None:
            self._task = self._main.create_task(self._pass_on())

    async def _pass_on(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            for listener in self._listeners:
                try:
                    delivered = listener(event)
                    if delivered is not None:
                        await delivered
                except Exception:
                    log.exception("a listener raised at %s", type(event).__name__)
        self._task = None
