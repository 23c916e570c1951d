"""`read_recording`: reads a recording as data.

A recording may be of a run that crashed or that is still running. Such a run has the status ``did not end``.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from treadle.errors import TreadleError
from treadle.messages import JSONDict, is_dict, is_list
from treadle.recording.builder import RunBuilder
from treadle.recording.model import Recording, Run, Segment
from treadle.recording.recorder import HEAD, VERSION
from treadle.tools.validation import SchemaValidator

MAX_WITHIN = 50
"""How deeply subagents are read. Events of deeper ones are reported as a problem and left out."""


MAX_PROBLEMS = 20
"""How many lines that cannot be read are reported one by one, and how many incomplete runs."""
MAX_TRIED = 4
"""How many starts of a line are tried within a torn one. Nearly always there is one."""
_OF_LOGS = ("effect", "start")
"""The keys by which lines of a log are known; each has a part of the schema of this name."""
_LINE_START = re.compile(rb'\{"(?:v":\d+,"part":"|treadle_recording":)')
_TORN = "the line is torn, as by a crash"


class RecordingError(TreadleError, ValueError):
    """A file is not a recording, or cannot be read. The message names the file and the line."""


def read_recording(path: str | os.PathLike[str], *, log: bool = True) -> Recording:
    """Read a recording.

    Args:
        path: the file.
        log: read the logs of the runs as well, which only a replay needs.

    Returns:
        Its runs, and the problems: lines that cannot be read, such as one that a crash tore, were skipped.

    Raises:
        RecordingError: the file is not a recording, or has another version.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as lines:
        return read_lines(lines, os.fspath(path), log=log)


def read_lines(lines: Iterable[bytes], name: str, *, log: bool = True) -> Recording:
    """Read the lines of a recording, each with its line end; ``name`` is the file in errors."""
    reader = _Reader(name, log=log)
    for number, line in enumerate(lines, 1):
        reader.add(number, line)
    return reader.end()


class _Reader:
    def __init__(self, name: str, *, log: bool) -> None:
        self._name = name
        self._reads_log = log
        self._recording = Recording()
        self._builders: dict[str, RunBuilder] = {}
        self._segments: dict[str, Segment] = {}
        self._last_seq: dict[str, int] = {}
        self._incomplete: dict[str, str] = {}
        self._paused: dict[str, RunBuilder] = {}
        self._all: list[RunBuilder] = []
        self._has_header = False
        self._skipped = 0
        self._unknown: set[str] = set()

    def add(self, number: int, text: bytes) -> None:
        """Add a line. One that cannot be read is reported as a problem; the others do not depend on it."""
        try:
            line = _parsed(text)
        except ValueError as error:
            rest = _line_in(text)
            is_torn = rest is not None or not text.endswith(b"\n")
            if not self._has_header and rest is None and not _is_torn_header(text):
                self._fail(number, f"this is not a recording: {error}")
            self._skip(number, f"{_TORN if is_torn else error}; it was skipped")
            if rest is None:
                return
            line = rest
        if "treadle_recording" in line or not self._has_header:
            self._header(number, line)
            return
        try:
            self._line(line)
        except ValueError as error:
            self._skip(number, f"{error}; it was skipped")

    def end(self) -> Recording:
        if not self._has_header:
            self._fail(1, "this is not a recording: it is empty")
        for builder in self._all:
            builder.settle()
            self._recording.runs.append(builder.run)
        problems = [f"lines of the run {one:.80} are missing" for one in self._incomplete.values()]
        unknown = "skipped events of a kind that this treadle does not know"
        problems[MAX_PROBLEMS:] += [f"{unknown}: {name}" for name in sorted(self._unknown)]
        if self._skipped > MAX_PROBLEMS:
            problems.insert(0, f"{self._skipped - MAX_PROBLEMS} more lines were skipped")
        self._recording.problems += [f"{self._name}: {problem}" for problem in problems]
        return self._recording

    def _header(self, number: int, line: JSONDict) -> None:
        """Read the header of the file, or of a part that was appended to it."""
        if "treadle_recording" not in line:
            self._fail(number, "this is not a recording: the first line is not a header")
        try:
            _check_version("recording", line["treadle_recording"])
        except ValueError as error:
            if not self._has_header:
                self._fail(number, str(error))
            self._skip(number, f"{error}; its lines were skipped")
        self._has_header = True

    def _line(self, line: JSONDict) -> None:
        """Read an event, or a line of the log. The message of a `ValueError` says why it cannot be read."""
        kind = next((one for one in ("event", *_OF_LOGS) if one in line), None)
        if kind is None:
            raise ValueError(
                "the line is not an event and not of a log: it has no 'event', 'effect' or 'start'"
            )
        _check_version("line", line.get("v"))
        self._count(line)
        if kind == "event":
            self._event(line)
        else:
            self._log(kind, line)

    def _log(self, kind: str, line: JSONDict) -> None:
        """Read a line of a log; one that cannot be read ends the log, and the events do not depend on it."""
        key = line.get("part")
        part = self._segments.get(key) if isinstance(key, str) else None
        if kind == "effect" and not self._reads_log:
            if part is not None:
                part.problem = "its log was not read"
            return
        try:
            _check_line(kind, line)
        except ValueError as error:
            if part is not None:
                part.problem = part.problem or f"a line of its log cannot be read: {error}"
            raise
        if kind == "start":
            self._segments[line["part"]] = Segment(
                line["start"], problem=line["start"].get("problem", "")
            )
        elif part is not None and not part.problem:
            part.log.append(line)
            part.problem = line.get("problem", "")

    def _event(self, line: JSONDict) -> None:
        name = line["event"]
        if not isinstance(name, str):
            raise ValueError("the line is not an event: 'event' is not a text")  # noqa: TRY004 - data
        if name in _OF_LOGS or name not in _checks():
            self._unknown.add(name[:40])
            return
        _check_line(name, line)
        if len(line.get("within", ())) > MAX_WITHIN:
            self._unknown.add(f"{name}, of subagents nested deeper than {MAX_WITHIN}")
            return
        self._builder_of(name, line).add(name, line)

    def _count(self, line: JSONDict) -> None:
        """Detect missing lines: those of a part are numbered."""
        part, seq = line.get("part"), line.get("seq")
        if isinstance(part, str) and isinstance(seq, int):
            if seq > self._last_seq.get(part, 0) + 1:
                lost = self._segments.get(part)
                run_id = line.get("run") if lost is None else lost.start["run_id"]
                self._incomplete[part] = str(run_id)
                if lost is not None:
                    lost.problem = lost.problem or "lines of its log are missing"
            self._last_seq[part] = seq

    def _builder_of(self, name: str, line: JSONDict) -> RunBuilder:
        """The builder of a line's run: of its part of the file, which one recorder wrote.

        A run that was resumed continues the paused one.
        """
        run_id, part = line["run"], line["part"]
        builder = self._builders.get(part)
        is_own = not line.get("within")
        is_start = is_own and name == "run_started"
        if builder is None or is_start:
            builder = self._paused.pop(run_id, None) if is_start and line["resumed"] else None
            if builder is None:
                builder = RunBuilder(Run(run_id))
                self._all.append(builder)
            self._builders[part] = builder
            if part in self._segments:
                builder.run.segments.append(self._segments[part])
        if is_own and name == "run_finished" and line["status"] == "paused":
            self._paused[run_id] = builder
        return builder

    def _skip(self, number: int, what: str) -> None:
        self._skipped += 1
        if self._skipped <= MAX_PROBLEMS:
            self._recording.problems.append(f"{self._name}:{number}: {what}")

    def _fail(self, number: int, what: str) -> NoReturn:
        raise RecordingError(f"{self._name}:{number}: {what}")


