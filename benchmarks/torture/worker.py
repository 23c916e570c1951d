"""Run scenarios on one peer, in that peer's environment, and tell of them on standard output.

``worker.py PEER [SCENARIO ...]``: one JSON object a line. It ends early after a loop that did not end, so
that what still runs disturbs nobody; who started it starts another one for the rest.
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
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what loops print is not for whoever reads this

    def tell(**said: Any) -> None:
        told.write(json.dumps(said) + "\n")
        told.flush()

    os.environ.update(QUIET)
    _limit()
    logging.disable(logging.ERROR)
    adapter = importlib.import_module(f"adapters.{peer}").Adapter()
    from treadle.testing.torture import SCENARIOS, run_scenario  # noqa: PLC0415 - slow, as peers are

    chosen = names or list(SCENARIOS)
    tell(kind="hello", name=adapter.name, version=adapter.version, scenarios=chosen)
    for name in chosen:
        tell(kind="begin", scenario=name, seconds=SCENARIOS[name].seconds)
        try:
            verdict = run_scenario(adapter, SCENARIOS[name])
        except Exception:  # noqa: BLE001 - the suite's own fault, which must not look like the loop's
            tell(kind="broken", trace=traceback.format_exc())
            break
        tell(kind="verdict", verdict=asdict(verdict))
        if verdict.problems.get("ended"):
            break
    os._exit(0)  # threads that tools or loops left behind are not waited for


def _limit() -> None:
    os.nice(5)
    try:
        import resource  # noqa: PLC0415 - not everywhere
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    main()
