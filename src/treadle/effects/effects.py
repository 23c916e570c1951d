"""Effects: all that a stage may ask of the world.

A generator yields an effect and is handed its outcome, or has its failure thrown in where it
yielded. It never performs one itself, so the same generator runs under every driver: on an event
loop, without one, from a recording. Effects are few, and each is plain data; what is built of them
(retries, tracing, journals) wraps the generator that yields them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

R = TypeVar("R")


class Mode(Enum):
    """How a callable has to be called so that it holds nobody up."""

    INLINE = "inline"
    """It returns at once: call it where you stand."""
    THREAD = "thread"
    """It may block: call it in a worker thread where other work would wait."""
    ASYNC = "async"
    """It returns an awaitable: await it on an event loop."""


def call_mode(fn: Callable[..., Any]) -> Mode:
    """Tell how to call a function that somebody else wrote.

    Args:
        fn: any callable; partials, bound methods and objects with ``__call__`` are looked through.

    Returns:
        ``ASYNC`` for a coroutine function, ``INLINE`` for a function that only makes a generator,
        ``THREAD`` for all else, since a plain function may block.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    # An object is called as its class says. A class is called to make one, which is plain.
    for candidate in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004 - for its code
        if inspect.iscoroutinefunction(candidate):
            return Mode.ASYNC
        if inspect.isasyncgenfunction(candidate) or inspect.isgeneratorfunction(candidate):
            return Mode.INLINE
    return Mode.THREAD


def is_awaitable(value: object) -> bool:
    """Whether something that a callable returned is yet to be awaited."""
    return hasattr(type(value), "__await__")


class Signal:
    """A flag that is raised once, from any thread, and tells those who asked to be told.

    There is no lock in it, so that the handler of a process signal may raise it at any moment: of
    all who find a subscriber in the table, only one can take it out.
    """

    __slots__ = ("_is_set", "_subscribers")

    def __init__(self) -> None:
        self._is_set = False
        self._subscribers: dict[object, Callable[[], object]] = {}

    @property
    def is_set(self) -> bool:
        """Whether the flag is up."""
        return self._is_set

    def set(self) -> None:
        """Raise the flag and call every subscriber, once, in the order they came."""
        self._is_set = True
        for ticket in list(self._subscribers):
            callback = self._subscribers.pop(ticket, None)
            if callback is not None:
                callback()

    def subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have a function called when the flag goes up; at once if it is up already.

        Args:
            callback: takes nothing; is called in the thread that raises the flag. It must not
                raise.

        Returns:
            A function that takes the subscription back.
        """
        ticket = object()
        self._subscribers[ticket] = callback
        if self._is_set:  # looked at after subscribing: a flag that goes up in between finds us
            self.set()

        def unsubscribe() -> None:
            self._subscribers.pop(ticket, None)

        return unsubscribe


class Effect:
    """The base of all effects."""

    __slots__ = ()


class Reporter(Protocol):
    """What a call with ``reporting=True`` receives as its last argument: the clock and the listeners.

    Both methods work from the thread or task in which the call runs.
    """

    def now(self) -> float:
        """The driver's clock, as `Now`: seconds since the epoch, never going back within a drive."""
        ...

    def emit(self, event: Any) -> Awaitable[None] | None:
        """Hand an event to the listeners, as `Emit`.

        Returns:
            None, or an awaitable where a listener is async and the call runs on the event loop of
            the run. In a worker thread of an event loop, the method returns when the listeners
            have returned. Without an event loop, an event that is emitted in another thread is
            handed over before the outcome of the call is.

        Raises:
            Cancelled: the call runs in a worker thread and was abandoned. What listeners raise is
                logged, never raised.
        """
        ...


class Timed(NamedTuple):
    """An outcome with the times of its start and end, in seconds since the epoch."""

    value: Any
    started: float
    ended: float


class Call(Effect):
    """Call a function; the outcome is what it returns, awaited if need be, or what it raises.

    Args:
        fn: the function.
        args: its positional arguments.
        mode: how to call it, see `call_mode`.
        label: what sort of call this is, for middleware that treat some calls specially.
        key: which one of its sort it is; the same on a replay.
        reporting: whether the driver appends a `Reporter` to the arguments.
    """

    __slots__ = ("args", "fn", "key", "label", "mode", "reporting")

    def __init__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        mode: Mode = Mode.INLINE,
        label: str = "",
        key: str = "",
        reporting: bool = False,
    ) -> None:
        self.fn = fn
        self.args = args
        self.mode = mode
        self.label = label
        self.key = key
        self.reporting = reporting

    def __repr__(self) -> str:
        return f"Call({self.label or getattr(self.fn, '__name__', self.fn)!r}, key={self.key!r})"


class Parallel(Effect):
    """Run several steps at once; the outcome is the list of what they return, in their order.

    The first to raise cancels the others, and what it raised is the outcome.

    Args:
        steps: generators of effects.
        limit: how many may run at one time; None is all.

    Raises:
        ValueError: a limit below 1, under which nothing would ever run.
    """

    __slots__ = ("limit", "steps")

    def __init__(self, steps: Iterable[Steps[Any]], limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self.steps = list(steps)
        self.limit = limit


class Bounded(Effect):
    """Run steps within bounds; the outcome is theirs, or the bound that ended them.

    Args:
        steps: a generator of effects. It is cancelled at the bound: the cancellation is raised
            where it yielded, and it may still do what leaves things in order.
        seconds: raise `TimeLimitReached` after so long; None is no limit.
        until: raise `Stopped` as soon as this signal is set; None is never.
    """

    __slots__ = ("seconds", "steps", "until")

    def __init__(
        self, steps: Steps[Any], *, seconds: float | None = None, until: Signal | None = None
    ) -> None:
        self.steps = steps
        self.seconds = seconds
        self.until = until


class Sleep(Effect):
    """Do nothing for some seconds."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Wait(Effect):
    """Do nothing until a signal is set."""

    __slots__ = ("signal",)

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


class Now(Effect):
    """Read the clock; the outcome is seconds since the epoch, never going back within a drive."""

    __slots__ = ()


NOW = Now()


class Emit(Effect):
    """Hand an event to whoever watches; the outcome is None, whatever the watchers do.

    A watcher that raises is logged, and the steps go on.
    """

    __slots__ = ("event",)

    def __init__(self, event: Any) -> None:
        self.event = event


Steps: TypeAlias = Generator[Effect, Any, R]
"""A generator of effects that returns an R: what a driver runs."""


class TimeLimitReached(TimeoutError):  # noqa: N818 - a thing that happened, not an error
    """The steps of a `Bounded` took longer than they were given."""


class Stopped(Exception):  # noqa: N818 - a thing that happened, not an error
    """The signal that bounds the steps of a `Bounded` was set."""


class Cancelled(BaseException):
    """What is raised within steps that are cancelled, where no event loop has its own class for it.

    Like its siblings in asyncio and trio it is no `Exception`, so that nobody swallows it unaware.
    """


class CallCancelled(Exception):  # noqa: N818 - named after what happened to the call
    """A callable raised a cancellation of its own making, though nobody had cancelled it."""
