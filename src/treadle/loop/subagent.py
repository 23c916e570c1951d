"""A loop as a tool: each call is a run inside the run of the loop that calls it, and draws on its limits."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from treadle import labels
from treadle.context import Context, RunServices
from treadle.effects import (
    Call,
    CallCancelled,
    Effect,
    Emit,
    Reporter,
    Steps,
    Then,
    log_suppressed,
    map_effects,
    with_reporter,
)
from treadle.events import SubagentEvent
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.observers import Deliver
from treadle.loop.pause import PausedRun, decisions_within
from treadle.loop.start import start_subagent
from treadle.messages import JSONDict, Messages, ToolCall
from treadle.results import Err, LLMError, Ok, Paused, PipelineFailed, Result
from treadle.run_state import RunState
from treadle.stages import ReturnedError, SubagentPausedError
from treadle.tools import Approval, truncate

TASK_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "The task, with all the information that is needed for it.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}
"""The default arguments of a loop as a tool."""

MakeMessages: TypeAlias = Callable[[Mapping[str, Any]], Messages]


class Subagent:
    """Makes the steps of a call that is a run of a loop with a model; by default its arguments are one message."""

    def __init__(self, loop: BuiltLoop, messages: MakeMessages | None) -> None:
        self.loop: Any = loop
        self._messages = messages or _as_task

    def __call__(self, ctx: Context, call: ToolCall) -> Steps[Any]:
        """Make the steps of one call."""
        parent, paused = ctx.run, ctx.paused_runs.get(call.id)
        too_deep = refusal(ctx, call)
        if too_deep is not None:
            return too_deep
        if paused is None:
            given: Any = self.messages_of(call)
            state = RunState(self.name_for(call), f"{parent.state.run_id}/{call.id}")
        else:
            decisions = decisions_within(call.id, ctx.approvals, paused)
            is_taken_over = parent.in_flight.is_taken_over
            given = self.resumption(paused, decisions, take_over=is_taken_over)
            state = given.run_state
        attach(parent, call, state)
        steps, deliver = start_subagent(self.loop, given, state, parent=parent, call_id=call.id)
        result: Result = yield from _within_call(steps, call.id, deliver)
        return value_of(result, call)

    def messages_of(self, call: ToolCall) -> Messages:
        """The initial messages of the run of a call."""
        return self._messages(call.input or {})

    def name_for(self, call: ToolCall) -> str:
        """The name of the agent in the run of a call."""
        return self.loop.settings.name or call.name

    def resumption(
        self, state: JSONDict, decisions: Mapping[str, Approval], *, take_over: bool = False
    ) -> PausedRun:
        """Check the paused run of a call; its pause is claimed with that of the outer run."""
        return PausedRun(self.loop, state, decisions, None, take_over=take_over)


def run_inside(ctx: Context, loop: BuiltLoop, given: Messages, key: str) -> Steps[Result]:
    """Perform a run of a loop for a stage, as a subagent whose key takes the place of the id of a call."""
    state = RunState(loop.settings.name or key, f"{ctx.state.run_id}/{key}")
    steps, deliver = start_subagent(loop, given, state, parent=ctx.run, call_id=key)
    return (yield from _within_call(steps, key, deliver))


def _as_task(arguments: Mapping[str, Any]) -> Messages:
    """One user message: the task, or all arguments as JSON if there are others."""
    task = arguments.get("task") if len(arguments) == 1 else None
    content = task if isinstance(task, str) else json.dumps(arguments, default=str)
    return [{"role": "user", "content": content}]


def attach(parent: RunServices, call: ToolCall, state: RunState) -> None:
    """Put the state of a subagent below the node of its call."""
    node = parent.node_of(call)
    if node is not None:
        node.run = state


def refusal(ctx: Context, call: ToolCall) -> Err | None:
    """The error of the call of a subagent that would be nested too deep; None if it may start."""
    limit = ctx.run.budget.too_deep()
    if limit is None:
        return None
    depth = ctx.run.budget.depth + 1
    return Err(f"{call.name!r} was not started: it would be at depth {depth}, beyond {limit}")


def value_of(result: Result, call: ToolCall) -> Any:
    """The result of the call of a subagent: its output; a failure is an ordinary tool error."""
    match result:
        case Ok():
            return result.output
        case Paused():
            raise SubagentPausedError(result)
        case Err(reason):
            text = f"{call.name!r} gave no answer: {reason}"
            if isinstance(reason, (LLMError, PipelineFailed)):  # others are no faults of a program
                raise ReturnedError(reason, truncate(f"Error: {text}"))
            return Err(text)


def _within_call(steps: Steps[Any], call_id: str, deliver: Deliver | None) -> Steps[Any]:
    """Put the id of its call on the events and keys of a subagent; ``deliver`` passes the events on unchanged."""

    def change(effect: Effect) -> Effect | Steps[None]:
        if isinstance(effect, Emit):
            outer = Emit(SubagentEvent(call_id=call_id, event=effect.event))
            return outer if deliver is None else _observe(deliver, effect.event, outer)
        if isinstance(effect, Call):
            effect = with_reporter(effect, lambda inner: _Reporter(inner, call_id, deliver))
            return effect.replace(key=f"{call_id}/{effect.key}")
        return effect

    return map_effects(steps, change)


def _observe(deliver: Deliver, event: Any, outer: Emit) -> Steps[None]:
    try:
        yield Call(deliver, event, label=labels.OBSERVE)
    except CallCancelled as error:
        log_suppressed(error)
    except BaseException as error:
        if not isinstance(error, GeneratorExit):
            # A cancellation: the outer listeners still get the event, or they would miss a start.
            yield outer
        raise
    yield outer


class _Reporter:
    """Reports the events that a call of a subagent emits while it runs."""

    def __init__(self, inner: Reporter, call_id: str, deliver: Deliver | None) -> None:
        self._inner = inner
        self._call_id = call_id
        self._deliver = deliver
        self.now = inner.now

    def emit(
        self, event: Any, listener: Callable[[Any], Any] | None = None
    ) -> Awaitable[None] | None:
        if listener is not None:  # of a subagent of the subagent
            return self._inner.emit(event, listener)
        deliver, outer = self._deliver, SubagentEvent(call_id=self._call_id, event=event)
        # Called in the same thread as the listeners of the outer run.
        observed = None if deliver is None else self._inner.emit(event, deliver)
        if observed is None:
            return self._inner.emit(outer)
        return Then(observed, lambda _: self._inner.emit(outer))
