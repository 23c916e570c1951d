"""Pausing and resuming: the state of a paused run as signed JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from treadle import labels
from treadle.effects import NOW, Call, Mode, Steps, call_mode
from treadle.errors import OptionError, PausedStateError
from treadle.events import reason_as_json, reason_from_json
from treadle.messages import (
    History,
    JSONDict,
    Response,
    ToolCall,
    ToolResult,
    Usage,
    is_mapping,
    sendable_json,
    sha256,
)
from treadle.pauses import (
    VERSION,
    ClaimStore,
    Outcome,
    ProcessClaims,
    check_state,
    digest_of,
    is_state,
)
from treadle.pauses.claimant import Claimant
from treadle.pauses.claims import resumed_already
from treadle.results import Paused, PendingCall
from treadle.run_state import RunState
from treadle.stages import inject, parse_tool_calls, report_edits
from treadle.tools import Approval, NotRunReason, Plan, PlanReason, Tool, fingerprint

if TYPE_CHECKING:
    from treadle.loop.loop import Loop
    from treadle.loop.run import Run
    from treadle.pauses.file_claims import FileClaims

PausedForm: TypeAlias = Paused | Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A paused run, its state, that as JSON text, or the path of a saved pause. JSON text starts with ``{``."""
PROCESS_CLAIMS = ProcessClaims()
"""The claims of the loops without ``Pauses(claims=...)``."""
R = TypeVar("R")
log = logging.getLogger("treadle.loop")
WAITING = (
    "No result yet: the run waits for a person's approval. "
    "If it was resumed since, this call may have run."
)
"""The answer to a call that waits. It stays in a history to which no result was added, such as after a crash."""


# Pausing


def suspend(run: Run) -> Steps[JSONDict]:
    """Make the state of a run that pauses, and make its history valid.

    Raises:
        PausedStateError: a value is not JSON, or no run could continue at this stage.
    """
    yield from report_edits(run.context)
    now = yield NOW
    run.pauses += 1
    if run.handle is not None:
        run.pending_messages += yield Call(run.handle.close, label=labels.STEER, key="pause")
    key = str(run.pauses)
    # A run may reuse the state, and so the id, of an earlier run that was paused as well.
    nonce = yield Call(_nonce, label=labels.RANDOM, key=f"pause {key}")
    last_seq = yield Call(_last_seq, run.run.numbers, label=labels.LAST_SEQ, key=key)
    context = run.context
    if not run.config.pipeline.has_entry(context.stage):
        raise PausedStateError(
            f"the run cannot pause: a run cannot be resumed at stage {context.stage!r}"
        )
    context = run.context = context.evolve(waiting=_bound(run, nonce))
    try:
        state = _snapshot(run, now)
        state["version"] = VERSION
        state["last_seq"] = last_seq
        state["pause_id"] = f"{run.state.run_id}:{key}:{nonce}"
        state["tools"], state["changed_tools"] = _digests(run)
        made = json.loads(json.dumps(state, allow_nan=False))
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PausedStateError(f"the run cannot pause: {error}") from error
    made["digest"] = digest_of(made, run.config.pause_secret)
    if context.response.tool_calls and not context.tool_calls:  # paused before they were parsed
        context = parse_tool_calls(context)
    run.keep(inject(context, WAITING))
    return made


def _bound(run: Run, nonce: str) -> tuple[PendingCall, ...]:
    """The calls that wait, with ids that no other pause has. Those of paused subagents have theirs already."""
    inner = {
        f"{call_id}/{call.id}"
        for call_id, paused in run.run.in_flight.paused.items()
        for call in paused.pending
    }
    return tuple(
        call if call.id in inner else dataclasses.replace(call, id=f"{call.id}@{nonce}")
        for call in run.context.waiting
    )


def kept_as_data(name: str, value: Any) -> Any:
    """A value that a stage keeps, as JSON data that a resumed run reads without loss.

    Raises:
        PausedStateError: it is no data; the text has its name and its type.
    """
    from treadle.recording.data import NotDataError, to_exact_data  # noqa: PLC0415 - few runs need it

    try:
        return to_exact_data(value, f"memo[{name!r}]")
    except NotDataError as error:
        raise PausedStateError(f"the run cannot pause, or go on elsewhere: {error}") from error


