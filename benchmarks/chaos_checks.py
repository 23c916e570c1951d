"""What must be true of every run of a loop, however its model and tools misbehave."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from treadle import Limits, Ok, PipelineFailed, Result, RunState, Tool
from treadle.events import CallNotRun, RunFinished, ToolStarted
from treadle.testing import history_problems
from treadle.testing.chaos import ChaosTools, ToolRun

SLACK = 4.0
"""Seconds that a run may exceed its time limit by: machines are busy."""
EXPECTED_ERROR = "UnprintableError"
"""The error that the stages of a trial raise."""


@dataclass(slots=True)
class Facts:
    """A finished run.

    Args:
        result: its result.
        given: the messages that it started from.
        options: the options of the loop.
        tools: the tools of the loop.
        others: the tools of its subagents.
        seconds: how long it took.
        events: its events; None if there was no listener.
        has_handle: whether calls were cancelled through a handle; they may go on in their threads.
    """

    result: Result
    given: Sequence[dict[str, Any]]
    options: Mapping[str, Any]
    tools: ChaosTools
    others: Sequence[ChaosTools] = ()
    seconds: float = 0.0
    events: Sequence[Any] | None = None
    has_handle: bool = False


def violations(facts: Facts) -> Iterator[str]:
    """Yield one line for each violation."""
    yield from _of_history(facts)
    yield from _of_limits(facts)
    reason: Any = getattr(facts.result, "reason", None)
    if isinstance(reason, PipelineFailed) and reason.error_type != EXPECTED_ERROR:
        yield f"stages: {reason.stage!r} raised {reason.error_type}: {reason.message:.100}"
    if facts.result.run is not None:
        yield from _of_run_state(facts.result.run)
    for tools in (facts.tools, *facts.others):
        yield from _of_runs(tools, facts)
    yield from _of_counts(facts)
    if facts.events is not None:
        yield from _of_events(facts.events)
    try:
        shown = f"{facts.result!r} {getattr(facts.result, 'reason', '')}"
        if not shown.strip():
            yield "result: it has no text"
    except Exception as error:  # noqa: BLE001 - any error is a violation
        yield f"result: it cannot be shown: {described(error)}"


def _of_history(facts: Facts) -> Iterator[str]:
    messages = facts.result.messages
    yield from (f"history: {problem}" for problem in history_problems(messages))
    if not _begins_with_given(messages, facts):
        yield "history: it does not begin with the given messages"
    if isinstance(facts.result, Ok) and not facts.result.response.tool_calls:
        # A message of the user that arrives too late is after the answer.
        last = next(message for message in reversed(messages) if message["role"] != "user")
        if last["role"] != "assistant" or last.get("tool_calls"):
            yield "history: the answer is not its last message"
    try:  # as clients that use httpx serialize it
        json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    except Exception as error:  # noqa: BLE001 - any error is a violation
        yield f"history: it cannot be sent: {type(error).__name__}: {error!s:.80}"


def _begins_with_given(messages: Sequence[Mapping[str, Any]], facts: Facts) -> bool:
    """Whether the given messages are still there, unless they had to be repaired."""
    *before, last = facts.given
    run = facts.result.run
    if run is None or run.repairs or last["role"] != "user":
        return True
    if list(messages[: len(before)]) != before:
        return False
    found = messages[
        len(before)
    ]  # a user message that arrives before the first request is joined to it
    is_joined = isinstance(last["content"], str) and facts.has_handle
    return found == last or (is_joined and str(found["content"]).startswith(last["content"]))


def _of_limits(facts: Facts) -> Iterator[str]:
    result, options = facts.result, facts.options
    most = options.get("max_iterations", 10)
    if options.get("limits", Limits()).on_limit == "finish":
        most += 2
    if result.iterations > most:
        yield f"limits: {result.iterations} iterations, at most {most} are allowed"
    if result.tool_calls_count > options.get("max_tool_calls", sys.maxsize):
        yield f"limits: {result.tool_calls_count} tool calls"
    if facts.seconds > options.get("max_seconds", sys.maxsize) + SLACK:
        yield f"limits: it took {facts.seconds:.1f} s"


def _of_run_state(state: RunState) -> Iterator[str]:
    if not state.is_terminal:
        yield f"run state: the run is {state.status.value}"
    for node in state.nodes:
        for one in (node, *node.tool_calls):
            if one.is_running:
                yield f"run state: {one.kind} {one.name} of iteration {node.step_index} is running"


def _of_counts(facts: Facts) -> Iterator[str]:
    """Whether tools ran as often as they were called, and not more often."""
    tools = {tool.name: tool for tool in facts.tools}
    attempts = 1 + max(tool.retries for tool in tools.values())
    count, made = facts.result.tool_calls_count, len(facts.tools.runs)
    if made > count * attempts:
        yield f"tools: {made} runs for {count} calls"
    for name, times in Counter(run.name for run in facts.tools.runs).items():
        uses = tools[name].max_uses
        if uses is not None and times > uses * (1 + tools[name].retries):
            yield f"tools: {name!r} ran {times} times with max_uses={uses}"
    most = facts.options.get("limits", Limits()).max_parallel_calls
    for run in facts.tools.runs:
        if len(run.overlapping) >= most and not facts.has_handle:
            yield f"tools: {len(run.overlapping) + 1} calls at once, at most {most} are allowed"


def _of_runs(given: ChaosTools, facts: Facts) -> Iterator[str]:
    """Whether each run had valid arguments, and overlapped only with runs that may run at the same time."""
    tools = {tool.name: tool for tool in given}
    for run in given.runs:
        tool = tools[run.name]
        problems = tool.problems_of(run.arguments)
        if problems and "..." not in run.arguments:
            yield f"tools: {run.name!r} ran with invalid arguments: {problems[0]:.200}"
        if tool.timeout is None and not facts.has_handle:
            yield from _of_locks(tools, tool, run)
            if given is facts.tools:  # others may be used by several runs at once
                yield from _of_overlap(tools, tool, run)


def _of_locks(tools: Mapping[str, Tool], tool: Tool, run: ToolRun) -> Iterator[str]:
    for other in run.overlapping:
        if _lock_keys(tool, run.arguments) & _lock_keys(tools[other.name], other.arguments):
            yield f"tools: {run.name!r} and {other.name!r} ran at once with the same lock"


def _lock_keys(tool: Tool, arguments: Mapping[str, Any]) -> set[str]:
    """The locks of a call; none if the function for them raises."""
    with contextlib.suppress(Exception):
        return set(tool.lock_keys(arguments))
    return set()


def _of_overlap(tools: Mapping[str, Tool], tool: Tool, run: ToolRun) -> Iterator[str]:
    for other in run.overlapping:
        if not (tool.parallel_safe and tools[other.name].parallel_safe):
            yield f"tools: {run.name!r} and {other.name!r} ran at once"
    same = 1 + sum(other.name == run.name for other in run.overlapping)
    if same > (tool.max_parallel or same):
        yield f"tools: {same} calls of {run.name!r} at once"


def _of_events(events: Sequence[Any]) -> Iterator[str]:
    ends = [event for event in events if isinstance(event, RunFinished)]
    if len(ends) != 1 or events[-1] is not ends[0]:
        yield f"events: {len(ends)} RunFinished, or not at the end"
    started = Counter(event.call.id for event in events if isinstance(event, ToolStarted))
    idle = {event.call.id for event in events if isinstance(event, CallNotRun)}
    for call_id in started.keys() & idle:
        yield f"events: {call_id!r} was not to run, and ran"
    for call_id, times in started.items():
        if times > 1:
            yield f"events: {call_id!r} was started {times} times"


def described(error: BaseException) -> str:
    """An error as text, with the last places in its traceback; it never raises."""
    trace, places = error.__traceback__, list[str]()
    while trace is not None:
        places.append(f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    try:
        text = f"{error}"
    except Exception:  # noqa: BLE001 - the text of an error may raise
        text = "(no text)"
    return f"{type(error).__name__}: {text:.150} ({' '.join(places[-6:])})"
