"""A paused run as JSON, and back: signed, so that what was changed underway is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from treadle import labels
from treadle.context import Context
from treadle.effects import NOW, Call, Mode, Steps, call_mode
from treadle.errors import OptionError, TreadleError, did_you_mean
from treadle.messages import (
    History,
    JSONDict,
    Response,
    ToolCall,
    ToolResult,
    Usage,
    is_mapping,
    sendable_json,
)
from treadle.pipeline import Pipeline
from treadle.results import Paused, PendingCall
from treadle.run_state import RunState
from treadle.stages import inject, parse_tool_calls
from treadle.tools import Approval, NotRunReason, Plan, PlanReason, Tool, fingerprint

if TYPE_CHECKING:
    from treadle.loop.run import Iterations, Plant


WAITING = "Not run yet: the run waits for somebody's approval."


def snapshot(turn: Iterations, now: float) -> JSONDict:
    """Take down how a paused run stands.

    Args:
        turn: the run.
        now: seconds since the epoch.
    """
    ctx = turn.context
    children = {call_id: paused.state for call_id, paused in turn.runner.paused.items()}
    state: JSONDict = {
        "pauses": turn.pauses,
        "paused_at": now,
        "elapsed": now - turn.budget.started_at,
        "iteration": turn.iteration,
        "pending": [_pending_as_json(one) for one in ctx.waiting],
        "messages": ctx.messages.to_list(),
        "response": _response_as_json(ctx.response),
        "tool_calls": [_call_as_json(call) for call in ctx.tool_calls],
        "plan": _plan_as_json(ctx.plan),
        "results": {
            call_id: [result.content, result.is_error, result.status]
            for call_id, result in ctx.tool_results.items()
        },
        "validation_errors": {k: list(v) for k, v in ctx.validation_errors.items()},
        "approvals": {call_id: asdict(approval) for call_id, approval in ctx.approvals.items()},
        "children": children,
        "memo": dict(ctx.memo),
        "tool_calls_count": ctx.tool_calls_count,
        "count_before": turn.count_before,
        "unheard": list(turn.unheard),
        "trace": list(ctx.trace),
        "budget": turn.budget.as_json(),
        "detector": turn.detector.as_json(),
        "counts": dict(turn.runner.counts),
        "evidence": turn.runner.evidence.as_json(),
        "run": turn.state.as_json(),
    }
    return state


def _pending_as_json(one: PendingCall) -> JSONDict:
    return {
        "id": one.id,
        "name": one.name,
        "arguments": dict(one.arguments),
        "question": one.question,
    }


def _plan_as_json(plan: Plan) -> JSONDict:
    return {
        "batches": [[call.id for call in batch] for batch in plan.batches],
        "reason": plan.reason.value,
        "held": {call_id: reason.value for call_id, reason in plan.not_run.items()},
        "duplicates": dict(plan.duplicates),
        "approvals": dict(plan.approvals),
    }


def restored_context(
    state: Mapping[str, Any], decisions: Mapping[str, Approval], tools: Mapping[str, Tool]
) -> Callable[[Context], Context]:
    """Make what puts a new run's context where the old one stood.

    Args:
        state: a snapshot.
        decisions: by id of the call.
        tools: those of the loop that goes on.

    Raises:
        OptionError: a call was edited to arguments that its tool does not take.
    """
    calls = {told["id"]: _call_from_json(told) for told in state["tool_calls"]}
    approvals = {key: Approval(**told) for key, told in state["approvals"].items()}
    approvals |= decisions
    for call_id, decision in decisions.items():
        if decision.arguments is not None and call_id in calls:
            calls[call_id] = _edited(calls[call_id], decision.arguments, tools)
    told_plan = state["plan"]
    plan = Plan(
        tuple(tuple(calls[call_id] for call_id in batch) for batch in told_plan["batches"]),
        PlanReason(told_plan["reason"]),
        {call_id: NotRunReason(reason) for call_id, reason in told_plan["held"].items()},
        told_plan["duplicates"],
        told_plan["approvals"],
    )
    facts: dict[str, Any] = {
        "messages": History(state["messages"]),
        "response": _response_from_json(state["response"]),
        "iteration": state["iteration"],
        "tool_calls": tuple(calls.values()),
        "plan": plan,
        "tool_results": {k: ToolResult(k, *told) for k, told in state["results"].items()},
        "validation_errors": {k: tuple(v) for k, v in state["validation_errors"].items()},
        "approvals": approvals,
        "children": state["children"],
        "memo": state["memo"],
        "tool_calls_count": state["tool_calls_count"],
        "usage": Usage.from_json(state["budget"]["usage"]),
        "trace": tuple(state["trace"]),
    }
    return lambda context: context.replace(**facts)


def _edited(call: ToolCall, arguments: Mapping[str, Any], tools: Mapping[str, Tool]) -> ToolCall:
    """The call with other arguments; the text of it stays the model's own."""
    tool = tools.get(call.name)
    told_apart = arguments
    if tool is not None:
        problems, arguments = tool.validate(arguments)
        if problems:
            raise OptionError(f"decisions[{call.id!r}]: edit: {'; '.join(problems)}")
        told_apart = tool.dedupe_key(arguments)
    print_ = fingerprint(call.name, told_apart)
    return dataclasses.replace(call, input=dict(arguments), fingerprint=print_)