def _restored_memo(state: Mapping[str, Any]) -> JSONDict:
    """The values that stages kept.

    Raises:
        PausedStateError: one is of a class that is not imported, or has changed.
    """
    from treadle.recording.data import MalformedDataError, from_data  # noqa: PLC0415 - as above
    from treadle.recording.objects import missing_classes  # noqa: PLC0415

    missing = missing_classes(state["memo"])
    if missing:
        raise PausedStateError(f"memo: {', '.join(missing)} is not imported, and a value is of it")
    try:
        return {name: from_data(value) for name, value in state["memo"].items()}
    except MalformedDataError as error:
        raise PausedStateError(f"the paused state is stale: memo: {error}") from error


def _snapshot(run: Run, now: float) -> JSONDict:
    """Everything that a paused run needs to continue; ``now`` is in seconds since the epoch."""
    ctx, in_flight = run.context, run.run.in_flight
    return {
        "pauses": run.pauses,
        "paused_at": now,
        "elapsed": run.run.budget.elapsed(now),
        "iteration": ctx.iteration,
        "pending": [_values(one) | {"arguments": dict(one.arguments)} for one in ctx.waiting],
        "messages": ctx.messages.to_list(),
        "response": _response_as_json(ctx.response),
        "tool_calls": [_call_as_json(call) for call in ctx.tool_calls],
        "plan": _plan_as_json(ctx.plan),
        "results": {
            call_id: [result.content, result.is_error, result.status, result.parts]
            for call_id, result in ctx.tool_results.items()
        },
        "validation_errors": {k: list(v) for k, v in ctx.validation_errors.items()},
        "result_messages": list(ctx.result_messages),
        "guidance": ctx.guidance,
        "is_asked": ctx.is_asked,
        "request_changes": dict(ctx.request_changes),
        "removed_tools": [name for name in run.config.tools if name not in ctx.tools],
        "approvals": {call_id: asdict(approval) for call_id, approval in ctx.approvals.items()},
        "paused_runs": {call_id: paused.state for call_id, paused in in_flight.paused.items()},
        "found_tools": list(run.run.found),
        "memo": {name: kept_as_data(name, value) for name, value in ctx.memo.items()},
        "calls_run": in_flight.calls_run,
        "is_taken_over": in_flight.is_taken_over,
        "pending_messages": list(run.pending_messages),
        "trace": list(ctx.trace),
        "budget": run.run.budget.as_json(),
        "limit": reason_as_json(run.limit),
        "last_answers": run.last_answers,
        "detector": run.detector.as_json(),
        "counts": dict(in_flight.counts),
        "dedupe": run.run.dedupe,
        "result_cache": run.run.result_cache.as_json(),
        "run": run.state.as_json(),
    }


def _values(one: Any) -> JSONDict:
    return {spec.name: getattr(one, spec.name) for spec in dataclasses.fields(one)}


def _plan_as_json(plan: Plan) -> JSONDict:
    return {
        "batches": [[call.id for call in batch] for batch in plan.batches],
        "reason": plan.reason.value,
        "not_run": {call_id: reason.value for call_id, reason in plan.not_run.items()},
        "duplicates": dict(plan.duplicates),
        "approvals": dict(plan.approvals),
    }


# Resuming


