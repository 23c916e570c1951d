"""`treadle show`: what a journal has of one run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.cli.approvals import question_lines
from treadle.cli.exits import Exit, UsageError
from treadle.cli.journals import open_journal, quoted_resume
from treadle.cli.output import answer, as_document, jsonable, summary, transcript, why
from treadle.cli.parts import usage_errors
from treadle.cli.progress import call_line, response_line
from treadle.cli.runs_command import facts_of, status_of, time_of
from treadle.cli.stored_steps import Step, steps_of
from treadle.cli.streams import show as write
from treadle.cli.targets import writing
from treadle.codec import decode
from treadle.durable import SQLiteJournal, StoredPart, StoredRun
from treadle.errors import OutcomeUnknownError
from treadle.messages import JSONDict, Response, ToolResult
from treadle.reports.text import format_seconds, one_line
from treadle.results import Ok, PendingCall, Result
from treadle.tools import Approval

_WIDTH = 200
"""How much of a text is shown, in characters."""


def show(args: argparse.Namespace) -> Exit:
    """Execute `treadle show`.

    Raises:
        UsageError: there is no such run, it cannot be read, or the recording cannot be written.
        OutputError: stdout cannot be written.
    """
    with usage_errors():
        journal = open_journal(args)
    if args.export is not None:
        with usage_errors(), writing("--export", args.export):
            journal.export(args.id, args.export)
        write(args.export)
        return Exit.OK
    with usage_errors():
        lines = _read(args, journal)
    for line in lines:
        write(line)
    return Exit.OK


def _read(args: argparse.Namespace, journal: SQLiteJournal) -> Sequence[str]:
    run = journal.run(args.id)
    parts = [journal.part(args.id, number) for number in range(1, run.part + 1)]
    sent = journal.messages(args.id)
    try:
        if args.json:
            return [json.dumps(_document(run, parts, sent), default=jsonable)]
        return [*_lines(args, run, parts, sent)]
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{journal.path}: run {args.id!r} has contents that no run stores: {error!r}"
        ) from error


# JSON


def _document(run: StoredRun, parts: Sequence[StoredPart], sent: Sequence[JSONDict]) -> JSONDict:
    decisions = parts[-1].decisions
    waiting = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "question": call.question,
            "decision": decisions.get(call.id),
        }
        for call in run.waiting
    ]
    return {
        **facts_of(run),
        "waiting": waiting,
        "messages": list(sent),
        "parts": [_part_document(part) for part in parts],
    }


def _part_document(part: StoredPart) -> JSONDict:
    result = part.result
    return {
        "number": part.number,
        "messages": decode(part.start["messages"]),
        "decisions": part.start.get("decisions", {}),
        "steps": [step.as_json() for step in steps_of(part)],
        "result": None if result is None else as_document(result),
    }


# Text


def _lines(
    args: argparse.Namespace,
    run: StoredRun,
    parts: Sequence[StoredPart],
    sent: Sequence[JSONDict],
) -> Iterator[str]:
    yield from _head(run)
    for part in parts:
        yield from _of_part(part)
    for message in sent:
        yield f"not taken yet: {one_line(str(message.get('content')), _WIDTH)}"
    decisions, start = parts[-1].decisions, parts[0].start
    for call in run.waiting:
        yield from _of_waiting(args, start, call, decisions.get(call.id))
    result = parts[-1].result
    if result is not None and run.status != "paused":
        yield from _of_result(result)
    elif run.driver is None and (run.status != "paused" or len(decisions) == len(run.waiting)):
        yield f"to continue it: {quoted_resume(run.id, args, start)}"


def _head(run: StoredRun) -> Iterator[str]:
    yield one_line(f"run {run.id}: {status_of(run)}", 300)
    facts = [f"started {time_of(run.created_at)}", f"last stored {time_of(run.updated_at)}"]
    if run.agent_name:
        facts.insert(0, f"agent {run.agent_name}")
    yield one_line(", ".join(facts), 1_000)
    if run.driver is not None:
        yield f"driven by {run.driver}"
    if run.is_cancelled and run.status != "error":
        yield "someone has asked to cancel it"


def _of_part(part: StoredPart) -> Iterator[str]:
    if part.number == 1:
        messages = decode(part.start["messages"])
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        yield from transcript(given)
    else:
        yield f"part {part.number}: resumed"
        decisions: Mapping[str, Any] = part.start.get("decisions", {})
        for call_id, decision in decisions.items():
            yield f"  {one_line(call_id)}: {_decided(decision)}"
    has_answer = part.outcome is not None and part.outcome["status"] == "ok"
    for step in steps_of(part):
        where = f"  (in {one_line(step.within)}) " if step.within else ""
        for line in _of_step(step, is_answer_shown=has_answer and not where):
            yield where + line


def _of_step(step: Step, *, is_answer_shown: bool) -> Iterator[str]:
    if step.call is not None:
        yield _of_call(step)
    elif step.iteration is None:
        yield from transcript([step.outcome])
    else:
        yield _of_request(step)
        response = step.outcome
        if isinstance(response, Response) and (response.tool_calls or not is_answer_shown):
            text = one_line(response.text, _WIDTH)
            yield from [f"  {text}"] if text else []


def _of_request(step: Step) -> str:
    if isinstance(step.outcome, Response):
        took = 0.0 if step.ended is None else step.ended - step.began
        return response_line(step.iteration or 0, step.outcome, took)
    return f"iteration {step.iteration}: the model failed: {_failure(step)}"


def _of_call(step: Step) -> str:
    shown = "" if step.call is None else call_line(step.call)
    if step.ended is None:
        return f"  {shown}: started {time_of(step.began)}, no outcome"
    took = format_seconds(step.ended - step.began)
    outcome = step.outcome
    if isinstance(outcome, ToolResult):
        how = "failed" if outcome.is_error else "done"
        return f"  {shown}: {how} in {took}: {one_line(outcome.content, _WIDTH)}"
    if isinstance(step.error, OutcomeUnknownError):
        return f"  {shown}: started {time_of(step.began)}, and its outcome is unknown"
    return f"  {shown}: {f'done in {took}' if step.error is None else _failure(step)}"


def _failure(step: Step) -> str:
    return one_line(f"{type(step.error).__name__}: {step.error}", _WIDTH)


def _of_waiting(
    args: argparse.Namespace, start: JSONDict, call: PendingCall, decision: Mapping[str, Any] | None
) -> Iterator[str]:
    yield from question_lines(call, sys.stdout, "waits: ")
    if decision is not None:
        yield f"  {_decided(decision)}"
        return
    for option, value in (("--approve", call.id), ("--deny", f"{call.id}=REASON")):
        yield f"  {one_line(quoted_resume(args.id, args, start, option, value), 1_000)}"


def _decided(decision: Mapping[str, Any]) -> str:
    made = Approval(**{name: one for name, one in decision.items() if name != "$"})
    if not made.runs:
        return f"denied: {one_line(made.reason, _WIDTH)}" if made.reason else "denied"
    changed = made.arguments
    return "approved" if changed is None else f"approved with {one_line(json.dumps(changed))}"


def _of_result(result: Result) -> Iterator[str]:
    if isinstance(result, Ok):
        yield f"{result.stop_reason} ({summary(result)}):"
        yield answer(result)
    else:
        yield f"{result.stop_reason}: {why(result)} ({summary(result)})".replace("\n", "\n  ")
