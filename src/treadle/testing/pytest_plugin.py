"""A plugin for pytest: the runs of a test are recorded once, and from then on replayed without model and tools.

A test makes its runs with the fixture `recorded`::

    pytest_plugins = ["treadle.testing.pytest_plugin"]  # in conftest.py

    def test_refund(recorded):
        result = recorded.run_sync(loop, "Refund order 7.", model)
        assert "refunded" in result.output

The recording is ``recordings/<name of the test>.jsonl`` next to the file of the test. If it exists, it is
replayed, and the test fails with the first difference if a prompt, a tool or a stage has changed what happens.
If it does not, the runs are recorded. ``pytest --record`` records them again. ``pytest --replay`` never records: a
test without a recording fails.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Unpack

import pytest

from treadle.errors import ReplayError
from treadle.loop import Loop
from treadle.loop.options import LoopOptions
from treadle.loop.pause import PausedRun
from treadle.messages import Messages
from treadle.model import Model
from treadle.recording import Recorder, RecordingError, Run, read_recording
from treadle.recording.divergence import Divergence, first_difference
from treadle.recording.run_start import messages_as_data, paused_as_data
from treadle.results import Paused, Result
from treadle.testing.replays import ReplayedSegment, diverged
from treadle.tools import Approval

T = TypeVar("T")
FOLDER = "recordings"
_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("treadle", "recorded runs")
    group.addoption(
        "--record", action="store_true", help="record the runs of tests that take `recorded`"
    )
    group.addoption(
        "--replay",
        action="store_true",
        help="replay the runs of tests that take `recorded`, or fail",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether a test has failed: then it may have made fewer runs than were recorded."""
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = not report.passed
    return report


@pytest.fixture
def recorded(request: pytest.FixtureRequest) -> Iterator[RecordedRuns]:
    """Makes the runs of a test, which are recorded, or replayed from their recording."""
    records, replays = (request.config.getoption(name) for name in ("--record", "--replay"))
    if records and replays:
        raise pytest.UsageError("--record and --replay exclude each other")
    path = request.path.parent / FOLDER / f"{_file_name(request.node.nodeid)}.jsonl"
    if replays and not path.exists():
        _fail(f"there is no recording {_shown(path)}; make it with pytest --record")
    runs = RecordedRuns(path, is_replayed=path.exists() and not records)
    yield runs
    runs.close()
    if not request.node.stash.get(_FAILED, True):
        runs.check()


def _file_name(node_id: str) -> str:
    """The name of a test as a name of a file; two tests of a file have different ones."""
    name = node_id.partition("::")[2].replace("::", ".")
    plain = re.sub(r"[^\w.-]+", "_", name)
    return plain if plain == name else f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _shown(path: Path) -> str:
    return f"{FOLDER}/{path.name}"


def _fail(text: str) -> NoReturn:
    pytest.fail(text, pytrace=False)


