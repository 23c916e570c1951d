"""The limits of a run, and the budget that counts usage against them.

Limits of calls are hard: calls are counted before they are made. Limits of tokens and cost are checked between
iterations, since no provider reports the usage of a response in advance. A limit that cannot be measured ends the
run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from treadle.errors import InitSignature, OptionError, check_names
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import Response, Usage
from treadle.results import BudgetExhausted, LimitNotMeasurable, MaxIterationsReached, Reason

Unmeasured: TypeAlias = Literal["stop", "estimate", "ignore"]
"""What happens if a limit of tokens or cost is set, and a response does not report what it used."""


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
        max_cost: US dollars; the backend reports or computes a cost, or ``cost_of=`` does.
        max_seconds: wall time in seconds; calls in flight are cancelled.

    Raises:
        OptionError: an unknown limit, or one that is not a number, or too small.
    """

    max_iterations: int = 10
    max_tool_calls: int | None = None
    max_parallel_calls: int = 8
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_total_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(cls, *_: Any, **limits: Any) -> Self:
            """Check the names; the error of ``__init__`` has no suggestion."""
            if not limits.keys() <= LIMIT_NAMES and cls.__init__ is Limits.__init__:
                check_names(limits, LIMIT_NAMES, "Limits: there is no limit")
            return object.__new__(cls)

        __signature__ = InitSignature()

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
        is_upper_bound: whether at most these tokens and this cost remain, since some usage is unknown.
        is_estimate: whether some tokens were estimated.
    """

    iterations: int | None = None
    tool_calls: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None
    is_upper_bound: bool = False
    is_estimate: bool = False

    def __str__(self) -> str:
        about = "at most " if self.is_upper_bound else ""
        about += "about " if self.is_estimate else ""
        parts = [
            f"{value:,} {words}" if words.endswith("calls") else f"{about}{value:,} {words}"
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
            parts.append(f"{about}${self.cost:.4f}")
        if self.seconds is not None:
            parts.append(f"{self.seconds:.0f} s")
        return ", ".join(parts) or "no limit"


class Budget:
    """What one run has used. Usage of a subagent counts against the budget of its parent as well.

    Only the steps of the run change it, one at a time, so that concurrent calls cannot reserve the same call.

    Args:
        limits: what the run may use.
        parent: the budget of the run that called this one as a subagent.
        unmeasured: what happens if a limit cannot be measured; None takes that of the parent, else ``stop``.

    Attributes:
        has_unlimited_calls: whether there is no limit of tool calls.
        estimates: whether this run or a parent counts estimates.
        shares_iterations: whether its iterations count against the limits of its parents as well.
        unknown: what is not known of some response, ``usage`` or ``cost``, with the way to get it; noted only
            with a limit of tokens or cost.
        started_at: when the run started, in seconds since the epoch, less the time in which nothing drove it.
        idle: how long nothing drove the outermost run, in seconds; only used there.
    """

    def __init__(
        self, limits: Limits, parent: Budget | None = None, unmeasured: Unmeasured | None = None
    ) -> None:
        self.limits = limits
        self.parent = parent
        if unmeasured is None:
            unmeasured = "stop" if parent is None else parent.unmeasured
        self.unmeasured: Unmeasured = unmeasured
        self.estimates: bool = self.unmeasured == "estimate" or (
            parent is not None and parent.estimates
        )
        self.has_unlimited_calls = parent is None and limits.max_tool_calls is None
        self._limits_only_iterations = parent is None and not limits.has_tokens
        self.iterations = 0
        self.tool_calls = 0
        self.usage = Usage()
        self.unknown: dict[str, str] = {}
        self.uses: dict[str, int] = {}
        self.started_at = self.idle = 0.0
        self.shares_iterations = True
        self.is_finishing = False

    def start(self, now: float, elapsed: float = 0.0) -> None:
        """Start the clock of the run.

        Args:
            now: seconds since the epoch.
            elapsed: seconds that the run took before.
        """
        self.started_at = now - elapsed - self._root.idle

    def elapsed(self, now: float) -> float:
        """How long the run has taken, in seconds, without the time in which nothing drove it.

        Args:
            now: seconds since the epoch.
        """
        return now - self.started_at - self._root.idle

    @property
    def _root(self) -> Budget:
        return self if self.parent is None else self.parent._root  # noqa: SLF001 - of another budget

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
        if self.parent is not None and self.shares_iterations:
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

    def record_response(self, response: Response) -> None:
        """Add the usage of a response; remember what a limit needs and the response does not report."""
        usage = response.usage
        self.usage = self.usage.plus(usage)
        if not self._limits_only_iterations:
            if self.limits.has_tokens:
                self._note_unknown(response)
            if self.parent is not None:
                self.parent.record_response(response)

    def add(self, used: Mapping[str, Any]) -> None:
        """Add what a subagent used that counted elsewhere.

        Args:
            used: what `as_json` of its budget returned.
        """
        usage = Usage.from_json(used["usage"])
        for one in self.chain():
            one.iterations += used["iterations"]
            one.tool_calls += used["tool_calls"]
            one.usage = one.usage.plus(usage)
            if one.limits.has_tokens:
                one.unknown = {**used["unknown"], **one.unknown}

    def _note_unknown(self, response: Response) -> None:
        usage = response.usage
        if usage is not None and usage.is_estimate and self.unmeasured == "stop":
            usage = None  # a subagent counts estimates; this run does not
        has_usage = usage is not None and not usage.is_lower_bound
        needs_option = response.is_streamed and not has_usage
        if not has_usage:
            self.unknown.setdefault("usage", _OF_STREAM if needs_option else _OF_USAGE)
        if usage is None or usage.cost is None:
            self.unknown.setdefault("cost", _OF_COST_STREAM if needs_option else _OF_COST)

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
        """Why another model call is forbidden; None if it is allowed.

        The limit of tool calls does not count: the model may still answer.
        """
        limits = self.limits
        if not self.is_finishing:
            if self.iterations >= limits.max_iterations:
                return MaxIterationsReached(limits.max_iterations)
            if self._limits_only_iterations:  # the common case, checked twice per iteration
                return None
            for kind, limit, used in _usage_by_limit(self):
                if limit is not None and used >= limit:
                    return BudgetExhausted(kind, limit, used)
        reason = self._not_measurable()
        return reason if reason is not None or self.parent is None else self.parent.exhausted()

    def not_measurable(self) -> LimitNotMeasurable | None:
        """The nearest limit, of this run or a parent, that ends the run since it cannot be measured; else None."""
        reason = self._not_measurable()
        return reason if reason is not None or self.parent is None else self.parent.not_measurable()

    def _not_measurable(self) -> LimitNotMeasurable | None:
        if not self.unknown or self.unmeasured == "ignore":
            return None
        return next(_unmeasured_limits(self), None)

    def remaining(self, now: float) -> Remaining:
        """What remains, by the tightest limit of this run and its parents.

        Args:
            now: seconds since the epoch.
        """
        tightest: dict[str, Any] = {}
        is_upper_bound = is_estimate = False
        for one in self.chain():
            if one.limits.has_tokens:
                is_upper_bound |= one.usage.is_lower_bound or any(_unmeasured_limits(one))
                is_estimate |= one.usage.is_estimate
            for kind, limit, used in (
                ("max_iterations", one.limits.max_iterations, one.iterations),
                ("max_tool_calls", one.limits.max_tool_calls, one.tool_calls),
                ("max_seconds", one.limits.max_seconds, one.elapsed(now)),
                *_usage_by_limit(one),
            ):
                if limit is not None:
                    name, left = kind.removeprefix("max_"), max(0, limit - used)
                    tightest[name] = min(left, tightest.get(name, left))
        return Remaining(**tightest, is_upper_bound=is_upper_bound, is_estimate=is_estimate)

    def as_json(self) -> dict[str, Any]:
        """What was used, as JSON data for the state of a paused run."""
        return {
            "iterations": self.iterations,
            "tool_calls": self.tool_calls,
            "usage": self.usage.as_json(),
            "unknown": dict(self.unknown),
            "uses": dict(self.uses),
        }

    def restore(self, used: Mapping[str, Any]) -> None:
        """Restore what `as_json` returned."""
        self.iterations = used["iterations"]
        self.tool_calls = used["tool_calls"]
        self.usage = Usage.from_json(used["usage"])
        self.unknown = dict(used["unknown"])
        self.uses = dict(used["uses"])


_OPTION = 'stream_options={"include_usage": True}'
_OR_NOT = 'unmeasured="ignore" runs without this limit'
_OR_ESTIMATE = f'unmeasured="estimate" counts an estimate, {_OR_NOT}'
_OF_STREAM = f"send {_OPTION}, with which a streamed response reports it; {_OR_ESTIMATE}"
_OF_USAGE = (
    f"return it with the response, as Response(usage=...) and chat completions do; {_OR_ESTIMATE}"
)
_OF_COST = (
    "cost_of= has to return US dollars for each response that does not report its cost; pip install "
    f"'treadle[prices]' brings the prices of the models that providers serve themselves; {_OR_NOT}"
)
_OF_COST_STREAM = f"{_OF_COST}. A streamed response has the usage for it with {_OPTION}"


def _usage_by_limit(budget: Budget) -> tuple[tuple[str, float | None, float], ...]:
    """The limits of tokens and cost: name, limit, and what was used."""
    limits, usage = budget.limits, budget.usage
    return (
        ("max_input_tokens", limits.max_input_tokens, usage.input_tokens),
        ("max_output_tokens", limits.max_output_tokens, usage.output_tokens),
        ("max_total_tokens", limits.max_total_tokens, usage.total_tokens),
        ("max_cost", limits.max_cost, usage.cost or 0.0),
    )


def _unmeasured_limits(budget: Budget) -> Iterator[LimitNotMeasurable]:
    """The limits of a run for which the usage or the cost of some response is unknown."""
    for kind, limit, _ in _usage_by_limit(budget):
        missing = "cost" if kind == "max_cost" else "usage"
        if limit is not None and missing in budget.unknown:
            yield LimitNotMeasurable(kind, missing, budget.unknown[missing])
