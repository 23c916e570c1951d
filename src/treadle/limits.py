"""The limits of a run, and the budget that counts usage against them.

Limits of calls are hard: calls are counted before they are made. Limits of tokens and cost are checked between
iterations, since no provider reports the usage of a response in advance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from treadle.errors import OptionError
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import Usage
from treadle.results import BudgetExhausted, MaxIterationsReached, Reason


@fast_dataclass
class Limits:
    """The limits of one run; None is no limit.

    Args:
        max_iterations: model calls. Ten is LlmCore's default.
        max_tool_calls: tool calls that run; further ones are answered as over budget.
        max_parallel_calls: tool calls that run at the same time.
        max_input_tokens: tokens of all prompts.
        max_output_tokens: tokens of all responses.
        max_total_tokens: tokens of both.
        max_cost: US dollars, where the backend reports a cost or ``cost_of=`` computes one.
        max_seconds: wall time in seconds; calls in flight are cancelled.

    Raises:
        OptionError: a limit is not a number, or too small.
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
        for name, least, kinds, expected in _KINDS:
            value: Any = getattr(self, name)
            if value is None and name not in _REQUIRED:
                continue
            is_number = not isinstance(value, bool)
            if not (is_number and isinstance(value, kinds) and value >= least):
                raise OptionError(f"{name}: expected {expected} of at least {least}, got {value!r}")

    @property
    def has_tokens(self) -> bool:
        """Whether there is a limit of tokens or of cost."""
        limits = (self.max_input_tokens, self.max_output_tokens, self.max_total_tokens)
        return self.max_cost is not None or any(limit is not None for limit in limits)


_REQUIRED = frozenset({"max_iterations", "max_parallel_calls"})
_KINDS: tuple[tuple[str, int, tuple[type[float], ...], str], ...] = (
    ("max_iterations", 1, (int,), "a whole number"),
    ("max_tool_calls", 0, (int,), "a whole number"),
    ("max_parallel_calls", 1, (int,), "a whole number"),
    ("max_input_tokens", 1, (int,), "a whole number"),
    ("max_output_tokens", 1, (int,), "a whole number"),
    ("max_total_tokens", 1, (int,), "a whole number"),
    ("max_cost", 0, (int, float), "a number of US dollars"),
    ("max_seconds", 0, (int, float), "a number of seconds"),
)
LIMIT_NAMES = frozenset(field.name for field in dataclasses.fields(Limits))


