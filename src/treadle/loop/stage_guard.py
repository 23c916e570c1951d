"""Checks the context that a custom stage returned, so that no stage can make the run lose work.

A call that a stage removed before it ran does not run. A call that ran is in the history, once, with its
result. A history that an edit broke is repaired, and the repair is reported with the name of the stage.
Forbidden changes and values of the wrong type raise here, and the run ends with a `PipelineFailed` that names
the stage.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.context import Context, Decision
from treadle.messages import (
    History,
    JSONDict,
    NotAResponseError,
    ReadOnlyDict,
    Response,
    ToolCall,
    ToolResult,
    describe,
    is_dict,
    is_mapping,
    read_only,
    to_message,
    to_response,
    validate_messages,
)
from treadle.results import PendingCall, Reason
from treadle.stages import (
    approval_questions,
    assistant_message,
    check_call,
    fits_budget,
    inject,
    invalid_call_text,
    parse_tool_calls,
    validate_calls,
)
from treadle.tools import NotRunReason, Plan, Tool, check_implementations, toolset

_FIXED = ("run", "iteration", "approvals", "paused_runs", "trace")
"""Fields that no custom stage may change."""
_OF_THE_RESPONSE = ("tool_calls", "tool_results", "plan", "validation_errors")
"""Fields that have a meaning only after the model was asked."""
_REVIEWED = ("tool_calls", "tool_results", "plan", "tools")
"""Fields that decide what runs."""


def protect(ctx: Context) -> None:
    """Make the contents of a context read-only, before a custom stage receives it: an edit in place raises."""
    fields = ctx.__dict__
    for name in _SHALLOW:
        if fields[name].__class__ is dict:
            fields[name] = ReadOnlyDict(fields[name])
    if ctx.result_messages:
        fields["result_messages"] = tuple(map(read_only, ctx.result_messages))
    for call in ctx.tool_calls:
        _protect(call, "input", "extra")
    for call in ctx.response.tool_calls:
        _protect(call, "input", "extra")
    _protect(ctx.response, "extra")
    _protect(ctx.plan, "not_run", "duplicates", "approvals")


def _protect(one: Any, *names: str) -> None:
    """Make fields of a frozen object read-only, which keeps its identity."""
    for name in names:
        value = getattr(one, name)
        if value.__class__ is dict:
            object.__setattr__(one, name, read_only(value))


_SHALLOW = (
    "tools", "tool_results", "validation_errors", "memo", "approvals", "paused_runs", "request_changes",
)  # fmt: skip


def review(stage: str, before: Context, after: Context) -> Context:
    """Check the context that a custom stage returned.

    Args:
        stage: the name of the stage.
        before: the context that it received.
        after: the context that it returned.

    Returns:
        The context to continue with.

    Raises:
        TypeError: a value of the wrong type, a forbidden change, or a call that ran is missing.
        InvalidMessagesError: malformed messages.
    """
    if after is not before or _ran(before) or _stopped(after):
        after = _reviewed(stage, before, after)
    lost = lost_calls(after)
    if lost:
        raise TypeError(
            f"calls {', '.join(lost)} ran, and the returned context does not have them; "
            "return the context that dispatch_tools returned"
        )
    after.run.dispatched = ()
    return after


def lost_calls(ctx: Context, dispatched: Sequence[Context] | None = None) -> list[str]:
    """The ids of the calls that ran and are neither in a context nor in its history.

    Args:
        ctx: the context.
        dispatched: the contexts whose calls ran; None is all that were dispatched last.
    """
    lost: list[str] = []
    for one in ctx.run.dispatched if dispatched is None else dispatched:
        # Once the model is asked again, their results are in the history only.
        kept = ctx.tool_results if one.is_injected else {call.id for call in ctx.tool_calls}
        lost.extend(call.id for call in one.plan.calls if call.id not in kept)
    if lost:
        made = {call_id for message in ctx.messages.raw() for call_id in _call_ids(message)}
        lost = [call_id for call_id in lost if call_id not in made]
    return lost


def _reviewed(stage: str, before: Context, after: Context) -> Context:
    before = _asked_from(before, after)
    after = _with_owned_facts(before, _checked(before, after))
    if _is_new_response(before, after):
        after = _with_calls_of_response(stage, before, after)
    else:
        after = _Calls(stage, before, after).reviewed()
    return _with_history(stage, before, _with_ids_of_calls(after))


def _asked_from(before: Context, after: Context) -> Context:
    """The context to compare with: if the stage asked again, the one with the first exchange in its history."""
    if not before.is_asked or before.run.asked_again is None:
        return before
    again, response = before.run.asked_again
    return again if after.response is response and before.response is not response else before


def _changed(name: str, before: Context, after: Context) -> bool:
    return getattr(before, name) is not getattr(after, name)


# Kinds


def _checked(before: Context, after: Context) -> Context:
    """Check that a stage changed only fields that it may change, to values of the right type."""
    _check_times(before, after)
    for name, (kinds, expected) in _KINDS.items():
        value = getattr(after, name)
        if _changed(name, before, after) and not isinstance(value, kinds):
            raise TypeError(f"{name}: expected {expected}, got {describe(value)}")
    if after.decision is Decision.STOP and after.error is None:
        raise TypeError("error: a decision to stop needs a reason, as in ctx.stop('why')")
    if after.decision is Decision.DONE and not after.is_asked and _has_no_answer(after):
        raise TypeError(
            "decision: the model was not asked yet, and there is no answer; to answer without asking it, set a "
            "response as well: ctx.replace(response=...).done()"
        )
    if not all(isinstance(one, PendingCall) for one in after.waiting):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("waiting: expected PendingCall objects")
    if _changed("response", before, after):
        _check_response(after.response)
    if _changed("tools", before, after):
        after = after.evolve(tools=_checked_tools(after))
    return after


def _has_no_answer(ctx: Context) -> bool:
    return ctx.output is None and ctx.response.is_blank


def _check_times(before: Context, after: Context) -> None:
    """Check that each field may be changed at this point."""
    too_early = () if after.is_asked else _OF_THE_RESPONSE
    for name in (*_FIXED, *too_early):
        if _changed(name, before, after):
            when = "only be changed after ask_model" if name in too_early else "not be changed"
            raise TypeError(f"{name} may {when}")
    if not after.is_asked and _changed("response", before, after) and after.decision is None:
        raise TypeError(
            "response: the model was not asked yet; to answer without asking it, decide so: "
            "ctx.replace(response=...).done()"
        )
    if after.is_asked and before.is_asked and _changed("request_changes", before, after):
        raise TypeError("the request may only be changed before ask_model")


def _check_response(response: Response) -> None:
    """Check that a response, as a stage returned it, can become a message."""
    try:
        to_response(response)
    except NotAResponseError as error:
        raise TypeError(str(error).removeprefix("llm_send_fn: ")) from None


_NONE = type(None)
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "response": ((Response,), "a Response"),
    "tool_calls": ((tuple, list), "a tuple of ToolCall objects"),
    "tool_results": ((Mapping,), "a mapping of ToolResult objects by id"),
    "plan": ((Plan,), "a Plan"),
    "validation_errors": ((Mapping,), "a mapping of problems by id"),
    "decision": ((Decision, _NONE), "a Decision or None"),
    "error": ((Reason, _NONE), "a Reason or None"),
    "guidance": ((str, _NONE), "a text or None"),
    "memo": ((Mapping,), "a mapping"),
    "waiting": ((tuple, list), "a tuple of PendingCall objects"),
    "messages": ((History, list, tuple), "a history or a list of messages"),
    "request_changes": ((Mapping,), "a mapping"),
}


def _checked_tools(ctx: Context) -> Mapping[str, Tool]:
    given: Any = ctx.tools
    is_right = is_mapping(given) and all(
        isinstance(tool, Tool) and name == tool.name for name, tool in given.items()
    )
    tools: Mapping[str, Tool] = given if is_right else toolset(given)
    check_implementations(tools.values(), ctx.run.resolver)
    return tools


def _with_owned_facts(before: Context, after: Context) -> Context:
    """Restore the fields that the loop computes, whatever the stage set."""
    facts: dict[str, Any] = {}
    if before.is_asked and not after.is_asked:
        facts["is_asked"] = True
    if before.result_messages and not after.result_messages:
        facts["result_messages"] = before.result_messages
    return after.evolve(**facts) if facts else after


# The response


def _started(ctx: Context) -> set[str]:
    """The ids of the context's calls that were started."""
    node = ctx.run.state.current_node
    if node is None:
        return set()
    started = {call.group_id for call in node.tool_calls}
    return {call.id for call in ctx.tool_calls if call.id in started}


