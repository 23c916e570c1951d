"""The limits of a run, and the budget that counts usage against them.

Limits of calls are hard: calls are counted before they are made. Limits of tokens and cost are checked between
iterations, since no provider reports the usage of a response in advance; requests of parallel subagents reserve
it, see `treadle.reservations`. A limit that cannot be measured ends the run.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeAlias

from treadle.checks import FLAG, ValueCheck, check_fields, checked, choice, number
from treadle.effects import is_sync_callable
from treadle.errors import InitSignature, check_names
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import Response, Usage
from treadle.reservations import Reservation, Reservations
from treadle.results import BudgetExhausted, LimitNotMeasurable, MaxIterationsReached, Reason

Unmeasured: TypeAlias = Literal["stop", "estimate", "ignore"]
"""What happens if a limit of tokens or cost is set, and a response does not report what it used."""


class Limit(NamedTuple):
    """The facts of a limit: what it counts, what of a budget it limits, and what responses have to report."""

    kind: type[int | float]
    counted: str  # in plural
    used: str
    left: str  # the format of what remains
    needs: str


def _limit(default: int | None, least: int, counted: str, used: str = "", left: str = "") -> Any:
    """Declare a limit; one with a separate format of the remaining amount may be a fraction."""
    kind, unit = (float, counted) if left else (int, "")
    needs = "usage" if used.startswith("usage.") else ""
    needs = "cost" if used == "usage.cost" else needs
    row = Limit(kind, counted, used, left or f"{{:,}} {counted}", needs)
    return checked(default, number(least, unit), limit=row)


@fast_dataclass
class Limits:
    """The limits of one run, and what happens at them. None is no limit.

    Those of iterations and of parallel calls hold for the loop, the others for the run and its subagents.

    Raises:
        OptionError: an unknown limit, or one that is not a number, or too small.
    """

    max_iterations: int = _limit(10, 1, "model calls", "iterations")
    """Model calls of the loop itself."""
    max_tool_calls: int | None = _limit(None, 0, "tool calls", "tool_calls")
    """Tool calls that run; further ones are answered as over budget."""
    max_parallel_calls: int = _limit(8, 1, "tool calls at the same time")
    """Tool calls that run at the same time."""
    max_input_tokens: int | None = _limit(None, 1, "input tokens", "usage.input_tokens")
    """Tokens of all prompts."""
    max_output_tokens: int | None = _limit(None, 1, "output tokens", "usage.output_tokens")
    """Tokens of all responses."""
    max_total_tokens: int | None = _limit(None, 1, "tokens", "usage.total_tokens")
    """Tokens of prompts and responses."""
    max_cost: float | None = _limit(None, 0, "US dollars", "usage.cost", "${:.4f}")
    """US dollars; the model reports or computes a cost, or ``cost_of`` does."""
    max_seconds: float | None = _limit(None, 0, "seconds", "elapsed", "{:.0f} s")
    """Wall time in seconds; calls in flight are cancelled."""
    max_requests: int | None = _limit(None, 1, "model and subagent calls", "requests")
    """Model calls of the run and its subagents; a retry is no further one. None means ten times
    ``max_iterations``; for a subagent, the limits of the runs around it."""
    max_depth: int = _limit(5, 0, "levels of subagents")
    """How deep subagents may be nested: with 1, its subagents have none. Further ones do not start."""
    on_limit: Literal["stop", "finish"] = checked("stop", choice("stop", "finish"))
    """What happens if a limit of iterations, calls, tokens or cost is reached, or a loop is detected: ``stop``
    ends the run with the reason, ``finish`` asks the model for a last answer first."""
    unmeasured: Unmeasured | None = checked(None, choice("stop", "estimate", "ignore"))
    """What happens if a limit of tokens or cost is set, and a response does not report its usage: ``stop`` ends
    the run with `LimitNotMeasurable` before another model call, ``estimate`` counts tokens estimated from the
    texts, ``ignore`` runs without such a limit. None takes that of the outer run, else ``stop``."""
    cost_of: Callable[[Response], float | None] | None = checked(
        None, ValueCheck(is_sync_callable, "a sync callable that takes a response")
    )
    """Takes a response and returns its cost in US dollars, or None; called if the model does not report a cost,
    in place of what the model computes. None takes that of the outer run. Contexts and events have None."""
    show_budget: bool = checked(False, FLAG)
    """Whether the model sees what remains of the limits, in each request."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(cls, *_: Any, **limits: Any) -> Self:
            """Check the names; the error of ``__init__`` has no suggestion."""
            known = cls.__dataclass_fields__
            if not limits.keys() <= known.keys():
                check_names(limits, known, "Limits: there is no limit")
            return object.__new__(cls)

        __signature__ = InitSignature()

    def __post_init__(self) -> None:
        check_fields(self)


