"""`Recorder`: the events of runs, written to a file as they happen, one JSON line each.

The first line of a file, and of each part that was appended to it, says what follows::

    {"treadle_record": 1, "treadle": "0.1.0"}

Each further line is one event::

    {"v": 1, "no": 1, "run": "4f0c...", "seq": 7, "at": 1767225600.25, "event": "tool_finished", ...}

``no`` counts the runs of the part, ``run`` is the run's own id, ``seq`` counts its lines from 1, and ``at`` is in
seconds since the epoch, or null where the event has no time. The other fields are those of the event in
`treadle.types.events`. ``record.schema.json`` beside this module describes every line.

**Runs within a run.** An event of a loop that a call is made of is a line like any other, with ``within``: the ids
of the calls that lead to it, from the outside in. It is not nested into an event around it, since then a reader
would have to unwrap lines before it could filter them, and a run five deep would be wrapped five times.

**Messages.** Each is written once. Lines that have a conversation (the start and the end of an iteration, the
end of the run) give ``messages``, those that are not as they were written before, and ``messages_from``, the
place where they go: a reader cuts the conversation there and puts them behind. A history that grows at its end
is so written in as many messages as it has; one that was compacted is written from where it changed.

What is no JSON (a pydantic output, a NaN) is written as text. The file is ASCII.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TextIO

from treadle import __version__
from treadle.events import Event, RunStarted, SubagentEvent
from treadle.reports.plain_json import one_line
from treadle.reports.record.lines import EVENT_NAMES, OTHER, Lines

VERSION = 1
"""Of the record's form. It changes where a reader of the form before would read something wrong."""


class Recorder:
    """An observer that writes down every event: ``Loop(on_event=Recorder("run.jsonl"))``.

    One recorder takes any number of runs, one after another or at once, in any threads. Each line is with the
    operating system before the run goes on, so that a crash leaves a record that can be read.

    Args:
        to: the path of a file, or an open text stream, which is not closed.
        append: go on at the end of the file, where there is one, as a run that is resumed in another process
            may want to. Otherwise it is written anew.
        text_deltas: write down the pieces of streamed text, too. The answer that they make is written in any case.

    Attributes:
        failure: what went wrong when a line was written, such as a full disk; from there on nothing is written.
            None where all is well.

    Raises:
        OSError: the file cannot be opened or written.
        ValueError: it is to be appended to, and is no record.
    """

    def __init__(
        self,
        to: str | os.PathLike[str] | TextIO,
        *,
        append: bool = False,
        text_deltas: bool = True,
    ) -> None:
        self.failure: Exception | None = None
        self._text_deltas = text_deltas
        self._lock = threading.Lock()
        self._runs = 0
        self._is_torn = False
        self._direct: Callable[[Event], None] | None = None
        self._file: IO[bytes] | None = None
        if isinstance(to, (str, os.PathLike)):
            if append:
                self._is_torn = _ends_within_a_line(Path(to))
            # Unbuffered: a line is one write, and what is written is there whatever becomes of the process.
            self._file = Path(to).open("ab" if append else "wb", buffering=0)  # noqa: SIM115 - see close
            self._put: Callable[[str], Any] = self._put_bytes
        else:
            self._stream = to
            self._put = self._put_text
        try:
            self._write(one_line({"treadle_record": VERSION, "treadle": __version__}))
        except Exception:
            self.close()
            raise

    def for_run(self) -> Callable[[Event], None]:
        """An observer for one run; a loop asks for it before each."""
        with self._lock:
            self._runs += 1
            return _OneRun(self, self._runs, text_deltas=self._text_deltas)

    def __call__(self, event: Event) -> None:
        """Write down an event, of one run after another: for events that come from ``Loop.stream``."""
        if self._direct is None or isinstance(event, RunStarted):
            self._direct = self.for_run()
        self._direct(event)

    def close(self) -> None:
        """Close the file. What is told afterwards is not written; closing again does nothing."""
        with self._lock:
            self._put = _nowhere
            if self._file is not None:
                self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(self, line: str) -> None:
        """Write a line; the first time that fails it raises, and from there on nothing is written."""
        with self._lock:
            if self.failure is not None:
                return
            try:
                self._write(line)
            except Exception as error:
                self.failure = error
                raise

    def _write(self, line: str) -> None:
        # Whoever was interrupted in the midst of a line has left a torn one behind.
        start = "\n" if self._is_torn else ""
        self._is_torn = True
        self._put(f"{start}{line}\n")
        self._is_torn = False

    def _put_bytes(self, text: str) -> None:
        left = memoryview(text.encode("ascii"))
        while left and self._file is not None:
            left = left[self._file.write(left) :]

    def _put_text(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _nowhere(_text: str) -> None:
    """What is told after the end is not written."""


def _ends_within_a_line(path: Path) -> bool:
    """Whether a record that is appended to has a torn last line; raises where it is no record."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(len(_HEAD))
        if not start:
            return False
        if not _HEAD.startswith(start):
            raise ValueError(f"{path} is no record of runs; nothing is appended to it")
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


_HEAD = b'{"treadle_record":'


class _OneRun:
    """Writes down one run, and the runs within it.

    Args:
        recorder: writes its lines.
        number: of the run among those of the recorder.
        text_deltas: write down pieces of text.
    """

    def __init__(self, recorder: Recorder, number: int, *, text_deltas: bool) -> None:
        self._recorder = recorder
        self._number = number
        self._text_deltas = text_deltas
        self._run_id = ""
        self._seq = 0
        self._lines: dict[tuple[str, ...], Lines] = {}

    def __call__(self, event: Event) -> None:
        path: tuple[str, ...] = ()
        while isinstance(event, SubagentEvent):
            path, event = (*path, event.call_id), event.event
        name = EVENT_NAMES.get(type(event), OTHER)
        if name == "text_delta" and not self._text_deltas:
            return
        if not path and isinstance(event, RunStarted):
            self._run_id = event.run_id
        fields = self._lines.setdefault(path, Lines()).fields_of(event)
        at = fields.pop("at", None)
        self._seq += 1
        line: dict[str, Any] = {
            "v": VERSION,
            "no": self._number,
            "run": self._run_id,
            "seq": self._seq,
            "at": at,
        }
        if path:
            line["within"] = path
            if isinstance(event, RunStarted):
                fields["run_id"] = event.run_id
        if name == "run_finished":
            del self._lines[path]
        self._recorder.write(one_line({**line, "event": name, **fields}))