def _ran(ctx: Context) -> dict[str, ToolResult]:
    """The results of this iteration's calls that ran and are missing in the context."""
    done = ctx.run.in_flight.results
    ids = [call.id for call in ctx.tool_calls if call.id in done]
    return {call_id: done[call_id] for call_id in ids if call_id not in ctx.tool_results}


def _stopped(ctx: Context) -> list[str]:
    """The ids of the context's calls that were started, and that a stage stopped before they were done."""
    if ctx.decision is Decision.PAUSE:
        return []
    done = ctx.run.in_flight.results
    started = _started(ctx)
    return [one for one in started if one not in done and one not in ctx.tool_results]


def _is_new_response(before: Context, after: Context) -> bool:
    """Whether a stage replaced the response before any of its calls ran."""
    is_replaced = before.is_asked and _changed("response", before, after)
    has_run = before.is_injected or _started(before) or _started(after)
    return is_replaced and not has_run


def _with_calls_of_response(stage: str, before: Context, after: Context) -> Context:
    """Replace the calls of the old response, which do not run, with those of the new one."""
    for call in before.plan.calls:
        after.run.release(call)
    nothing: dict[str, Any] = {"tool_results": {}, "plan": Plan(), "validation_errors": {}}
    if _requested(before) != _requested(after):  # the stage set the calls itself
        empty = before.evolve(tool_calls=(), **nothing)
        after = _Calls(stage, empty, after.evolve(**nothing)).reviewed()
    else:
        after = parse_tool_calls(after.evolve(tool_calls=(), **nothing))
    after = validate_calls(after)
    if before.plan.batches:  # too late for a plan
        text = f"Not run: {stage} replaced the response."
        results = {call.id: ToolResult(call.id, text, True, "skipped") for call in after.tool_calls}
        after = after.evolve(tool_results={**results, **after.tool_results})
    return after


