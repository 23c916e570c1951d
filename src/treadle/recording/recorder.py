"""`Recorder`: writes runs to a file as they happen, as JSON lines: their events, and their log.

The first line of a file, and of each part that was appended to it, is a header::

    {"treadle_recording": 4, "treadle": "0.1.0"}

Each further line is an event, which reports show, or belongs to the log, from which the run can be replayed::

    {"v": 4, "part": "9b1f...", "run": "4f0c...", "seq": 7, "at": 1767225600.25, "event": "tool_finished", ...}
    {"v": 4, "part": "9b1f...", "run": "4f0c...", "seq": 1, "start": {...}}
    {"v": 4, "part": "9b1f...", "seq": 6, "path": [], "number": 9, "effect": "call", "label": "execute_tool", ...}

``part`` is the same on all lines that one recorder writes of one run, and on no other line, so any number of
processes can append to one file. ``run`` is the id of the run, ``seq`` counts the lines of the part from 1, and
``at`` is in seconds since the epoch, or null for an event without a time. The other fields of an event are those
in `treadle.events`. ``start`` is what the run starts from; each line of the log has what became of one effect, see
`treadle.recording.log`. ``recording.schema.json`` in this package describes every line, and docs/guide-report.md
how lines of subagents and messages are written.

Events of subagents are not nested into the event of the call, so readers can filter lines without unwrapping them,
and a run five levels deep is not wrapped five times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self, TextIO, TypeVar

from treadle.codec import NotDataError, to_json_line
from treadle.effects import Steps
from treadle.events import Event, RunStarted, SubagentEvent
from treadle.files import create_file, open_special, open_to_append, write_all
from treadle.forks import renew_after_fork
from treadle.loop.loop import Loop
from treadle.loop.run import Run
from treadle.messages import JSONDict
from treadle.recording.lines import DELTAS, EVENT_NAMES, OTHER, Fields, Lines
from treadle.recording.log import REPORTED, STARTED, Entry
from treadle.recording.middleware import LogMiddleware
from treadle.recording.run_start import start_of
from treadle.redaction import without_credentials
from treadle.version import __version__

R = TypeVar("R")
VERSION = 4
"""The version of the format. It changes when an older reader would misread the file."""
HEAD = b'{"treadle_recording":'
"""The start of every recording."""


log = logging.getLogger("treadle.recording")


class Recorder:
    """An observer that writes runs to a file: ``Loop(on_event=Recorder("run.jsonl"))``.

    One recorder takes any number of runs, one after another or concurrently, in any threads and in processes that
    were forked. Each line is written to the operating system before the run continues, so a crash leaves a
    readable recording. A new file can be read and written by its owner only.

    Args:
        to: the path of a file, or an open text stream. A stream is not closed.
        append: append to the file if it exists, as for a run that is resumed in another process. Several processes
            may append to one file at the same time. Otherwise a new file replaces it.
        deltas: write the pieces of streamed responses as well. The complete response is always written.
        replayable: write the log of each run as well, so that `treadle.testing.replay` can replay it. A run with a
            journal has its log there, and events that are handed on by a call of the recorder have none.

    Attributes:
        failure: the error that stopped the recording, such as a full disk; None while all lines were written.

    Raises:
        OSError: the file cannot be opened or written.
        ValueError: the file exists and is not a recording.
    """

    discards_on_retry = True
    """It shows nothing; a report takes the text of the whole response."""

    def __init__(
        self,
        to: str | os.PathLike[str] | TextIO,
        *,
        append: bool = False,
        deltas: bool = True,
        replayable: bool = True,
    ) -> None:
        self.failure: Exception | None = None
        self._deltas = deltas
        self._replayable = replayable
        self._lock = threading.Lock()
        self._is_torn = False
        self._direct: Callable[[Event], None] | None = None
        self._file: IO[bytes] | None = None
        header = to_json_line({"treadle_recording": VERSION, "treadle": __version__})
        if isinstance(to, (str, os.PathLike)):
            self._file = _open_recording(Path(to), f"{header}\n".encode("ascii"), append=append)
            self._put: Callable[[str], Any] = self._put_bytes
        else:
            self._stream = to
            self._put = self._put_text
            self._write(header)
        renew_after_fork(self, Recorder._renew)

    def for_run(self) -> Callable[[Event], None]:
        """An observer for one run. A loop calls this before each run."""
        kind = _ReplayableRun if self._replayable else _OneRun
        return kind(self, deltas=self._deltas)

    def __call__(self, event: Event) -> None:
        """Write an event of one run after another, such as the events of ``Loop.stream``."""
        if self._direct is None or isinstance(event, RunStarted):
            self._direct = self.for_run()
        self._direct(event)

    def close(self) -> None:
        """Close the file. Later events are not written. Calling this again does nothing."""
        with self._lock:
            self._put = lambda _: None
            if self._file is not None:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, line: str) -> None:
        """Write a line. The first failure is raised; after it nothing more is written."""
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._write(line)
            except Exception as error:
                self.failure = error
                raise

    def _renew(self) -> None:
        """Continue in a child process: the thread that held the lock, and was writing a line, is not in it."""
        self._lock = threading.Lock()
        self._is_torn = False

    def _write(self, line: str) -> None:
        # If a write was interrupted within a line, the next line starts on a new one.
        start = "\n" if self._is_torn else ""
        self._is_torn = True
        self._put(f"{start}{line}\n")
        self._is_torn = False

    def _put_bytes(self, text: str) -> None:
        if self._file is not None:
            write_all(self._file, text.encode("ascii"))

    def _put_text(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _open_recording(path: Path, header: bytes, *, append: bool) -> IO[bytes]:
    """Open a file for the lines of a recording, and write its header."""
    special = open_special(path)
    if special is None and not append:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as earlier:
            _check_is_recording(path, earlier)
        return create_file(path, header)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(special or open_to_append(path))
        if special is None:
            _check_is_recording(path, file)
            header = b"\n" + header if _ends_within_a_line(file) else header
        write_all(file, header)
        stack.pop_all()
        return file


def _check_is_recording(path: Path, file: IO[bytes]) -> None:
    """Check whether lines may be written to a file: it is a recording, or empty."""
    if not HEAD.startswith(file.read(len(HEAD))):
        raise ValueError(f"{path} is not a recording; nothing was written to it")


def _ends_within_a_line(file: IO[bytes]) -> bool:
    """Whether the last line of a file is torn, as by a crash."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def recorded_start(start: JSONDict) -> JSONDict:
    """What a run starts from, without the credentials in the options of its requests."""
    made = start | {"model": without_credentials(start.get("model", {}))}
    if "paused" in start:
        context = start["paused"]["context"]
        changes = without_credentials(context["request_changes"])
        made["paused"] = start["paused"] | {"context": context | {"request_changes": changes}}
    return made


