"""Pausing and resuming: the state of a paused run as signed JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from treadle import labels
from treadle.checks import instance
from treadle.codec import (
    NotDataError,
    decode_fields,
    encode_exactly,
    encode_fields,
    missing_classes,
)
from treadle.context import Context, holds
from treadle.effects import Call, Mode, Steps, call_mode
from treadle.errors import OptionError, PausedStateError
from treadle.fast_dataclass import fast_dataclass
from treadle.limits import Used
from treadle.loop.built_loop import BuiltLoop
from treadle.messages import JSONDict, ToolCall, is_mapping, sha256
from treadle.messages.sanitizing import sendable_json
from treadle.pauses import (
    VERSION,
    ClaimStore,
    Outcome,
    ProcessClaims,
    check_state,
    digest_of,
    is_state,
)
from treadle.pauses.resume_holder import ResumeHolder
from treadle.results import Paused, PendingCall, Reason
from treadle.run_state import RunState
from treadle.tools import Approval, Repeats, Tool, fingerprint

if TYPE_CHECKING:
    from treadle.pauses.saved import FileClaims

PausedForm: TypeAlias = Paused | Mapping[str, Any] | str | bytes | os.PathLike[str]
"""A paused run, its state, that as JSON text, or the path of a saved pause. JSON text starts with ``{``."""
PROCESS_CLAIMS = ProcessClaims()
"""The claims of the loops without ``Pauses(claims=...)``."""
_PATHS: tuple[type[Any], ...] = (str, os.PathLike)
_APPROVAL = instance(Approval, "approve, deny(reason) or edit(arguments)")
R = TypeVar("R")
log = logging.getLogger("treadle.loop")
WAITING = (
    "No result yet: the run waits for a person's approval. "
    "If it was resumed since, this call may have run."
)
"""The answer to a call that waits. It stays in a history to which no result was added, such as after a crash."""


# Pausing


def nonce() -> str:
    """A random text for the id of a pause: a run may reuse the state, and so the id, of an earlier run."""
    return os.urandom(8).hex()


def with_nonce(context: Context, text: str) -> Context:
    """The context whose waiting calls have ids that no other pause has; those of paused subagents have theirs."""
    inner = {
        f"{call_id}/{call.id}"
        for call_id, paused in context.run.in_flight.paused.items()
        for call in paused.pending
    }
    waiting = tuple(
        call if call.id in inner else dataclasses.replace(call, id=f"{call.id}@{text}")
        for call in context.waiting
    )
    return context.evolve(waiting=waiting)


def sealed(
    state: PauseState, context: Context, tools: Mapping[str, Tool], secret: str | bytes | None
) -> JSONDict:
    """The state of a paused run as signed JSON data; raises `PausedStateError` if a value is not JSON."""
    for name, value in context.memo.items():
        kept_as_data(name, value)
    try:
        made = encode_fields(state, "the state")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PausedStateError(f"the run cannot pause: {error}") from error
    # States of subagents are data already.
    paused = context.run.in_flight.paused.items()
    made["paused_runs"] = {call_id: one.state for call_id, one in paused}
    made["version"] = VERSION
    made["tools"], made["changed_tools"] = _digests(context, tools)
    made["digest"] = digest_of(made, secret)
    return made


def kept_as_data(name: str, value: Any) -> Any:
    """A value that a stage keeps, as JSON data; `PausedStateError` names one that cannot be restored as it is."""
    try:
        return encode_exactly(value, f"memo[{name!r}]")
    except NotDataError as error:
        raise PausedStateError(f"the run cannot pause, or go on elsewhere: {error}") from error


@fast_dataclass
class PauseState:
    """What another run continues from: times in seconds, the history in ``context`` alone, the loop's tools."""

    pause_id: str
    last_seq: int
    stage: str
    elapsed: float
    pauses: int
    pending: list[PendingCall]
    pending_messages: tuple[JSONDict, ...]
    context: Context
    state: RunState
    budget: Used
    limit: Reason | None
    last_answers: int
    repeats: Repeats
    removed_tools: list[str]
    found: list[str]
    calls_run: int
    is_taken_over: bool


def kept_context(context: Context) -> Context:
    """The context of a paused run as it is stored: without tools, services and the decision of a stage."""

    def sendable(given: Any, **changes: Any) -> Any:
        # The unknown keys are JSON, as in the messages.
        return dataclasses.replace(given, extra=sendable_json(given.extra), **changes)

    response = context.response
    unset = ("run", "decision", "output", "parsed", "answered_by", "accepted")
    return context.evolve(
        **dict.fromkeys(unset),
        tools={},
        waiting=(),
        notes=(),
        approvals={key: one for key, one in context.approvals.items() if holds(context, key, one)},
        paused_runs={},
        response=sendable(response, tool_calls=tuple(map(sendable, response.tool_calls))),
        tool_calls=tuple(map(sendable, context.tool_calls)),
    )


# Resuming


class PausedRun:
    """A paused run, checked, with the decisions on its calls; raises the errors of `Loop.resume`."""

    def __init__(
        self,
        loop: BuiltLoop,
        given: PausedForm,
        decisions: Mapping[str, Approval],
        store: ClaimStore | None,  # none for a subagent: its pause is claimed with the outer one
        *,
        take_over: bool = False,
    ) -> None:
        instance(Mapping, "a mapping by id of the call").check("decisions", decisions)
        opened, self.file = _opened(given, take_over=take_over)
        self.claims = [one for one in (self.file, store) if one is not None]
        self._claimant = ""
        self.take_over = take_over
        self.signed, self.state = opened, check_state(opened, loop.settings.pauses.secret)
        self._check_tools(loop.tools)
        stage, pause_id = self.state["stage"], self.state["pause_id"]
        if not loop.pipeline.has_entry(stage):
            raise PausedStateError(
                f"the paused state is stale: it waits in stage {stage!r}, which the loop does not have"
            )
        self._check_decisions(decisions)
        self.given = decisions
        # The random text of the pause is in the ids of the calls that wait; the stages know nothing about it.
        self._own = f"@{pause_id.rpartition(':')[2]}"
        self.decisions = {key.removesuffix(self._own): one for key, one in decisions.items()}
        self.paused = _decoded(self.state)
        self.context = self._decided(loop.tools)
        self.run_state = self.paused.state
        self.run_state.history = self.context.messages
        self._check_subagents(loop.tools)

    def _check_decisions(self, decisions: Mapping[str, Approval]) -> None:
        waiting = [call["id"] for call in self.state["pending"]]
        for call_id, decision in decisions.items():
            if call_id not in waiting:
                listed = ", ".join(waiting) or "none"
                raise OptionError(
                    f"decisions: no call {call_id!r} waits in this pause; waiting calls: {listed}"
                )
            _APPROVAL.check(f"decisions[{call_id!r}]", decision)

    def _check_tools(self, tools: Mapping[str, Tool]) -> None:
        for name, digest in self.state["tools"].items():
            if name not in tools or _digest_of(tools[name]) != digest:
                what = "has changed" if name in tools else "no longer exists"
                raise PausedStateError(
                    f"the paused state is stale: tool {name!r} {what}, and a call of it waits"
                )
        for name, digest in self.state["changed_tools"].items():
            if digest is None or name not in tools or _whole_digest_of(tools[name]) != digest:
                raise PausedStateError(
                    f"a stage added or replaced tool {name!r}; pass the tool of the stage in tools=, and give the "
                    "tools different descriptions"
                )

    def _check_subagents(self, tools: Mapping[str, Tool]) -> None:
        """Check the states of the paused subagents, before anything runs."""
        names = {call.id: call.name for call in self.context.tool_calls}
        for call_id, paused in self.state["paused_runs"].items():
            check = getattr(tools[names[call_id]].steps, "resumption", None)
            if check is None:
                raise PausedStateError(
                    f"the paused state is stale: tool {names[call_id]!r} is no longer a subagent"
                )
            check(paused, decisions_within(call_id, self.decisions, paused))

    def _decided(self, tools: Mapping[str, Tool]) -> Context:
        """The context of the run, with the decisions on its calls."""
        context = self.paused.context
        calls = {call.id: call for call in context.tool_calls}
        for call_id, decision in self.decisions.items():
            if decision.arguments is not None and call_id in calls:
                where = f"decisions[{call_id + self._own!r}]: edit"
                calls[call_id] = _edited(calls[call_id], decision.arguments, tools, where)
        batches = tuple(tuple(calls[one.id] for one in batch) for batch in context.plan.batches)
        # Calls that a stage has not parsed yet may wait as well.
        waiting = {**{call.id: call for call in context.response.tool_calls}, **calls}
        about = {key: (call.name, call.arguments) for key, call in waiting.items()}
        decisions = {
            key: one if "/" in key else dataclasses.replace(one, about=about.get(key, ()))
            for key, one in self.decisions.items()
        }
        return context.evolve(
            tool_calls=tuple(calls.values()),
            plan=dataclasses.replace(context.plan, batches=batches),
            approvals={**context.approvals, **decisions},
            paused_runs=self.state["paused_runs"],
        )

    def claimed(self, steps: Steps[R], *, has_begun: Callable[[], bool]) -> Steps[R]:
        """Perform the steps of the resumed run with its claims; a run that has not begun consumes nothing."""
        pause_id = self.state["pause_id"]
        if self.claims:
            key = f"claimant {pause_id}"
            self._claimant = yield Call(
                lambda: str(ResumeHolder.here()), label=labels.RANDOM, key=key
            )
        asked: list[ClaimStore] = []  # a cancelled claim may have succeeded
        outcome: Outcome = "undone"
        try:
            for store in self.claims:
                asked.append(store)
                claim = functools.partial(store.claim, take_over=self.take_over)
                if not (yield self._calling(store, claim, labels.CLAIM_PAUSE)):
                    text = f"the paused state is stale: {pause_id!r} was resumed already"
                    raise PausedStateError(text)  # noqa: TRY301 - undone below
            # A run that took the pause over leaves it as it was: calls may have run before.
            outcome = "interrupted" if self.take_over else "undone"
            result = yield from steps
        except GeneratorExit:
            raise
        except BaseException:
            yield from self._release(asked, "interrupted" if has_begun() else outcome)
            raise
        if self.file is not None and isinstance(result, Paused):
            keep, args = self.file.keep, (self._claimant, result.state)
            try:
                yield Call(keep, *args, mode=Mode.THREAD, label=labels.KEEP_PAUSE, key=pause_id)
            except Exception:  # the caller has it, and can save it elsewhere
                log.exception("the next pause of %s could not be saved", pause_id)
        yield from self._release(self.claims, "done" if has_begun() else outcome)
        return result

    def _release(self, stores: Sequence[ClaimStore], outcome: Outcome) -> Steps[None]:
        for store in reversed(stores):
            try:
                yield self._calling(store, store.release, labels.RELEASE_PAUSE, outcome)
            except Exception:  # the result of the run is worth more
                log.exception("the claim of pause %s could not be released", self.state["pause_id"])

    def _calling(self, store: ClaimStore, fn: Callable[..., Any], label: str, *args: str) -> Call:
        """The effect that calls a method of a claim store."""
        pause_id = self.state["pause_id"]
        # A dict needs no thread: a resumed run that is cancelled before its first wait has begun.
        mode = Mode.INLINE if store is PROCESS_CLAIMS else call_mode(fn)
        return Call(fn, pause_id, self._claimant, *args, mode=mode, label=label, key=pause_id)


def decisions_within(
    call_id: str, decisions: Mapping[str, Approval], paused: Mapping[str, Any]
) -> dict[str, Approval]:
    """The decisions on the calls that wait in a paused subagent, by their ids in the subagent."""
    waiting = {pending["id"]: f"{call_id}/{pending['id']}" for pending in paused["pending"]}
    return {key: decisions[outer] for key, outer in waiting.items() if outer in decisions}


def _opened(given: PausedForm, *, take_over: bool) -> tuple[Mapping[str, Any], FileClaims | None]:
    """The state of a paused run, which is not checked; and the claims of its file, if it is saved."""
    state: Any = given.state if isinstance(given, Paused) else given
    is_text = isinstance(state, str) and state.lstrip().startswith("{")
    if isinstance(state, _PATHS) and not is_text:
        from treadle.pauses.saved import FileClaims  # noqa: PLC0415 - it imports pathlib

        file = FileClaims(state, take_over=take_over)
        return file.state, file
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
    return state, None


def _digests(ctx: Context, own: Mapping[str, Tool]) -> tuple[dict[str, str], dict[str, str | None]]:
    """The digests of the tools of waiting calls; and of tools that a stage changed, None for an equal one.

    A tool that needs approval where that of the loop does not is a guard: it counts even if no call of it waits.
    """
    names = [call.name for call in ctx.tool_calls if call.id not in ctx.tool_results]
    tools = {name: ctx.tools[name] for name in names if name in ctx.tools}
    guards = {
        name: ctx.tools[name]
        for name, tool in own.items()
        if name in ctx.tools and ctx.tools[name].requires_approval is not tool.requires_approval
    }
    changed: dict[str, str | None] = {}
    for name, tool in {**guards, **tools}.items():
        known = own.get(name)
        if tool is not known:
            digest = _whole_digest_of(tool)
            is_same = known is not None and _whole_digest_of(known) == digest
            changed[name] = None if is_same else digest
    return {name: _digest_of(tool) for name, tool in tools.items()}, changed


def _whole_digest_of(tool: Tool) -> str:
    return _digest({spec.name: getattr(tool, spec.name) for spec in dataclasses.fields(tool)})


def _digest_of(tool: Tool) -> str:
    return _digest([tool.name, tool.input_schema])


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=_named).encode())