def _with_ids_of_calls(ctx: Context) -> Context:
    """Give the calls of the response their unique ids, which they keep if they are parsed again."""
    given, calls = ctx.response.tool_calls, ctx.tool_calls
    if ctx.is_injected or len(given) != len(calls):
        return ctx
    renamed = [dataclasses.replace(one, id=call.id) for one, call in zip(given, calls, strict=True)]
    are_edited = any(
        _request(one) != _request(call) for one, call in zip(renamed, calls, strict=True)
    )
    if are_edited or all(map(operator.eq, given, renamed)):
        return ctx
    return ctx.evolve(response=dataclasses.replace(ctx.response, tool_calls=tuple(renamed)))


def _requested(ctx: Context) -> list[tuple[Any, ...]]:
    """The calls as the model made them, whether or not they were validated."""
    calls: Sequence[Any] = ctx.tool_calls
    return [_request(call) for call in calls]


def _request(call: Any) -> tuple[Any, ...]:
    return tuple(getattr(call, name, call) for name in _REQUESTED)


_REQUESTED = ("id", "name", "arguments")


# Calls, results and the plan


class _Calls:
    """The calls of an iteration, their results and the plan, as a stage returned them; used once."""

    def __init__(self, stage: str, before: Context, after: Context) -> None:
        self._stage = stage
        self._before = before
        self._after = after
        self._started = _started(before)
        self._are_validated = _is_validated(before) or _is_validated(after)
        self._void = frozenset[str]()
        self._results: dict[str, ToolResult] = {}
        self._errors: dict[str, tuple[str, ...]] = {}
        self._not_run: dict[str, NotRunReason] = {}

    def reviewed(self) -> Context:
        """The context with consistent calls, results and plan."""
        before, after = self._before, self._after
        is_changed = any(_changed(name, before, after) for name in _REVIEWED)
        if not is_changed and not _ran(after) and not _stopped(after):
            return after
        self._void = self._void_verdicts()
        self._results = self._checked_results()
        errors = after.validation_errors
        self._errors = {one: errors[one] for one in errors if one not in self._void}
        calls = self._checked_calls()
        plan = self._checked_plan(calls)
        return after.evolve(
            tool_calls=tuple(calls),
            tool_results=self._results,
            validation_errors=self._errors,
            plan=plan,
        )

    def _void_verdicts(self) -> frozenset[str]:
        """The ids of invalid calls that the stage has edited before the plan: each is validated again."""
        before, results = self._before, self._after.tool_results
        if before.plan.batches or before.plan.not_run or "plan_calls" in before.trace:
            return frozenset()
        given: Sequence[Any] = self._after.tool_calls  # not checked yet
        void: set[str] = set()
        for call in before.tool_calls:
            if call.id not in before.validation_errors:
                continue
            edited: Any = next((one for one in given if getattr(one, "id", None) == call.id), call)
            if not isinstance(edited, ToolCall):
                continue
            is_edited = _request(edited) != _request(call) or edited.input is not None
            if is_edited and results.get(call.id) in (None, before.tool_results.get(call.id)):
                void.add(call.id)
        return frozenset(void)

    def _checked_results(self) -> dict[str, ToolResult]:
        """The results that the stage returned, and those that it dropped."""
        before, after = self._before, self._after
        known = {call.id for call in (*before.tool_calls, *after.tool_calls)}
        results: dict[str, ToolResult] = {}
        for call_id, result in after.tool_results.items():
            if not isinstance(result, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"tool_results[{call_id!r}]: expected a ToolResult, got {describe(result)}"
                )
            if not isinstance(result.content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"tool_results[{call_id!r}].content: expected a text, got {describe(result.content)}"
                )
            if call_id not in known:
                raise TypeError(f"tool_results[{call_id!r}]: no call of this iteration has this id")
            if call_id in self._void:
                continue
            is_right = result.tool_call_id == call_id
            results[call_id] = (
                result if is_right else dataclasses.replace(result, tool_call_id=call_id)
            )
        # A stage that calls `dispatch_tools` itself can drop the results of calls that ran within it.
        earlier = {**_ran(before), **_ran(after), **before.tool_results}
        dropped = [one for one in earlier if one not in results and one not in self._void]
        if dropped:
            self._report(f"results of {', '.join(dropped)} were restored")
        for call_id in _stopped(after):
            text = f"Cancelled: {self._stage} stopped this call before it was done."
            if call_id not in earlier:
                results.setdefault(call_id, ToolResult(call_id, text, True, "cancelled"))
        return {**{call_id: earlier[call_id] for call_id in dropped}, **results}

    def _report(self, text: str) -> None:
        self._after.run.note_repairs((f"iteration {self._after.iteration}: {text}",), self._stage)

    def _checked_calls(self) -> list[ToolCall]:
        """The calls in the stage's order, and those that it removed, each answered."""
        before, after = self._before, self._after
        old = {call.id: call for call in before.tool_calls}
        for one in before.run.dispatched:  # by the stage itself
            old.update({call.id: call for call in one.tool_calls if call.id in self._started})
        calls: list[ToolCall] = []
        for call in after.tool_calls:
            if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"tool_calls: expected ToolCall objects, got {describe(call)}")
            _check_response(Response(tool_calls=(call,)))
            if any(call.id == other.id for other in calls):
                raise TypeError(f"tool_calls: the id {call.id!r} is used twice")
            known = old.get(call.id)
            if call is not known or self._has_other_tool(call):
                call = self._added(call) if known is None else self._edited(known, call)  # noqa: PLW2901
                self._check_not_terminal(call)
            calls.append(call)
        kept = {call.id for call in calls}
        for place, call in enumerate(before.tool_calls):
            if call.id not in kept:
                calls.insert(min(place, len(calls)), call)
                if call.id in self._started or call.id in self._results:
                    self._report(f"call {call.id} was restored")
                else:
                    self._remove(call)
        return calls

    def _has_other_tool(self, call: ToolCall) -> bool:
        """Whether the stage removed or replaced the tool of a call."""
        return self._before.tools.get(call.name) is not self._after.tools.get(call.name)

    def _check_not_terminal(self, call: ToolCall) -> None:
        """Refuse an added or edited call of a terminal tool after `loop_decision`, which did not see the call."""
        tool = self._after.tools.get(call.name)
        is_open = tool is not None and tool.terminal and call.id not in self._results
        if is_open and "loop_decision" in self._before.trace:
            raise TypeError(
                f"tool_calls: {call.id!r} calls the terminal tool {call.name!r}, which is only possible "
                f"before loop_decision"
            )

    def _remove(self, call: ToolCall) -> None:
        text = f"Not run: removed by {self._stage}."
        self._refuse(call, text, NotRunReason.REMOVED, "skipped")

    def _refuse(self, call: ToolCall, text: str, reason: NotRunReason, status: str) -> None:
        self._results[call.id] = ToolResult(call.id, text, True, status)
        self._not_run[call.id] = reason
        self._after.run.refused.append((call, reason))

    def _added(self, call: ToolCall) -> ToolCall:
        """Check a call that the stage made, like those of the model."""
        if self._before.is_injected:
            raise TypeError(
                f"tool_calls: {call.id!r} was added after inject_results, not before it"
            )
        if not call.id or self._before.messages.has_call(call.id):
            raise TypeError(
                f"tool_calls: expected an id that is unique in the history, not {call.id!r}"
            )
        return self._validated(call) if self._are_validated else call

    def _edited(self, known: ToolCall, call: ToolCall) -> ToolCall:
        """Check an edited call: if it was answered, it is restored; otherwise it is validated again."""
        is_answered = call.id in self._before.tool_results and call.id not in self._void
        if call.id in self._started or is_answered:
            if (call.name, call.input) != (known.name, known.input):
                did = "has run" if call.id in self._started else "was answered"
                self._report(f"call {call.id} {did}; its name and input were restored")
            return dataclasses.replace(known, arguments=call.arguments, extra=call.extra)
        if call.name != known.name:
            self._after.run.release(known)  # it now counts as a use of another tool
        if not self._are_validated:
            return call
        if (call.name, call.arguments) == (known.name, known.arguments):
            if not _is_validated(self._before):  # a stage calls `validate_calls` itself
                known, _ = check_call(self._after, known)
            if call.input == known.input:
                return self._validated(call) if self._has_other_tool(call) else call
            # The history has to show what runs.
            call = dataclasses.replace(call, arguments=json.dumps(call.input, default=str))
        return self._validated(call)

    def _validated(self, call: ToolCall) -> ToolCall:
        checked, problems = check_call(self._after, call)
        if problems:
            self._errors[call.id] = problems
            text = invalid_call_text(call, problems)
            self._results[call.id] = ToolResult(call.id, text, True, "invalid")
        return checked

    def _checked_plan(self, calls: Sequence[ToolCall]) -> Plan:
        """The plan with the calls that may run: not removed, not answered, within the budget, each once."""
        before, after = self._before, self._after
        wanted = _calls_of(after.plan)
        left = [call.id for call in before.plan.calls if call.id not in before.tool_results]
        if self._started and (not left or not self._started.isdisjoint(left)):
            return before.plan  # it was dispatched
        by_id = {call.id: call for call in calls}
        for call in wanted:
            if call.id not in by_id:
                raise TypeError(f"plan: no call of this iteration has the id {call.id!r}")
        kept = {call.id for call in wanted} | self._results.keys()
        for call in before.plan.calls:
            if call.id not in kept:
                self._remove(by_id[call.id])
        batches = self._runnable(by_id)
        placed = {call.id for batch in batches for call in batch}
        for call_id in after.run.reserved.keys() - placed:
            after.run.release(after.run.reserved[call_id])
        duplicates = self._checked_duplicates(by_id)
        not_run = {**before.plan.not_run, **after.plan.not_run, **self._not_run}
        return dataclasses.replace(
            after.plan,
            batches=tuple(batches),
            not_run=not_run,
            duplicates=duplicates,
            # A stage cannot remove an approval.
            approvals=approval_questions(after, [call for call in calls if call.id in placed]),
        )

    def _checked_duplicates(self, by_id: Mapping[str, ToolCall]) -> dict[str, str]:
        """The duplicates that are still the same call; the others are deferred."""
        duplicates: dict[str, str] = {}
        for call_id, first_id in {
            **self._before.plan.duplicates,
            **self._after.plan.duplicates,
        }.items():
            call, first = by_id.get(call_id), by_id.get(first_id)
            if call is None or first is None or call_id in self._results:
                continue
            if call.fingerprint == first.fingerprint:
                duplicates[call_id] = first_id
            else:
                text = (
                    f"Not run yet: {self._stage} changed an identical call. "
                    f"Call {call.name!r} again if you still need it."
                )
                self._refuse(call, text, NotRunReason.DEFERRED, "deferred")
        return duplicates

    def _runnable(self, by_id: Mapping[str, ToolCall]) -> list[tuple[ToolCall, ...]]:
        """The batches of the stage's plan, without calls that are answered or planned twice."""
        run, placed = self._after.run, set[str]()
        batches: list[tuple[ToolCall, ...]] = []
        for batch in self._after.plan.batches:
            fitting: list[ToolCall] = []
            for call in batch:
                if call.id in placed or call.id in self._results:
                    continue
                placeable = by_id[call.id]
                refused = None
                if call.id in run.reserved:
                    run.reserved[call.id] = placeable
                else:
                    refused = fits_budget(self._after, placeable)
                if refused is None:
                    placed.add(call.id)
                    fitting.append(placeable)
                else:
                    self._results[call.id] = refused
                    self._not_run[call.id] = NotRunReason.OVER_BUDGET
            if fitting:
                batches.append(tuple(fitting))
        return batches


