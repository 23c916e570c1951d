"""Running the calls of a batch (Planck's tool runner): under locks, recorded, told, and answered at any end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.pipeline import NOW, Call, Emit, Steps
from treadle.stages.breaker import CircuitBreaker
from treadle.stages.call_table import CallTable
from treadle.stages.calling import ChildPausedError, at_once, attempts
from treadle.stages.evidence import Evidence
from treadle.stages.locks import LockedError, Locks
from treadle.stages.text import error_text
from treadle.stages.validate_calls import check_call, told
from treadle.types import (
    Context,
    Paused,
    RunNode,
    RunNodeStatus,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
    labels,
)

_NOTHING_HELD: Mapping[str, str] = {}


class ToolRunner(CallTable):
    """Runs calls, and keeps the table of them.

    Args:
        can_cancel: see `CallTable`.
        is_bounded: whether there is a bound at which calls are given up.
        locks: who holds which key; None makes a table of its own.
        held: the keys that are held around this run, where it is a call of another, each with the name under
            which it is held.
        breaker: is asked before calls are made; None is nobody.
    """

    def __init__(
        self,
        can_cancel: bool = False,
        *,
        is_bounded: bool = False,
        locks: Locks | None = None,
        held: Mapping[str, str] = _NOTHING_HELD,
        breaker: CircuitBreaker | None = None,
    ) -> None:
        super().__init__(can_cancel)
        self.is_bounded = can_cancel or is_bounded
        self.evidence = Evidence()
        self.locks = Locks() if locks is None else locks
        self.breaker = breaker
        self.now = 0.0
        self._held_around = held
        self._held: dict[str, Mapping[str, str]] = {}

    def next_batch(self) -> None:
        """Forget calls and results, and keep the counts."""
        super().next_batch()
        self._held.clear()

    def new_turn(self) -> None:
        """Forget the counts too, and what was learned: the user has spoken."""
        super().new_turn()
        self.evidence.new_turn()

    def prepare_call(
        self,
        ctx: Context,
        name: str,
        call_id: str,
        arguments: Mapping[str, Any] | str,
        node: RunNode | None = None,
        *,
        within: str | None = None,
    ) -> Steps[ToolResult]:
        """Make the steps that check a call and run it; whatever goes wrong, they return a result.

        Args:
            ctx: has the tools and the resolver.
            name: the tool's name.
            call_id: the call's id.
            arguments: JSON text, or what JSON text would be made of.
            node: its node in the record of the run; None makes one that nobody keeps.
            within: the id of the call whose recipe it is a step of; None of one that is no step.
        """
        if ctx.runner is not self:
            ctx = ctx.replace(runner=self)
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        call, problems = check_call(ctx, ToolCall(call_id, name, text), is_ours=within is not None)
        self.start((call,))
        if problems:
            result = ToolResult(call_id, told(call, problems), True, "invalid")
            self.mark_done(call_id, result)
            return at_once(result)
        refusal = _refusal(ctx, call)
        if refusal is not None:
            self.mark_done(call_id, refusal)
            return at_once(refusal)
        node = node or RunNode(kind="tool", created_at=0.0)
        return self.run(ctx, call, node, attempts(ctx, call), within)

    def held_by(self, call_id: str) -> Mapping[str, str]:
        """The keys that are held by a call, and around it, each with the name under which it is held."""
        return self._held.get(call_id, self._held_around)

    def run(
        self,
        ctx: Context,
        call: ToolCall,
        node: RunNode,
        steps: Steps[ToolResult],
        within: str | None = None,
    ) -> Steps[ToolResult]:
        """Run a valid call that was started, and note its result.

        Args:
            ctx: tells whether anybody watches.
            call: the call.
            node: its node in the record of the run.
            steps: what there is to do for it, such as `attempts`.
            within: the id of the call that it is a step of; None of one that the model made.
        """
        tool = ctx.tools.get(call.name)
        if within is not None:
            self._held[call.id] = self.held_by(within)
        if tool is None or tool.lock is None:
            return self._run(ctx, call, node, steps, within)
        return self._run_locked(ctx, call, node, steps, within)

    def _run_locked(
        self,
        ctx: Context,
        call: ToolCall,
        node: RunNode,
        steps: Steps[ToolResult],
        within: str | None,
    ) -> Steps[ToolResult]:
        """Hold the keys of a call while it runs; it begins when it has them all.

        A key that is held around it already is one that it has; under another name it is taken again, so that
        the calls within one holder do not overlap either.
        """
        around = self._held_around if within is None else self.held_by(within)
        try:
            keys = ctx.tools[call.name].lock_keys(call.input or {})
            wanted = {key: f"{around[key]}>" if key in around else key for key in keys}
            self._held[call.id] = {**around, **wanted}
            # Whoever holds a key must not wait for what others hold, or they could wait for each other.
            may_wait = {name: key in around or not around for key, name in wanted.items()}
            running = self._run(ctx, call, node, steps, within)
            return (yield from self.locks.holding(may_wait, running))
        except LockedError as error:
            result = ToolResult(call.id, f"Not run: {error}", True, "skipped")
        except Exception as error:  # noqa: BLE001 - the function that makes the key is somebody else's
            result = ToolResult(call.id, error_text(error), True, "skipped")
        finally:
            self._held.pop(call.id, None)
        steps.close()
        return (yield from self._run(ctx, call, node, at_once(result), within))

    def _run(
        self,
        ctx: Context,
        call: ToolCall,
        node: RunNode,
        steps: Steps[ToolResult],
        within: str | None,
    ) -> Steps[ToolResult]:
        self.now = started = yield NOW
        if node.status is RunNodeStatus.INIT:  # it is running where it goes on after a pause
            node.start(started)
        try:
            if ctx.watched:
                yield Emit(
                    ToolStarted(iteration=ctx.iteration, call=call, at=started, within=within)
                )
            result = yield from steps
        except GeneratorExit:
            raise
        except ChildPausedError as waiting:
            ended = yield NOW
            return (yield from self._wait(ctx, call, waiting.paused, started, ended))
        except BaseException:
            ended = yield NOW
            yield from self._learn(call, self.results, self.brought)
            late = self.results.get(call.id)
            if late is None:
                node.fail("cancelled", ended)
            else:
                _end(node, late, ended)
            yield from self._tell(ctx, call, started, ended, late)
            raise
        ended = yield NOW
        if self.stop is not None:
            yield from self._learn(call, self.results)
        self.mark_done(call.id, result)
        if result.is_error or self.stop is not None:  # else nobody can have cancelled it
            _end(node, self.results.get(call.id, result), ended)
        else:
            node.succeed(at=ended)
        if ctx.watched:
            yield from self._tell(ctx, call, started, ended, self.results.get(call.id))
        return result

    def _wait(
        self, ctx: Context, call: ToolCall, paused: Paused, started: float, ended: float
    ) -> Steps[ToolResult]:
        """Take note that a call waits for a person: it is over for now, and has no result."""
        self.running.pop(call.id, None)
        self.paused[call.id] = paused
        result = ToolResult(call.id, "It waits for approval.", status="waiting")
        yield from self._tell(ctx, call, started, ended, result)
        return result

    def _learn(self, call: ToolCall, *tables: Mapping[str, ToolResult]) -> Steps[None]:
        """Learn whether the call was cancelled through a handle, or had brought something when it was.

        This is an effect, for it comes from outside.
        """
        result = yield Call(_found, call.id, tables, label=labels.CANCELLED, key=call.id)
        if result is not None:
            self.running.pop(call.id, None)
            self.results[call.id] = result

    @staticmethod
    def _tell(
        ctx: Context, call: ToolCall, started: float, ended: float, result: ToolResult | None
    ) -> Steps[None]:
        """Tell the result that the table has: what the call brought, or that it was cancelled."""
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


def _end(node: RunNode, result: ToolResult, ended: float) -> None:
    if result.status == "timeout":
        node.timeout(ended)
    elif result.is_error:
        node.fail(result.content, ended)
    else:
        node.succeed(at=ended)


def _found(call_id: str, tables: Iterable[Mapping[str, ToolResult]]) -> ToolResult | None:
    return next((table[call_id] for table in tables if call_id in table), None)


def _refusal(ctx: Context, call: ToolCall) -> ToolResult | None:
    """Why a call that is in no plan may not run; None where it may, and it counts as a use of its tool then."""
    tool = ctx.tools.get(call.name)
    if tool is None:
        return None
    if tool.approval_of(call.input or {}) is not None:
        text = (
            f"Error: {call.name!r} needs approval, which nobody can be asked for within a recipe."
        )
        return ToolResult(call.id, text, True, "denied")
    if tool.max_uses is not None:
        if not ctx.budget.uses_left(call.name, tool.max_uses):
            text = (
                f"Not run: {call.name!r} may be used {tool.max_uses} times in a run, and has been."
            )
            return ToolResult(call.id, text, True, "over_budget")
        ctx.budget.take_uses({call.name: 1})
    return None