def _call_as_json(call: ToolCall) -> JSONDict:
    return {
        "id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "input": None if call.input is None else dict(call.input),
        "fingerprint": call.fingerprint,
        "extra": sendable_json(call.extra),
    }


def _call_from_json(told: Mapping[str, Any]) -> ToolCall:
    return ToolCall(**told)


def _response_as_json(response: Response) -> JSONDict:
    told = {spec.name: getattr(response, spec.name) for spec in dataclasses.fields(response)}
    return {
        **told,
        "tool_calls": [_call_as_json(call) for call in response.tool_calls],
        "usage": None if response.usage is None else response.usage.as_json(),
        "extra": sendable_json(response.extra),
    }


def _response_from_json(told: Mapping[str, Any]) -> Response:
    usage = told["usage"]
    facts: dict[str, Any] = {
        **told,
        "tool_calls": tuple(map(_call_from_json, told["tool_calls"])),
        "usage": None if usage is None else Usage.from_json(usage),
    }
    return Response(**facts)


VERSION = 1
"""Of the form of a paused state. A state of another version is refused."""
MAX_CLAIMS = 100_000
"""Pauses that a process remembers as resumed, where nobody else keeps the claims."""


class PausedStateError(TreadleError, ValueError):
    """A paused state is not as it was made, belongs to other tools, or was resumed already."""


def put_aside(turn: Iterations, plant: Plant) -> Steps[JSONDict]:
    """Make the state of a run that is paused, and leave its conversation valid.

    Args:
        turn: the run.
        plant: what it works with.

    Raises:
        PausedStateError: there is something that is no JSON, or nothing could go on from where it stands.
    """
    now = yield NOW
    turn.pauses += 1
    if plant.handle is not None:
        turn.unheard += yield Call(plant.handle.close, label=labels.STEER, key="pause")
    key = str(turn.pauses)
    # A run may go on in a record, and so under the id, of one that was paused as well.
    nonce = yield Call(secrets.token_hex, 8, label=labels.RANDOM, key=f"pause {key}")
    stage = turn.context.trace[-1]
    if not plant.pipeline.has_entry(stage):
        raise PausedStateError(f"the run cannot be put aside: nothing can enter at stage {stage!r}")
    try:
        state = snapshot(turn, now)
        state["version"] = VERSION
        state["pause_id"] = f"{turn.state.run_id}:{key}:{nonce}"
        state["tools"] = _digests(plant.tools, turn.context.plan.calls)
        told = json.loads(json.dumps(state, allow_nan=False))
        is_whole = told["memo"] == _listed(state["memo"])
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PausedStateError(f"the run cannot be put aside: {error}") from error
    if not is_whole:
        raise PausedStateError("the run cannot be put aside: the memo has keys that are no text")
    told["digest"] = _digest(told, plant.pause_secret)
    shown = turn.context
    if shown.response.tool_calls and not shown.tool_calls:  # paused before they were parsed
        shown = parse_tool_calls(shown)
    turn.keep(inject(shown, WAITING))
    return told