def _named(value: Any) -> Any:
    """Replace a function, or another object that is not JSON, by its name, which all processes share."""
    if is_mapping(value):
        return dict(value)
    name: str | None = getattr(value, "__qualname__", None)
    return f"{getattr(value, '__module__', '')}.{name or value.__class__.__qualname__}"


def _decoded(state: Mapping[str, Any]) -> PauseState:
    """What a run had when it paused; raises `PausedStateError` if a class is not imported, or has changed."""
    missing = missing_classes(state["context"])
    if missing:
        raise PausedStateError(f"memo: {', '.join(missing)} is not imported, and a value is of it")
    fields = {spec.name: state[spec.name] for spec in dataclasses.fields(PauseState)}
    try:
        made: PauseState = decode_fields(PauseState, fields)
    except (TypeError, ValueError) as error:
        raise PausedStateError(f"the paused state is stale: {error}") from error
    return made


def _edited(
    call: ToolCall, arguments: Mapping[str, Any], tools: Mapping[str, Tool], where: str
) -> ToolCall:
    """The call with other arguments; its text remains that of the model. An error begins with ``where``."""
    tool = tools.get(call.name)
    key = arguments
    if tool is not None:
        problems, arguments = tool.validate(arguments)
        if problems:
            raise OptionError(f"{where}: {'; '.join(problems)}")
        key = tool.dedupe_key(arguments)
    return dataclasses.replace(call, input=dict(arguments), fingerprint=fingerprint(call.name, key))