def _calls_of(plan: Plan) -> list[ToolCall]:
    """The calls of a plan that a stage made."""
    calls: list[ToolCall] = []
    for batch in plan.batches:
        if not isinstance(batch, (tuple, list)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"plan: expected batches that are tuples of calls, got {describe(batch)}"
            )
        for call in batch:
            if not isinstance(call, ToolCall):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"plan: expected ToolCall objects, got {describe(call)}")
        calls.extend(batch)
    return calls


def _is_validated(ctx: Context) -> bool:
    """Whether the calls of an iteration went through `validate_calls`."""
    calls: Sequence[Any] = ctx.tool_calls
    return any(getattr(call, "fingerprint", "") for call in calls)


# The history


def _with_history(stage: str, before: Context, after: Context) -> Context:
    """Make a valid history that contains this iteration once if it is injected, else not at all."""
    if not _changed("messages", before, after):
        return after
    if _is_only_injected(before, after):
        return after
    given = [to_message(message) for message in after.messages]
    if after.is_injected:
        edited, note = _with_exchange(given, list(after.result_messages), before)
    else:
        edited, note, after = _before_injection(given, before, after)
    # The ids of calls that are not in the history yet are reserved for them.
    taken = () if after.is_injected else [call.id for call in after.tool_calls]
    history, repairs = validate_messages(edited, taken)
    after.run.note_repairs((*note, *repairs), stage)
    return after.evolve(messages=History(history))