class PausedRun:
    """A paused run, checked, with the decisions on its calls.

    Args:
        loop: the loop that resumes it; its secret signed the state.
        given: a `Paused`, its ``state``, the state as JSON text, or the path of a saved pause.
        decisions: by id of the pending call.
        store: remembers that the pause is resumed; None for a subagent, whose pause is claimed with the outer one.
        take_over: also resume a pause that an interrupted run has claimed.

    Raises:
        PausedStateError: it was changed, belongs to other tools or stages, or there is no such saved pause.
        OptionError: a decision on a call that does not wait, or with invalid arguments.
    """

    def __init__(
        self,
        loop: Loop,
        given: PausedForm,
        decisions: Mapping[str, Approval],
        store: ClaimStore | None,
        *,
        take_over: bool = False,
    ) -> None:
        if not is_mapping(decisions):
            raise OptionError(
                f"decisions: expected a mapping by id of the call, got {type(decisions).__name__}"
            )
        self._claims: list[ClaimStore] = [] if store is None else [store]
        self._file: FileClaims | None = None
        self._claimant = ""
        self._take_over = take_over
        if _is_path(given):
            from treadle.pauses.file_claims import FileClaims  # noqa: PLC0415 - it imports pathlib

            self._file = FileClaims(cast("str", given), take_over=take_over)
            self._claims.insert(0, self._file)
            given = self._file.state
        opened, tools = _opened(given), loop.tools
        self.state, self._digest = check_state(opened, loop.settings.pauses.key), opened["digest"]
        self._check_tools(tools)
        stage = self.state["trace"][-1]
        if not loop.pipeline.has_entry(stage):
            raise PausedStateError(
                f"the paused state is stale: it waits in stage {stage!r}, which the loop does not have"
            )
        self._check_decisions(decisions)
        self._given = decisions
        own = f"@{_nonce_of(self.state)}"  # the stages know nothing about pauses
        self.decisions = {key.removesuffix(own): value for key, value in decisions.items()}
        self.run_state = RunState.from_json(self.state["run"])
        self.run_state.history = History(self.state["messages"])
        self.last_seq: int = self.state["last_seq"]
        self._facts = _restored_facts(self.state, self.decisions, tools)
        self._check_subagents(tools)

    def as_json(self) -> JSONDict:
        """What it was made of, as JSON data, for `recorded`."""
        return {
            "paused": {**self.state, "digest": self._digest},
            "decisions": {key: asdict(decision) for key, decision in self._given.items()},
            "claims": len(self._claims),
            "take_over": self._take_over,
            "is_saved": self._file is not None,
        }

    @classmethod
    def recorded(cls, loop: Loop, start: Mapping[str, Any]) -> PausedRun:
        """The paused run of a recording, to be replayed: its pause is not claimed again.

        Args:
            loop: the loop.
            start: what `as_json` returned.

        Raises:
            PausedStateError, OptionError: as in the constructor.
        """
        decisions = {key: Approval(**one) for key, one in start["decisions"].items()}
        # A recording leaves credentials out, so its digest is another one.
        state = {key: value for key, value in start["paused"].items() if key != "digest"}
        state["digest"] = digest_of(state, loop.settings.pauses.key)
        made = cls(loop, state, decisions, None, take_over=start.get("take_over", False))
        recorded: Any = _RecordedClaims()
        made._claims = [recorded] * start.get("claims", 0)
        made._file = recorded if start.get("is_saved") else None
        return made

    def _check_decisions(self, decisions: Mapping[str, Approval]) -> None:
        waiting = [call["id"] for call in self.state["pending"]]
        for call_id, decision in decisions.items():
            if call_id not in waiting:
                raise OptionError(f"decisions: {_why_not(call_id, waiting)}")
            if not isinstance(decision, Approval):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise OptionError(
                    f"decisions[{call_id!r}]: expected approve, deny(reason) or edit(arguments), "
                    f"got {type(decision).__name__}"
                )

    def _check_tools(self, tools: Mapping[str, Tool]) -> None:
        for name, digest in self.state["tools"].items():
            tool = tools.get(name)
            if (None if tool is None else _digest_of(tool)) != digest:
                what = "has changed" if tool is not None else "no longer exists"
                raise PausedStateError(
                    f"the paused state is stale: tool {name!r} {what}, and a call of it waits"
                )
        for name, digest in self.state["changed_tools"].items():
            if digest is None:
                raise PausedStateError(
                    f"a call of tool {name!r} waits, which a stage replaced by one that looks the same as "
                    "that of the loop; give the tools different descriptions"
                )
            if _whole_digest_of(tools[name]) != digest:
                raise PausedStateError(
                    f"a call of tool {name!r} waits, which a stage added or replaced; the loop that "
                    "resumes has another tool of that name: pass the tool of the stage in tools="
                )

    def _check_subagents(self, tools: Mapping[str, Tool]) -> None:
        """Check the states of the paused subagents, before anything runs."""
        names = {call["id"]: call["name"] for call in self.state["tool_calls"]}
        for call_id, paused in self.state["paused_runs"].items():
            check = getattr(tools[names[call_id]].steps, "resumption", None)
            if check is None:
                raise PausedStateError(
                    f"the paused state is stale: tool {names[call_id]!r} is no longer a subagent"
                )
            check(paused, decisions_within(call_id, self.decisions))

    def claimed(self, steps: Steps[R]) -> Steps[R]:
        """Perform the steps of the resumed run while it has claimed its pause.

        Args:
            steps: the run. They do not start if the pause is claimed already.

        Raises:
            PausedStateError: another run has claimed the pause, or has resumed it.
        """
        yield from self._claim()
        try:
            result = yield from steps
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._release(self._claims, "interrupted")
            raise
        if self._file is not None and isinstance(result, Paused):
            yield from self._keep(self._file, result)
        yield from self._release(self._claims, "done")
        return result

    def _claim(self) -> Steps[None]:
        pause_id = self.state["pause_id"]
        if not self._claims:
            return
        self._claimant = yield Call(_claimant, label=labels.RANDOM, key=f"claimant {pause_id}")
        asked: list[ClaimStore] = []
        try:
            for store in self._claims:
                asked.append(store)
                claim = functools.partial(store.claim, take_over=self._take_over)
                args = (pause_id, self._claimant)
                _check_ours(pause_id, (yield _calling(claim, args, labels.CLAIM_PAUSE)))
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._release(asked, "undone")  # a cancelled claim may have succeeded
            raise

    def _keep(self, file: FileClaims, paused: Paused) -> Steps[None]:
        """Save the next pause of the run in the file of the one that was resumed."""
        key, args = self.state["pause_id"], (self._claimant, paused.state)
        try:
            yield Call.of(file.keep, args, Mode.THREAD, label=labels.KEEP_PAUSE, key=key)
        except Exception:  # the caller has it, and can save it elsewhere
            log.exception("the next pause of %s could not be saved", key)

    def _release(self, stores: Sequence[ClaimStore], outcome: Outcome) -> Steps[None]:
        pause_id = self.state["pause_id"]
        for store in reversed(stores):
            args = (pause_id, self._claimant, outcome)
            try:
                yield _calling(store.release, args, labels.RELEASE_PAUSE)
            except Exception:  # the result of the run is worth more
                log.exception("the claim of pause %s could not be released", pause_id)

    def restore(self, run: Run) -> None:
        """Restore the state that a run had when it paused."""
        state, services = self.state, run.run
        run.pauses, run.elapsed_before = state["pauses"], state["elapsed"]
        run.pending_messages = tuple(state["pending_messages"])
        run.detector.restore(state["detector"])
        services.budget.restore(state["budget"])
        run.limit, run.last_answers = reason_from_json(state["limit"]), state["last_answers"]
        if run.limit is not None:
            services.finishing = run.limit
            services.budget.finish()
        services.found.update(dict.fromkeys(state.get("found_tools", ())))
        services.in_flight.counts.update(state["counts"])
        services.in_flight.calls_run = state["calls_run"]
        services.in_flight.is_taken_over = self._take_over or state.get("is_taken_over", False)
        services.dedupe = state["dedupe"]
        services.result_cache.restore(state["result_cache"])
        removed = state["removed_tools"]
        tools = {name: tool for name, tool in run.context.tools.items() if name not in removed}
        run.context = run.context.evolve(tools=tools, **self._facts)
        done = run.context.tool_results
        services.reserved.update({c.id: c for c in run.context.plan.calls if c.id not in done})
        run.state.history = run.context.messages


