"""`plan_calls`: decides which calls run, together or one after another, and which do not."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

from treadle.checks import choice
from treadle.context import Context
from treadle.effects import Emit, Steps
from treadle.events import CallDeferred, CallRecalled, CallRefused, CallsPlanned, CallSuppressed
from treadle.messages import ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.stages._shared_breaker import refused_calls, release_calls
from treadle.stages._validate_calls import validate_calls
from treadle.tools import (
    DEDUPE_MODES,
    CachedResult,
    Dedupe,
    NotRunReason,
    Plan,
    PlanReason,
    Tool,
    truncate,
)

AGAIN_LINES, AGAIN_BYTES = 200, 5_000
"""The maximum size of an earlier result that is shown again: the history has all of it."""

NOT_RUN = "Not run: the budget for this task is spent. Give your final answer with what you have."
"""The answer to calls of a model that was asked for its last answer."""

_BUDGETS = frozenset({NotRunReason.OVER_BUDGET, NotRunReason.MAX_USES})


class Planner:
    """Plans the calls of one iteration; used once.

    Args:
        ctx: has the tools, the limits and the results of this turn.
        in_step: whether calls that cannot run with the first batch run after it; else they are deferred.
    """

    def __init__(self, ctx: Context, *, in_step: bool) -> None:
        self.not_run: dict[str, NotRunReason] = {}
        self.results: dict[str, ToolResult] = {}
        self._ctx = ctx
        self._in_step = in_step
        self._results = ctx.run.result_cache
        self._batches: list[list[ToolCall]] = []
        self._in_batch: dict[str, str] = {}
        self._duplicates: dict[str, str] = {}
        self._per_tool: Counter[str] = Counter()
        self._uses: Counter[str] = Counter()
        self._calls_left = ctx.run.budget.calls_left()
        self._split: PlanReason | None = None
        self._is_ordered = False

    def plan(self, calls: Iterable[ToolCall], refused: Mapping[str, str]) -> Plan:
        """Plan the calls, and reserve the budget of those that run.

        Args:
            calls: those that have no answer yet, in the order of the request.
            refused: the ids of calls whose circuit breakers are open, each with the error.
        """
        for call in calls:
            tool = self._ctx.tools.get(call.name)
            mode = self._ctx.run.dedupe_of(tool)
            recalled = None if mode == "off" else self._results.recall(call.fingerprint)
            known = self._known(call, mode)
            first = None if mode == "off" else self._in_batch.get(call.fingerprint)
            if call.id in refused:
                self._refuse(call, NotRunReason.BREAKER_OPEN, _breaker_open(call, refused[call.id]))
            elif recalled is not None and self._sees_what_is_known(tool):
                may_run = self._unchanged(call, mode) is None
                self._refuse(call, NotRunReason.RECALLED, _recalled(recalled, may_run=may_run))
            elif known is not None and self._sees_what_is_known(tool):
                self._refuse(call, NotRunReason.NO_NEW_EVIDENCE, _skipped(known))
            elif self._split is not None and not self._in_step:
                self._is_ordered |= self._is_alone(tool)
                self._defer(call)
            elif first is not None:
                self.not_run[call.id] = NotRunReason.DUPLICATE_IN_BATCH
                self._duplicates[call.id] = first
            elif self._fits_the_budgets(call, tool):
                self._place(call, tool)
        planned = [call for batch in self._batches for call in batch]
        self._ctx.run.reserve(planned, self._uses)
        return Plan(
            tuple(map(tuple, self._batches)),
            self._reason(len(planned)),
            self.not_run,
            self._duplicates,
            approval_questions(self._ctx, planned),
        )

    def _known(self, call: ToolCall, mode: Dedupe) -> CachedResult | None:
        """The result with which a repeated call is answered; None if it may run."""
        is_hidden = mode == "off" or call.fingerprint in self._results.hidden
        return None if is_hidden else self._unchanged(call, mode)

    def _unchanged(self, call: ToolCall, mode: Dedupe) -> CachedResult | None:
        """The result of a call that would return the same again."""
        fresh = self._results.fresh(call.fingerprint)
        if fresh is None or (mode == "evidence" and not fresh.is_repeated):
            return None
        return fresh

    def _sees_what_is_known(self, tool: Tool | None) -> bool:
        """Whether no other call has to run first, so that this one would see the current state."""
        seen_by = {None, PlanReason.PARALLEL_BATCH_CUT}
        return not self._is_ordered and self._conflict(tool) in seen_by

    def _fits_the_budgets(self, call: ToolCall, tool: Tool | None) -> bool:
        most = tool.max_uses if tool is not None else None
        if most is not None:
            left = self._ctx.run.budget.uses_left(call.name, most) - self._uses[call.name]
            if left <= 0:
                self._refuse(call, NotRunReason.MAX_USES, _used_up(call, most))
                return False
        if self._calls_left == 0:
            self._refuse(call, NotRunReason.OVER_BUDGET, _over_budget(self._ctx))
            return False
        return True

    def _place(self, call: ToolCall, tool: Tool | None) -> None:
        """Add a call to the open batch, or to a new one, or defer it."""
        split = self._conflict(tool)
        is_stale = split is not None and tool is not None and tool.requires_fresh_input
        if split is not None:
            self._split = self._split or split
            self._is_ordered |= split is not PlanReason.PARALLEL_BATCH_CUT
            if is_stale or not self._in_step:
                self._defer(call)
                return
        if split is not None or not self._batches:
            self._batches.append([])
            self._in_batch.clear()
            self._per_tool.clear()
        self._batches[-1].append(call)
        self._in_batch[call.fingerprint] = call.id
        self._per_tool[call.name] += 1
        if self._calls_left is not None:
            self._calls_left -= 1
        if tool is not None and tool.max_uses is not None:
            self._uses[call.name] += 1

    def _conflict(self, tool: Tool | None) -> PlanReason | None:
        """Why a call cannot run with the open batch; None if it can."""
        batch = self._batches[-1] if self._batches else []
        if not batch:
            return None
        if self._is_alone(self._ctx.tools.get(batch[0].name)):
            return PlanReason.SEQUENTIAL_DEFERRED
        if self._is_alone(tool):
            return PlanReason.MIXED_BATCH_SEQUENCED
        most = tool.max_parallel if tool is not None else None
        is_full = len(batch) >= self._ctx.limits.max_parallel_calls
        if is_full or (tool is not None and most is not None and self._per_tool[tool.name] >= most):
            return PlanReason.PARALLEL_BATCH_CUT
        return None

    @staticmethod
    def _is_alone(tool: Tool | None) -> bool:
        return tool is not None and (not tool.parallel_safe or tool.requires_fresh_input)

    def _defer(self, call: ToolCall) -> None:
        is_cut = self._split is PlanReason.PARALLEL_BATCH_CUT
        reason = NotRunReason.PARALLEL_CAP if is_cut else NotRunReason.DEFERRED
        self._refuse(call, reason, _deferred(call, is_cut=is_cut))

    def _refuse(self, call: ToolCall, reason: NotRunReason, text: str) -> None:
        is_error = reason not in _WITH_RESULT
        self.not_run[call.id] = reason
        self.results[call.id] = ToolResult(call.id, text, is_error, _OUTCOMES[reason].status)

    def _reason(self, planned: int) -> PlanReason:
        if not _BUDGETS.isdisjoint(self.not_run.values()):
            return PlanReason.OVER_BUDGET
        if not planned:
            return PlanReason.ALL_SUPPRESSED
        if self._split is not None:
            return self._split
        return PlanReason.SINGLE_CALL if planned == 1 else PlanReason.PARALLEL_BATCH


def fits_budget(ctx: Context, call: ToolCall) -> ToolResult | None:
    """Reserve the budget of a call that a stage has planned; return the answer to it if no budget is left."""
    budget, tool = ctx.run.budget, ctx.tools.get(call.name)
    most = None if tool is None else tool.max_uses
    left = budget.calls_left()
    if (left is not None and left <= 0) or (most and not budget.uses_left(call.name, most)):
        ctx.run.refused.append((call, NotRunReason.OVER_BUDGET))
        text = "Not run: the budget of tool calls is spent. Answer with what you have."
        return ToolResult(call.id, text, True, "over_budget")
    ctx.run.reserve([call], {} if most is None else {call.name: 1})
    return None


def approval_questions(ctx: Context, calls: Iterable[ToolCall]) -> Mapping[str, str]:
    """The questions of the calls that need approval, by id of the call."""
    questions: dict[str, str] = {}
    for call in calls:
        tool = ctx.tools.get(call.name)
        question = None if tool is None else tool.approval_question(call.input or {})
        if question is not None:
            questions[call.id] = question
    return questions


def shown_again(content: str) -> str:
    """Truncate an earlier result to show it again."""
    return truncate(content, AGAIN_LINES, AGAIN_BYTES)


def _skipped(answer: CachedResult) -> str:
    return (
        f"Not run again: you made the same call in iteration {answer.iteration}, and nothing new has been "
        f"learned since; only a tool declared volatile=True would run again. Its result was:\n"
        f"{shown_again(answer.content)}\n"
        f"Try something else, or answer with what you have."
    )


def _recalled(answer: CachedResult, *, may_run: bool) -> str:
    how = "; call it once more to run it" if may_run else ""
    return (
        f"{answer.content}\n\n"
        f"[note: this is what the same call returned in iteration {answer.iteration}, which is no longer in the "
        f"conversation. The tool did not run again{how}.]"
    )


def _deferred(call: ToolCall, *, is_cut: bool) -> str:
    why = "no more calls can run at the same time" if is_cut else "other calls have to run first"
    return f"Not run yet: {why}. Look at the other results, and call {call.name!r} again if you still need it."


def _over_budget(ctx: Context) -> str:
    if ctx.run.finishing is not None:
        return NOT_RUN
    limit = ctx.run.budget.calls_limit()
    return f"Not run: the budget of {limit} tool calls is spent. Answer with what you have."


def _used_up(call: ToolCall, most: int) -> str:
    return (
        f"Not run: {call.name!r} has reached its maximum number of uses in a run, {most}. "
        f"Do without it, or answer with what you have."
    )


def _breaker_open(call: ToolCall, error: str) -> str:
    return (
        f"Error: {call.name!r} is unavailable and was not tried. It kept failing with: {error}\n"
        f"Do without it for now."
    )


@stage(requires=("tool_calls",), provides=("plan", "tool_results"))
def plan_calls(
    ctx: Context,
    *,
    sequential: Annotated[Literal["defer", "in_step"], choice("defer", "in_step")] = "defer",
    dedupe: Annotated[Dedupe, choice(*DEDUPE_MODES)] = "evidence",
) -> Steps[Context]:
    """Plan the valid calls, in the order of the request, and answer those that do not run.

    The longest prefix of the calls that may run together is a batch: parallel-safe calls, up to
    ``max_parallel_calls`` and each tool's ``max_parallel``; or exactly one call that is not parallel-safe.

    A call whose result was compacted away is answered with that result if it still holds, and runs otherwise. A
    call that was repeated, and returned the same result, is skipped if nothing new was learned since, and
    answered with that result; see `dedupe`. The same call twice in a batch runs once. Calls beyond a budget are
    answered as over budget.

    Args:
        ctx: the context.
        sequential: how the calls after the first batch are treated: ``defer`` tells the model that it may repeat
            them, ``in_step`` runs them in further batches. Calls that require fresh input are deferred in
            either case.
        dedupe: when a repeated call of a tool without this option is skipped: ``evidence``, ``strict`` or
            ``off``, see `treadle.tools.Dedupe`. Unless it is ``off``, the same call twice in a batch runs once.
    """
    if _has_unchecked(ctx):
        ctx = yield from validate_calls(ctx)
    ctx.run.dedupe = dedupe
    if ctx.plan.batches:  # of a stage that planned them before
        ctx.run.release_new(ctx.plan.calls)
    done, removed = ctx.tool_results, ctx.plan.not_run
    calls: Sequence[ToolCall] = ctx.tool_calls
    waiting = [call for call in calls if call.id not in done] if done else calls
    if not waiting:
        if ctx.run.has_listeners and ctx.tool_calls:
            yield from _report(ctx)
        return ctx
    if len(waiting) == 1 and _is_simple(ctx, waiting[0]):
        ctx.run.reserve(waiting)
        ctx = ctx.evolve(plan=Plan.of_one(waiting[0]))
    else:
        refused = yield from refused_calls(ctx, waiting)
        planner = Planner(ctx, in_step=sequential == "in_step")
        plan = planner.plan(waiting, refused)
        not_run = [call for call in waiting if call.id in plan.not_run and call.id not in refused]
        yield from release_calls(ctx, not_run)
        _note(ctx, waiting, plan)
        ctx = ctx.evolve(plan=plan, tool_results={**done, **planner.results})
    if removed:
        ctx = _with_removed(ctx, removed)
    if ctx.run.has_listeners:
        yield from _report(ctx)
    return ctx


def _note(ctx: Context, calls: Iterable[ToolCall], plan: Plan) -> None:
    """Count the repeated calls, and note that the model sees the results of those that were recalled again."""
    for call in calls:
        reason = plan.not_run.get(call.id)
        if reason in _REPEATED:
            ctx.run.in_flight.count(call)
        elif reason is NotRunReason.RECALLED:
            ctx.run.result_cache.show((call.fingerprint,))


def _has_unchecked(ctx: Context) -> bool:
    """Whether the list of stages has no `validate_calls`: no call runs with other arguments."""
    for call in ctx.tool_calls:  # noqa: SIM110 - any() takes longer
        if not call.fingerprint:
            return True
    return False


def _with_removed(ctx: Context, removed: Mapping[str, NotRunReason]) -> Context:
    """The context with the calls that a stage removed."""
    not_run = {**removed, **ctx.plan.not_run}
    return ctx.evolve(plan=dataclasses.replace(ctx.plan, not_run=not_run))


def _is_simple(ctx: Context, call: ToolCall) -> bool:
    """Whether there is nothing to decide: a single call, within all limits, that was not made before."""
    tool = ctx.tools.get(call.name)
    if tool is not None and not tool.is_plain:
        return False
    if not ctx.run.budget.has_unlimited_calls:
        return False
    if ctx.run.breaker is not None:
        return False
    cache = ctx.run.result_cache
    return cache.fresh(call.fingerprint) is None and call.fingerprint not in cache.hidden


def _ids_of(batches: Sequence[Sequence[ToolCall]]) -> tuple[tuple[str, ...], ...]:
    if len(batches) == 1:  # nearly always; the expression for several takes three times as long
        return (tuple(map(_id_of, batches[0])),)
    return tuple(tuple(map(_id_of, batch)) for batch in batches)


_id_of: Callable[[ToolCall], str] = operator.attrgetter("id")
_WITH_RESULT = frozenset({NotRunReason.NO_NEW_EVIDENCE, NotRunReason.RECALLED})
"""Reasons whose answers have the result of an earlier call."""
_REPEATED = frozenset({NotRunReason.DUPLICATE_IN_BATCH, NotRunReason.NO_NEW_EVIDENCE})


def _report(ctx: Context) -> Steps[None]:
    plan = ctx.plan
    yield Emit(
        CallsPlanned(
            iteration=ctx.iteration,
            reason=plan.reason,
            batches=_ids_of(plan.batches),
            not_run=plan.not_run,
        )
    )
    for call in ctx.tool_calls if plan.not_run else ():
        reason = plan.not_run.get(call.id)
        if reason is None or reason is NotRunReason.REMOVED:  # `report_edits` reports it
            continue
        event = _OUTCOMES[reason].event
        yield Emit(event(iteration=ctx.iteration, call=call, reason=reason))


class _Outcome(NamedTuple):
    """How a call that does not run is reported: its event, and the status of its result."""

    event: type[CallSuppressed | CallRecalled | CallDeferred | CallRefused]
    status: str


_OUTCOMES: Mapping[NotRunReason, _Outcome] = {
    NotRunReason.DUPLICATE_IN_BATCH: _Outcome(CallSuppressed, "suppressed"),
    NotRunReason.NO_NEW_EVIDENCE: _Outcome(CallSuppressed, "suppressed"),
    NotRunReason.RECALLED: _Outcome(CallRecalled, "recalled"),
    NotRunReason.PARALLEL_CAP: _Outcome(CallDeferred, "deferred"),
    NotRunReason.DEFERRED: _Outcome(CallDeferred, "deferred"),
    NotRunReason.OVER_BUDGET: _Outcome(CallRefused, "over_budget"),
    NotRunReason.MAX_USES: _Outcome(CallRefused, "over_budget"),
    NotRunReason.BREAKER_OPEN: _Outcome(CallRefused, "broken"),
    NotRunReason.REMOVED: _Outcome(CallRefused, "skipped"),
}
