"""The ways to run one loop: in a thread, on asyncio, on trio; awaited or streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import settings

from treadle import Loop, RunState

settings.register_profile("whole", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("whole")


@dataclass
class Told:
    """What came of a run.

    Args:
        result: what it returned.
        events: what it told, in order.
        state: its record.
    """

    result: Any = None
    events: list[Any] = field(default_factory=list)
    state: RunState = field(default_factory=lambda: RunState("agent", "run"))


class Way:
    """One way to run a loop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.backend = name.removeprefix("stream_")

    def __repr__(self) -> str:
        return self.name

    @property
    def is_sync(self) -> bool:
        return self.name == "sync"

    @property
    def is_streamed(self) -> bool:
        return self.name.startswith("stream_")

    def run(self, messages: Any, llm: Any, **options: Any) -> Told:
        """Run to the end."""
        told = Told(state=options.pop("state", None) or RunState("agent", "run"))
        options["state"] = told.state
        if self.is_streamed:
            anyio.run(_read, told, messages, llm, options, backend=self.backend)
            return told
        options["on_event"] = told.events.append
        if self.is_sync:
            told.result = Loop.run_sync(messages, llm, **options)
        else:
            told.result = self.call(Loop.run, messages, llm, **options)
        return told

    def call(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Await an async function on the event loop of this way."""

        async def called() -> Any:
            return await fn(*args, **options)

        return anyio.run(called, backend=self.backend)


async def _read(told: Told, messages: Any, llm: Any, options: dict[str, Any]) -> None:
    async with Loop.stream(messages, llm, **options) as events:
        told.events.extend([event async for event in events])
    told.result = events.result


SYNC, ASYNCIO, TRIO = Way("sync"), Way("asyncio"), Way("trio")
AWAITED = [ASYNCIO, TRIO]
DRIVEN = [SYNC, ASYNCIO, TRIO]
WAYS = [*DRIVEN, Way("stream_asyncio"), Way("stream_trio")]


@pytest.fixture(params=WAYS, ids=repr)
def way(request: Any) -> Way:
    """Every way there is."""
    return request.param


@pytest.fixture(params=DRIVEN, ids=repr)
def driven(request: Any) -> Way:
    """Without an event loop, on asyncio, on trio."""
    return request.param


@pytest.fixture(params=AWAITED, ids=repr)
def awaited(request: Any) -> Way:
    """On asyncio, on trio."""
    return request.param
