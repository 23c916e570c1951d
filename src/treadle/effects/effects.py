"""Effects: everything that a stage may ask of the outside world.

A generator yields an effect and receives its outcome; if the effect fails, its exception is raised at the
``yield``. The generator never performs an effect itself, so it runs under every driver: on an event loop,
without one, from a recording. Effects are few, and each is plain data. Retries, tracing and journals wrap the
generator that yields them.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable
from enum import Enum
from types import CoroutineType
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar

R = TypeVar("R")


class Mode(Enum):
    """How to call a callable without blocking other work."""

    INLINE = "inline"
    """It returns at once: call it directly."""
    THREAD = "thread"
    """It may block: call it in a worker thread if other work would wait."""
    BRIEF = "brief"
    """It may block for milliseconds, as a write to a disk does: call it in a worker thread only if an event loop
    would wait."""
    ASYNC = "async"
    """It returns an awaitable: await it on an event loop."""


def call_mode(fn: Callable[..., Any]) -> Mode:
    """Return how to call a user-supplied callable.

    Args:
        fn: any callable; partials, bound methods and objects with ``__call__`` are looked through.

    Returns:
        ``ASYNC`` for a coroutine function, ``INLINE`` for a generator function, else ``THREAD``,
        since a plain function may block.
    """
    if any(map(inspect.iscoroutinefunction, called_by(fn))):
        return Mode.ASYNC
    return Mode.THREAD if generator_mode(fn) is None else Mode.INLINE


def generator_mode(fn: Callable[..., Any]) -> Mode | None:
    """Return how to run the generator that a user-supplied callable makes.

    Args:
        fn: any callable, see `call_mode`.

    Returns:
        ``ASYNC`` for an async generator function, ``THREAD`` for a generator function, None for others.
    """
    for candidate in called_by(fn):
        if inspect.isasyncgenfunction(candidate):
            return Mode.ASYNC
        if inspect.isgeneratorfunction(candidate):
            return Mode.THREAD
    return None


def called_by(fn: Callable[..., Any]) -> tuple[Any, Any]:
    """What a call of a callable may call: the function itself, or the ``__call__`` of its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    # Calling an object calls its class's ``__call__``; calling a class is a plain call.
    return fn, getattr(type(fn), "__call__", None)  # noqa: B004 - inspected, not called


def is_sync_callable(value: object) -> bool:
    """Whether a value can be called, and is no coroutine function."""
    return callable(value) and call_mode(value) is not Mode.ASYNC


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Whether the value that a callable returned has to be awaited."""
    kind = type(value)
    return kind is CoroutineType or (kind not in _PLAIN and hasattr(kind, "__await__"))


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, tuple, list, dict})
"""Common types that are not awaitable, checked first since a failed attribute look-up is much slower."""


class Signal:
    """A flag that is set once, from any thread, and calls its subscribers.

    It has no lock, so that the handler of a process signal may set it at any moment. If several threads find a
    subscriber in the table, only one of them can remove it.

    Attributes:
        is_set: whether the flag is set.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._subscribers: dict[object, Callable[[], object]] = {}

    def set(self) -> None:
        """Set the flag and call every subscriber, once, in the order of subscription."""
        self.is_set = True
        for ticket in list(self._subscribers):
            callback = self._subscribers.pop(ticket, None)
            if callback is not None:
                callback()

    def subscribe(self, callback: Callable[[], object]) -> object:
        """Call a function when the flag is set; at once if it is set already.

        Args:
            callback: takes no arguments; is called in the thread that sets the flag. It must not
                raise.

        Returns:
            A ticket, for `unsubscribe`.
        """
        ticket = object()
        self._subscribers[ticket] = callback
        if self.is_set:  # checked after subscribing, so that a flag set in between is not missed
            self.set()
        return ticket

    def unsubscribe(self, ticket: object) -> None:
        """Cancel a subscription; one that was notified or cancelled before is ignored."""
        self._subscribers.pop(ticket, None)


class Effect:
    """The base of all effects. A driver recognizes an effect by its exact class, so effects have no subclasses."""

    def __init_subclass__(cls) -> None:
        if Effect not in cls.__bases__:
            raise TypeError(
                f"{cls.__name__}: an effect cannot be subclassed; middleware may replace it, see map_effects"
            )


