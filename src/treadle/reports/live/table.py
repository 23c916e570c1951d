"""Renders the runs of a board as lines for a terminal. Needs rich."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from treadle.messages import ToolCall, is_mapping, safe_str
from treadle.reports.live.board import Board
from treadle.reports.live.progress import Ending, Phase, Retry, RunProgress
from treadle.reports.text import fixed_width, format_count, format_dollars, format_elapsed

MOST_CALLS = 5
"""Maximum number of running calls that are shown one by one."""

_BAR_LENGTH = 8
_GAP, _MARGIN = "   ", "    "
_SOON, _LATE = 0.7, 0.9
"""Shares of a budget from which its bar is yellow or red."""

_MOST_NAME = 20
"""Maximum number of columns to which names are padded for alignment."""
_NAME_LENGTH = 24
_ID_LENGTH = 16
_SHORT_ID_LENGTH = 6
_ARGUMENT_LENGTH = 60
_MESSAGE_LENGTH = 60
_REASON_LENGTH = 40


class Glyphs(NamedTuple):
    """The symbols of a view. Those of `PLAIN` are ASCII."""

    running: str = "●"
    good: str = "✓"
    bad: str = "✗"
    halted: str = "■"
    branch: str = "└"
    full: str = "━"
    empty: str = "─"
    cut: str = "…"


PLAIN = Glyphs("*", "+", "x", "=", "-", "#", ".", "~")


class Detail(Enum):
    """How much is shown of an active run."""

    FULL = "full"
    NESTED = "with subagents"
    HEAD = "one line"


class Table:
    """Renders the lines of the view once, at most ``height``.

    The last column of the terminal stays free. Characters that its encoding lacks are escaped.
    """

    def __init__(self, width: int, height: int, now: float, encoding: str = "utf-8") -> None:
        self._width = max(1, width - 1)
        self._height = max(1, height)
        self._now = now
        self._encoding = encoding
        self._glyphs = Glyphs() if encoding.startswith("utf") else PLAIN
        self._names: dict[int, str] = {}

    def lines(self, board: Board) -> list[Text]:
        """The lines that fit: active runs first, then the most recent finished runs."""
        active = list(board.active.values())
        has_total = board.count > 1 and self._height > 1
        room = self._height - has_total
        newest = list(islice(reversed(board.finished), room))[::-1]
        self._names = _aligned_names([*active[:room], *newest])
        shown, running = self._running(active, room)
        ended = newest[-(room - len(running)) :] if room > len(running) else []
        lines = [self._ended(run, run.ending) for run in ended if run.ending is not None]
        lines += running
        if has_total:
            lines.append(self._total(board, active, board.count - len(ended) - shown))
        return lines

    def _running(self, active: list[RunProgress], room: int) -> tuple[int, list[Text]]:
        """The number of active runs that are shown, and their lines with as much detail as fits."""
        lines: list[Text] = []
        for detail in Detail:
            made = (line for run in active[:room] for line in self._run(run, detail))
            lines = list(islice(made, room + 1))
            if len(lines) <= room and (len(active) <= room or detail is Detail.HEAD):
                break
        return min(len(active), room), lines

    def _run(self, run: RunProgress, detail: Detail, depth: int = 0) -> Iterator[Text]:
        yield self._head(run, detail, depth)
        if detail is Detail.FULL:
            yield from self._calls(run, detail, depth)
            if not depth:
                yield from self._bars(run)
            shown = _guards(run)
            if shown:
                yield self._line(Text(f"{_MARGIN * (depth + 1)}{shown}", style="yellow"))
        elif detail is Detail.NESTED:
            for child in run.children.values():
                yield from self._run(child, detail, depth + 1)

    def _head(self, run: RunProgress, detail: Detail, depth: int) -> Text:
        if depth:
            start = Text(_MARGIN * depth).append(f"{self._glyphs.branch} ", style="dim")
            start.append(_run_name(run, with_id=False), style="cyan")
        else:
            start = Text().append(f"{self._glyphs.running} ", style="cyan")
            start.append(self._names[id(run)], style="bold")
        if run.ending is not None:  # a subagent that ended before its call
            start.append(f"  {_outcome(run, run.ending)}", style="dim")
            return self._line(start, [*_spent(run), format_elapsed(run.ending.seconds)])
        start.append(f"  {run.iteration}/{run.limits.max_iterations}  ")
        start.append(_under_way(run, self._now, with_calls=detail is not Detail.FULL))
        return self._line(start, [*_spent(run), format_elapsed(self._now - run.since)])

    def _calls(self, run: RunProgress, detail: Detail, depth: int) -> Iterator[Text]:
        calls = list(run.running_calls.items())
        for call_id, running in calls[:MOST_CALLS]:
            inner = depth + 1 + (running.within is not None)
            name = f"{_name(running.call.name)} {_main_argument(running.call)}".rstrip()
            text = Text(f"{_MARGIN * inner}{name}")
            if running.message:
                text.append(f"  {fixed_width(running.message, _MESSAGE_LENGTH)}", style="dim")
            yield self._line(text, [_since("", running.since, running.retry, self._now)])
            child = run.children.get(call_id)
            if child is not None:
                yield from self._run(child, detail, depth + 2)
        if len(calls) > MOST_CALLS:
            more = format_count(len(calls) - MOST_CALLS, "more call")
            yield self._line(Text(f"{_MARGIN * (depth + 1)}and {more}", style="dim"))

    def _bars(self, run: RunProgress) -> Iterator[Text]:
        """The bars of the limits, as many per line as fit."""
        line = Text()
        for what, share, numbers in _budgets(run, self._now):
            bar = self._bar(what, share, numbers)
            if line and line.cell_len + len(_GAP) + bar.cell_len > self._width:
                yield self._line(line)
                line = Text()
            line.append(_GAP if line else _MARGIN).append_text(bar)
        yield self._line(line)

    def _bar(self, what: str, share: float, numbers: str) -> Text:
        full = min(_BAR_LENGTH, int(share * _BAR_LENGTH + 0.5))
        style = "green" if share < _SOON else "yellow" if share < _LATE else "red"
        bar = Text().append(f"{what} ", style="dim")
        bar.append(self._glyphs.full * full, style=style)
        bar.append(self._glyphs.empty * (_BAR_LENGTH - full), style="dim")
        return bar.append(f" {numbers}")

    def _ended(self, run: RunProgress, ending: Ending) -> Text:
        sign, style = self._glyphs.good, "green"
        if ending.stop_reason in {"paused", "cancelled"}:
            sign, style = self._glyphs.halted, "yellow"
        elif ending.is_error:
            sign, style = self._glyphs.bad, "red"
        text = Text().append(f"{sign} ", style=style).append(self._names[id(run)], style="bold")
        text.append(f"  {_outcome(run, ending)}")
        return self._line(text, [*_spent(run), format_elapsed(ending.seconds)])

    def _total(self, board: Board, active: list[RunProgress], hidden: int) -> Text:
        """The totals of all runs, and the number of runs that are not shown."""
        parts = [f"{board.count:,} runs: {len(active):,} running"]
        parts.append(f"{board.count - len(active):,} finished")
        tokens = board.tokens + sum(run.usage.total_tokens for run in active)
        if tokens:
            parts.append(f"{tokens:,} tokens")
        costs = [run.usage.cost for run in active if run.usage.cost is not None]
        if costs or board.cost is not None:
            parts.append(format_dollars(sum(costs) + (board.cost or 0.0)))
        more = f"and {hidden:,} more; " if hidden else ""
        return self._line(Text(f"{more}{', '.join(parts)}", style="dim"))

    def _line(self, left: Text, right: Iterable[str] = ()) -> Text:
        """A line with its right-aligned parts, as many as fit."""
        parts = [self._encoded(part) for part in right]
        while len(parts) > 1 and left.cell_len + 2 + cell_len("  ".join(parts)) > self._width:
            del parts[0]
        end = "  ".join(parts)
        used = cell_len(end) + 2
        if not end or used > self._width // 2:
            end, used = "", 0
        left = self._cut(left, self._width - used)
        if end:
            left.append(" " * (self._width - left.cell_len - cell_len(end)))
            left.append(end, style="dim")
        left.no_wrap, left.overflow = True, "crop"
        return left

    def _cut(self, text: Text, width: int) -> Text:
        encoded = self._encoded(text.plain)
        if encoded != text.plain:
            text = Text(encoded)
        if text.cell_len > width:
            text.truncate(max(0, width - 1), overflow="crop")
            text.append(self._glyphs.cut)
        return text

    def _encoded(self, text: str) -> str:
        if text.isascii() or self._glyphs is not PLAIN:
            return text
        try:
            return text.encode(self._encoding, "backslashreplace").decode(self._encoding)
        except LookupError:
            return text.encode("ascii", "backslashreplace").decode("ascii")


def _name(text: str, limit: int = _NAME_LENGTH) -> str:
    return fixed_width(safe_str(text), limit)


def _run_name(run: RunProgress, *, with_id: bool) -> str:
    """The name of a run: that of its loop, or its id. The id is added if another run has the same name."""
    name = _name(run.name) if run.name else ""
    if name and not with_id:
        return name
    run_id = safe_str(run.run_id)
    # Generated ids are long and random; ids of a user have a meaning.
    most = _SHORT_ID_LENGTH if len(run_id) > _ID_LENGTH else _ID_LENGTH
    return f"{name} {fixed_width(run_id[:most])}".strip() or "run"


def _aligned_names(runs: Sequence[RunProgress]) -> dict[int, str]:
    """The names of runs, padded to the same width, by the ids of their objects."""
    counts = Counter(run.name for run in runs)
    names = {id(run): _run_name(run, with_id=counts[run.name] > 1) for run in runs}
    width = min(max(map(cell_len, names.values()), default=0), _MOST_NAME)
    return {key: name + " " * (width - cell_len(name)) for key, name in names.items()}


def _under_way(run: RunProgress, now: float, *, with_calls: bool) -> str:
    """What an active run is doing, and for how long; with the names of the running calls, or their number."""
    if run.running_calls:
        return _calls(run, now) if with_calls else format_count(len(run.running_calls), "call")
    if run.retry is not None:
        return _since(f"{Phase.ASKING.value} ", run.retry.until, run.retry, now)
    streamed = f", {format_count(run.characters, 'character')}" if run.characters else ""
    return f"{run.phase.value} {format_elapsed(now - run.phase_since)}{streamed}"


def _calls(run: RunProgress, now: float) -> str:
    """The names of the running calls, and the time of the longest."""
    running = [one for one in run.running_calls.values() if one.within is None]
    running = running or list(run.running_calls.values())
    names = Counter(_name(one.call.name) for one in running)
    shown = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names.items())
    return f"{shown} {format_elapsed(now - min(one.since for one in running))}"


def _since(what: str, since: float, retry: Retry | None, now: float) -> str:
    """How long something has been going on, or when it is retried."""
    if retry is not None and retry.until > now:
        kind = _name(retry.error_type, _REASON_LENGTH)
        return f"retry in {format_elapsed(retry.until - now)} (attempt {retry.attempt}, {kind})"
    again = f", attempt {retry.attempt}" if retry is not None else ""
    return f"{what}{format_elapsed(now - since)}{again}"


def _main_argument(call: ToolCall) -> str:
    """The main argument of a call: its first text, else its first argument, else its raw arguments."""
    given = call.input
    shown = call.arguments if call.arguments.strip() not in {"", "{}"} else ""
    if is_mapping(given) and given:
        values = list(given.values())
        first = next((one for one in values if isinstance(one, str) and one), values[0])
        if isinstance(first, str) and first:
            shown = first
        else:
            is_plain = first is None or isinstance(first, (bool, int, float, str))
            shown = json.dumps(first) if is_plain else call.arguments
    return fixed_width(shown, _ARGUMENT_LENGTH)


def _spent(run: RunProgress) -> list[str]:
    """The known tokens and the known cost of a run so far."""
    usage, parts = run.usage, list[str]()
    if usage.total_tokens:
        about, more = "~" if usage.is_estimate else "", "+" if usage.is_lower_bound else ""
        parts.append(f"{about}{usage.total_tokens:,}{more} tokens")
    if usage.cost is not None:
        parts.append(format_dollars(usage.cost))
    return parts


def _guards(run: RunProgress) -> str:
    """The counts of guards, retries and repairs, open breakers and the limit; empty if there are none."""
    parts = [f"{run.counts[what]} {what}" for what in sorted(run.counts)]
    if run.repaired_after:
        stages = ", ".join(fixed_width(stage, _NAME_LENGTH) for stage in run.repaired_after)
        parts.append(f"repaired after stage {stages}")
    parts += [f"breaker of {_name(tool)} {_name(state)}" for tool, state in run.breakers.items()]
    if run.limit is not None:
        parts.append(f"limit: {_name(run.limit, _REASON_LENGTH)}")
    return ", ".join(parts)


def _outcome(run: RunProgress, ending: Ending) -> str:
    reason = _name(ending.stop_reason, _REASON_LENGTH)
    iterations = format_count(run.iteration, "iteration")
    return f"{reason}: {iterations}, {format_count(run.own_calls, 'call')}"


def _budgets(run: RunProgress, now: float) -> Iterator[tuple[str, float, str]]:
    """The limits that are set: the name, the used share, and both numbers of each."""
    limits, usage = run.limits, run.usage
    count = "{:,}/{:,}".format
    budgets: tuple[tuple[str, float, float | None, Callable[[float, float], str]], ...] = (
        ("iterations", run.model_calls, limits.max_iterations, count),
        ("tool calls", run.tool_calls, limits.max_tool_calls, count),
        ("input tokens", usage.input_tokens, limits.max_input_tokens, count),
        ("output tokens", usage.output_tokens, limits.max_output_tokens, count),
        ("tokens", usage.total_tokens, limits.max_total_tokens, count),
        ("cost", usage.cost or 0.0, limits.max_cost, _dollars),
        ("seconds", max(0.0, now - run.since), limits.max_seconds, "{:.0f}/{:g}".format),
    )
    for what, used, limit, shown in budgets:
        if limit is not None:
            share = min(1.0, used / limit) if limit > 0 else 1.0
            yield what, share, shown(used, limit)


def _dollars(used: float, limit: float) -> str:
    return f"{format_dollars(used)}/{format_dollars(limit)}"
