"""Budgets: what a run has used of its limits, and what is left. Hard, since all is taken before it is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from treadle.errors import OptionError
from treadle.messages import Usage
from treadle.results import BudgetExhausted, MaxIterationsReached, Reason


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may take; None is no limit.

    Args:
        max_iterations: model calls. Ten is LlmCore's default.
        max_tool_calls: tool calls that run; more are answered as over budget, and never run.
        max_parallel_calls: tool calls that run at the same time.
        max_input_tokens: tokens of all prompts. Token limits are looked at between iterations, since no
            provider tells before the answer what it will take.
        max_output_tokens: tokens of all answers.
        max_total_tokens: tokens of both.
        max_cost: US dollars, as far as the backend reports a cost or ``cost_of=`` works one out.
        max_seconds: wall time in seconds; what is under way then is cancelled.

    Raises:
        OptionError: a limit that is no positive number.
    """

    max_iterations: int = 10
    max_tool_calls: int | None = None
    max_parallel_calls: int = 8
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            least = 0 if field.name in {"max_tool_calls", *_FRACTIONS} else 1
            what = _FRACTIONS.get(field.name, "a whole number")
            if not _is_at_least(value, least, whole=field.name not in _FRACTIONS):
                raise OptionError(
                    f"{field.name}: expected {what} of at least {least}, got {value!r}"
                )

    @property
    def has_tokens(self) -> bool:
        """Whether any limit is one of tokens, or of what they cost."""
        return not (
            self.max_input_tokens is None
            and self.max_output_tokens is None
            and self.max_total_tokens is None
            and self.max_cost is None
        )


def _is_at_least(value: Any, least: int, *, whole: bool) -> bool:
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= least