class _OneRun:
    """Writes the events of one run, and of the runs of its subagents."""

    def __init__(self, recorder: Recorder, *, deltas: bool) -> None:
        self._recorder = recorder
        self._part = os.urandom(8).hex()
        self._deltas = deltas
        self._run_ids: dict[tuple[str, ...], str] = {}
        self._seq = 0
        self._lines: dict[tuple[str, ...], Lines] = {}
        self._waiting: list[str] = []
        self._lock = threading.Lock()
        renew_after_fork(self, _OneRun._renew)

    def _renew(self) -> None:
        """Continue in a child process, where the lines of the run form a separate part."""
        self._part, self._waiting = os.urandom(8).hex(), []
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        path: tuple[str, ...] = ()
        if isinstance(event, SubagentEvent):
            path, event = event.path, event.innermost
        name = EVENT_NAMES.get(type(event), OTHER)
        if name in DELTAS and not self._deltas:
            return
        if isinstance(event, RunStarted):
            self._run_ids[path] = event.run_id
        fields = self._lines.setdefault(path, Lines()).fields_of(event)
        line: Fields = {"at": fields.pop("at", None)}
        if path:
            line |= {"within": path, "run_id": self._run_ids.get(path, "")}
        if name == "run_finished":
            del self._lines[path]
        self._write({**line, "event": name, **fields}, self._run_ids.get((), ""))

    def _write(self, fields: Fields, run_id: str | None = None, *, later: bool = False) -> None:
        """Write a line; several threads may do so at once.

        Args:
            fields: its fields.
            run_id: the id of the run; None leaves it out.
            later: write it together with the next one.
        """
        head: Fields = {"v": VERSION, "part": self._part}
        if run_id is not None:
            head["run"] = run_id
        with self._lock:
            self._seq += 1
            self._waiting.append(to_json_line({**head, "seq": self._seq, **fields}))
            if not later:
                lines, self._waiting = self._waiting, []
                self._recorder.write("\n".join(lines))


class _ReplayableRun(_OneRun):
    """Writes the log of one run as well."""

    def __init__(self, recorder: Recorder, *, deltas: bool) -> None:
        super().__init__(recorder, deltas=deltas)
        self._start: JSONDict | None = None
        self._has_log = True

    def _renew(self) -> None:
        super()._renew()
        self._has_log = False  # its start is in the part of the parent process

    def middleware_of(self, loop: Loop[Any], run: Run) -> Callable[[Steps[R]], Steps[R]]:
        """Middleware that writes the log; a loop puts it directly around the steps of the run.

        Args:
            loop: the loop of the run.
            run: the run.
        """
        self._start = start_of(loop, run)
        return LogMiddleware(self._write_entry, reports=self._deltas)

    def _write_entry(self, entry: Entry) -> None:
        if not self._has_log:
            return
        try:
            start, self._start = self._start, None
            if start is not None:
                self._write({"start": recorded_start(start)}, start["run_id"])
                self._has_log = "problem" not in start
            is_emitted = entry.kind == "emit" and entry.error is None
            # The run itself emits its events in the order in which it asks; branches may not.
            if self._has_log and (entry.path or not is_emitted):
                is_minor = is_emitted or entry.kind in {"now", REPORTED, STARTED}
                self._write(self._fields_of(entry), later=is_minor)
        except Exception:
            self._has_log = False
            log.exception("the log of a run could not be recorded")

    def _fields_of(self, entry: Entry) -> Fields:
        try:
            return entry.as_json()
        except NotDataError as error:
            self._has_log = False
            place = dataclasses.replace(entry, outcome=None, error=None)
            return {**place.as_json(), "problem": str(error)}