LIMITS: Mapping[str, Limit] = {
    name: spec.metadata["limit"]
    for name, spec in vars(Limits)["__dataclass_fields__"].items()
    if "limit" in spec.metadata
}
_COUNTED = {name: (one, attrgetter(one.used)) for name, one in LIMITS.items() if one.used}
"""The limits that are used up, with what counts each."""
_MEASURED = {
    name: attrgetter(one.used.removeprefix("usage.")) for name, one in LIMITS.items() if one.needs
}
"""Those of tokens and cost, with what counts each in a `Usage`."""
_measured_of = attrgetter(*_MEASURED)
_UNLIMITED = (None,) * len(_MEASURED)
_OR_NOT = 'Limits(unmeasured="ignore") runs without this limit'
_IN_STREAM = 'a streamed response has it with stream_options={"include_usage": True}'
_ADVICE = {
    "usage": f"return it with the response, as Response(usage=...) and chat completions do; {_IN_STREAM}; "
    f'Limits(unmeasured="estimate") counts an estimate, {_OR_NOT}',
    "cost": "Limits(cost_of=...) has to return US dollars for each response that does not report its cost; pip "
    "install 'treadle[prices]' has the prices of models at their own providers, which need the usage: "
    f"{_IN_STREAM}; {_OR_NOT}",
}
"""What to do if a response does not report what a limit needs."""
_REQUESTS_OF_TREE = 10
"""The default of ``max_requests``, for each iteration of the outermost run."""
MAX_LAST_ANSWERS = 2
"""How often a run asks the model for a last answer: by so many requests it may exceed ``max_requests``."""


