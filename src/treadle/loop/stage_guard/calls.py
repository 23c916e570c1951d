"""The calls of an iteration, their results and the plan, after a custom stage."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.context import Context, Decision
from treadle.loop.stage_guard.fields import changed, check_response
from treadle.messages import (
    Response,
    ToolCall,
    ToolResult,
    describe,
    is_content_part,
    text_of_parts,
)
from treadle.stages import approval_questions, check_call, fits_budget, invalid_call_text
from treadle.tools import NotRunReason, Plan

_REVIEWED = ("tool_calls", "tool_results", "plan", "tools")
"""Fields that decide what runs."""


def started_calls(ctx: Context) -> set[str]:
    """The ids of the context's calls that were started."""
    node = ctx.run.state.current_node
    if node is None:
        return set()
    started = {call.group_id for call in node.tool_calls}
    return {call.id for call in ctx.tool_calls if call.id in started}


def missing_results(ctx: Context) -> dict[str, ToolResult]:
    """The results of this iteration's calls that ran and are missing in the context."""
    done = ctx.run.in_flight.results
    ids = [call.id for call in ctx.tool_calls if call.id in done]
    return {call_id: done[call_id] for call_id in ids if call_id not in ctx.tool_results}


def stopped_calls(ctx: Context) -> list[str]:
    """The ids of the context's calls that were started, and that a stage stopped before they were done."""
    if ctx.decision is Decision.PAUSE:
        return []
    done = ctx.run.in_flight.results
    started = started_calls(ctx)
    return [one for one in started if one not in done and one not in ctx.tool_results]


def call_requests(ctx: Context) -> list[tuple[Any, ...]]:
    """The calls as the model made them, whether or not they were validated."""
    calls: Sequence[Any] = ctx.tool_calls
    return [call_request(call) for call in calls]


def call_request(call: Any) -> tuple[Any, ...]:
    """The id, the name and the arguments of a call."""
    return tuple(getattr(call, name, call) for name in _REQUESTED)


_REQUESTED = ("id", "name", "arguments")


def _check_result(call_id: str, result: Any) -> None:
    """Check the types of a result that a stage returned."""
    where = f"tool_results[{call_id!r}]"
    if not isinstance(result, ToolResult):
        raise TypeError(f"{where}: expected a ToolResult, got {describe(result)}")
    content, parts = result.content, result.parts
    if not isinstance(content, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{where}.content: expected a text, got {describe(content)}")
    if parts is None:
        return
    is_many = isinstance(parts, (list, tuple)) and len(parts) > 0
    if not is_many or not all(map(is_content_part, parts)):
        raise TypeError(f"{where}.parts: expected content parts or None, got {describe(parts)}")


def _corrected(call_id: str, result: ToolResult) -> ToolResult:
    """A result with the id of its call, and with parts that have the same text."""
    if result.tool_call_id != call_id:
        result = dataclasses.replace(result, tool_call_id=call_id)
    if result.parts is not None and text_of_parts(result.parts) != result.content:
        # A stage changed the text alone, as one does that redacts it: the model must not see the parts.
        result = dataclasses.replace(result, parts=None)
    return result


def are_validated(ctx: Context) -> bool:
    """Whether the calls of the iteration went through `validate_calls`."""
    calls: Sequence[Any] = ctx.tool_calls
    return any(getattr(call, "fingerprint", "") for call in calls)


class CallReview:
    """Checks the calls of an iteration, their results and the plan; used once.

    Args:
        stage: the name of the stage.
        before: the context that it received.
        after: the context that it returned.
    """

    def __init__(self, stage: str, before: Context, after: Context) -> None:
        self._stage = stage
        self._before = before
        self._after = after
        self._started = started_calls(before)
        self._are_validated = are_validated(before) or are_validated(after)
        self._void = frozenset[str]()
        self._results: dict[str, ToolResult] = {}
        self._errors: dict[str, tuple[str, ...]] = {}
        self._not_run: dict[str, NotRunReason] = {}

    def reviewed(self) -> Context:
        """The context with consistent calls, results and plan."""
        before, after = self._before, self._after
        is_changed = any(changed(name, before, after) for name in _REVIEWED)
        if not is_changed and not missing_results(after) and not stopped_calls(after):
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
            is_edited = call_request(edited) != call_request(call) or edited.input is not None
            if is_edited and results.get(call.id) in (None, before.tool_results.get(call.id)):
                void.add(call.id)
        return frozenset(void)

    def _checked_results(self) -> dict[str, ToolResult]:
        """The results that the stage returned, and those that it dropped."""
        before, after = self._before, self._after
        known = {call.id for call in (*before.tool_calls, *after.tool_calls)}
        results: dict[str, ToolResult] = {}
        for call_id, result in after.tool_results.items():
            _check_result(call_id, result)
            if call_id not in known:
                raise TypeError(f"tool_results[{call_id!r}]: no call of this iteration has this id")
            if call_id in self._void:
                continue
            results[call_id] = _corrected(call_id, result)
        # A stage that calls `dispatch_tools` itself can drop the results of calls that ran within it.
        earlier = {**missing_results(before), **missing_results(after), **before.tool_results}
        dropped = [one for one in earlier if one not in results and one not in self._void]
        if dropped:
            self._report(f"results of {', '.join(dropped)} were restored")
        for call_id in stopped_calls(after):
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
            check_response(Response(tool_calls=(call,)))
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
        if call.raw_arguments is None:  # the history shows it as the model made it
            call = dataclasses.replace(call, raw_arguments=known.raw_arguments)
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
            if not are_validated(self._before):  # a stage calls `validate_calls` itself
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
