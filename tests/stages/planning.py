"""A short notation for the calls of a response, and for the plan that is made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from treadle.messages import ToolCall
from treadle.stages._plan_calls import Planner
from treadle.tools import NotRun, Plan, Tool

DUPLICATE, KNOWN = NotRun.DUPLICATE_IN_BATCH, NotRun.NO_NEW_EVIDENCE
RECALLED = NotRun.RECALLED
CAP, DEFERRED = NotRun.PARALLEL_CAP, NotRun.DEFERRED
OVER, USED_UP, BROKEN = NotRun.OVER_BUDGET, NotRun.MAX_USES, NotRun.BREAKER_OPEN

TOOLS = [
    Tool("p"),
    Tool("q"),
    Tool("w", parallel_safe=False),
    Tool("fresh", requires_fresh_input=True),
    Tool("one", max_parallel=1),
    Tool("two", max_parallel=2),
    Tool("once", max_uses=1),
    Tool("twice", max_uses=2),
    Tool("clock", volatile=True),
    Tool("again", dedupe="off"),
    Tool("strict", dedupe="strict"),
    Tool("patient", dedupe="evidence"),
]


def made(words: str) -> list[ToolCall]:
    """Make calls of words such as ``p1``: a tool, and a number that distinguishes its calls.

    A call's id is its word, with a prime for each time that it came before: of ``p1 p1`` the second has the
    id ``p1'``. Its fingerprint is the word.
    """
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for word in words.split():
        call_id, name = word, word.rstrip("0123456789")
        while call_id in ids:
            call_id += "'"
        ids.add(call_id)
        calls.append(ToolCall(call_id, name, "{}", {"n": word}, word))
    return calls


@dataclass
class Planned:
    """A plan, and the answers to the calls that are not in it.

    Args:
        plan: the plan.
        results: the answers to calls that do not run, by id.
        budget: the budget that the plan was made within.
    """

    plan: Plan
    results: dict[str, Any]
    budget: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plan, name)

    def __str__(self) -> str:
        return shown(self.plan)


def shown(plan: Plan) -> str:
    """The batches of a plan, such as ``p1 q1 | w1``."""
    return " | ".join(" ".join(call.id for call in batch) for batch in plan.batches)


def planned(ctx, calls, *, in_step=False, dedupe="evidence", broken=None) -> Planned:
    """Plan calls within a context."""
    ctx.run.repeats.mode = dedupe
    planner = Planner(ctx, in_step=in_step)
    return Planned(planner.plan(calls, broken or {}), planner.results, ctx.run.budget)
