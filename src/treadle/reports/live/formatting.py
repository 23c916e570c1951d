"""The texts that the live view shows for a run and its calls."""

from __future__ import annotations

import json
from collections.abc import Iterator

from treadle.messages import ToolCall, Usage, is_mapping, safe_str
from treadle.reports.live.progress import Ending, Phase, Retry, RunningCall, RunProgress
from treadle.reports.text import fixed_width, format_count, format_dollars, format_elapsed

NAME_LENGTH = 24
_ID_LENGTH = 16
_SHORT_ID_LENGTH = 6
_ARGUMENT_LENGTH = 60
_REASON_LENGTH = 40


def name_of(run: RunProgress, *, with_id: bool) -> str:
    """The name of a run: that of its loop, or its id.

    Args:
        run: the run.
        with_id: append the id, because another run has the same name.
    """
    name = fixed_width(safe_str(run.name), NAME_LENGTH) if run.name else ""
    if name and not with_id:
        return name
    run_id = safe_str(run.run_id)
    # Generated ids are long and random; ids of a user have a meaning.
    most = _SHORT_ID_LENGTH if len(run_id) > _ID_LENGTH else _ID_LENGTH
    short = fixed_width(run_id[:most])
    return f"{name} {short}".strip() or "run"


def under_way(run: RunProgress, now: float, *, with_calls: bool = True) -> str:
    """What a run is doing, and for how long.

    Args:
        run: an active run.
        now: the clock's time.
        with_calls: name the running calls; otherwise only show their number.
    """
    if run.running_calls:
        return _calls(run, now) if with_calls else format_count(len(run.running_calls), "call")
    since = format_elapsed(now - run.phase_since)
    retry = run.retry
    if retry is not None and retry.until > now:
        return _waiting(retry, now)
    if retry is not None:
        return f"{Phase.ASKING.value} {format_elapsed(now - retry.until)}, attempt {retry.attempt}"
    if run.characters:
        return f"{run.phase.value} {since}, {format_count(run.characters, 'character')}"
    return f"{run.phase.value} {since}"


def _calls(run: RunProgress, now: float) -> str:
    """The names of the running calls, and the time of the longest."""
    running = [one for one in run.running_calls.values() if one.within is None]
    running = running or list(run.running_calls.values())
    names: dict[str, int] = {}
    for one in running:
        name = fixed_width(safe_str(one.call.name), NAME_LENGTH)
        names[name] = names.get(name, 0) + 1
    shown = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
    return f"{shown} {format_elapsed(now - min(one.since for one in running))}"


def _waiting(retry: Retry, now: float) -> str:
    kind = fixed_width(safe_str(retry.error_type), _REASON_LENGTH)
    return f"retry in {format_elapsed(retry.until - now)} (attempt {retry.attempt}, {kind})"


def call_name(running: RunningCall) -> str:
    """The tool and the main argument of a running call."""
    name = fixed_width(safe_str(running.call.name), NAME_LENGTH)
    return f"{name} {main_argument(running.call)}".rstrip()


def call_time(running: RunningCall, now: float) -> str:
    """How long a call has been running, or when it is retried."""
    retry = running.retry
    if retry is not None and retry.until > now:
        return _waiting(retry, now)
    again = f", attempt {retry.attempt}" if retry is not None else ""
    return f"{format_elapsed(now - running.since)}{again}"


def main_argument(call: ToolCall) -> str:
    """The main argument of a call: its first text, else its first argument, else its raw arguments."""
    given = call.input
    if not is_mapping(given) or not given:
        bare = call.arguments if call.arguments.strip() not in {"", "{}"} else ""
        return fixed_width(bare, _ARGUMENT_LENGTH)
    texts = (value for value in given.values() if isinstance(value, str) and value)
    value = next(texts, None)
    if value is None:
        first = next(iter(given.values()))
        is_plain = first is None or isinstance(first, (bool, int, float, str))
        value = json.dumps(first) if is_plain else call.arguments
    return fixed_width(value, _ARGUMENT_LENGTH)


def spent(run: RunProgress) -> list[str]:
    """The tokens and the cost of a run so far, as far as they are known."""
    usage: Usage = run.usage
    parts: list[str] = []
    if usage.total_tokens:
        more = "+" if usage.is_lower_bound else ""
        parts.append(f"{usage.total_tokens:,}{more} tokens")
    if usage.cost is not None:
        parts.append(format_dollars(usage.cost))
    return parts


def guards(run: RunProgress) -> str:
    """The counts of guards, retries and repairs, open breakers and the limit; empty if there are none."""
    parts = [f"{run.counts[what]} {what}" for what in sorted(run.counts)]
    if run.repaired_after:
        stages = ", ".join(fixed_width(stage, NAME_LENGTH) for stage in run.repaired_after)
        parts.append(f"repaired after stage {stages}")
    parts += [
        f"breaker of {fixed_width(safe_str(tool), NAME_LENGTH)} {fixed_width(safe_str(state), NAME_LENGTH)}"
        for tool, state in run.breakers.items()
    ]
    if run.limit is not None:
        parts.append(f"limit: {fixed_width(safe_str(run.limit), _REASON_LENGTH)}")
    return ", ".join(parts)


def outcome(run: RunProgress, ending: Ending) -> str:
    """How a run ended: stop reason, iterations and calls."""
    reason = fixed_width(safe_str(ending.stop_reason), _REASON_LENGTH)
    iterations = format_count(run.iteration, "iteration")
    return f"{reason}: {iterations}, {format_count(run.own_calls, 'call')}"


def budgets(run: RunProgress, now: float) -> Iterator[tuple[str, float, str]]:
    """The limits that are set: the name, the used share, and both numbers of each.

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
        yield (
            "cost",
            _share(used, limits.max_cost),
            f"{format_dollars(used)}/{format_dollars(limits.max_cost)}",
        )
    if limits.max_seconds is not None:
        used = max(0.0, now - run.since)
        yield "seconds", _share(used, limits.max_seconds), f"{used:.0f}/{limits.max_seconds:g}"


def _share(used: float, limit: float) -> float:
    return min(1.0, used / limit) if limit > 0 else 1.0