@fast_dataclass
class Remaining:
    """What remains of the limits of a run; None is no limit.

    Args:
        iterations: model calls.
        tool_calls: tool calls.
        input_tokens: tokens of prompts.
        output_tokens: tokens of responses.
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
        parts = [
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
            parts.append(f"${self.cost:.4f}")
        if self.seconds is not None:
            parts.append(f"{self.seconds:.0f} s")
        return ", ".join(parts) or "no limit"


class Budget:
    """What one run has used. Usage of a subagent counts against the budget of its parent as well.

    Only the steps of the run change it, one at a time, so that concurrent calls cannot reserve the same call.

    Args:
        limits: what the run may use.
        parent: the budget of the run that called this one as a subagent.

    Attributes:
        has_unlimited_calls: whether there is no limit of tool calls.
    """

    def __init__(self, limits: Limits, parent: Budget | None = None) -> None:
        self.limits = limits
        self.parent = parent
        self.has_unlimited_calls = parent is None and limits.max_tool_calls is None
        self._limits_only_iterations = parent is None and not limits.has_tokens
        self.iterations = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.uses: dict[str, int] = {}
        self.started_at = 0.0
        self.is_finishing = False

    def finish(self) -> None:
        """Stop counting against this run's limits, for the last answer; no tool call may run from now on."""
        self.is_finishing, self.has_unlimited_calls = True, False

    def chain(self) -> Iterator[Budget]:
        """This budget and those of its parents, the nearest first."""
        budget: Budget | None = self
        while budget is not None:
            yield budget
            budget = budget.parent

    def count_iteration(self) -> None:
        """Count a model call before it is made."""
        self.iterations += 1
        if self.parent is not None:
            self.parent.count_iteration()

    def reserve_calls(self, count: int) -> None:
        """Count tool calls before they run."""
        self.tool_calls += count
        if self.parent is not None:
            self.parent.reserve_calls(count)

    def release_call(self, name: str) -> None:
        """Release a reserved tool call that does not run."""
        self.uses[name] = max(0, self.uses.get(name, 0) - 1)
        self.reserve_calls(-1)

    def record_usage(self, usage: Usage | None) -> None:
        """Add the usage of a model call; None means unknown and makes the total a lower bound."""
        self.usage = self.usage.plus(usage)
        if self.parent is not None:
            self.parent.record_usage(usage)

    def _calls(self) -> Iterator[tuple[int, int]]:
        """The calls left and the limit, for each budget that limits them: this one and its parents."""
        for one in self.chain():
            limit = one.limits.max_tool_calls
            if limit is not None:
                yield limit - one.tool_calls, limit

    def calls_left(self) -> int | None:
        """The number of tool calls that may still run; None means no limit."""
        if self.is_finishing:
            return 0
        return min((max(0, left) for left, _ in self._calls()), default=None)

    def calls_limit(self) -> int:
        """The limit of tool calls with the fewest calls left.

        Raises:
            ValueError: there is no limit.
        """
        return min(self._calls())[1]

    def calls_exhausted(self) -> BudgetExhausted:
        """The reason that a tool call may not run: the nearest limit that is reached.

        Raises:
            ValueError: tool calls are left.
        """
        for left, limit in self._calls():
            if left <= 0:
                return BudgetExhausted("max_tool_calls", limit, limit - left)
        raise ValueError("tool calls are left")

    def uses_left(self, name: str, max_uses: int) -> int:
        """How often a tool may still be used in this run."""
        return max(0, max_uses - self.uses.get(name, 0))

    def reserve_uses(self, uses: Mapping[str, int]) -> None:
        """Count uses of tools, by name, before they run."""
        for name, count in uses.items():
            self.uses[name] = self.uses.get(name, 0) + count

    def exhausted(self) -> Reason | None:
        """The limit that forbids another model call; None if it is allowed.

        The limit of tool calls does not count: the model may still answer.
        """
        if self.is_finishing:
            return None if self.parent is None else self.parent.exhausted()
        limits = self.limits
        if self.iterations >= limits.max_iterations:
            return MaxIterationsReached(limits.max_iterations)
        if self._limits_only_iterations:  # the common case, checked twice per iteration
            return None
        for kind, limit, used in _usage_by_limit(self):
            if limit is not None and used >= limit:
                return BudgetExhausted(kind, limit, used)
        return None if self.parent is None else self.parent.exhausted()

    def remaining(self, now: float) -> Remaining:
        """What remains, by the tightest limit of this run and its parents.

        Args:
            now: seconds since the epoch.
        """
        tightest: dict[str, Any] = {}
        for one in self.chain():
            for kind, limit, used in (
                ("max_iterations", one.limits.max_iterations, one.iterations),
                ("max_tool_calls", one.limits.max_tool_calls, one.tool_calls),
                ("max_seconds", one.limits.max_seconds, now - one.started_at),
                *_usage_by_limit(one),
            ):
                if limit is not None:
                    name, left = kind.removeprefix("max_"), max(0, limit - used)
                    tightest[name] = min(left, tightest.get(name, left))
        return Remaining(**tightest)

    def as_json(self) -> dict[str, Any]:
        """What was used, as JSON data for the state of a paused run."""
        return {
            "iterations": self.iterations,
            "tool_calls": self.tool_calls,
            "usage": self.usage.as_json(),
            "uses": dict(self.uses),
        }

    def restore(self, used: Mapping[str, Any]) -> None:
        """Restore what `as_json` returned."""
        self.iterations = used["iterations"]
        self.tool_calls = used["tool_calls"]
        self.usage = Usage.from_json(used["usage"])
        self.uses = dict(used["uses"])


def _usage_by_limit(budget: Budget) -> tuple[tuple[str, float | None, float], ...]:
    """The limits of tokens and cost: name, limit, and what was used."""
    limits, usage = budget.limits, budget.usage
    return (
        ("max_input_tokens", limits.max_input_tokens, usage.input_tokens),
        ("max_output_tokens", limits.max_output_tokens, usage.output_tokens),
        ("max_total_tokens", limits.max_total_tokens, usage.total_tokens),
        ("max_cost", limits.max_cost, usage.cost or 0.0),
    )