class RecordedRuns:
    """Makes the runs of a test; the fixture `recorded` returns it.

    Attributes:
        path: the file of the recording.
        is_replayed: whether they are replayed, so that no model and no tool is called; else they are recorded.
    """

    def __init__(self, path: Path, *, is_replayed: bool) -> None:
        self.path, self.is_replayed = path, is_replayed
        self._runs: list[Run] = []
        self._recorder: Recorder | None = None
        if is_replayed:
            self._runs = read_recording(path).runs
        else:
            path.parent.mkdir(exist_ok=True)
            self._recorder = Recorder(path)
        self._parts: dict[str, int] = {}
        """The number of parts that were replayed, by the id of their run, in the order of the runs."""

    async def run(
        self,
        loop: Loop[T],
        messages: Messages,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Result[T]:
        """As `Loop.run` of a loop.

        Args:
            loop: the loop.
            messages: a text, or a list of OpenAI chat dicts.
            llm_send_fn: the model; None means that of the loop.
            **options: options of `Loop`, for this run.
        """
        if self.is_replayed:
            return self._run(loop.with_options(**options), messages)
        return await self._observed(loop.with_options(**options)).run(messages, llm_send_fn)

    def run_sync(
        self,
        loop: Loop[T],
        messages: Messages,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Result[T]:
        """As `run`, without an event loop."""
        if self.is_replayed:
            return self._run(loop.with_options(**options), messages)
        return self._observed(loop.with_options(**options)).run_sync(messages, llm_send_fn)

    async def resume(
        self,
        loop: Loop[T],
        paused: Paused,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Result[T]:
        """As `Loop.resume` of a loop.

        Args:
            loop: the loop.
            paused: a result of `run`.
            decisions: by the ids of the pending calls.
            llm_send_fn: the model; None means that of the loop.
            **options: options of `Loop`, for this run.
        """
        loop = loop.with_options(**options)
        if self.is_replayed:
            return self._resume(loop, paused, decisions)
        return await self._observed(loop).resume(paused, decisions, llm_send_fn)

    def resume_sync(
        self,
        loop: Loop[T],
        paused: Paused,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Result[T]:
        """As `resume`, without an event loop."""
        loop = loop.with_options(**options)
        if self.is_replayed:
            return self._resume(loop, paused, decisions)
        return self._observed(loop).resume_sync(paused, decisions, llm_send_fn)

    def close(self) -> None:
        """Close the file of the recording."""
        if self._recorder is not None:
            self._recorder.close()

    def check(self) -> None:
        """Fail if not all that was recorded was replayed."""
        for run in self._runs:
            if self._parts.get(run.run_id, 0) < len(run.segments):
                _fail(f"the test makes fewer runs than were recorded in {_shown(self.path)}")

    def _observed(self, loop: Loop[T]) -> Loop[T]:
        recorder = self._recorder
        observers = _observers_of(loop)
        return loop if recorder is None else loop.with_options(on_event=[recorder, *observers])

    def _run(self, loop: Loop[T], messages: Messages) -> Result[T]:
        if len(self._parts) == len(self._runs):
            _fail(f"the test makes more runs than were recorded in {_shown(self.path)}")
        run = self._runs[len(self._parts)]
        return self._replayed(run, loop, "messages", messages_as_data(messages))

    def _resume(
        self, loop: Loop[T], paused: Paused, decisions: Mapping[str, Approval]
    ) -> Result[T]:
        run = next((one for one in self._runs if one.run_id == paused.run.run_id), None)
        if run is None or self._parts[run.run_id] == len(run.segments):
            _fail(f"the test resumes a run that was not resumed in {_shown(self.path)}")
        given = paused_as_data(PausedRun(loop, paused, decisions, None))
        return self._replayed(run, loop, "decisions", given["decisions"])

    def _replayed(self, run: Run, loop: Loop[T], name: str, given: Any) -> Result[T]:
        """Replay the next part of a run.

        Args:
            run: the run.
            loop: its loop.
            name: the name of what the test starts it from.
            given: that, as data.
        """
        place = self._parts.setdefault(run.run_id, 0)
        self._parts[run.run_id] += 1
        if place == len(run.segments):
            _fail(f"{_shown(self.path)} has no log; record it again with pytest --record")
        part = run.segments[place]
        found = first_difference(part.start.get(name), given)
        if found is not None:
            path, before, now = found
            what = f"{name} given to the run"
            self._differs(Divergence(0, what, path, before, now, names=("recorded", "now")))
        try:
            return ReplayedSegment(run, part, loop, *_observers_of(loop)).result()
        except ReplayError as error:
            self._differs(diverged(run, loop, error).divergence)
        except RecordingError as error:
            _fail(f"{_shown(self.path)}: {error}")

    def _differs(self, divergence: Divergence) -> NoReturn:
        _fail(
            f"the run differs from {_shown(self.path)}: {divergence}\n"
            "If this is intended, record it again with pytest --record."
        )


def _observers_of(loop: Loop[Any]) -> list[Any]:
    given = loop.settings.on_event or ()
    return [given] if callable(given) else list(given)
