"""Dispatch recipes: one call that expands to several, and a result composed of theirs."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from treadle import labels
from treadle.context import Context
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Emit,
    Mode,
    Parallel,
    Sleep,
    Steps,
    Then,
    TimeLimitReached,
    is_awaitable,
)
from treadle.events import ToolFinished, ToolRetried, ToolStarted
from treadle.messages import ATOMS, ToolCall, ToolResult, copy_json
from treadle.results import Err, Ok, Paused
from treadle.run_state import RunNode, RunNodeStatus
from treadle.stages._validate_calls import check_call, told
from treadle.tools import (
    CircuitBreaker,
    InFlight,
    LockedError,
    Locks,
    Recipe,
    Resolver,
    ResultCache,
    Step,
    Tool,
    ToolContext,
    as_recipe,
    error_text,
    render,
    truncate,
)

RETRY_DELAY = 0.1
"""Seconds before the second try of a tool; each further try waits twice as long."""


class SubagentPausedError(Exception):
    """A call is made of a run that waits for a person; so the call waits, too.

    Args:
        paused: how that run stands.
    """

    def __init__(self, paused: Paused) -> None:
        super().__init__("a run within this call waits for approval")
        self.paused = paused


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
            if tool is not None and tool.steps is not None:
                return (yield from _by_steps(ctx, call, tool))
            effect = _effect(ctx, call, tool, attempt)
            if tool is None or tool.timeout is None:
                return (yield effect)
            return (yield Bounded(_one(effect), seconds=tool.timeout))
        except SubagentPausedError:
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
            result = _failed(call, tool, error)
            kind = "timeout" if result.status == "timeout" else type(error).__name__
        if attempt > retries:
            return result
        delay = RETRY_DELAY * 2 ** (attempt - 1)
        if ctx.has_listeners:
            now = yield NOW
            yield Emit(
                ToolRetried(
                    iteration=ctx.iteration,
                    call=call,
                    attempt=attempt,
                    error=result.content,
                    error_type=kind,
                    delay=delay,
                    at=now,
                )
            )
        yield Sleep(delay)
        attempt += 1


def _effect(ctx: Context, call: ToolCall, tool: Tool | None, attempt: int) -> Call:
    """The effect of making a call once: its tool's function, or the resolver; its outcome is the result."""
    if tool is not None and tool.fn is not None:
        given = call.input or {}
        arguments = given if tool.has_flat_input else _for_this_try(given)
        fn = tool.bound(arguments, lambda: _context(ctx, call, attempt))
        mode = _ASYNC if tool.is_async else _THREAD
    else:
        resolver: Resolver = ctx.resolve_tool
        theirs = dataclasses.replace(call, input=_for_this_try(call.input or {}))
        fn, mode = functools.partial(resolver.fn, theirs), resolver.mode
    if mode is _ASYNC and (ctx.runner.is_bounded or (tool is not None and tool.timeout)):
        mode = Mode.DETACHED  # whoever has set a bound must not wait for one that ignores it
    return Call(
        _answering(fn, call, ctx.runner.brought), mode=mode, label=labels.EXECUTE_TOOL, key=call.id
    )


