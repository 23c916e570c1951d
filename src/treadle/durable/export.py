"""A run of a journal as a recording, which reports show and `treadle.testing.replay` replays."""

from __future__ import annotations

import os
from collections.abc import Iterator

from treadle.codec import to_json_line
from treadle.durable.stored_part import StoredPart
from treadle.events import RunFinished, RunStarted
from treadle.recording import Recorder
from treadle.recording.lines import EVENT_NAMES, Fields, Lines
from treadle.recording.recorder import VERSION, recorded_start


def export_run(path: str | os.PathLike[str], run_id: str, parts: list[StoredPart]) -> None:
    """Write the parts of a run as a recording: their logs, their starts and their ends, without other events.

    Args:
        path: the file; one that exists is replaced.
        run_id: the id of the run.
        parts: its parts, in order.

    Raises:
        OSError: the file cannot be written.
        ValueError: the file exists and is not a recording.
    """
    with Recorder(path) as recorder:
        for part in parts:
            head = {"v": VERSION, "part": os.urandom(8).hex()}
            for seq, fields in enumerate(_lines_of(run_id, part), 1):
                recorder.write(to_json_line({**head, "seq": seq, **fields}))


def _lines_of(run_id: str, part: StoredPart) -> Iterator[Fields]:
    yield {"run": run_id, "start": recorded_start(part.start)}
    lines = Lines()
    times = [entry.at for entry in part.log] or [0.0]
    model = part.start.get("model", {})
    started = RunStarted(
        agent_name=part.start["name"],
        run_id=run_id,
        at=times[0],
        resumed=part.number > 1,
        model=model.get("model"),
        provider=model.get("provider"),
        request=model.get("request", {}),
    )
    yield _event(lines, started, run_id)
    for entry in part.log:
        yield entry.as_json()
    result = part.result
    if result is not None:
        reason = getattr(result, "reason", None)
        finished = RunFinished(
            stop_reason=result.stop_reason,
            total_iterations=result.iterations,
            tool_calls_count=result.tool_calls_count,
            result=result,
            at=times[-1],
            usage=result.usage,
            error=None if reason is None else str(reason),
        )
        yield _event(lines, finished, run_id)


def _event(lines: Lines, event: RunStarted | RunFinished, run_id: str) -> Fields:
    fields = lines.fields_of(event)
    return {"run": run_id, "at": fields.pop("at"), "event": EVENT_NAMES[type(event)], **fields}
