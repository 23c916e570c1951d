"""Draws the runs of a board as lines for a terminal. Needs rich."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from rich.cells import cell_len
from rich.text import Text

from treadle.reports.live.board import Board
from treadle.reports.live.parts import Ending
from treadle.reports.live.state import RunProgress
from treadle.reports.live.words import (
    budgets,
    call_name,
    call_time,
    guards,
    name_of,
    outcome,
    spent,
    under_way,
)
from treadle.reports.text import counted, money, ticking

MOST_CALLS = 5
"""Calls in flight that are shown one by one."""

_BAR_LENGTH = 8
_GAP = "   "
_SOON, _LATE = 0.7, 0.9
"""Shares of a budget from which its bar is yellow, and red."""

_MOST_NAME = 20
"""Columns to which names are padded, so that what follows stands below each other."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs of a view; those of `PLAIN` every terminal has."""

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
    """How much is shown of a run that goes on."""

    FULL = "full"
    NESTED = "the runs within it"
    HEAD = "one line"


class Table:
    """Makes the lines of one picture.

    Args:
        width: columns of the terminal; the last stays free.
        height: lines that there is room for.
        now: the clock's time.
        encoding: what the terminal takes; what it cannot show is escaped.
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
        """Draw all that there is room for: what goes on before what is over, the newest of that."""
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
        """How many of the runs that go on are shown, and their lines, with as much detail as fits."""
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
            told = guards(run)
            if told:
                yield self._line(Text(f"{_margin(depth + 1)}{told}", style="yellow"))
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
        if run.ending is not None:  # of a run within a call that is not over yet
            start.append(f"  {outcome(run, run.ending)}", style="dim")
            return self._line(start, [*spent(run), ticking(run.ending.seconds)])
        start.append(f"  {run.iteration}/{run.limits.max_iterations}  ")
        start.append(under_way(run, self._now, with_calls=detail is not Detail.FULL))
        return self._line(start, [*spent(run), ticking(self._now - run.since)])

    def _calls(self, run: RunProgress, detail: Detail, depth: int) -> Iterator[Text]:
        flights = list(run.flights.items())
        for call_id, flight in flights[:MOST_CALLS]:
            inner = depth + 1 + (flight.within is not None)
            text = Text(f"{_margin(inner)}{call_name(flight)}")
            yield self._line(text, [call_time(flight, self._now)])
            child = run.children.get(call_id)
            if child is not None:
                yield from self._run(child, detail, depth + 2)
        if len(flights) > MOST_CALLS:
            more = counted(len(flights) - MOST_CALLS, "more call")
            yield self._line(Text(f"{_margin(depth + 1)}and {more}", style="dim"))

    def _bars(self, run: RunProgress) -> Iterator[Text]:
        """The budgets, as many on a line as there is room for."""
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
        return self._line(text, [*spent(run), ticking(ending.seconds)])

    def _name(self, run: RunProgress) -> str:
        return name_of(run, with_id=self._names[run.name] > 1)

    def _padded_name(self, run: RunProgress) -> str:
        name = self._name(run)
        return name + " " * (self._name_width - cell_len(name))

    def _total(self, board: Board, active: list[RunProgress], hidden: int) -> Text:
        """All runs in one line, and how many of them are not shown."""
        parts = [f"{board.count:,} runs: {len(active):,} running"]
        parts.append(f"{board.count - len(active):,} finished")
        tokens = board.tokens + sum(run.usage.total_tokens for run in active)
        if tokens:
            parts.append(f"{tokens:,} tokens")
        costs = [run.usage.cost for run in active if run.usage.cost is not None]
        if costs or board.cost is not None:
            parts.append(money(sum(costs) + (board.cost or 0.0)))
        more = f"and {hidden:,} more; " if hidden else ""
        return self._line(Text(f"{more}{', '.join(parts)}", style="dim"))

    def _line(self, left: Text, right: Iterable[str] = ()) -> Text:
        """A line of the width that there is, with what is at its right end, as much as fits."""
        parts = [self._encoded(part) for part in right]
        while len(parts) > 1 and left.cell_len + 2 + cell_len("  ".join(parts)) > self._width:
            del parts[0]
        end = "  ".join(parts)
        taken = cell_len(end) + 2
        if not end or taken > self._width // 2:
            end, taken = "", 0
        left = self._cut(left, self._width - taken)
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
