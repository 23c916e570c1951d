"""Phoenix, started once, and its data of the runs in `runs.py`."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.programs import run_program

HERE = Path(__file__).parent
SECONDS = 350
"""For everything: on a slow machine Phoenix takes most of a minute to start."""

NAMESPACES = {
    "as root": ["unshare", "--net"],
    "as a user": ["unshare", "--user", "--map-root-user", "--net"],
}
ENDS_WITH_IT = ["--pid", "--fork", "--kill-child"]
"""The end of `unshare` ends every process in the namespace, including Phoenix."""


@dataclass(frozen=True)
class Project:
    """The data of one project.

    Args:
        sent: the spans that were sent.
        spans: the spans in Phoenix, by start.
        traces: Phoenix's summary of each trace, by its start.
        sessions: its summaries of sessions.
        cost: its cost in US dollars, as Phoenix computes it.
    """

    sent: list[dict[str, Any]]
    spans: list[dict[str, Any]]
    traces: list[dict[str, Any]]
    sessions: list[dict[str, Any]]
    cost: float = 0.0

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def one(self, name: str) -> dict[str, Any]:
        (span,) = self.named(name)
        return span

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["span_kind"] == kind]

    def path(self, span: dict[str, Any]) -> tuple[str, ...]:
        """The names of a span and its ancestors, the outermost last; all must exist."""
        by_id = {one["context"]["span_id"]: one for one in self.spans}
        names = [span["name"]]
        while span["parent_id"] is not None:
            span = by_id[span["parent_id"]]
            names.append(span["name"])
        return tuple(names)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        return sorted(self.path(span) for span in self.spans)

    @property
    def tokens(self) -> list[tuple[int, int, int]]:
        """The tokens of each trace, as Phoenix sums them: input, output, total."""
        kinds = ("prompt", "completion", "total")
        return [tuple(trace[f"token_count_{kind}"] for kind in kinds) for trace in self.traces]


def by_start(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By the start; of two that start at once, the one that ends later is around the other."""
    late_first = sorted(found, key=lambda one: one["end_time"], reverse=True)
    return sorted(late_first, key=lambda one: one["start_time"])


def python_of_phoenix() -> str:
    """An interpreter that has Phoenix."""
    default = HERE.parents[1] / ".venv-phoenix" / "bin" / "python"
    python = os.environ.get("TREADLE_PHOENIX_PYTHON") or default
    if shutil.which(python) is None:
        pytest.fail(f"there is no {python}: run `make .venv-phoenix`", pytrace=False)
    return str(Path(python).absolute())  # not resolved: that would lead out of the environment


def namespace() -> list[str]:
    """The command that runs another one in a network namespace of its own."""
    errors = []
    for how, command in NAMESPACES.items():
        whole = [*command, *ENDS_WITH_IT]
        try:
            tried = run_program([*whole, "true"])
        except FileNotFoundError as error:
            pytest.fail(f"{error}: install util-linux", pytrace=False)
        if tried.returncode == 0:
            return whole
        errors.append(f"{how}: {tried.stderr.strip()}")
    pytest.fail(
        "no network namespace can be made here, and without one Phoenix would listen on every "
        f"interface; run as root or allow user namespaces ({'; '.join(errors)})",
        pytrace=False,
    )


def project_of(facts: dict[str, Any]) -> Project:
    """A project, with Phoenix's data in order."""
    in_order = {key: by_start(facts[key]) for key in ("spans", "traces", "sessions")}
    return Project(**{**facts, **in_order})


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Project]:
    """What Phoenix knows of each project, after all runs; it is started once for all test processes."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # each process has its own folder in this one
    known = shared / "phoenix.json"
    with (shared / "phoenix.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process starts it, the others wait
        if not known.exists():
            run_inside(tmp_path_factory.mktemp("phoenix")).rename(known)
    report = json.loads(known.read_text(encoding="utf-8"))
    found = {**report["projects"], "guide": report["guide"]}
    return {name: project_of(facts) for name, facts in found.items()}


def run_inside(folder: Path) -> Path:
    """Start Phoenix in a network namespace, and run all runs there.

    Args:
        folder: an empty folder.

    Returns:
        The file of what Phoenix knows of them.
    """
    inside = [sys.executable, str(HERE / "inside.py"), python_of_phoenix(), str(folder)]
    done = run_program([*namespace(), *inside], timeout=SECONDS)
    if done.returncode != 0:
        pytest.fail(f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}", pytrace=False)
    return folder / "report.json"


@pytest.fixture
def runs(phoenix: dict[str, Project]) -> dict[str, Project]:
    """The projects of `runs.py`, by their names."""
    return {name: project for name, project in phoenix.items() if name != "guide"}


@pytest.fixture
def project(request: pytest.FixtureRequest, phoenix: dict[str, Project]) -> Project:
    """The project that is named in the test's parameter."""
    return phoenix[request.param]