def _check_line(name: str, line: JSONDict) -> None:
    """Check a line against the schema of its kind; the message of a `ValueError` names the problems."""
    problems = [one.removeprefix("arguments: ") for one in _checks()[name].problems_of(line)]
    if problems:
        raise ValueError(f"{name}: {'; '.join(problems[:3])}")


def _check_version(what: str, version: Any) -> None:
    if version != VERSION:
        ours = f"this treadle reads version {VERSION}"
        raise ValueError(f"the {what} has version {version!r:.40}; {ours}")


def _line_in(text: bytes) -> JSONDict | None:
    """The line that was appended to a torn one, if there is one."""
    starts = [found.start() for found in _LINE_START.finditer(text, 1)]
    for start in starts[-MAX_TRIED:]:
        with contextlib.suppress(ValueError):
            return _parsed(text[start:])
    return None


def _is_torn_header(text: bytes) -> bool:
    start = text[: len(HEAD)].rstrip()
    return start != b"" and HEAD.startswith(start)


def _parsed(line: bytes) -> JSONDict:
    """A line as an object. The message of a `ValueError` says why it is none."""
    try:
        parsed: Any = json.loads(line, parse_constant=_reject_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error!s:.200})") from None
    if not is_dict(parsed):
        raise ValueError("it is not a JSON object")
    return parsed


def _reject_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


@functools.cache
def recording_schema() -> JSONDict:
    """The JSON Schema of a line of a recording. The caller must not change it."""
    file = files("treadle.recording") / "recording.schema.json"
    schema: JSONDict = json.loads(file.read_text(encoding="utf-8"))
    return schema


@functools.cache
def _checks() -> Mapping[str, SchemaValidator]:
    """The checks of a line, by the name of its event, or its kind if it belongs to a log."""
    parts = recording_schema()["$defs"]
    line = parts["line"]
    checks: dict[str, SchemaValidator] = {}
    for name, part in parts.items():
        if "allOf" in part:  # an event: all properties of a line as well
            properties = {**line["properties"], **part["properties"]}
            required = [*{*line["required"], *part["required"]}]
            whole = {"type": "object", "properties": properties, "required": required}
            schema = _inlined(whole, parts)
            checks[name] = SchemaValidator(schema, name)
        elif name in _OF_LOGS:
            checks[name] = SchemaValidator(part, name)
    return checks


def _inlined(schema: Any, parts: Mapping[str, Any]) -> Any:
    """The schema with its references resolved, because the quick check does not support them."""
    if is_dict(schema):
        target = schema.get("$ref")
        if isinstance(target, str):
            return _inlined(parts[target.rpartition("/")[2]], parts)
        return {key: _inlined(value, parts) for key, value in schema.items()}
    if is_list(schema):
        return [_inlined(value, parts) for value in schema]
    return schema
