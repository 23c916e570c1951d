"""Run scenarios on one loop, in that loop's environment, and report the verdicts on standard output.

``worker.py PEER [SCENARIO ...]``: one JSON object a line. It exits after a loop that did not end, so that
its remaining threads cannot disturb other scenarios; `run.py` starts another worker for the rest.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from dataclasses import asdict
from typing import Any

from torture_suite import SCENARIOS, run_scenario

QUIET = {
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "ENABLE_INSTRUMENTATION": "false",
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
}
"""Settings with which nothing is sent anywhere."""
MEMORY = 6 * 1024**3
"""Bytes of address space: a loop that grows without bound ends here, and not the machine."""


def main() -> None:
    """Run the scenarios that the command line names, or all."""
    peer, *names = sys.argv[1:]
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what loops print must not mix with the reports

    def send(**said: Any) -> None:
        output.write(json.dumps(said) + "\n")
        output.flush()

    os.environ.update(QUIET)
    _limit()
    logging.disable(logging.ERROR)
    adapter = importlib.import_module(f"adapters.{peer}").Adapter()
    chosen = names or list(SCENARIOS)
    send(kind="hello", name=adapter.name, version=adapter.version, scenarios=chosen)
    for name in chosen:
        send(kind="begin", scenario=name, seconds=SCENARIOS[name].seconds)
        try:
            verdict = run_scenario(adapter, SCENARIOS[name])
        except Exception:  # noqa: BLE001 - a fault of the suite must not look like one of the loop
            send(kind="broken", trace=traceback.format_exc())
            break
        send(kind="verdict", verdict=asdict(verdict))
        if verdict.problems.get("ended"):
            break
    os._exit(0)  # threads that tools or loops abandoned are not waited for


def _limit() -> None:
    os.nice(5)
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    main()