def _for_this_try(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, for a function that may change what it is given: the call, and its next try, keep theirs."""
    for value in arguments.values():
        if value.__class__ not in ATOMS:
            return copy_json(dict(arguments))
    return arguments


def _by_steps(ctx: Context, call: ToolCall, tool: Tool) -> Steps[ToolResult]:
    """Run a tool that is made of steps, in the midst of this run's."""
    steps: Steps[Any] = tool.steps(ctx, call)  # type: ignore[misc]  # asked for above
    value = (
        (yield from steps) if tool.timeout is None else (yield Bounded(steps, seconds=tool.timeout))
    )
    return _result(call, value)


_ASYNC, _THREAD = Mode.ASYNC, Mode.THREAD


def _context(ctx: Context, call: ToolCall, attempt: int) -> ToolContext:
    return ToolContext(
        call.id,
        call.name,
        ctx.iteration,
        attempt,
        ctx.state.run_id,
        ctx.state.agent_name,
        ctx.budget.remaining(ctx.runner.now),
    )


def _answering(
    fn: Callable[[], Any], call: ToolCall, brought: dict[str, ToolResult]
) -> Callable[[], Any]:
    """Make the result where the tool runs: what it returns may be anything, a result is data.

    It is noted there, too: whoever is cancelled while he waits for it can still see that it came.
    """

    def answer() -> Any:
        value = fn()
        return Then(value, result) if is_awaitable(value) else result(value)

    def result(value: Any) -> ToolResult:
        made = brought[call.id] = _result(call, value)
        return made

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
        return ToolResult(call.id, truncate(f"Error: {render(value.reason)}"), True)
    if isinstance(value, Ok):
        value = value.response
    return ToolResult(call.id, truncate(render(value)))


_NOTHING_HELD: Mapping[str, str] = {}


class ToolRunner(InFlight):
    """Runs calls, and keeps the table of them.

    Args:
        can_cancel: see `InFlight`.
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
        self.evidence = ResultCache()
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
            if ctx.has_listeners:
                yield Emit(
                    ToolStarted(iteration=ctx.iteration, call=call, at=started, within=within)
                )
            result = yield from steps
        except GeneratorExit:
            raise
        except SubagentPausedError as waiting:
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
        if ctx.has_listeners:
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
        if ctx.has_listeners and result is not None:
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
    if tool.approval_question(call.input or {}) is not None:
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
        ctx.budget.reserve_uses({call.name: 1})
    return None


log = logging.getLogger("treadle.stages")


def cook(ctx: Context, call: ToolCall, node: RunNode) -> Steps[ToolResult]:
    """Run a call by the resolver's recipe, or directly where it has none or the recipe fails.

    Args:
        ctx: has the resolver.
        call: a valid call that was started.
        node: its node; the nodes of the sub-calls go under it.
    """
    try:
        recipe = _recipe_for(ctx, call)
        if recipe is not None:
            return (yield from _cook(ctx, call, node, recipe))
    except Exception:
        log.warning("the recipe of %r failed; resolving it directly", call.name, exc_info=True)
    return (yield from attempts(ctx, call))


def _recipe_for(ctx: Context, call: ToolCall) -> Recipe | None:
    resolver: Resolver = ctx.resolve_tool
    maker = resolver.recipe(call.name)
    return None if maker is None else as_recipe(maker(call.input or {}))


def _cook(ctx: Context, call: ToolCall, node: RunNode, recipe: Recipe) -> Steps[ToolResult]:
    results: dict[str, ToolResult] = {}
    serial = _labelled(recipe.serial, ())
    parallel = _labelled(recipe.parallel, serial)
    for label, step in serial.items():
        results[label] = yield from _take_step(ctx, f"{call.id}/{label}", node, step, results)
    together = [
        _take_step(ctx, f"{call.id}/{label}", node, step, results)
        for label, step in parallel.items()
    ]
    outcomes = yield Parallel(together, ctx.limits.max_parallel_calls)
    results.update(zip(parallel, outcomes, strict=True))
    made = recipe.compose
    composed = compose(results, tuple(serial)) if made is None else render(made(results))
    return ToolResult(call.id, truncate(composed))


def _labelled(steps: Sequence[Step], taken: Sequence[str] | Mapping[str, Step]) -> dict[str, Step]:
    """The steps by label, those of one label numbered."""
    labelled: dict[str, Step] = {}
    for step in steps:
        label, number = step.label or step.tool, 1
        while label in labelled or label in taken:
            number += 1
            label = f"{step.label or step.tool} {number}"
        labelled[label] = step
    return labelled


def _take_step(
    ctx: Context, call_id: str, parent: RunNode, step: Step, results: Mapping[str, ToolResult]
) -> Steps[ToolResult]:
    """Make the steps of one sub-call, checked like any call; its failure is its result.

    The record has the sub-calls in their order, whichever of them a driver starts first.
    """
    runner: ToolRunner = ctx.runner
    node = RunNode(
        parent.agent_name,
        parent.step_index,
        kind="tool",
        name=step.tool,
        group_id=call_id,
        created_at=parent.created_at,
    )
    try:
        arguments = step.arguments(dict(results)) if callable(step.arguments) else step.arguments
        steps = runner.prepare_call(
            ctx, step.tool, call_id, arguments, node, within=parent.group_id
        )
    except Exception as error:  # noqa: BLE001 - a function of the recipe's author
        return at_once(ToolResult(call_id, error_text(error), True))
    parent.tool_calls.append(node)
    return _forgotten(runner, call_id, steps)


def _forgotten(runner: ToolRunner, call_id: str, steps: Steps[ToolResult]) -> Steps[ToolResult]:
    """The steps of a sub-call, whose result is no answer to a call of the model."""
    result = yield from steps
    runner.results.pop(call_id, None)
    if runner.paused.pop(call_id, None) is not None:
        text = "Error: it needs approval, which nobody can be asked for within a recipe."
        return ToolResult(call_id, text, True, "denied")
    return result


def compose(results: Mapping[str, ToolResult], serial: Sequence[str]) -> str:
    """Compose results where a recipe does not say how: serial ones, additional ones, errors.

    Args:
        results: all results, by label.
        serial: the labels of the serial steps.
    """
    good = {label: result for label, result in results.items() if not result.is_error}
    sections = [
        ("Results", {label: good[label] for label in serial if label in good}),
        ("Additional results", {k: v for k, v in good.items() if k not in serial}),
        ("Errors", {label: result for label, result in results.items() if result.is_error}),
    ]
    told = [
        f"## {title}\n\n"
        + "\n\n".join(f"### {label}\n{result.content}" for label, result in part.items())
        for title, part in sections
        if part
    ]
    return "\n\n".join(told) or "No results."