def _is_only_injected(before: Context, after: Context) -> bool:
    """Whether the only change of a history is that of `inject_results`."""
    messages: Any = after.messages  # a stage may have returned a list
    if before.is_injected or not after.is_injected or not isinstance(messages, History):
        return False
    return messages.raw() == [*before.messages.raw(), *after.result_messages]


def _call_ids(message: Any) -> list[str]:
    calls: Any = message.get("tool_calls") if is_dict(message) else None
    return [call.get("id", "") for call in calls or () if is_dict(call)]


def _belongs(message: Any, ids: set[str]) -> bool:
    """Whether a message requests or answers one of the given calls."""
    if not is_dict(message):
        return False
    return message.get("tool_call_id") in ids or not ids.isdisjoint(_call_ids(message))


def _with_exchange(
    given: list[Any], exchange: list[JSONDict], before: Context
) -> tuple[list[Any], tuple[str, ...]]:
    """An edited history that has the messages of this iteration exactly once.

    Args:
        given: the history that a stage made.
        exchange: the assistant message of this iteration and its results.
        before: the context before the edit.
    """
    ids = _call_ids(exchange[0])
    if not ids:
        if _has_answer(given, exchange[0], before):
            return given, ()
        return [*given, exchange[0]], ("the answer of this iteration was restored",)
    wanted = set(ids)
    rest = [message for message in given if not _belongs(message, wanted)]
    first = next(
        (
            place
            for place, message in enumerate(given)
            if wanted & set(_call_ids(message)) and message.get("role") == "assistant"
        ),
        None,
    )
    position, assistant = len(rest), exchange[0]
    if first is not None:
        position = sum(not _belongs(message, wanted) for message in given[:first])
        assistant = _with_names(given[first], exchange[0])
    answers: dict[str, JSONDict] = {
        message["tool_call_id"]: message
        for message in reversed(given)
        if is_dict(message)
        and message.get("role") == "tool"
        and message.get("tool_call_id") in wanted
    }
    results = [answers.get(message["tool_call_id"], message) for message in exchange[1:]]
    edited = [*rest[:position], assistant, *results, *rest[position:]]
    if edited == given:
        return given, ()
    return edited, ("the messages of this iteration were restored",)


