"""What observers and telemetry see of a run that is interrupted: each part of it once."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from tests.telemetry.watching import Watch
from tests.ways import Way
from tests.whole.guard_scripts import adds, child
from tests.whole.scripts import HELLO, add

from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .interrupting import RUN, Durable


def counted(message: Any) -> Any:
    """A response that has used tokens."""
    made = message if isinstance(message, dict) else {"role": "assistant", "content": message}
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    return {"choices": [{"message": made}], "usage": usage}


def observed_run(way: Way, watch: Watch) -> Durable:
    sub = child("sub", counted(adds(1)), counted("Two."), tools=[add])
    batch = calls(call("add", "c1", a=1, b=1), call("sub", "c2", task="add"))
    model = ScriptedLLM(
        counted(batch), counted(calls(call("add", "c3", a=2, b=2))), counted("Done.")
    )
    return Durable(way, HELLO, model, {"tools": [add, sub], **watch.options})


def test_telemetry_is_not_doubled(driven: Way):
    whole = Watch()
    run = observed_run(driven, whole)
    run.run()
    for at in range(1, run.journal.writes):
        watch = Watch()
        one = observed_run(driven, watch)
        one.journal.interrupt(at)
        one.run()
        if (
            len(one.processes) == 1 or not one.processes[1].events
        ):  # one write had the outcomes of several calls
            continue
        watch.check_whole()
        known = {span.attributes[names.RUN_ID] for span in watch.kind(names.INVOKE_AGENT)}
        assert known <= {RUN, f"{RUN}/c2"}
        assert watch.total(names.TOKEN_USAGE) == whole.total(names.TOKEN_USAGE)
        # A request that was on its way is made again.
        assert len(watch.kind(names.CHAT)) <= len(whole.kind(names.CHAT)) + 1
        assert len(watch.kind(names.EXECUTE_TOOL)) <= len(whole.kind(names.EXECUTE_TOOL))
        ends = [span for span in watch.kind(names.INVOKE_AGENT) if span.parent is None]
        assert [span.attributes.get(names.RESUMED, False) for span in ends] == [False, True]
