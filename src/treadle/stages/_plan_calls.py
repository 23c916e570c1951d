"""`plan_calls`: decides which calls run, together or one after another, and which do not."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal

from treadle.checks import choice
from treadle.context import Context, approval_questions, over_budget, uses_of
from treadle.effects import Emit, Steps
from treadle.events import CallsPlanned
from treadle.messages import ToolCall, ToolResult
from treadle.pipeline import stage
from treadle.stages._circuit_breaker import refused_calls, report_calls
from treadle.stages._notes import report_refused
from treadle.stages._validate_calls import validate_calls
from treadle.tools import DEDUPE_MODES, Dedupe, NotRun, Plan, PlanReason, Tool, not_run, truncate

SHOWN_AGAIN = 200, 5_000
"""The maximum lines and bytes of an earlier result that is shown again: the history has all of it."""

_NO_ORDER = frozenset({None, PlanReason.PARALLEL_BATCH_CUT})
"""The conflicts of a call that needs no other one to run before it: it would see the current state."""
_BUDGETS = frozenset({NotRun.OVER_BUDGET, NotRun.MAX_USES})


class Planner:
    """Plans the calls of one iteration; ``in_step`` runs further batches, which are deferred otherwise."""

    def __init__(self, ctx: Context, *, in_step: bool) -> None:
        self.not_run: dict[str, NotRun] = {}
        self.results: dict[str, ToolResult] = {}
        self._ctx = ctx
        self._in_step = in_step
        self._batches: list[list[ToolCall]] = []
        self._in_batch: dict[str, str] = {}
        self._duplicates: dict[str, str] = {}
        self._split: PlanReason | None = None
        self._is_ordered = False

    def plan(self, calls: Iterable[ToolCall], refused: Mapping[str, str]) -> Plan:
        """Plan calls without an answer, and reserve their budget; breakers refuse some, each with an error."""
        for call in calls:
            tool = self._ctx.tools.get(call.name)
            repeat = self._ctx.run.repeats.before(call, tool)
            first = self._in_batch.get(call.fingerprint)
            if call.id in refused:
                self._answer(not_run(call, NotRun.BREAKER_OPEN, error=refused[call.id]))
            elif repeat is not None and not self._is_ordered and self._conflict(tool) in _NO_ORDER:
                reason, (_, iteration, content, *_), may_run = repeat
                if reason is NotRun.NO_NEW_EVIDENCE:
                    content = truncate(content, *SHOWN_AGAIN)
                more = "; call it once more to run it" if may_run else ""
                self._answer(not_run(call, reason, iteration=iteration, content=content, more=more))
            elif self._split is not None and not self._in_step:
                self._is_ordered |= self._is_alone(tool)
                self._defer(call)
            elif first is not None:
                self.not_run[call.id] = NotRun.DUPLICATE_IN_BATCH
                self._duplicates[call.id] = first
            else:
                answer = over_budget(self._ctx, call)
                if answer is None:
                    self._place(call, tool)
                else:
                    self._answer(answer)
        planned = [call for batch in self._batches for call in batch]
        is_one = len(planned) == 1
        cause = self._split or (PlanReason.SINGLE_CALL if is_one else PlanReason.PARALLEL_BATCH)
        if not _BUDGETS.isdisjoint(self.not_run.values()):
            cause = PlanReason.OVER_BUDGET
        elif not planned:
            cause = PlanReason.ALL_SUPPRESSED
        batches, questions = map(tuple, self._batches), approval_questions(self._ctx, planned)
        return Plan(tuple(batches), cause, self.not_run, self._duplicates, questions)

    def _place(self, call: ToolCall, tool: Tool | None) -> None:
        """Add a call to the open batch, or to a new one, or defer it."""
        split = self._conflict(tool)
        if split is not None:
            self._split = self._split or split
            self._is_ordered |= split is not PlanReason.PARALLEL_BATCH_CUT
            if not self._in_step or (tool is not None and tool.requires_fresh_input):
                self._defer(call)
                return
        if split is not None or not self._batches:
            self._batches.append([])
            self._in_batch.clear()
        self._batches[-1].append(call)
        if self._ctx.run.repeats.mode_of(tool) != "off":
            self._in_batch[call.fingerprint] = call.id
        self._ctx.run.reserve(call, uses_of(tool))

    def _conflict(self, tool: Tool | None) -> PlanReason | None:
        """Why a call cannot run with the open batch; None if it can."""
        if not self._batches:
            return None
        batch = self._batches[-1]
        if self._is_alone(self._ctx.tools.get(batch[0].name)):
            return PlanReason.SEQUENTIAL_DEFERRED
        if self._is_alone(tool):
            return PlanReason.MIXED_BATCH_SEQUENCED
        is_full = len(batch) >= self._ctx.limits.max_parallel_calls
        if tool is not None and tool.max_parallel is not None:
            is_full |= sum(one.name == tool.name for one in batch) >= tool.max_parallel
        return PlanReason.PARALLEL_BATCH_CUT if is_full else None

    @staticmethod
    def _is_alone(tool: Tool | None) -> bool:
        return tool is not None and (not tool.parallel_safe or tool.requires_fresh_input)

    def _defer(self, call: ToolCall) -> None:
        is_cut = self._split is PlanReason.PARALLEL_BATCH_CUT
        reason = NotRun.PARALLEL_CAP if is_cut else NotRun.DEFERRED
        self._answer(not_run(call, reason, why="other calls have to run first"))

    def _answer(self, result: ToolResult) -> None:
        self.not_run[result.tool_call_id] = NotRun(result.status)
        self.results[result.tool_call_id] = result


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
        sequential: how the calls after the first batch are treated: ``defer`` lets the model repeat
            them, ``in_step`` runs them in further batches. Calls that require fresh input are deferred in
            either case.
        dedupe: when a repeated call of a tool without this option is skipped: ``evidence``, ``strict`` or
            ``off``, see `treadle.tools.Dedupe`. Unless it is ``off``, the same call twice in a batch runs once.
    """
    if not all(map(_fingerprint_of, ctx.tool_calls)):  # there is no `validate_calls`
        ctx = yield from validate_calls(ctx)
    run, plan, done, removed = ctx.run, ctx.plan, ctx.tool_results, ctx.plan.not_run
    run.repeats.mode = dedupe
    if run.ledger.reserved:  # of a stage that planned them before
        run.release_idle()
    calls: Sequence[ToolCall] = ctx.tool_calls
    waiting = [call for call in calls if call.id not in done] if done else calls
    only = waiting[0] if len(waiting) == 1 else None
    tool = None if only is None else ctx.tools.get(only.name)
    if (  # the common case: a call within all limits, that was not made before
        only is not None
        and (tool is None or tool.is_plain)
        and run.budget.limits_only_iterations
        and run.breaker is None
        and only.fingerprint not in run.repeats.answers
    ):
        run.reserve(only)
        plan = Plan(((only,),), _SINGLE)
    elif waiting:
        refused = yield from refused_calls(ctx, waiting)
        planner = Planner(ctx, in_step=sequential == "in_step")
        plan = planner.plan(waiting, refused)
        idle = [call for call in waiting if call.id in plan.not_run]
        yield from report_calls(ctx, [call for call in idle if call.id not in refused])
        for call in idle:
            run.repeats.note_not_run(call, plan.not_run[call.id])
        ctx = ctx.evolve(tool_results={**done, **planner.results})
    if removed and waiting:
        plan = dataclasses.replace(plan, not_run={**removed, **plan.not_run})
    ctx = ctx if plan is ctx.plan else ctx.evolve(plan=plan)
    if run.has_listeners and calls and (waiting or plan.reason is PlanReason.NO_CALLS):
        batches = tuple([tuple([call.id for call in batch]) for batch in plan.batches])
        made = CallsPlanned(
            iteration=ctx.iteration, reason=plan.reason, batches=batches, not_run=plan.not_run
        )
        yield Emit(made)
        if plan.not_run:
            yield from report_refused(ctx)
    return ctx


_fingerprint_of = operator.attrgetter("fingerprint")
_SINGLE = PlanReason.SINGLE_CALL  # access to a member of an Enum is slow