def _nonce_of(state: Mapping[str, Any]) -> str:
    """The random text of a pause, which is in its id and in those of the calls that wait."""
    pause_id: str = state["pause_id"]
    return pause_id.rpartition(":")[2]


def _why_not(given: object, waiting: Sequence[str]) -> str:
    """Why a decision cannot be applied: its id is none of the calls that wait.

    Args:
        given: the id.
        waiting: the ids of the calls that wait.
    """
    listed = ", ".join(waiting) or "none"
    by_call = {call_id.rpartition("@")[0]: call_id for call_id in waiting}
    nonces = {call_id.rpartition("@")[2] for call_id in waiting}
    whole = by_call.get(str(given))
    if whole is not None:
        return f"{given!r} does not name the pause; the id of this pending call is {whole!r}"
    call_id, _, nonce = str(given).rpartition("@")
    if call_id and nonce not in nonces:
        return f"the decision on {given!r} belongs to another pause; waiting calls: {listed}"
    return f"no call {given!r} waits; waiting calls: {listed}"


def _calling(fn: Callable[..., Any], args: tuple[str, ...], label: str) -> Call:
    """The effect that calls a method of a claim store."""
    mode = call_mode(fn)
    if mode is Mode.THREAD and getattr(fn, "func", fn) in _QUICK:
        mode = Mode.INLINE
    return Call.of(fn, args, mode, label=label, key=args[0])