@fast_dataclass
class Remaining:
    """What remains of each limit of a run, such as ``tool_calls`` of ``max_tool_calls``; None is no limit.

    Args:
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
    requests: int | None = None
    is_upper_bound: bool = False
    is_estimate: bool = False

    def __str__(self) -> str:
        about = "at most " if self.is_upper_bound else ""
        about += "about " if self.is_estimate else ""
        parts: list[str] = []
        for name, (limit, _) in _COUNTED.items():
            left = getattr(self, name.removeprefix("max_"))
            if left is not None:
                parts.append((about if limit.needs else "") + limit.left.format(left))
        return ", ".join(parts) or "no limit"


@fast_dataclass
class Used:
    """What a run and its subagents have used; ``iterations`` are those of the run alone."""

    iterations: int = 0
    requests: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    uses: Mapping[str, int] = field(default_factory=dict[str, int])


class Budget:
    """What one run has used. Usage of a subagent counts against the budget of its parent as well.

    Only the steps of the run change it, one at a time, so that concurrent calls cannot reserve the same call.

    Args:
        limits: what the run may use.
        parent: the budget of the run that called this one as a subagent.
        name: the name of the loop; empty if it has none.
        called: the name of the tool that the loop is; empty for the outermost.

    Attributes:
        depth: how many runs are around this one.
        reservations: the requests of subagents under way; None without a limit of tokens or cost.
        reserves: whether this run or a parent has a limit of tokens or cost.
        limits_only_iterations: whether no limit is reached before that of iterations, but for that of seconds.
        estimates: whether this run or a parent counts estimates.
        unknown: what is not known of some response, ``usage`` or ``cost``, with the way to get it; noted only
            with a limit of tokens or cost.
        started_at: when the run started, in seconds since the epoch, less the time in which nothing drove it.
        idle: how long nothing drove the outermost run, in seconds; only used there.
    """

    def __init__(
        self, limits: Limits, parent: Budget | None = None, name: str = "", called: str = ""
    ) -> None:
        self.limits = limits
        self.parent = parent
        self.name, self.called = name, called
        self._outer: tuple[Budget, ...] = () if parent is None else parent.chain()
        self.depth = len(self._outer)
        self.max_requests = limits.max_requests
        if parent is None and self.max_requests is None:
            self.max_requests = _REQUESTS_OF_TREE * limits.max_iterations
        self.has_tokens = _measured_of(limits) != _UNLIMITED
        self.reservations = Reservations(str(self.depth)) if self.has_tokens else None
        self.reserves: bool = self.has_tokens or (parent is not None and parent.reserves)
        inherited: Unmeasured = "stop" if parent is None else parent.unmeasured
        self.unmeasured: Unmeasured = limits.unmeasured or inherited
        counts = self.unmeasured == "estimate"
        self.estimates: bool = counts or (parent is not None and parent.estimates)
        others = (limits.max_tool_calls, limits.max_requests, parent)
        self.limits_only_iterations = not self.has_tokens and others == (None, None, None)
        self.iterations = self.requests = self.tool_calls = 0
        self.usage = Usage()
        self.unknown: dict[str, str] = {}
        self.uses: dict[str, int] = {}
        self.started_at = self.idle = 0.0
        self.is_finishing = False

    def start(self, now: float, elapsed: float = 0.0) -> None:
        """Start the clock of the run, ``elapsed`` seconds of which have passed before."""
        self.started_at = now - elapsed - self._root.idle

    def elapsed(self, now: float) -> float:
        """How long the run has taken, in seconds, without the time in which nothing drove it."""
        return now - self.started_at - self._root.idle

    @property
    def _root(self) -> Budget:
        return self.chain()[-1]

    def finish(self) -> None:
        """Allow the requests for the last answer beyond this run's limits; no tool call may run from now on."""
        self.is_finishing, self.limits_only_iterations = True, False

    def chain(self) -> tuple[Budget, ...]:
        """This budget and those of its parents, the nearest first."""
        return self, *self._outer

    def count_request(self) -> None:
        """Count a model call, before it is made: an iteration of this run, a request of all."""
        self.iterations += 1
        for one in self.chain():
            one.requests += 1

    def reserve(self, tool: str, calls: int = 1, uses: int = 0) -> None:
        """Count calls and uses of a tool before they run; numbers below 0 release them."""
        for one in self.chain():
            one.tool_calls += calls
            if uses:
                one.uses[tool] = one.uses.get(tool, 0) + uses

    def record_response(self, response: Response | None) -> None:
        """Add the usage of a response; remember what a limit needs and the response does not report.

        None is a request that got none: what it used is unknown, so the total is a lower bound.
        """
        for one in self.chain():
            one.usage = one.usage.plus(None if response is None else response.usage)
            if one.has_tokens and response is not None:
                one._note_unknown(response)  # noqa: SLF001 - of another budget

    def add(self, used: Used) -> None:
        """Add what a subagent used that counted elsewhere."""
        for one in self.chain():
            one.requests += used.requests
            one.tool_calls += used.tool_calls
            one.usage = one.usage.plus(used.usage)
            if one.has_tokens:
                one.unknown = {**used.unknown, **one.unknown}
        for tool, uses in used.uses.items():
            self.reserve(tool, 0, uses)

    def _note_unknown(self, response: Response) -> None:
        usage = response.usage
        if usage is not None and usage.is_estimate and self.unmeasured == "stop":
            usage = None  # a subagent counts estimates; this run does not
        if usage is None or usage.is_lower_bound:
            self.unknown["usage"] = _ADVICE["usage"]
        if usage is None or usage.cost is None:
            self.unknown["cost"] = _ADVICE["cost"]

    def _calls(self) -> Iterator[tuple[int, int, Budget]]:
        """The calls left, the limit and the budget, for each that limits them: this one and its parents."""
        for one in self.chain():
            limit = one.limits.max_tool_calls
            if limit is not None:
                yield limit - one.tool_calls, limit, one

    def calls_left(self) -> int | None:
        """The number of tool calls that may still run; None means no limit."""
        if self.is_finishing:
            return 0
        return min((max(0, left) for left, *_ in self._calls()), default=None)

    def calls_exhausted(self) -> BudgetExhausted:
        """The reason that a tool call may not run: the nearest limit that is reached."""
        left, limit, limited = next(one for one in self._calls() if one[0] <= 0)
        return BudgetExhausted("max_tool_calls", limit, limit - left, self._name_of(limited))

    def uses_left(self, name: str, max_uses: int) -> int:
        """How often a tool may still be used in the whole tree of runs, which shares it by its name."""
        return max(0, max_uses - self._root.uses.get(name, 0))

    def exhausted(self) -> Reason | None:
        """Why another model call is forbidden; None if it is allowed.

        The limit of tool calls does not count: the model may still answer.
        """
        most = self.limits.max_iterations
        if self.iterations >= most and not self.is_finishing:
            return MaxIterationsReached(most, self.name)
        # The common case, three times in an iteration: without subagents, `max_requests` is reached later.
        if self.limits_only_iterations and self.requests <= self.iterations:
            return None
        return next((reason for one in self.chain() if (reason := one._spent(self))), None)  # noqa: SLF001

    def _spent(self, asking: Budget) -> Reason | None:
        """The limit, other than that of iterations, that forbids a budget another model call."""
        most = self.max_requests
        if most is not None and self.requests >= most + MAX_LAST_ANSWERS * self.is_finishing:
            return BudgetExhausted("max_requests", most, self.requests, asking._name_of(self))
        if not self.has_tokens:
            return None
        for kind, limit, used in () if self.is_finishing else self._usage_by_limit(self.usage):
            if used >= limit:
                return BudgetExhausted(kind, limit, used, asking._name_of(self))
        return None if self.unmeasured == "ignore" else next(self._unmeasured(asking), None)

    def _name_of(self, other: Budget) -> str:
        """The name in a reason of the loop that has a limit: that of this budget, or one around it."""
        return other.name or ("" if other is self else other.called or "the outermost loop")

    def too_deep(self) -> str | None:
        """Why a run of this budget may have no subagent: the limit, and the loop that has it; else None."""
        for one in self.chain():
            most = one.limits.max_depth
            if self.depth + 1 - one.depth > most:
                return f"max_depth={most} of {one.name or one.called or 'the outermost loop'}"
        return None

    def admits(self, wanted: Reservation) -> bool:
        """Whether a request of a subagent may be sent now: one that is not alone has to fit within the limits.

        Of those whose response cannot be foreseen, since none of their model is known yet, one is sent at a time.
        """
        under_way = self.reservations
        if under_way is None or not under_way.held or self._spent(self) is not None:
            return True  # a limit that is reached ends the run
        others = [under_way.usage_of(one) for one in under_way.held]
        own = under_way.usage_of(wanted)
        if own is None and self.unmeasured != "ignore" and None in others:
            return False
        foreseen = [one for one in (own, *others) if one is not None]
        usage = functools.reduce(Usage.plus, foreseen, self.usage)
        # One that cannot be foreseen needs some room.
        totals = self._usage_by_limit(usage)
        return all(
            total <= limit if own is not None else total < limit for _, limit, total in totals
        )

    def measured(self, request: Reservation, usage: Usage) -> None:
        """Learn from the response to a request of this run what later requests may use, here and in outer runs."""
        for one in self.chain():
            if one.reservations is not None:
                one.reservations.measured(request, usage)

    def not_measurable(self) -> LimitNotMeasurable | None:
        """The nearest limit, of this run or a parent, that ends the run since it cannot be measured; else None."""
        counting = [one for one in self.chain() if one.unmeasured != "ignore"]
        return next((reason for one in counting for reason in one._unmeasured(self)), None)  # noqa: SLF001

    def _unmeasured(self, asking: Budget) -> Iterator[LimitNotMeasurable]:
        """The limits for which the usage or the cost of some response is unknown."""
        for kind, *_ in self._usage_by_limit(self.usage) if self.unknown else ():
            needs = LIMITS[kind].needs
            if needs in self.unknown:
                yield LimitNotMeasurable(kind, needs, self.unknown[needs], asking._name_of(self))

    def _usage_by_limit(self, usage: Usage) -> Iterator[tuple[str, float, float]]:
        """The limits of tokens and cost: name, limit, and how much of it a usage is."""
        for name, used in _MEASURED.items():
            limit = getattr(self.limits, name)
            if limit is not None:
                yield name, limit, used(usage) or 0

    def remaining(self, now: float) -> Remaining:
        """What remains now, in seconds since the epoch, by the tightest limit of this run and its parents."""
        tightest: dict[str, Any] = {}
        is_upper_bound = is_estimate = False
        for one in self.chain():
            if one.has_tokens:
                is_upper_bound |= one.usage.is_lower_bound or any(one._unmeasured(self))  # noqa: SLF001
                is_estimate |= one.usage.is_estimate
            for name, (_, used_by) in _COUNTED.items():
                limit = getattr(one.limits, name)
                if limit is not None and (one is self or name != "max_iterations"):
                    used = used_by(one)
                    used = used(now) if callable(used) else used or 0
                    kind, left = name.removeprefix("max_"), max(0, limit - used)
                    tightest[kind] = min(left, tightest.get(kind, left))
        return Remaining(**tightest, is_upper_bound=is_upper_bound, is_estimate=is_estimate)

    def used(self) -> Used:
        """What was used so far."""
        return Used(**{name: copy.copy(getattr(self, name)) for name in _USED})

    def restore(self, used: Used) -> None:
        """Continue from what was used before."""
        for name in _USED:
            setattr(self, name, copy.copy(getattr(used, name)))


_USED = tuple(spec.name for spec in dataclasses.fields(Used))