_FRACTIONS = {"max_seconds": "a number of seconds", "max_cost": "a number of US dollars"}
LIMIT_NAMES = frozenset(field.name for field in dataclasses.fields(Limits))


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of the limits of a run; None where there is no limit.

    Args:
        iterations: model calls.
        tool_calls: tool calls.
        input_tokens: tokens of prompts.
        output_tokens: tokens of answers.
        total_tokens: tokens of both.
        cost: US dollars.
        seconds: wall time in seconds.
    """

    iterations: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        told = [
            f"{value:,} {words}"
            for value, words in (
                (self.iterations, "model calls"),
                (self.tool_calls, "tool calls"),
                (self.input_tokens, "input tokens"),
                (self.output_tokens, "output tokens"),
                (self.total_tokens, "tokens"),
            )
            if value is not None
        ]
        if self.cost is not None:
            told.append(f"${self.cost:.4f}")
        if self.seconds is not None:
            told.append(f"{self.seconds:.0f} s")
        return ", ".join(told) or "no limit"


class Budget:
    """What one run has used. A child run draws on its parent's budget too.

    It is only ever changed where the run's steps are advanced, one after another, so that what is taken
    cannot be taken twice, however calls interleave.

    Args:
        limits: what the run may use.
        parent: the budget of the run that this one is a tool of; None is nobody's.

    Attributes:
        has_unlimited_calls: whether any number of tool calls may run.
    """

    def __init__(self, limits: Limits, parent: Budget | None = None) -> None:
        self.limits = limits
        self.parent = parent
        self.has_unlimited_calls = parent is None and limits.max_tool_calls is None
        self._counts_iterations_alone = parent is None and not limits.has_tokens
        self.iterations = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.uses: dict[str, int] = {}
        self.started_at = 0.0
        self.is_finishing = False

    def finish(self) -> None:
        """Stop counting against the own limits, for the last answer; no tool call may run from now on."""
        self.is_finishing, self.has_unlimited_calls = True, False

    def chain(self) -> Iterator[Budget]:
        """This budget and those it draws on, the nearest first."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def count_iteration(self) -> None:
        """Count one model call that is about to be made."""
        self.iterations += 1
        if self.parent is not None:
            self.parent.count_iteration()

    def reserve_calls(self, count: int) -> None:
        """Count tool calls that are about to run."""
        self.tool_calls += count
        if self.parent is not None:
            self.parent.reserve_calls(count)

    def release_call(self, name: str) -> None:
        """Take back one tool call that was counted, and will not run after all."""
        self.uses[name] = max(0, self.uses.get(name, 0) - 1)
        self.reserve_calls(-1)

    def record_usage(self, usage: Usage | None) -> None:
        """Add what a model call took; None, which is unknown, makes the total a lower bound."""
        self.usage = self.usage.plus(usage)
        if self.parent is not None:
            self.parent.record_usage(usage)

    def calls_left(self) -> int | None:
        """Tool calls that may yet run; None is as many as one likes."""
        if self.is_finishing:
            return 0
        left = [
            max(0, one.limits.max_tool_calls - one.tool_calls)
            for one in self.chain()
            if one.limits.max_tool_calls is not None
        ]
        return min(left) if left else None

    def calls_limit(self) -> int:
        """The limit of tool calls that has the least left.

        Raises:
            ValueError: there is none.
        """
        return min(
            (limit - one.tool_calls, limit)
            for one in self.chain()
            if (limit := one.limits.max_tool_calls) is not None
        )[1]

    def calls_exhausted(self) -> BudgetExhausted:
        """The reason where a call is one too many: of the budget that is spent, the nearest first."""
        for one in self.chain():
            limit = one.limits.max_tool_calls
            if limit is not None and one.tool_calls >= limit:
                return BudgetExhausted("max_tool_calls", limit, one.tool_calls)
        raise ValueError("tool calls are left")

    def uses_left(self, name: str, max_uses: int) -> int:
        """How often a tool may yet be used in this run."""
        return max(0, max_uses - self.uses.get(name, 0))

    def reserve_uses(self, uses: Mapping[str, int]) -> None:
        """Count uses of tools, by name."""
        for name, count in uses.items():
            self.uses[name] = self.uses.get(name, 0) + count

    def exhausted(self) -> Reason | None:
        """Why no other model call may be made; None where one may.

        Tool calls do not count here: a model that has none left may still answer.
        """
        if self.is_finishing:
            return None if self.parent is None else self.parent.spent()
        limits = self.limits
        if self.iterations >= limits.max_iterations:
            return MaxIterationsReached(limits.max_iterations)
        if self._counts_iterations_alone:  # as it is asked twice in every iteration
            return None
        if limits.has_tokens:
            usage = self.usage
            for kind, limit, used in (
                ("max_input_tokens", limits.max_input_tokens, usage.input_tokens),
                ("max_output_tokens", limits.max_output_tokens, usage.output_tokens),
                ("max_total_tokens", limits.max_total_tokens, usage.total_tokens),
                ("max_cost", limits.max_cost, usage.cost or 0.0),
            ):
                if limit is not None and used >= limit:
                    return BudgetExhausted(kind, limit, used)
        return None if self.parent is None else self.parent.exhausted()

    def remaining(self, now: float) -> Remaining:
        """What is left, by the tightest of the limits that count.

        Args:
            now: seconds since the epoch.
        """
        tightest: dict[str, Any] = {}
        for one in self.chain():
            limits, usage = one.limits, one.usage
            for name, limit, used in (
                ("iterations", limits.max_iterations, one.iterations),
                ("tool_calls", limits.max_tool_calls, one.tool_calls),
                ("input_tokens", limits.max_input_tokens, usage.input_tokens),
                ("output_tokens", limits.max_output_tokens, usage.output_tokens),
                ("total_tokens", limits.max_total_tokens, usage.total_tokens),
                ("cost", limits.max_cost, usage.cost or 0.0),
                ("seconds", limits.max_seconds, now - one.started_at),
            ):
                if limit is not None:
                    left = max(0, limit - used)
                    tightest[name] = min(left, tightest.get(name, left))
        return Remaining(**tightest)

    def as_json(self) -> dict[str, Any]:
        """What was used, for a run that is put aside."""
        return {
            "iterations": self.iterations,
            "tool_calls": self.tool_calls,
            "usage": self.usage.as_json(),
            "uses": dict(self.uses),
        }

    def restore(self, used: Mapping[str, Any]) -> None:
        """Go on with what `as_json` said."""
        self.iterations = used["iterations"]
        self.tool_calls = used["tool_calls"]
        self.usage = Usage.from_json(used["usage"])
        self.uses = dict(used["uses"])