_QUICK = frozenset({PROCESS_CLAIMS.claim, PROCESS_CLAIMS.release})
"""Methods that return at once."""


class _RecordedClaims:
    """Stands for the claims of a recorded run, which has claimed its pause already."""

    def claim(self, pause_id: str, claimant: str, *, take_over: bool) -> bool:  # noqa: ARG002
        """Do nothing."""
        return True

    def release(self, pause_id: str, claimant: str, outcome: Outcome) -> None:
        """Do nothing."""

    def keep(self, claimant: str, state: Mapping[str, Any]) -> None:
        """Do nothing."""


def _claimant() -> str:
    return str(Claimant.here())


def _check_ours(pause_id: str, is_ours: object) -> None:
    if not is_ours:
        raise PausedStateError(resumed_already(pause_id))


def decisions_within(call_id: str, decisions: Mapping[str, Approval]) -> dict[str, Approval]:
    """The decisions on calls of a subagent, by the ids of the calls in the subagent."""
    start = f"{call_id}/"
    return {
        key.removeprefix(start): decision
        for key, decision in decisions.items()
        if key.startswith(start)
    }


def _opened(given: Any) -> Mapping[str, Any]:
    """The state of a paused run, in any form but a path; it is not checked."""
    state: Any = given.state if isinstance(given, Paused) else given
    if isinstance(state, (str, bytes)):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise PausedStateError(f"the paused state is not JSON: {error}") from error
    if not is_state(state):
        raise PausedStateError(
            "expected a Paused, its state, that as JSON text, or the path of a saved pause, "
            f"got {type(given).__name__}"
        )
    return state


def _is_path(given: Any) -> bool:
    if isinstance(given, str):
        return not given.lstrip().startswith("{")
    return isinstance(given, os.PathLike)


def _last_seq(numbers: list[int]) -> int:
    """The number of the last event before the pause, which is the `RunFinished` that reports it."""
    return numbers[0] and numbers[0] + 1


def _nonce() -> str:
    return os.urandom(8).hex()


def _digests(run: Run) -> tuple[dict[str, str], dict[str, str | None]]:
    """The digests of the tools of waiting calls; and, of those that a stage changed, the whole digests.

    A whole digest is None if the loop's own tool has the same one.
    """
    ctx, own = run.context, run.config.tools
    names = [call.name for call in ctx.tool_calls if call.id not in ctx.tool_results]
    tools = {name: ctx.tools[name] for name in names if name in ctx.tools}
    changed: dict[str, str | None] = {}
    for name, tool in tools.items():
        known = own.get(name)
        if tool is not known:
            digest = _whole_digest_of(tool)
            is_same = known is not None and _whole_digest_of(known) == digest
            changed[name] = None if is_same else digest
    return {name: _digest_of(tool) for name, tool in tools.items()}, changed


