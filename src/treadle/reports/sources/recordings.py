"""Metrics from recordings, which may grow while they are read."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_ISREG

from treadle.recording.model import Run
from treadle.recording.reader import RecordingError, read_recording
from treadle.reports.dashboards.expressions import ACTIVE
from treadle.reports.dashboards.panel import Question
from treadle.reports.sources.evaluate import Store, evaluate
from treadle.reports.sources.samples import BOUNDS, Sample, labels_of, samples_of, with_children
from treadle.reports.sources.source import Grid, Series, SourceError

SILENCE = 3600.0
"""Seconds without events after which a run that did not end counts as killed."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What is kept of a run. Two recordings of it have the same key. If it ended, it has no last event."""

    key: tuple[object, object]
    samples: tuple[Sample, ...]
    agent: str
    last_event: float | None
    is_subagent: bool


@dataclass(frozen=True, slots=True)
class _File:
    """A file that was read: its version and its runs."""

    version: tuple[int, int]
    parts: tuple[_Part, ...]


class RecordingSource:
    """Reads recordings, and reads them again when they have changed.

    Args:
        paths: files, and folders of which all ``*.jsonl`` files are read, including later ones.

    Raises:
        OSError: a file cannot be read.
        RecordingError: a file is not a recording. Such files in folders are skipped.
    """

    hint = "Choose a longer range, or record runs, as `treadle run --record run.jsonl` does."
    page_timeout: float | None = None

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
        """The number of runs, and the files."""
        runs = self._runs
        where = str(self._paths[0]) if len(self._paths) == 1 else f"{len(self._files)} files"
        unread = f", {len(self._unread)} not readable" if self._unread else ""
        return f"{runs} recorded {'run' if runs == 1 else 'runs'} in {where}{unread}"

    def refresh(self) -> None:
        """Read files that have changed."""
        try:
            with self._lock:
                self._read()
        except (OSError, RecordingError) as error:
            raise SourceError(str(error)) from error

    def span(self) -> tuple[float, float]:
        """The times of the first and the last sample; the end is now if a run is active."""
        now = time.time()
        first, last = self._store.span() or (now, now)
        return first, max(last, now) if self._is_live else last

    def window(self, step: float) -> float:
        """The step itself, because samples are exact."""
        return step

    def ask(self, question: Question, grid: Grid) -> Sequence[Series]:
        """Answer a query; see `treadle.reports.sources.source.Source`."""
        return evaluate(question, grid, self._store, BOUNDS)

    def _read(self) -> None:
        now, files, unread = time.time(), dict[Path, _File](), set[Path]()
        for path, is_named in self._all():
            try:
                files[path] = _read_file(path, self._files.get(path))
            except (OSError, RecordingError):
                if is_named:
                    raise
                unread.add(path)
        if files != self._files or self._is_live:
            parts = _without_duplicates(files.values())
            samples = [sample for one in parts for sample in one.samples]
            open_ends = [(one.last_event, one.agent) for one in parts if one.last_event is not None]
            for at, agent in open_ends:
                if now - at > SILENCE:
                    labels = labels_of({"gen_ai_agent_name": agent})
                    samples.append(Sample(ACTIVE, labels, at, -1))
            self._is_live = any(now - at <= SILENCE for at, _ in open_ends)
            self._store = Store(samples)
            self._runs = sum(not one.is_subagent for one in parts)
        self._files, self._unread = files, unread

    def _all(self) -> Iterator[tuple[Path, bool]]:
        """The files, each with whether it was named explicitly."""
        for path in self._paths:
            if path.is_dir():
                yield from ((one, False) for one in sorted(path.glob("*.jsonl")) if one.is_file())
            else:
                yield path, True


def _without_duplicates(files: Iterable[_File]) -> Collection[_Part]:
    """All runs of all files.

    A subagent's run is recorded twice if both loops have the same recorder, and a file may have been copied. Of
    two recordings of a run, the more complete one stays. It is a subagent if either says so.
    """
    found: dict[object, _Part] = {}
    for one in (part for file in files for part in file.parts):
        other = found.get(one.key, one)
        more = one if len(one.samples) > len(other.samples) else other
        found[one.key] = replace(more, is_subagent=one.is_subagent or other.is_subagent)
    return found.values()


def _read_file(path: Path, known: _File | None) -> _File:
    stat = path.stat()
    if not S_ISREG(stat.st_mode):  # reading a named pipe would block
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    version = (stat.st_mtime_ns, stat.st_size)
    if known is not None and known.version == version:
        return known
    return _File(version, tuple(_parts(path, read_recording(path, log=False).runs)))


def _parts(path: Path, runs: Iterable[Run]) -> Iterator[_Part]:
    """The runs and their subagents. If a run ended, its subagents have ended as well."""
    every = [(run, until, run is not top) for top in runs for run, until in with_children(top)]
    for place, (run, until, is_subagent) in enumerate(every):
        is_over = run.ended_at is not None or until is not None
        last_event = None if is_over else run.last_at or run.started_at
        key = (run.run_id, run.started_at) if run.run_id else (path, place)
        samples = tuple(samples_of(run, until))
        yield _Part(key, samples, run.agent_name, last_event, is_subagent)
