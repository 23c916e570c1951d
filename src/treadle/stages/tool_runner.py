"""The table of calls in flight (Planck's tool runner), and how one call is run."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from treadle.pipeline import (
    NOW,
    Call,
    Emit,
    Mode,
    Signal,
    Sleep,
    Steps,
    Then,
    TimeLimitReached,
    Within,
    is_awaitable,
)
from treadle.stages.resolver import Resolver
from treadle.stages.text import cut, error_text, render
from treadle.stages.validate_calls import check_call, told
from treadle.types import (
    Context,
    Err,
    Ok,
    RunNode,
    Tool,
    ToolCall,
    ToolContext,
    ToolFinished,
    ToolResult,
    ToolStarted,
)

RETRY_DELAY = 0.1
"""Seconds before the second try of a tool; each further try waits twice as long."""


class ToolRunner:
    """Which calls of a batch run, which are done, and how often each was made in this turn.

    Args:
        can_cancel: whether anybody holds a handle to cancel calls with; a table without one is cheaper.
    """

    def __init__(self, can_cancel: bool = False) -> None:
        self.running: dict[str, ToolCall] = {}
        self.results: dict[str, ToolResult] = {}
        self.counts: Counter[str] = Counter()
        self.stop: Signal | None = Signal() if can_cancel else None

    def start(self, calls: Iterable[ToolCall]) -> None:
        """Register calls as running, and count them."""
        for call in calls:
            self.running[call.id] = call
            self.counts[call.fingerprint] = self.counts.get(call.fingerprint, 0) + 1

    def mark_done(self, call_id: str, result: ToolResult) -> bool:
        """Note a result.

        Returns:
            Whether the call was running. A result of one that was not is stale, and is dropped.
        """
        if self.running.pop(call_id, None) is None:
            return False
        self.results[call_id] = result
        return True

    @property
    def done(self) -> bool:
        """Whether there were calls and all have their results."""
        return not self.running and bool(self.results)

    def next_batch(self) -> None:
        """Forget calls and results, and keep the counts."""
        self.running.clear()
        self.results.clear()
        if self.stop is not None and self.stop.is_set:
            self.stop = Signal()

    def new_turn(self) -> None:
        """Forget the counts too: the user has spoken."""
        self.next_batch()
        self.counts.clear()

    def cancel_all(self) -> tuple[ToolCall, ...]:
        """Stop every running call; each is answered as cancelled, and what it may yet bring is dropped.

        Returns:
            The calls that were running.
        """
        stopped = tuple(self.running.values())
        for call in stopped:
            text = "Cancelled: the call was stopped before it was done."
            self.mark_done(call.id, ToolResult(call.id, text, True, "cancelled"))
        if self.stop is not None:
            self.stop.set()
        return stopped

    def prepare_call(
        self,
        ctx: Context,
        name: str,
        call_id: str,
        arguments: Mapping[str, Any] | str,
        node: RunNode | None = None,
        *,
        is_ours: bool = False,
    ) -> Steps[ToolResult]:
        """Make the steps that check a call and run it; whatever goes wrong, they return a result.

        Args:
            ctx: has the tools and the resolver.
            name: the tool's name.
            call_id: the call's id.
            arguments: JSON text, or what JSON text would be made of.
            node: its node in the record of the run; None makes one that nobody keeps.
            is_ours: it is a step of a recipe, see `check_call`.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        call, problems = check_call(ctx, ToolCall(call_id, name, text), is_ours=is_ours)
        self.start((call,))
        if problems:
            result = ToolResult(call_id, told(call, problems), True, "invalid")
            self.mark_done(call_id, result)
            return at_once(result)
        return self.run(
            ctx, call, node or RunNode(kind="tool", created_at=0.0), attempts(ctx, call)
        )

    def run(
        self, ctx: Context, call: ToolCall, node: RunNode, steps: Steps[ToolResult]
    ) -> Steps[ToolResult]:
        """Run a valid call that was started, and note its result.

        Args:
            ctx: tells whether anybody watches.
            call: the call.
            node: its node in the record of the run.
            steps: what there is to do for it, such as `attempts`.
        """
        started = yield NOW
        node.start(started)
        try:
            if ctx.watched:
                yield Emit(ToolStarted(iteration=ctx.iteration, call=call, at=started))
            result = yield from steps
        except GeneratorExit:
            raise
        except BaseException:
            ended = yield NOW
            if self.stop is not None:
                yield from self._learn(call)
            node.fail("cancelled", ended)
            yield from self._tell(ctx, call, started, ended)
            raise
        ended = yield NOW
        if self.stop is not None:
            yield from self._learn(call)
        if result.status == "timeout":
            node.timeout(ended)
        elif result.is_error:
            node.fail(result.content, ended)
        else:
            node.succeed(at=ended)
        self.mark_done(call.id, result)
        if ctx.watched:
            yield from self._tell(ctx, call, started, ended)
        return result

    def _learn(self, call: ToolCall) -> Steps[None]:
        """Learn whether the call was cancelled through a handle; as an effect, for it comes from outside."""
        result = yield Call(self.results.get, call.id, label="cancelled", key=call.id)
        if result is not None:
            self.running.pop(call.id, None)
            self.results[call.id] = result

    def _tell(self, ctx: Context, call: ToolCall, started: float, ended: float) -> Steps[None]:
        """Tell the result that the table has: what the call brought, or that it was cancelled."""
        result = self.results.get(call.id)
        if ctx.watched and result is not None:
            yield Emit(
                ToolFinished(
                    iteration=ctx.iteration,
                    call=call,
                    result=result,
                    at=ended,
                    duration=ended - started,
                )
            )