def _with_names(edited: JSONDict, made: JSONDict) -> JSONDict:
    """An edited assistant message with the calls of this iteration, whose arguments it may have rewritten."""
    calls: list[JSONDict] = made["tool_calls"]
    rewritten = {call["id"]: call for call in edited["tool_calls"]}
    kept: list[JSONDict] = []
    for call in calls:
        own = rewritten.get(call["id"], call)
        function: JSONDict = {**own["function"]} if is_dict(own.get("function")) else {}
        function.setdefault("arguments", call["function"]["arguments"])
        function["name"] = call["function"]["name"]
        kept.append({**own, "type": call["type"], "function": function})
    return {**edited, "tool_calls": kept}


def _has_answer(given: list[Any], answer: JSONDict, before: Context) -> bool:
    """Whether a text answer is in an edited history, either unchanged or rewritten by the stage."""
    if any(message == answer for message in given):
        return True
    spoken = [m for m in given if is_dict(m) and m.get("role") == "assistant"]
    if not spoken:
        return False
    return not any(message == spoken[-1] for message in before.messages.raw())


def _before_injection(
    given: list[Any], before: Context, after: Context
) -> tuple[list[Any], tuple[str, ...], Context]:
    """An edited history without this iteration, or with all of it if the stage added it."""
    if not after.is_asked:
        return given, (), after
    ids = [call.id for call in after.tool_calls]
    own = assistant_message(after)
    if not ids:
        is_added = len(given) > 0 and given[-1] == own and not _ends_so(before, own)
        if is_added and not after.response.is_blank:
            return given, (), after.evolve(result_messages=(own,))
        return given, (), after
    wanted = set(ids)
    if not any(_belongs(message, wanted) for message in given):
        return given, (), after
    if all(call_id in after.tool_results for call_id in ids):
        exchange = inject(after.evolve(messages=History())).result_messages
        edited, _ = _with_exchange(given, list(exchange), before)
        return edited, (), after.evolve(result_messages=exchange)
    # Calls that have not run yet: their messages follow with their results.
    rest = [message for message in given if not _belongs(message, wanted)]
    return rest, ("messages of calls that have not run were left out",), after


def _ends_so(ctx: Context, message: JSONDict) -> bool:
    messages = ctx.messages.raw()
    return bool(messages) and messages[-1] == message
