"""The driver for event loops: asyncio and trio, through anyio."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import functools
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread

from treadle.effects.cleanup import CLEANUP_SECONDS, GRACE_SECONDS, log, report, shut
from treadle.effects.effects import (
    Bounded,
    Call,
    CallCancelled,
    Cancelled,
    Effect,
    Emit,
    Mode,
    Now,
    Parallel,
    Reporter,
    Signal,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
    is_awaitable,
)


def cancellations_of_task() -> int:
    """How often this task was asked to cancel; trio has cancellations of a class of its own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return task.cancelling() if task is not None else 0


def one_of(errors: BaseExceptionGroup[BaseException], cancellations: int) -> BaseException:
    """What to raise in place of a group: its first error, with the cause and context that has.

    Args:
        errors: the group.
        cancellations: how often this task had been asked to cancel when the group began. If it was
            asked since, the group has lost that to the error, and it comes first.
    """
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = cast("Any", first).exceptions[0]
    if isinstance(first, Exception) and cancellations_of_task() > cancellations:
        cancelled = asyncio.CancelledError()
        cancelled.__cause__ = first
        return cancelled
    return first


@asynccontextmanager
async def background_task(task: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncGenerator[None]:
    """Run a task beside the body of an ``async with``, and cancel it when the body ends.

    What either of the two raises ends the other, and is raised by itself.
    """
    cancellations = cancellations_of_task()
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        failure = one_of(errors, cancellations)
    if failure is not None:
        raise failure


async def wait_for(signal: Signal) -> None:
    """Wait until a signal is set."""
    if not signal.is_set:
        event = anyio.Event()
        unsubscribe = tell(signal, event.set)
        try:
            await event.wait()
        finally:
            unsubscribe()


def trio_here() -> Any:
    """The module ``trio`` where it runs the code that asks, else None; it is never imported."""
    trio: Any = sys.modules.get("trio")
    return trio if trio is not None and trio.lowlevel.in_trio_task() else None


def tell(signal: Signal, callback: Callable[[], object]) -> Callable[[], None]:
    """Subscribe a function that must run on this event loop, whichever thread sets the signal.

    That thread never waits for the loop: the loop may be waiting for it.
    """
    home = threading.get_ident()
    in_task, soon = _in_trio() or _in_asyncio()

    def on_loop() -> None:
        if threading.get_ident() == home and in_task():
            callback()
        else:  # another thread, or the handler of a process signal, which finds the loop asleep
            with contextlib.suppress(RuntimeError):  # the loop ended first: nobody waits
                soon(callback)

    return signal.subscribe(on_loop)


_Loop: TypeAlias = tuple[Callable[[], bool], Callable[[Callable[[], object]], object]]
"""Of an event loop: whether a task of it runs in this thread, and how to have it call something."""


def _in_trio() -> _Loop | None:
    trio = trio_here()
    if trio is None:
        return None
    return trio.lowlevel.in_trio_task, trio.lowlevel.current_trio_token().run_sync_soon


def _in_asyncio() -> _Loop:
    loop = asyncio.get_running_loop()
    return lambda: asyncio.current_task(loop) is not None, loop.call_soon_threadsafe


async def call_detached(effect: Call, grace: float) -> Any:
    """Make a call in a task of its own, and wait for it.

    Args:
        effect: the call; what its callable returns is awaited.
        grace: how many seconds the call has to end once the waiting for it is cancelled.

    Returns:
        What the call comes to, as with a plain ``await``.

    Raises:
        CallCancelled: the call was cancelled, though nobody had cancelled the waiting for it.
    """
    trio = trio_here()
    if trio is None:
        return await _on_asyncio(effect, grace)
    return await _on_trio(trio, effect, grace)


class _Outcome:
    """What comes of a call, kept apart from its task: the task itself never fails.

    An exception that stays in a task is logged where nobody asks for it, and an interrupt in one
    ends the loop before those who wait can leave things in order.
    """

    __slots__ = ("error", "is_there", "value")

    def __init__(self) -> None:
        self.is_there = False
        self.value: Any = None
        self.error: BaseException | None = None

    async def of(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Make the call."""
        try:
            self.value = await fn(*args)
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is waited for
            self.error = error
        self.is_there = True

    def take(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        error, self.error = self.error, None  # its traceback leads to this object: no circles
        try:
            if error is None and self.is_there:
                return self.value
            if error is None or isinstance(error, _CANCELLATIONS):
                raise CallCancelled("it was cancelled from within") from error
            raise error
        finally:
            del error

    def drop(self) -> None:
        """Pass over what came of a call that was cancelled; only an interrupt is everybody's."""
        error, self.error = self.error, None
        if isinstance(error, Exception):
            report(error)
        elif error is not None and not isinstance(error, _CANCELLATIONS):
            raise error


_CANCELLATIONS = (asyncio.CancelledError, concurrent.futures.CancelledError)


def _tell_left(effect: Call, grace: float) -> None:
    log.warning("%r still goes on %g s after it was cancelled: it is left behind", effect, grace)


async def _on_asyncio(effect: Call, grace: float) -> Any:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    outcome = _Outcome()

    async def work() -> None:
        if not ended.cancelled():  # else who waits was cancelled before the call was made
            await outcome.of(effect.fn, *effect.args)
            end()

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    task = loop.create_task(work())
    asyncio._unregister_task(task)  # noqa: SLF001 - it is documented, for tasks of one's own
    task.add_done_callback(end)  # for a task that others cancel before it begins
    try:
        await ended
    except GeneratorExit:  # nothing can be awaited any more
        with contextlib.suppress(RuntimeError):  # the loop is closed
            task.cancel()
        raise
    except BaseException:
        task.cancel()
        if await _ends(task, grace):
            outcome.drop()
        else:
            _tell_left(effect, grace)
            _leave(task)
        raise
    return outcome.take()


async def _ends(task: asyncio.Task[None], grace: float) -> bool:
    """Wait for a task, whatever is cancelled meanwhile; tell whether it ended in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    with anyio.CancelScope(shield=True):
        while not task.done() and (left := deadline - loop.time()) > 0:
            # Who waits is cancelled already; to be cancelled again tells nothing new.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,), timeout=left)
    return task.done()


def _leave(task: asyncio.Task[None]) -> None:
    left = _left_behind()
    left.add(task)
    task.add_done_callback(left.discard)


@functools.cache
def _left_behind() -> set[asyncio.Task[None]]:
    """The tasks that were left behind and go on, held for good.

    Python closes a coroutine that nobody holds, and one that catches everything would catch that as
    well and never return. When the interpreter leaves, only what a daemon thread holds is left
    alone.
    """
    tasks: set[asyncio.Task[None]] = set()
    keeper = threading.Thread(target=_hold, args=(tasks,), name="treadle-left-behind", daemon=True)
    with contextlib.suppress(RuntimeError):  # the system has no more threads to give
        keeper.start()
    return tasks


def _hold(_: object) -> None:
    threading.Event().wait()


async def _on_trio(trio: Any, effect: Call, grace: float) -> Any:
    await trio.lowlevel.checkpoint_if_cancelled()
    ended, stop, shelter = trio.Event(), trio.CancelScope(), trio.CancelScope()
    outcome = _Outcome()

    async def bounded() -> Any:
        with stop, shelter:
            return await effect.fn(*effect.args)

    async def work() -> None:
        await outcome.of(bounded)
        ended.set()

    trio.lowlevel.spawn_system_task(work, context=contextvars.copy_context())
    try:
        await ended.wait()
    except (trio.Cancelled, KeyboardInterrupt):
        stop.cancel()
        with trio.move_on_after(grace, shield=True):
            await ended.wait()
        if ended.is_set():
            outcome.drop()
        else:
            _tell_left(effect, grace)
            shelter.shield = True  # else each of its waits is cancelled at once, and it spins
        raise
    return outcome.take()


class _ThreadReporter:
    """The reporter of a call in a worker thread.

    Args:
        reporter: its counterpart on the event loop.
    """

    __slots__ = ("_home", "_reporter", "_token", "is_abandoned", "now")

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._home = threading.get_ident()
        self._token = anyio.lowlevel.current_token()
        self.is_abandoned = False
        self.now = reporter.now

    def emit(self, event: Any) -> Awaitable[None] | None:
        """See `Reporter`."""
        if threading.get_ident() == self._home:  # in the awaitable that the callable returned
            return self._reporter.emit(event)
        if not self.is_abandoned:
            try:
                interrupt = anyio.from_thread.run(self._on_loop, event, token=self._token)
            except BaseException as error:  # cancelled meanwhile, or the event loop has ended
                raise Cancelled("the call was abandoned") from error
            if interrupt is not None:
                raise interrupt
            if not self.is_abandoned:
                return None
        raise Cancelled("the call was abandoned")

    async def _on_loop(self, event: Any) -> BaseException | None:
        """Call the listeners; return what asks to exit: in a task it would end the event loop."""
        if not self.is_abandoned:
            try:
                emitted = self._reporter.emit(event)
                if emitted is not None:
                    await emitted
            except (KeyboardInterrupt, SystemExit) as interrupt:
                return interrupt
        return None


async def call_in_thread(effect: Call, reporter: Reporter, grace: float) -> Any:
    """Make a call in a worker thread, which is left to itself when the call is cancelled.

    Args:
        effect: the call. Where its callable returns an awaitable, that is awaited as by
            `call_detached`: what nobody has to wait for in a thread does not hold up the loop.
        reporter: what a reporting call uses, on the event loop.
        grace: see `call_detached`.
    """
    value = await _in_thread(effect, _ThreadReporter(reporter))
    if not is_awaitable(value):
        return value
    is_begun = False

    async def awaited() -> Any:
        nonlocal is_begun
        is_begun = True
        return await value

    try:
        return await call_detached(Call(awaited, label=effect.label, key=effect.key), grace)
    finally:
        if not is_begun:
            _let_go([value])


async def _in_thread(effect: Call, reporter: _ThreadReporter) -> Any:
    """What the callable returns.

    It is handed over in a list: trio takes no function that returns a coroutine, and one that comes
    too late has to be closed.
    """
    outcome: list[Any] = []
    args = (*effect.args, reporter) if effect.reporting else effect.args

    def work() -> None:
        outcome.append(effect.fn(*args))
        if reporter.is_abandoned:
            _let_go(outcome)

    try:
        await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except BaseException:
        reporter.is_abandoned = True
        _let_go(outcome)
        raise
    return outcome.pop()


def _let_go(outcome: list[Any]) -> None:
    with contextlib.suppress(IndexError):  # the other thread has it
        value = outcome.pop()
        if isinstance(value, Coroutine):
            value.close()


R = TypeVar("R")


async def drive(
    steps: Steps[R],
    emit: Callable[[Any], Any] | None = None,
    *,
    grace: float = GRACE_SECONDS,
) -> R:
    """Perform every effect of some steps on the running event loop.

    Args:
        steps: a generator of effects that has not been started.
        emit: is handed the event of every `Emit`; may return an awaitable. What it raises is
            logged.
        grace: how many seconds a `Mode.DETACHED` call that was cancelled may take to end.

    Returns:
        What the steps return.

    Raises:
        Exception: what the steps raise. A cancellation is raised within the steps first, and then
            on.
    """
    return await AsyncDriver(emit, grace).drive(steps)


# Members are looked up slowly, and this is the hot path.
_ASYNC, _INLINE, _THREAD = Mode.ASYNC, Mode.INLINE, Mode.THREAD


class AsyncDriver:
    """Performs effects for one run; see `drive`."""

    __slots__ = ("_clock_origin", "_emit", "_grace")

    def __init__(
        self, emit: Callable[[Any], Any] | None = None, grace: float = GRACE_SECONDS
    ) -> None:
        self._emit = emit
        self._grace = grace
        self._clock_origin = time.time() - time.perf_counter()

    async def drive(self, steps: Steps[R]) -> R:
        """Perform every effect of the steps, one after another."""
        send, throw = steps.send, steps.throw
        try:
            effect = send(None)
            while True:
                try:
                    # The three that happen on every iteration are performed here, not a call away.
                    kind = type(effect)
                    if kind is Call:
                        outcome = await self._call(effect)  # type: ignore[arg-type] # as `kind` says
                    elif kind is Now:
                        outcome = self.now()
                    else:
                        outcome = await self._perform(effect)
                except Exception as error:  # noqa: BLE001 - a failure is the steps' to deal with
                    effect = throw(error)
                except GeneratorExit:  # nothing can be performed any more
                    shut(steps)
                    raise
                except BaseException as end:
                    await self._wind_up(steps, end)
                    raise
                else:
                    effect = send(outcome)
        except StopIteration as stop:
            result: R = stop.value
            return result

    async def _wind_up(self, steps: Steps[Any], end: BaseException) -> None:
        """Raise a cancellation within steps, and perform what they still do, shielded from it."""
        with anyio.move_on_after(CLEANUP_SECONDS, shield=True) as scope:
            try:
                effect = steps.throw(end)
                while True:
                    try:
                        outcome = await self._perform(effect)
                    except Exception as error:  # noqa: BLE001 - as above
                        effect = steps.throw(error)
                    else:
                        effect = steps.send(outcome)
            except StopIteration:
                return
            except Exception as error:  # noqa: BLE001 - the cancellation stands
                report(error)
            except BaseException as raised:
                if raised is not end:
                    raise
        if scope.cancelled_caught:
            shut(steps)

    async def _perform(self, effect: Effect) -> Any:  # noqa: PLR0911 - one for each kind of effect
        match effect:
            case Emit():  # the most frequent here
                told = self.emit(effect.event)
                return None if told is None else await told
            case Call():
                return await self._call(effect)
            case Now():
                return self.now()
            case Parallel():
                return await self._parallel(effect)
            case Bounded():
                return await self._within(effect)
            case Sleep(seconds=seconds):
                return await anyio.sleep(max(0.0, seconds))
            case Wait(signal=signal):
                return await wait_for(signal)
            case _:
                raise TypeError(f"a stage yielded {effect!r}, which is no effect")

    def now(self) -> float:
        """See `Reporter`: the driver is the reporter of what it calls on its event loop."""
        return self._clock_origin + time.perf_counter()

    def emit(self, event: Any) -> Awaitable[None] | None:
        """See `Reporter`."""
        if self._emit is None:
            return None
        try:
            told = self._emit(event)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see there
            _watcher_failed(error)
            return None
        return _wait_for_watcher(told) if is_awaitable(told) else None

    async def _call(self, effect: Call) -> Any:
        try:
            mode, args = effect.mode, effect.args
            if mode is _THREAD:
                return await call_in_thread(effect, self, self._grace)
            if effect.reporting:
                args = (*args, self)
            if mode is _ASYNC:
                return await effect.fn(*args)
            if mode is _INLINE:
                value = effect.fn(*args)
                return await value if is_awaitable(value) else value
            return await call_detached(
                Call(effect.fn, *args, label=effect.label, key=effect.key), self._grace
            )
        except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and cancellations_of_task() > 0:
                raise
            raise CallCancelled("it was cancelled from within") from error

    async def _parallel(self, effect: Parallel) -> list[Any]:
        if len(effect.steps) == 1:
            return [await self.drive(effect.steps[0])]
        results: list[Any] = [None] * len(effect.steps)
        waiting = deque(enumerate(effect.steps))

        async def work() -> None:
            while waiting:
                index, steps = waiting.popleft()
                try:
                    results[index] = await self.drive(steps)
                except BaseException as raised:
                    waiting.clear()  # before anybody else takes one
                    if not isinstance(raised, (KeyboardInterrupt, SystemExit)):
                        raise
                    # Out of a task of its own it would end the loop before anybody can clear up.
                    interrupts.append(raised)
                    group.cancel_scope.cancel()

        cancellations = cancellations_of_task()
        interrupts: list[BaseException] = []
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                for _ in range(min(effect.limit or len(results), len(results))):
                    group.start_soon(work)
        except BaseExceptionGroup as errors:
            failure = one_of(errors, cancellations)
        for raised in (*interrupts, failure):
            if raised is not None:  # outside the handler, where the group would become its context
                raise raised
        return results

    async def _within(self, effect: Bounded) -> Any:
        if effect.until is not None and effect.until.is_set:
            shut(effect.steps)
            raise Stopped
        with anyio.CancelScope() as scope:
            if effect.seconds is not None:
                scope.deadline = anyio.current_time() + effect.seconds
            unsubscribe = tell(effect.until, scope.cancel) if effect.until is not None else None
            try:
                return await self.drive(effect.steps)
            finally:
                if unsubscribe is not None:
                    unsubscribe()
        if effect.until is not None and effect.until.is_set:
            raise Stopped
        raise TimeLimitReached(f"it took longer than {effect.seconds:g} s")


async def _wait_for_watcher(told: Awaitable[Any]) -> None:
    try:
        await told
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - see there
        _watcher_failed(error)


def _watcher_failed(error: BaseException) -> None:
    """Report what a watcher raised, which changes nothing; a cancellation of the task goes on its way."""
    if isinstance(error, Exception):
        report(error)
    elif cancellations_of_task() > 0:
        raise error
    else:
        report(CallCancelled("a watcher was cancelled from within"))