class Reporter(Protocol):
    """The clock and the listeners, for a call with ``reporting=True``, which receives it as its last argument.

    Both methods work from the thread or task in which the call runs.
    """

    def now(self) -> float:
        """The driver's clock, as `Now`: seconds since the epoch, never going back within a drive."""
        ...

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        """Hand an event to the listeners, as `Emit`.

        Args:
            event: the event.
            listener: receives it in place of the listeners of the run.

        Returns:
            None, or an awaitable if a listener is async and the call runs on the event loop of
            the run. In a worker thread of an event loop, the method returns when the listeners
            have returned. Without an event loop, an event that is emitted in another thread is
            delivered before the outcome of the call.

        Raises:
            Cancelled: the call runs in a worker thread and was abandoned. Exceptions of listeners are
                logged, never raised.
        """
        ...


Timed: TypeAlias = tuple[R, float, float]
"""An outcome, and the times of its start and end, in seconds since the epoch."""


class Call(Effect):
    """Call a function; the outcome is its return value, awaited if necessary, or its exception.

    Args:
        fn: the function.
        args: its positional arguments.
        mode: how to call it, see `call_mode`.
        label: the kind of call, for middleware that treats some kinds specially.
        key: identifies the call among its kind; the same on a replay.
        reporting: whether the driver appends a `Reporter` to the arguments.
        about: the object that the call is about, for a driver that performs the call elsewhere: the `ModelRequest`
            of a request to the model, the `Tool` of a call of a tool. Middleware that replaces the function
            keeps it.
        once: whether it must not be called again if its outcome is lost, as when the process ends.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *args: Any,
        mode: Mode = Mode.INLINE,
        label: str = "",
        key: str = "",
        reporting: bool = False,
        about: Any = None,
        once: bool = False,
    ) -> None:
        self.fn = fn
        self.args = args
        self.mode = mode
        self.label = label
        self.key = key
        self.reporting = reporting
        self.about = about
        self.once = once

    def replace(self, *, fn: Callable[..., Any] | None = None, key: str | None = None) -> Call:
        """Copy the call with another function or key; None keeps that of this call."""
        call = copy.copy(self)
        call.fn = self.fn if fn is None else fn
        call.key = self.key if key is None else key
        return call

    def __repr__(self) -> str:
        # A partial, or an object that can be called, may show a secret.
        name = self.label or getattr(self.fn, "__name__", type(self.fn).__name__)
        return f"Call({name!r}, key={self.key!r})"


class Parallel(Effect):
    """Run several steps at once; the outcome is the list of their return values, in order.

    The first to raise cancels the others, and its exception is the outcome.

    Args:
        steps: generators of effects.
        limit: how many may run at the same time; None means all.

    Raises:
        ValueError: the limit is below 1.
    """

    def __init__(self, steps: Iterable[Steps[Any]], limit: int | None = None) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self.steps = list(steps)
        self.limit = limit


class Bounded(Effect):
    """Run steps within bounds; the outcome is their return value, or the bound that ended them.

    Args:
        steps: a generator of effects. It is cancelled at the bound: the cancellation is raised
            at its ``yield``, and it may still yield effects for its cleanup. A callable that
            ignores the cancellation is abandoned after a grace period of one second.
        seconds: the number of seconds after which to raise `TimeLimitReached`; None means no limit.
        until: raise `Stopped` as soon as this signal is set; None means never.
    """

    def __init__(
        self, steps: Steps[Any], *, seconds: float | None = None, until: Signal | None = None
    ) -> None:
        self.steps = steps
        self.seconds = seconds
        self.until = until


class Sleep(Effect):
    """Wait for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class Wait(Effect):
    """Wait until a signal is set."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal


class Now(Effect):
    """Read the clock; the outcome is seconds since the epoch, never going back within a drive."""


NOW = Now()
"""The effect `Now`, which has no arguments."""


class Emit(Effect):
    """Hand an event to the listeners; the outcome is None.

    Exceptions of listeners are logged, and the steps continue.
    """

    def __init__(self, event: Any) -> None:
        self.event = event

    def __repr__(self) -> str:
        return f"Emit({type(self.event).__name__})"


Steps: TypeAlias = Generator[Effect, Any, R]
"""A generator of effects that returns an R; a driver performs it."""


class TimeLimitReached(TimeoutError):  # noqa: N818 - an outcome, not an error
    """The steps of a `Bounded` took longer than its time limit."""


class Stopped(Exception):  # noqa: N818 - an outcome, not an error
    """The signal that bounds the steps of a `Bounded` was set."""


class Cancelled(BaseException):
    """Raised within cancelled steps, unless the event loop has raised its own class there.

    As in asyncio and trio, it is not an `Exception`, so that it is not swallowed by accident.
    """