def at_once(result: ToolResult) -> Steps[ToolResult]:
    """Steps that return a result and ask for nothing."""
    yield from ()
    return result


def attempts(ctx: Context, call: ToolCall) -> Steps[ToolResult]:
    """Run a call, again where its tool may be retried, and make a result of whatever comes."""
    tool = ctx.tools.get(call.name)
    retries = tool.retries if tool is not None else 0
    attempt = 1
    while True:
        try:
            effect = _effect(ctx, call, tool, attempt)
            if tool is None or tool.timeout is None:
                return (yield effect)
            return (yield Within(_one(effect), seconds=tool.timeout))
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            result = _failed(call, tool, error)
        if attempt > retries:
            return result
        yield Sleep(RETRY_DELAY * 2 ** (attempt - 1))
        attempt += 1


def _effect(ctx: Context, call: ToolCall, tool: Tool | None, attempt: int) -> Call:
    """The effect of making a call once: its tool's function, or the resolver; its outcome is the result."""
    if tool is not None and tool.fn is not None:
        fn = tool.bound(call.input or {}, lambda: _context(ctx, call, attempt))
        mode = _ASYNC if tool.is_async else _THREAD
    else:
        resolver: Resolver = ctx.resolve_tool
        fn, mode = functools.partial(resolver.fn, call), resolver.mode
    return Call(_answering(fn, call), mode=mode, label="execute_tool", key=call.id)


_ASYNC, _THREAD = Mode.ASYNC, Mode.THREAD


def _context(ctx: Context, call: ToolCall, attempt: int) -> ToolContext:
    return ToolContext(
        call.id, call.name, ctx.iteration, attempt, ctx.state.run_id, ctx.state.agent_name
    )


def _answering(fn: Callable[[], Any], call: ToolCall) -> Callable[[], Any]:
    """Make the result where the tool runs: what it returns may be anything, a result is data."""

    def answer() -> Any:
        value = fn()
        return Then(value, result) if is_awaitable(value) else result(value)

    result = functools.partial(_result, call)
    return answer


def _one(effect: Call) -> Steps[Any]:
    return (yield effect)


def _failed(call: ToolCall, tool: Tool | None, error: Exception) -> ToolResult:
    """The result of a try that raised; a time limit of the tool's own making is an error like others."""
    if isinstance(error, TimeLimitReached) and tool is not None and tool.timeout is not None:
        text = f"Error: {call.name!r} took longer than {tool.timeout:g} s."
        return ToolResult(call.id, text, True, "timeout")
    return ToolResult(call.id, error_text(error), True)


def _result(call: ToolCall, value: Any) -> ToolResult:
    if isinstance(value, Err):
        return ToolResult(call.id, cut(f"Error: {render(value.reason)}"), True)
    if isinstance(value, Ok):
        value = value.response
    return ToolResult(call.id, cut(render(value)))
