"""What a live view says of a run and of its calls, in plain words of steady width."""

from __future__ import annotations

import json
from collections.abc import Iterator

from treadle.messages import ToolCall, Usage, is_mapping, safe_str
from treadle.reports.live.parts import Ending, Flight, Phase, Retry
from treadle.reports.live.state import RunProgress
from treadle.reports.text import counted, money, steady, ticking

NAME_LENGTH = 24
_ID_LENGTH = 16
_SHORT_ID_LENGTH = 6
_ARGUMENT_LENGTH = 60
_REASON_LENGTH = 40


def name_of(run: RunProgress, *, with_id: bool) -> str:
    """What a run is called: the name of its loop, or its id.

    Args:
        run: the run.
        with_id: another has the same name.
    """
    name = steady(safe_str(run.name), NAME_LENGTH) if run.name else ""
    if name and not with_id:
        return name
    run_id = safe_str(run.run_id)
    # Ids that treadle makes are long and by chance; those of a user say something.
    most = _SHORT_ID_LENGTH if len(run_id) > _ID_LENGTH else _ID_LENGTH
    short = steady(run_id[:most])
    return f"{name} {short}".strip() or "run"


def under_way(run: RunProgress, now: float, *, with_calls: bool = True) -> str:
    """What a run is at, and for how long.

    Args:
        run: a run that goes on.
        now: the clock's time.
        with_calls: name the calls in flight; else only their number is told.
    """
    if run.flights:
        return _calls(run, now) if with_calls else counted(len(run.flights), "call")
    since = ticking(now - run.phase_since)
    retry = run.retry
    if retry is not None and retry.until > now:
        return _waiting(retry, now)
    if retry is not None:
        return f"{Phase.ASKING.value} {ticking(now - retry.until)}, try {retry.attempt}"
    if run.characters:
        return f"{run.phase.value} {since}, {counted(run.characters, 'character')}"
    return f"{run.phase.value} {since}"


def _calls(run: RunProgress, now: float) -> str:
    """The calls in flight by name, and how long the longest has been."""
    flights = [flight for flight in run.flights.values() if flight.within is None]
    flights = flights or list(run.flights.values())
    names: dict[str, int] = {}
    for flight in flights:
        name = steady(safe_str(flight.call.name), NAME_LENGTH)
        names[name] = names.get(name, 0) + 1
    told = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
    return f"{told} {ticking(now - min(flight.since for flight in flights))}"


def _waiting(retry: Retry, now: float) -> str:
    kind = steady(safe_str(retry.error_type), _REASON_LENGTH)
    return f"again in {ticking(retry.until - now)} (try {retry.attempt}, {kind})"


def call_name(flight: Flight) -> str:
    """A call in flight: its tool and its main argument."""
    name = steady(safe_str(flight.call.name), NAME_LENGTH)
    return f"{name} {main_argument(flight.call)}".rstrip()


def call_time(flight: Flight, now: float) -> str:
    """How long a call has been in flight, or when it is tried again."""
    retry = flight.retry
    if retry is not None and retry.until > now:
        return _waiting(retry, now)
    again = f", try {retry.attempt}" if retry is not None else ""
    return f"{ticking(now - flight.since)}{again}"


def main_argument(call: ToolCall) -> str:
    """What a call is about: its first text, else its first argument, else its arguments as they came."""
    given = call.input
    if not is_mapping(given) or not given:
        bare = call.arguments if call.arguments.strip() not in {"", "{}"} else ""
        return steady(bare, _ARGUMENT_LENGTH)
    texts = (value for value in given.values() if isinstance(value, str) and value)
    value = next(texts, None)
    if value is None:
        first = next(iter(given.values()))
        is_plain = first is None or isinstance(first, (bool, int, float, str))
        value = json.dumps(first) if is_plain else call.arguments
    return steady(value, _ARGUMENT_LENGTH)


def spent(run: RunProgress) -> list[str]:
    """What a run has used so far: tokens and cost, where there are any."""
    usage: Usage = run.usage
    parts: list[str] = []
    if usage.total_tokens:
        more = "+" if usage.is_lower_bound else ""
        parts.append(f"{usage.total_tokens:,}{more} tokens")
    if usage.cost is not None:
        parts.append(money(usage.cost))
    return parts


def guards(run: RunProgress) -> str:
    """The guards that fired, and what else took effect, counted; empty where nothing did."""
    told = [f"{run.counts[what]} {what}" for what in sorted(run.counts)]
    told += [
        f"breaker of {steady(safe_str(tool), NAME_LENGTH)} {steady(safe_str(how), NAME_LENGTH)}"
        for tool, how in run.breakers.items()
    ]
    if run.limit is not None:
        told.append(f"limit: {steady(safe_str(run.limit), _REASON_LENGTH)}")
    return ", ".join(told)


def outcome(run: RunProgress, ending: Ending) -> str:
    """What a run came to, without what it has used."""
    reason = steady(safe_str(ending.stop_reason), _REASON_LENGTH)
    iterations = counted(run.iteration, "iteration")
    return f"{reason}: {iterations}, {counted(run.own_calls, 'call')}"


def budgets(run: RunProgress, now: float) -> Iterator[tuple[str, float, str]]:
    """The limits that are set: what each is of, the share that is used, and both in numbers.

    Args:
        run: the run.
        now: the clock's time.
    """
    limits, usage = run.limits, run.usage
    counts: tuple[tuple[str, float, float | None], ...] = (
        ("iterations", run.model_calls, limits.max_iterations),
        ("tool calls", run.tool_calls, limits.max_tool_calls),
        ("input tokens", usage.input_tokens, limits.max_input_tokens),
        ("output tokens", usage.output_tokens, limits.max_output_tokens),
        ("tokens", usage.total_tokens, limits.max_total_tokens),
    )
    for what, used, limit in counts:
        if limit is not None:
            yield what, _share(used, limit), f"{used:,}/{limit:,}"
    if limits.max_cost is not None:
        used = usage.cost or 0.0
        yield "cost", _share(used, limits.max_cost), f"{money(used)}/{money(limits.max_cost)}"
    if limits.max_seconds is not None:
        used = max(0.0, now - run.since)
        yield "seconds", _share(used, limits.max_seconds), f"{used:.0f}/{limits.max_seconds:g}"


def _share(used: float, limit: float) -> float:
    return min(1.0, used / limit) if limit > 0 else 1.0