def _whole_digest_of(tool: Tool) -> str:
    return sha256(json.dumps(_values(tool), sort_keys=True, default=_named).encode())


def _named(value: Any) -> Any:
    """Replace a function, or another object that is not JSON, by its name, which all processes share."""
    if is_mapping(value):
        return dict(value)
    name: str | None = getattr(value, "__qualname__", None)
    return f"{getattr(value, '__module__', '')}.{name or value.__class__.__qualname__}"


def _digest_of(tool: Tool) -> str:
    text = json.dumps([tool.name, tool.input_schema], sort_keys=True, default=str)
    return sha256(text.encode())


def _restored_facts(
    state: Mapping[str, Any], decisions: Mapping[str, Approval], tools: Mapping[str, Tool]
) -> dict[str, Any]:
    """The fields of the context of a paused run, with the decisions on its calls.

    Raises:
        OptionError: edited arguments do not match the schema of the tool.
    """
    calls = {given["id"]: ToolCall(**given) for given in state["tool_calls"]}
    approvals = {key: Approval(**given) for key, given in state["approvals"].items()}
    approvals |= decisions
    for call_id, decision in decisions.items():
        if decision.arguments is not None and call_id in calls:
            pending_id = f"{call_id}@{_nonce_of(state)}"
            calls[call_id] = _edited(calls[call_id], decision.arguments, tools, pending_id)
    plan = state["plan"]
    return {
        "messages": History(state["messages"]),
        "response": _response_from_json(state["response"]),
        "iteration": state["iteration"],
        "tool_calls": tuple(calls.values()),
        "plan": Plan(
            tuple(tuple(calls[call_id] for call_id in batch) for batch in plan["batches"]),
            PlanReason(plan["reason"]),
            {call_id: NotRunReason(reason) for call_id, reason in plan["not_run"].items()},
            plan["duplicates"],
            plan["approvals"],
        ),
        "tool_results": {k: ToolResult(k, *given) for k, given in state["results"].items()},
        "validation_errors": {k: tuple(v) for k, v in state["validation_errors"].items()},
        "result_messages": tuple(state["result_messages"]),
        "guidance": state["guidance"],
        "is_asked": state["is_asked"],
        "request_changes": {
            name: tuple(value) if name == "tools" else value
            for name, value in state["request_changes"].items()
        },
        "approvals": approvals,
        "paused_runs": state["paused_runs"],
        "memo": _restored_memo(state),
        "trace": tuple(state["trace"]),
    }


def _edited(
    call: ToolCall, arguments: Mapping[str, Any], tools: Mapping[str, Tool], pending_id: str
) -> ToolCall:
    """The call with other arguments; its text remains that of the model."""
    tool = tools.get(call.name)
    key = arguments
    if tool is not None:
        problems, arguments = tool.validate(arguments)
        if problems:
            raise OptionError(f"decisions[{pending_id!r}]: edit: {'; '.join(problems)}")
        key = tool.dedupe_key(arguments)
    return dataclasses.replace(call, input=dict(arguments), fingerprint=fingerprint(call.name, key))


def _call_as_json(call: ToolCall) -> JSONDict:
    return {
        **_values(call),
        "input": None if call.input is None else dict(call.input),
        "extra": sendable_json(call.extra),
    }


def _response_as_json(response: Response) -> JSONDict:
    return {
        **_values(response),
        "tool_calls": [_call_as_json(call) for call in response.tool_calls],
        "usage": None if response.usage is None else response.usage.as_json(),
        "extra": sendable_json(response.extra),
    }


def _response_from_json(given: Mapping[str, Any]) -> Response:
    usage = given["usage"]
    fields: dict[str, Any] = {
        **given,
        "tool_calls": tuple(ToolCall(**call) for call in given["tool_calls"]),
        "usage": None if usage is None else Usage.from_json(usage),
    }
    return Response(**fields)
