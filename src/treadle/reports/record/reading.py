"""`read_record`: a file of recorded runs, as data.

``read_record("run.jsonl")`` returns a `treadle.reports.record.Record`: its ``runs``, in the order in which
they began, and its ``problems``, what could be read around. A `Run` has ``status``, ``stop_reason``, ``reason``,
``started_at``, ``ended_at``, ``duration``, ``usage``, ``total_iterations``, ``iterations``, ``calls``, ``guards``,
``messages`` and ``children``; an `Iteration` has ``calls``, ``model_seconds``, ``usage``, ``retries``; a `Call`
has ``name``, ``status``, ``is_error``, ``duration`` and ``runs``, the runs that it was made of. Times are in
seconds since the epoch.

A record may be of a run that crashed, or that goes on: such a run has the status ``did not end``.
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
from treadle.reports.record.model import Record, Run
from treadle.reports.record.recorder import VERSION
from treadle.reports.record.story import Story
from treadle.tools import Check, compile_check
from treadle.tools.validation import SchemaValidator

MAX_WITHIN = 50
"""How deep runs within runs are read; those that are deeper are told, and left out."""


class RecordError(TreadleError, ValueError):
    """A file is no record of runs, or one that cannot be read; the message names the file and the line."""


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a file of recorded runs.

    Args:
        path: the file.

    Returns:
        Its runs, and what could be read around. A last line that is torn, as a crash may leave it, is.

    Raises:
        RecordError: it is no record, is of another version, or a line of it is broken.
        OSError: it cannot be read.
    """
    with Path(path).open("rb") as lines:
        return read_lines(lines, os.fspath(path))


def read_lines(lines: Iterable[bytes], name: str) -> Record:
    """As `read_record`, of the lines of a record.

    Args:
        lines: each with its line end; one without is torn, where it cannot be read.
        name: what to call the file in errors.
    """
    reader = _Reader(name)
    for number, line in enumerate(lines, 1):
        reader.take(number, line)
    return reader.end()


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._record = Record()
        self._stories: dict[int, Story] = {}
        self._torn: tuple[int, str] | None = None
        self._is_begun = False
        self._unknown: set[str] = set()
        self._paused: dict[str, Story] = {}
        self._all: list[Story] = []

    def take(self, number: int, line: bytes) -> None:
        """Take a line; one that cannot be read may be the last of a part."""
        try:
            told = _parsed(line)
        except ValueError as error:
            if not self._is_begun:
                self._fail(number, f"this is no record of runs: {error}")
            if self._torn is not None:
                self._fail(*self._torn)
            self._torn = number, str(error)
            return
        if self._torn is not None and "treadle_record" not in told:
            self._fail(*self._torn)
        if "treadle_record" in told or not self._is_begun:
            self._begin(number, told)
        else:
            self._go_on(number, told)

    def end(self) -> Record:
        if not self._is_begun:
            self._fail(1, "this is no record of runs: it is empty")
        self._read_around()
        for story in self._all:
            story.settle()
        for name in sorted(self._unknown):
            self._record.problems.append(
                f"{self._name}: events of a kind that this treadle does not know: {name}"
            )
        return self._record

    def _begin(self, number: int, told: JSONDict) -> None:
        """Begin a part: the file, or what was appended to it."""
        if "treadle_record" not in told:
            self._fail(number, "this is no record of runs: the first line does not say that it is")
        version = told["treadle_record"]
        if version != VERSION:
            self._fail(
                number, f"the record is of version {version!r:.40}; this treadle reads {VERSION}"
            )
        self._read_around()
        self._is_begun = True
        self._stories = {}

    def _go_on(self, number: int, told: JSONDict) -> None:
        name = told.get("event")
        checks = _checks()
        if not isinstance(name, str):
            self._fail(number, "this line is no event: it has no 'event'")
        if told.get("v") != VERSION:
            version = told.get("v")
            self._fail(
                number, f"the line is of version {version!r:.40}; this treadle reads {VERSION}"
            )
        if name not in checks:
            self._unknown.add(name[:40])
            return
        quick, validator = checks[name]
        if quick is None or not quick(told):
            problems = [one.removeprefix("arguments: ") for one in validator.problems_of(told)]
            if problems:
                self._fail(number, f"{name}: {'; '.join(problems[:3])}")
        if len(told.get("within", ())) > MAX_WITHIN:
            self._unknown.add(f"{name}, of runs nested deeper than {MAX_WITHIN}")
            return
        self._story_of(name, told).take(name, told)

    def _story_of(self, name: str, told: JSONDict) -> Story:
        """The story that a line goes on with; a run that was paused goes on in its own."""
        number, run_id = told["no"], told["run"]
        story = self._stories.get(number)
        if story is None:
            is_resumed = name == "run_started" and told["resumed"]
            story = self._paused.pop(run_id, None) if is_resumed else None
            if story is None:
                story = Story(Run(run_id))
                self._record.runs.append(story.run)
                self._all.append(story)
            self._stories[number] = story
        if name == "run_finished" and not told.get("within") and told["status"] == "paused":
            self._paused[run_id] = story
        return story

    def _read_around(self) -> None:
        if self._torn is not None:
            number, _ = self._torn
            self._record.problems.append(
                f"{self._name}:{number}: the line is torn, as a crash leaves it; it was left out"
            )
            self._torn = None

    def _fail(self, number: int, what: str) -> NoReturn:
        raise RecordError(f"{self._name}:{number}: {what}")


def _parsed(line: bytes) -> JSONDict:
    """A line as an object.

    Raises:
        ValueError: it is none; the message says why.
    """
    try:
        told: Any = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deep to be read") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error!s:.200})") from None
    if not is_dict(told):
        raise ValueError("it is no JSON object")
    return told


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


@functools.cache
def record_schema() -> JSONDict:
    """The JSON Schema of a line of a record; the caller must not change it."""
    text = (
        files("treadle.reports.record").joinpath("record.schema.json").read_text(encoding="utf-8")
    )
    schema: JSONDict = json.loads(text)
    return schema


@functools.cache
def _checks() -> Mapping[str, tuple[Check | None, SchemaValidator]]:
    """What checks a line, by the name of its event."""
    parts = record_schema()["$defs"]
    line = parts["line"]
    made: dict[str, tuple[Check | None, SchemaValidator]] = {}
    for name, part in parts.items():
        if "allOf" in part:  # an event, which is a line first of all
            whole = {
                "type": "object",
                "properties": {**line["properties"], **part["properties"]},
                "required": [*{*line["required"], *part["required"]}],
            }
            schema = _inlined(whole, parts)
            made[name] = compile_check(schema), SchemaValidator(schema, name)
    return made


def _inlined(schema: Any, parts: Mapping[str, Any]) -> Any:
    """The schema with what it refers to in its place: the quick check knows of no references."""
    if is_dict(schema):
        target = schema.get("$ref")
        if isinstance(target, str):
            return _inlined(parts[target.rpartition("/")[2]], parts)
        return {key: _inlined(value, parts) for key, value in schema.items()}
    if is_list(schema):
        return [_inlined(value, parts) for value in schema]
    return schema
