"""Renders the runs of a board as lines for a terminal. Needs rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from rich.cells import cell_len
from rich.text import Text

from treadle.reports.live.board import Board
from treadle.reports.live.formatting import (
    budgets,
    call_name,
    call_time,
    guards,
    name_of,
    outcome,
    spent,
    under_way,
)
from treadle.reports.live.progress import Ending, RunProgress
from treadle.reports.text import format_count, format_dollars, format_elapsed

MOST_CALLS = 5
"""Maximum number of running calls that are shown one by one."""

_BAR_LENGTH = 8
_GAP = "   "
_SOON, _LATE = 0.7, 0.9
"""Shares of a budget from which its bar is yellow or red."""

_MOST_NAME = 20
"""Maximum number of columns to which names are padded for alignment."""


@dataclass(frozen=True, slots=True)
class Glyphs:
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
    """Renders the lines of the view once.

    Args:
        width: the columns of the terminal; the last column stays free.
        height: the maximum number of lines.
        now: the clock's time.
        encoding: the encoding of the terminal. Characters that it lacks are escaped.
    """

    def __init__(self, width: int, height: int, now: float, encoding: str = "utf-8") -> None:
        self._width = max(1, width - 1)
        self._height = max(1, height)
        self._now = now
        self._encoding = encoding
        self._glyphs = Glyphs() if encoding.startswith("utf") else PLAIN
        self._name_width = 0
        self._has_many = False
        self._names: Counter[str] = Counter()

    def lines(self, board: Board) -> list[Text]:
        """The lines that fit: active runs first, then the most recent finished runs."""
        active, finished = list(board.active.values()), board.finished
        self._has_many = board.count > 1
        room = self._height - self._has_many if self._height > 1 else 1
        newest = list(islice(reversed(finished), room))[::-1]
        named = [*active[:room], *newest]
        self._names = Counter(run.name for run in named)
        names = map(self._name, named)
        self._name_width = min(max(map(cell_len, names), default=0), _MOST_NAME)
        shown, running = self._running(active, room)
        ended = newest[-(room - len(running)) :] if room > len(running) else []
        over = [self._ended(run, run.ending) for run in ended if run.ending is not None]
        lines = [*over, *running]
        if self._has_many and self._height > 1:
            hidden = board.count - len(ended) - shown
            lines.append(self._total(board, active, hidden))
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
            shown = guards(run)
            if shown:
                yield self._line(Text(f"{_margin(depth + 1)}{shown}", style="yellow"))
        elif detail is Detail.NESTED:
            for child in run.children.values():
                yield from self._run(child, detail, depth + 1)

    def _head(self, run: RunProgress, detail: Detail, depth: int) -> Text:
        glyphs = self._glyphs
        if depth:
            start = Text(_margin(depth)).append(f"{glyphs.branch} ", style="dim")
            start.append(name_of(run, with_id=False), style="cyan")
        else:
            start = Text().append(f"{glyphs.running} ", style="cyan")
            start.append(self._padded_name(run), style="bold")
        if run.ending is not None:  # a subagent that ended before its call
            start.append(f"  {outcome(run, run.ending)}", style="dim")
            return self._line(start, [*spent(run), format_elapsed(run.ending.seconds)])
        start.append(f"  {run.iteration}/{run.limits.max_iterations}  ")
        start.append(under_way(run, self._now, with_calls=detail is not Detail.FULL))
        return self._line(start, [*spent(run), format_elapsed(self._now - run.since)])

    def _calls(self, run: RunProgress, detail: Detail, depth: int) -> Iterator[Text]:
        calls = list(run.running_calls.items())
        for call_id, running in calls[:MOST_CALLS]:
            inner = depth + 1 + (running.within is not None)
            text = Text(f"{_margin(inner)}{call_name(running)}")
            yield self._line(text, [call_time(running, self._now)])
            child = run.children.get(call_id)
            if child is not None:
                yield from self._run(child, detail, depth + 2)
        if len(calls) > MOST_CALLS:
            more = format_count(len(calls) - MOST_CALLS, "more call")
            yield self._line(Text(f"{_margin(depth + 1)}and {more}", style="dim"))

    def _bars(self, run: RunProgress) -> Iterator[Text]:
        """The bars of the limits, as many per line as fit."""
        line = Text()
        for what, share, numbers in budgets(run, self._now):
            bar = self._bar(what, share, numbers)
            if line and line.cell_len + len(_GAP) + bar.cell_len > self._width:
                yield self._line(line)
                line = Text()
            line.append(_GAP if line else _margin(1)).append_text(bar)
        yield self._line(line)

    def _bar(self, what: str, share: float, numbers: str) -> Text:
        full = min(_BAR_LENGTH, int(share * _BAR_LENGTH + 0.5))
        style = "green" if share < _SOON else "yellow" if share < _LATE else "red"
        bar = Text().append(f"{what} ", style="dim")
        bar.append(self._glyphs.full * full, style=style)
        bar.append(self._glyphs.empty * (_BAR_LENGTH - full), style="dim")
        return bar.append(f" {numbers}")

    def _ended(self, run: RunProgress, ending: Ending) -> Text:
        glyphs = self._glyphs
        sign, style = glyphs.good, "green"
        if ending.stop_reason in _HALTED:
            sign, style = glyphs.halted, "yellow"
        elif ending.is_error:
            sign, style = glyphs.bad, "red"
        text = Text().append(f"{sign} ", style=style).append(self._padded_name(run), style="bold")
        text.append(f"  {outcome(run, ending)}")
        return self._line(text, [*spent(run), format_elapsed(ending.seconds)])

    def _name(self, run: RunProgress) -> str:
        return name_of(run, with_id=self._names[run.name] > 1)

    def _padded_name(self, run: RunProgress) -> str:
        name = self._name(run)
        return name + " " * (self._name_width - cell_len(name))

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
        plain = text.plain
        encoded = self._encoded(plain)
        if encoded != plain:
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


def _margin(depth: int) -> str:
    return "    " * depth


_HALTED = frozenset({"paused", "cancelled"})
