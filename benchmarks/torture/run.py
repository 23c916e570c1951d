"""Run the torture suite on treadle and other frameworks, each in a separate virtual environment.

    python benchmarks/torture/run.py                          # all of them, all scenarios
    python benchmarks/torture/run.py --peer smolagents --scenario name-unknown --details

The first run installs the environments from the pinned files in ``requirements``. A loop that hangs or ends its
interpreter is reported as not ended, and the next scenarios run in a new interpreter.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torture_suite.table import Row, Table, Verdict

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = HERE / ".venv"
PEERS = (
    "treadle",
    "pydantic_ai",
    "openai_agents",
    "langchain",
    "agent_framework",
    "smolagents",
)
"""The adapters that run by default."""
ADAPTERS = (*PEERS, "plain_loop")
OVERTIME = 20.0
"""Seconds after a scenario's own time until its interpreter is taken to hang."""
START = 120.0
"""Seconds that an interpreter may take to import everything."""
PEER_TIME = 1800.0
"""Seconds for all scenarios of one peer."""


def main() -> None:
    """Make the environments, run, print."""
    options = _options()
    table = Table()
    for peer in options.peer or PEERS:
        python = prepared(peer)
        row = run_peer(peer, python, options.scenario, options.seconds)
        table += Table((row,))
        _note(f"{peer}: {row.total}")
    if options.json:
        options.json.write_text(table.as_json() + "\n")
    print(table.markdown())
    print()
    print(table.grid())
    if options.details:
        print()
        print("\n".join(f"- {line}" for line in table.failures()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--peer", action="append", choices=ADAPTERS, help="repeatable")
    parser.add_argument("--scenario", action="append", help="a name; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts there")
    parser.add_argument("--details", action="store_true", help="print why each failure is one")
    parser.add_argument("--seconds", type=float, default=PEER_TIME, help="for one peer")
    return parser.parse_args()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def prepared(peer: str) -> Path:
    """Make a peer's environment, unless it is there and as it should be.

    Returns:
        Its interpreter.
    """
    home = ENVIRONMENTS / peer
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pins = HERE / "requirements" / f"{peer}.txt"
    wanted = (pins.read_bytes() if pins.exists() else b"") + (ROOT / "pyproject.toml").read_bytes()
    mark = home / "prepared"
    state = hashlib.sha256(wanted).hexdigest()
    if mark.exists() and mark.read_text() == state:
        return python
    _note(f"{peer}: installing")
    if not python.exists():
        venv.create(home, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if pins.exists():
        subprocess.run([*pip, "--no-deps", "-r", pins], check=True)
    subprocess.run([*pip, "-e", ROOT], check=True)
    mark.write_text(state)
    return python


def run_peer(peer: str, python: Path, names: list[str] | None, seconds: float) -> Row:
    """Run the scenarios on one peer, in as many interpreters as it takes.

    One that did not end is tried once more: the machine may have been busy.

    Returns:
        Its row of the table.
    """
    until = time.monotonic() + seconds
    found: dict[str, Verdict] = {}
    name, version = peer, ""
    tried: set[str] = set()
    every: list[str] = names or []
    left: list[str] | None = names
    while left is None or left:
        if time.monotonic() > until:
            found |= {
                scenario: Verdict(scenario, not_applicable="there was no time")
                for scenario in left or ()
            }
            break
        for said in _reports_of(peer, python, left, until):
            if said["kind"] == "hello":
                name, version = said["name"], said["version"]
                every = every or said["scenarios"]
                left = said["scenarios"]
            elif said["kind"] == "verdict":
                verdict = Verdict(**said["verdict"])
                found[verdict.scenario] = verdict
            else:
                raise SystemExit(f"the suite is at fault, not {peer}:\n{said['trace']}")
        if left is None:
            raise SystemExit(f"{peer} could not be started; see {_log(peer)}")
        again = {one for one in left if one in found and found[one].problems.get("ended")}
        left = [one for one in left if one not in found or one in again - tried]
        tried |= again
    return Row(name, version, tuple(found[one] for one in every))


def _log(peer: str) -> Path:
    return ENVIRONMENTS / f"{peer}.log"


def _reports_of(
    peer: str, python: Path, names: list[str] | None, until: float
) -> Iterator[dict[str, Any]]:
    """Yield what a worker reports, and a verdict on a scenario that ended or hung its interpreter."""
    process, lines = _started(peer, python, names)
    running: str | None = None
    patience = START
    try:
        while line := lines.get(timeout=max(0.0, min(patience, until - time.monotonic()))):
            said = json.loads(line)
            if said["kind"] == "begin":
                running, patience = said["scenario"], said["seconds"] + OVERTIME
                continue
            running, patience = None, START
            yield said
        why = "it ended the interpreter"
    except queue.Empty:
        why = "it hung the interpreter"
    finally:
        process.kill()
        process.wait()
    if running is not None:
        yield {"kind": "verdict", "verdict": asdict(Verdict(running, {"ended": [why]}))}


def _started(
    peer: str, python: Path, names: list[str] | None
) -> tuple[subprocess.Popen[bytes], queue.Queue[bytes]]:
    """Start an interpreter; its lines come through a queue, and an empty one when it is over."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith(("_API_KEY", "_TOKEN"))}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    with _log(peer).open("ab") as log:
        process = subprocess.Popen(
            [python, HERE / "worker.py", peer, *(names or ())],
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=HERE,
        )
    lines: queue.Queue[bytes] = queue.Queue()
    stdout = process.stdout
    assert stdout is not None
    threading.Thread(target=lambda: [*map(lines.put, stdout), lines.put(b"")], daemon=True).start()
    return process, lines


if __name__ == "__main__":
    main()
