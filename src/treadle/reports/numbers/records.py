"""Numbers from files of recorded runs, which may grow while they are read."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from treadle.reports.dashboards.promql import ACTIVE
from treadle.reports.numbers.evaluate import evaluate
from treadle.reports.numbers.samples import BOUNDS, samples_of, with_children
from treadle.reports.numbers.source import Grid, Series, SourceError
from treadle.reports.numbers.store import Sample, Store, labels_of
from treadle.reports.record.model import Run
from treadle.reports.record.reading import RecordError, read_record

SILENCE = 3600.0
"""Seconds after which a run that tells nothing more is taken for dead: its process was killed."""


_Key: TypeAlias = tuple[str, float | None] | tuple[Path, int]


@dataclass(frozen=True, slots=True)
class _Part:
    """What was measured of a run.

    Args:
        samples: the measurements.
        agent: whose run it is.
        heard: when it was last heard of, in seconds since the epoch; None of one that ended.
        is_within: it is within another run.
    """

    samples: tuple[Sample, ...]
    agent: str
    heard: float | None
    is_within: bool


@dataclass(frozen=True, slots=True)
class _File:
    """What was read of a file: by which one sees that it has changed, and its runs."""

    version: tuple[int, int]
    parts: Mapping[_Key, _Part]


class RecordSource:
    """Reads records of runs, and reads again those that have changed.

    Args:
        paths: files, and folders, of which all ``*.jsonl`` are read, those that come later as well.

    Raises:
        OSError: a file is missing or cannot be read.
        RecordError: a file is no record of runs. Those of a folder are left out.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._lock = threading.Lock()
        self._files: dict[Path, _File] = {}
        self._unread: set[Path] = set()
        self._runs = 0
        self._store = Store(())
        self._is_live = False
        self._read()

    @property
    def title(self) -> str:
        """How many runs of which files."""
        runs = self._runs
        where = str(self._paths[0]) if len(self._paths) == 1 else f"{len(self._files)} files"
        unread = f", {len(self._unread)} not readable" if self._unread else ""
        return f"{runs} recorded {'run' if runs == 1 else 'runs'} in {where}{unread}"

    @property
    def hint(self) -> str:
        """What to do where there is nothing."""
        return "Choose a longer range, or record runs, as `treadle run --record run.jsonl` does."

    def refresh(self) -> None:
        """Read what has changed."""
        try:
            with self._lock:
                self._read()
        except (OSError, RecordError) as error:
            raise SourceError(str(error)) from error

    def span(self) -> tuple[float, float]:
        """From the first measurement to the last; to now, where a run is active."""
        now = time.time()
        first, last = self._store.span() or (now, now)
        return first, max(last, now) if self._is_live else last

    def window(self, step: float) -> float:
        """The step itself: nothing is counted twice, and nothing is missed."""
        return step

    def ask(self, expression: str, grid: Grid) -> Sequence[Series]:
        """Answer a question; see `treadle.reports.numbers.Source`."""
        return evaluate(expression, grid, self._store, BOUNDS)

    def _read(self) -> None:
        now, files, unread = time.time(), dict[Path, _File](), set[Path]()
        for path, is_named in self._all():
            try:
                files[path] = _read_file(path, self._files.get(path))
            except (OSError, RecordError):
                if is_named:
                    raise
                unread.add(path)
        if files != self._files or self._is_live:
            parts = _parts(files.values())
            alive = [one for one in parts if one.heard is not None and now - one.heard <= SILENCE]
            self._store = Store(sample for one in parts for sample in _samples(one, now))
            self._runs = sum(not one.is_within for one in parts)
            self._is_live = bool(alive)
        self._files, self._unread = files, unread

    def _all(self) -> Iterator[tuple[Path, bool]]:
        """The files, each with whether it was named itself."""
        for path in self._paths:
            if path.is_dir():
                yield from ((one, False) for one in sorted(path.glob("*.jsonl")))
            else:
                yield path, True


def _parts(files: Iterable[_File]) -> Collection[_Part]:
    """All runs of all files, each once.

    A run within a run is told twice where both loops have the same recorder, and a file may have been copied.
    """
    found: dict[_Key, _Part] = {}
    for file in files:
        for key, part in file.parts.items():
            found[key] = _fuller(part, found.get(key))
    return found.values()


def _fuller(one: _Part, other: _Part | None) -> _Part:
    """Of two records of one run the one that has more of it; it is within another where either says so."""
    if other is None:
        return one
    more = one if len(one.samples) > len(other.samples) else other
    return replace(more, is_within=one.is_within or other.is_within)


def _samples(part: _Part, now: float) -> Iterator[Sample]:
    yield from part.samples
    if part.heard is not None and now - part.heard > SILENCE:
        yield Sample(ACTIVE, labels_of({"gen_ai_agent_name": part.agent}), part.heard, -1)


def _read_file(path: Path, known: _File | None) -> _File:
    stat = path.stat()
    version = (stat.st_mtime_ns, stat.st_size)
    if known is not None and known.version == version:
        return known
    runs = [one for top in read_record(path).runs for one in _told(top)]
    found: dict[_Key, _Part] = {}
    for place, (run_id, started_at, part) in enumerate(runs):
        key: _Key = (run_id, started_at) if run_id else (path, place)
        found[key] = _fuller(part, found.get(key))
    return _File(version, found)


def _told(top: Run) -> Iterator[tuple[str, float | None, _Part]]:
    """A run and those within it; all of one that ended have ended."""
    for run, until in with_children(top):
        heard = run.last_at or run.started_at if run.ended_at is None and until is None else None
        samples = tuple(samples_of(run, until))
        yield run.run_id, run.started_at, _Part(samples, run.agent_name, heard, run is not top)