def _listed(value: Any) -> Any:
    """A value as JSON has it, but for keys."""
    if isinstance(value, (list, tuple)):
        return [_listed(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return {key: _listed(part) for key, part in value.items()} if is_mapping(value) else value


class Resumption:
    """A paused run, checked, with what was decided.

    Args:
        given: a `Paused`, its ``state``, or that as JSON text.
        decisions: by id of the call.
        tools: those of the loop that goes on.
        secret: signed the state; None did not.
        claim: is asked with the id of the pause, and says whether it may be resumed; None is a table of
            this process.
        pipeline: the stages of the loop that goes on.

    Raises:
        PausedStateError: it was changed, or belongs to other tools.
        OptionError: a decision on a call that does not wait, or with arguments that are not valid.
    """

    def __init__(
        self,
        given: Any,
        decisions: Mapping[str, Approval],
        tools: Mapping[str, Tool],
        secret: bytes | None = None,
        claim: Callable[[str], Any] | None = None,
        *,
        pipeline: Pipeline[Context],
    ) -> None:
        if not is_mapping(decisions):
            raise OptionError(
                f"decisions: expected a mapping by id of the call, got {type(decisions).__name__}"
            )
        self.state = _opened(given, secret)
        self._claim = claim
        self._check_tools(tools)
        stage = self.state["trace"][-1]
        if not pipeline.has_entry(stage):
            raise PausedStateError(
                f"the paused state is stale: it waits in stage {stage!r}, which is not there"
            )
        pending = {call["id"]: call for call in self.state["pending"]}
        for call_id, decision in decisions.items():
            if call_id not in pending:
                hint = did_you_mean(call_id, sorted(pending))
                waiting = ", ".join(pending)
                raise OptionError(
                    f"decisions: no call {call_id!r} waits{hint}; those that do are {waiting}"
                )
            if not isinstance(decision, Approval):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(
                    f"decisions[{call_id!r}]: expected approve, deny(reason) or edit(arguments), "
                    f"got {type(decision).__name__}"
                )
        self.decisions = dict(decisions)
        self.run_state = RunState.from_json(self.state["run"])
        self.run_state.history = History(self.state["messages"])
        self.context = restored_context(self.state, self.decisions, tools)
        self._check_children(tools)

    def _check_tools(self, tools: Mapping[str, Tool]) -> None:
        for name, digest in self.state["tools"].items():
            tool = tools.get(name)
            if (None if tool is None else _digest_of(tool)) != digest:
                what = "is not what it was" if tool is not None else "is not there any more"
                raise PausedStateError(
                    f"the paused state is stale: tool {name!r} {what}, and a call of it waits"
                )

    def _check_children(self, tools: Mapping[str, Tool]) -> None:
        """Have the loops that are calls of this run check their part, before anything goes on."""
        names = {call["id"]: call["name"] for call in self.state["tool_calls"]}
        for call_id, child in self.state["children"].items():
            check = getattr(tools[names[call_id]].steps, "resumption", None)
            if check is None:
                raise PausedStateError(
                    f"the paused state is stale: tool {names[call_id]!r} is no loop any more"
                )
            check(child, within(call_id, self.decisions))

    def claim(self) -> Steps[None]:
        """Make sure that nobody else resumes this pause.

        Raises:
            PausedStateError: somebody has.
        """
        pause_id = self.state["pause_id"]
        claim = self._claim or _CLAIMS.claim
        mode = Mode.INLINE if self._claim is None else call_mode(self._claim)
        is_ours = yield Call(claim, pause_id, mode=mode, label=labels.CLAIM, key=pause_id)
        if not is_ours:
            raise PausedStateError(f"the paused state is stale: {pause_id!r} was resumed already")

    def restore(self, turn: Iterations) -> None:
        """Put a run where it stood."""
        state = self.state
        turn.iteration, turn.pauses = state["iteration"], state["pauses"]
        turn.elapsed_before, turn.count_before = state["elapsed"], state["count_before"]
        turn.unheard = tuple(state["unheard"])
        turn.budget.restore(state["budget"])
        turn.detector.restore(state["detector"])
        turn.runner.counts.update(state["counts"])
        turn.runner.evidence.restore(state["evidence"])
        turn.context = self.context(turn.context)
        turn.state.history = turn.context.messages


def within(call_id: str, decisions: Mapping[str, Approval]) -> dict[str, Approval]:
    """The decisions on calls within a call, by the ids that they have there."""
    start = f"{call_id}/"
    return {
        key.removeprefix(start): decision
        for key, decision in decisions.items()
        if key.startswith(start)
    }


def _opened(given: Any, secret: bytes | None) -> JSONDict:
    """The state in whatever form it came, if it is as it was made."""
    state: Any = given.state if isinstance(given, Paused) else given
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise PausedStateError(f"the paused state is no JSON: {error}") from error
    if not is_mapping(state) or "digest" not in state:
        raise PausedStateError(
            f"expected a Paused, its state, or that as JSON text, got {type(given).__name__}"
        )
    if state.get("version") != VERSION:
        raise PausedStateError(
            f"the paused state is of version {state.get('version')!r}, and this is {VERSION}"
        )
    told = {key: value for key, value in state.items() if key != "digest"}
    try:
        is_as_made = hmac.compare_digest(
            str(state["digest"]).encode(), _digest(told, secret).encode()
        )
    except (TypeError, ValueError, RecursionError):  # it is no JSON
        is_as_made = False
    if not is_as_made:
        raise PausedStateError(
            "the paused state was changed, or signed with another secret, since it was made"
        )
    copied: JSONDict = json.loads(json.dumps(told))
    return copied


def _digest(state: Mapping[str, Any], secret: bytes | None) -> str:
    told = json.dumps(state, sort_keys=True).encode()
    if secret is None:
        return hashlib.sha256(told).hexdigest()
    return hmac.new(secret, told, hashlib.sha256).hexdigest()


def _digests(tools: Mapping[str, Tool], calls: tuple[ToolCall, ...]) -> dict[str, str]:
    return {call.name: _digest_of(tools[call.name]) for call in calls if call.name in tools}


def _digest_of(tool: Tool) -> str:
    told = json.dumps([tool.name, tool.input_schema], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()


class _Claims:
    """The pauses that were resumed in this process."""

    def __init__(self) -> None:
        self._taken: OrderedDict[str, None] = OrderedDict()
        self._mutex = threading.Lock()

    def claim(self, pause_id: str) -> bool:
        """Take a pause; False where it was taken before."""
        with self._mutex:
            if pause_id in self._taken:
                return False
            self._taken[pause_id] = None
            if len(self._taken) > MAX_CLAIMS:
                self._taken.popitem(last=False)
            return True


_CLAIMS = _Claims()
