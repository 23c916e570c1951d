"""A loop as a tool of another: its steps run in the midst of the other's, and draw on what that has left."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from treadle import labels
from treadle.context import Context
from treadle.effects import Call, Effect, Emit, Parallel, Steps, map_effects
from treadle.events import SubagentEvent
from treadle.loop.pause import Resumption, within
from treadle.loop.run import ParentRun
from treadle.messages import JSONDict, Messages, ToolCall
from treadle.results import Err, Ok, Paused, Result
from treadle.run_state import RunState
from treadle.stages import SubagentPausedError
from treadle.tools import Approval

if TYPE_CHECKING:
    from treadle.loop.loop import Loop
    from treadle.loop.observers import Observers
    from treadle.model import LLMSendFn


TASK_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "What to do, with everything that is needed to do it.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}
"""What a loop takes as a tool, unless one says otherwise."""

MakeMessages = Callable[[Mapping[str, Any]], Messages]


class ChildLoop:
    """What makes the steps of a call that is a run of a loop.

    Args:
        loop: the loop.
        llm_send_fn: its model.
        messages: makes what a run starts from, of the arguments; None makes one user message of them.
        instructions: a system message that comes before it; None is none.
    """

    def __init__(
        self,
        loop: Loop,
        llm_send_fn: LLMSendFn,
        messages: MakeMessages | None,
        instructions: str | None,
    ) -> None:
        self._loop = loop
        self._llm_send_fn = llm_send_fn
        self._messages = messages or _as_task
        self._instructions = instructions

    def __call__(self, ctx: Context, call: ToolCall) -> Steps[Any]:
        """Make the steps of one call.

        Args:
            ctx: of the run that makes the call.
            call: the call.
        """
        around = ParentRun(
            ctx.budget,
            ctx.runner.locks,
            ctx.runner.held_by(call.id),
            ctx.runner.is_bounded or ctx.tools[call.name].timeout is not None,
        )
        paused = ctx.children.get(call.id)
        if paused is None:
            given: Any = self._start_with(call.input or {})
            state = RunState(self._loop.settings.name or call.name, f"{ctx.state.run_id}/{call.id}")
        else:
            waiting = {pending["id"] for pending in paused["pending"]}
            decisions = within(call.id, ctx.approvals)  # those of an earlier pause among them
            given = self.resumption(
                paused, {key: decisions[key] for key in decisions.keys() & waiting}
            )
            state = given.run_state
        _record(ctx, call, state)
        steps, observers = self._loop.child_steps(
            given, self._llm_send_fn, state, around, has_listeners=ctx.has_listeners
        )
        result: Result = yield from nested(steps, call.id, observers)
        return _value_of(result, call)

    def _start_with(self, arguments: Mapping[str, Any]) -> Messages:
        messages = list(self._messages(arguments))
        if self._instructions is None:
            return messages
        return [{"role": "system", "content": self._instructions}, *messages]

    def resumption(self, state: JSONDict, decisions: Mapping[str, Approval]) -> Resumption:
        """The paused run of a call, checked; its pause is claimed with that of the run around it."""
        loop = self._loop
        return Resumption(
            state, decisions, loop.tools, loop.pause_secret, lambda _: True, pipeline=loop.pipeline
        )


def _as_task(arguments: Mapping[str, Any]) -> Messages:
    """One user message: the task, or all arguments where there is more to it."""
    task = arguments.get("task") if len(arguments) == 1 else None
    content = task if isinstance(task, str) else json.dumps(arguments, default=str)
    return [{"role": "user", "content": content}]


def _record(ctx: Context, call: ToolCall, state: RunState) -> None:
    """Put the record of the run below the node of its call."""
    node = ctx.state.current_node
    for made in node.tool_calls if node is not None else ():
        if made.group_id == call.id:
            made.run = state


def _value_of(result: Result, call: ToolCall) -> Any:
    """What the call brings: the output or the text of an answer; a failure is an ordinary tool error."""
    match result:
        case Ok():
            return result.response.text if result.output is None else result.output
        case Paused():
            raise SubagentPausedError(result)
        case Err():
            return Err(f"{call.name!r} gave no answer: {result.reason}")


def nested(steps: Steps[Any], call_id: str, observers: Observers | None) -> Steps[Any]:
    """The steps of a run as part of another's: its events tell whose they are, as do its calls.

    Args:
        steps: the run.
        call_id: the call that it is.
        observers: are told its events as they are; None is nobody.
    """

    def see(effect: Effect) -> Effect:
        if isinstance(effect, Emit):
            outer = Emit(SubagentEvent(call_id=call_id, event=effect.event))
            if observers is None:
                return outer
            return Parallel([_tell(observers, effect.event, outer)])
        if isinstance(effect, Call):
            key = f"{call_id}/{effect.key}"
            return Call(effect.fn, *effect.args, mode=effect.mode, label=effect.label, key=key)
        return effect

    return map_effects(steps, see)


def _tell(observers: Observers, event: Any, outer: Emit) -> Steps[None]:
    try:
        yield Call(observers, event, label=labels.OBSERVE)
    except GeneratorExit:
        raise
    except BaseException:
        # A cancellation: those around are told all the same, or they would miss a start.
        yield outer
        raise
    yield outer
