"""`read_recording`: reads a recording as data.

A recording may be of a run that crashed or that is still running. Such a run has the status ``did not end``.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NoReturn

from treadle.errors import TreadleError
from treadle.messages import JSONDict, is_dict, is_list
from treadle.reports.recording.builder import RunBuilder
from treadle.reports.recording.model import Recording, Run
from treadle.reports.recording.recorder import VERSION
from treadle.tools import Check, compile_check
from treadle.tools.validation import SchemaValidator

MAX_WITHIN = 50
"""How deeply subagents are read. Events of deeper ones are reported as a problem and left out."""


class RecordingError(TreadleError, ValueError):
    """A file is not a recording, or cannot be read. The message names the file and the line."""


def read_recording(path: str | os.PathLike[str]) -> Recording:
    """Read a recording.

    Args:
        path: the file.

    Returns:
        Its runs, and the defects that were skipped, such as a last line that a crash tore.

    Raises:
        RecordingError: the file is not a recording, has another version, or has a broken line.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as lines:
        return read_lines(lines, os.fspath(path))


def read_lines(lines: Iterable[bytes], name: str) -> Recording:
    """Read the lines of a recording, each with its line end; ``name`` is the file in errors."""
    reader = _Reader(name)
    for number, line in enumerate(lines, 1):
        reader.add(number, line)
    return reader.end()


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._recording = Recording()
        self._builders: dict[tuple[int, str], RunBuilder] = {}
        self._paused: dict[str, RunBuilder] = {}
        self._all: list[RunBuilder] = []
        self._torn: tuple[int, str] | None = None
        self._has_header = False
        self._unknown: set[str] = set()

    def add(self, number: int, text: bytes) -> None:
        """Add a line. A line that cannot be parsed may be the torn last line of a part."""
        try:
            line = _parsed(text)
        except ValueError as error:
            if not self._has_header:
                self._fail(number, f"this is not a recording: {error}")
            if self._torn is not None:
                self._fail(*self._torn)
            self._torn = number, str(error)
            return
        if self._torn is not None and "treadle_recording" not in line:
            self._fail(*self._torn)
        if "treadle_recording" in line or not self._has_header:
            self._header(number, line)
        else:
            self._event(number, line)

    def end(self) -> Recording:
        if not self._has_header:
            self._fail(1, "this is not a recording: it is empty")
        self._skip_torn_line()
        for builder in self._all:
            builder.settle()
            self._recording.runs.append(builder.run)
        for name in sorted(self._unknown):
            problem = "skipped events of a kind that this treadle does not know"
            self._recording.problems.append(f"{self._name}: {problem}: {name}")
        return self._recording

    def _header(self, number: int, line: JSONDict) -> None:
        """Read the header of the file, or of a part that was appended to it."""
        if "treadle_recording" not in line:
            self._fail(number, "this is not a recording: the first line is not a header")
        self._check_version(number, "recording", line["treadle_recording"])
        self._skip_torn_line()
        self._has_header = True

    def _check_version(self, number: int, what: str, version: Any) -> None:
        if version != VERSION:
            ours = f"this treadle reads version {VERSION}"
            self._fail(number, f"the {what} has version {version!r:.40}; {ours}")

    def _event(self, number: int, line: JSONDict) -> None:
        name, checks = line.get("event"), _checks()
        if not isinstance(name, str):
            self._fail(number, "this line is not an event: it has no 'event'")
        self._check_version(number, "line", line.get("v"))
        if name not in checks:
            self._unknown.add(name[:40])
            return
        quick, validator = checks[name]
        if quick is None or not quick(line):
            problems = [one.removeprefix("arguments: ") for one in validator.problems_of(line)]
            if problems:
                self._fail(number, f"{name}: {'; '.join(problems[:3])}")
        if len(line.get("within", ())) > MAX_WITHIN:
            self._unknown.add(f"{name}, of subagents nested deeper than {MAX_WITHIN}")
            return
        self._builder_of(name, line).add(name, line)

    def _builder_of(self, name: str, line: JSONDict) -> RunBuilder:
        """The builder of a line's run.

        Number and id identify a run: several processes may append to one file, and each counts from 1.
        A run that was resumed continues the paused one.
        """
        run_id, key = line["run"], (line["no"], line["run"])
        builder = self._builders.get(key)
        is_own = not line.get("within")
        is_start = is_own and name == "run_started"
        if builder is None or is_start:
            builder = self._paused.pop(run_id, None) if is_start and line["resumed"] else None
            if builder is None:
                builder = RunBuilder(Run(run_id))
                self._all.append(builder)
            self._builders[key] = builder
        if is_own and name == "run_finished" and line["status"] == "paused":
            self._paused[run_id] = builder
        return builder

    def _skip_torn_line(self) -> None:
        if self._torn is not None:
            problem = "the line is torn, as by a crash; it was skipped"
            self._recording.problems.append(f"{self._name}:{self._torn[0]}: {problem}")
            self._torn = None

    def _fail(self, number: int, what: str) -> NoReturn:
        raise RecordingError(f"{self._name}:{number}: {what}")


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
    file = files("treadle.reports.recording") / "recording.schema.json"
    schema: JSONDict = json.loads(file.read_text(encoding="utf-8"))
    return schema


@functools.cache
def _checks() -> Mapping[str, tuple[Check | None, SchemaValidator]]:
    """The checks of a line, by the name of its event."""
    parts = recording_schema()["$defs"]
    line = parts["line"]
    checks: dict[str, tuple[Check | None, SchemaValidator]] = {}
    for name, part in parts.items():
        if "allOf" in part:  # an event: all properties of a line as well
            properties = {**line["properties"], **part["properties"]}
            required = [*{*line["required"], *part["required"]}]
            whole = {"type": "object", "properties": properties, "required": required}
            schema = _inlined(whole, parts)
            checks[name] = compile_check(schema), SchemaValidator(schema, name)
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
