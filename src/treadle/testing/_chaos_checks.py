"""What has to be true of every run, however chaotic: each violation is told in a line."""

from __future__ import annotations

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from treadle.events import CallSuppressed, RunFinished, ToolStarted
from treadle.messages import JSONDict
from treadle.results import Ok, PipelineFailed, Result
from treadle.run_state import RunState
from treadle.testing._chaos_errors import UnspeakableError
from treadle.testing.chaos_tools import ChaosTools, ToolRun
from treadle.testing.history import history_problems
from treadle.tools import Tool

SLACK = 4.0
"""Seconds that a run may be late at a time limit: machines are busy."""


@dataclass(slots=True)
class Facts:
    """A run that has ended, and what it was to keep to.

    Args:
        result: what it returned.
        given: the messages that it started from.
        options: those of the loop.
        tools: what it could call.
        others: tools of the loops that were tools of it.
        seconds: how long it took.
        events: what it told; None where nobody listened.
        is_meddled: calls were stopped from outside, and may go on in their threads.
    """

    result: Result
    given: Sequence[JSONDict]
    options: Mapping[str, Any]
    tools: ChaosTools
    others: Sequence[ChaosTools] = ()
    seconds: float = 0.0
    events: Sequence[Any] | None = None
    is_meddled: bool = False
    limits: JSONDict = field(default_factory=dict[str, Any])


def violations(facts: Facts) -> Iterator[str]:
    """Tell everything that is not as it has to be."""
    yield from _of_history(facts)
    yield from _of_limits(facts)
    reason: Any = getattr(facts.result, "reason", None)
    if isinstance(reason, PipelineFailed) and reason.error_type != UnspeakableError.__name__:
        yield f"stages: {reason.stage!r} raised {reason.error_type}: {reason.message:.100}"
    if facts.result.run is not None:
        yield from _of_record(facts.result.run)
    for tools in (facts.tools, *facts.others):
        yield from _of_tools(tools, facts)
    yield from _of_calls(facts)
    if facts.events is not None:
        yield from _of_events(facts.events)
    try:
        shown = f"{facts.result!r} {getattr(facts.result, 'reason', '')}"
        if not shown.strip():
            yield "result: it shows nothing"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        yield f"result: it cannot be shown: {told(error)}"


def _of_history(facts: Facts) -> Iterator[str]:
    messages = facts.result.messages
    yield from (f"history: {problem}" for problem in history_problems(messages))
    if not _begins_with(messages, facts):
        yield "history: it does not begin with what was given"
    if isinstance(facts.result, Ok) and not facts.result.response.tool_calls:
        # What a user says when it is too late stands behind the answer.
        last = next(message for message in reversed(messages) if message["role"] != "user")
        if last["role"] != "assistant" or last.get("tool_calls"):
            yield "history: the answer is not its last message"
    try:  # as clients that use httpx make a request of it
        json.dumps(messages, ensure_ascii=False, allow_nan=False).encode()
    except Exception as error:  # noqa: BLE001 - as above
        yield f"history: it cannot be sent: {type(error).__name__}: {error!s:.80}"


def _begins_with(messages: Sequence[JSONDict], facts: Facts) -> bool:
    """Whether what was given is still there, where nothing about it had to be changed."""
    *before, last = facts.given
    run = facts.result.run
    if run is None or run.repairs or last["role"] != "user":
        return True
    if list(messages[: len(before)]) != before:
        return False
    found = messages[len(before)]  # what is said before the model is asked is joined to it
    is_joined = isinstance(last["content"], str) and facts.is_meddled
    return found == last or (is_joined and str(found["content"]).startswith(last["content"]))


def _of_limits(facts: Facts) -> Iterator[str]:
    result, options = facts.result, facts.options
    most = options.get("max_iterations", 10)
    if options.get("on_limit") == "finish":
        most += 2
    if result.iterations > most:
        yield f"limits: {result.iterations} iterations, where {most} may be"
    if result.tool_calls_count > options.get("max_tool_calls", sys.maxsize):
        yield f"limits: {result.tool_calls_count} tool calls"
    if facts.seconds > options.get("max_seconds", sys.maxsize) + SLACK:
        yield f"limits: it took {facts.seconds:.1f} s"


def _of_record(state: RunState) -> Iterator[str]:
    if not state.is_terminal:
        yield f"record: the run is {state.status.value}"
    for node in state.nodes:
        for one in (node, *node.tool_calls):
            if one.is_running:
                yield f"record: {one.kind} {one.name} of iteration {node.step_index} still runs"


def _of_calls(facts: Facts) -> Iterator[str]:
    """Whether tools ran as often as they were called, and no more often."""
    tools = {tool.name: tool for tool in facts.tools}
    tries = 1 + max(tool.retries for tool in tools.values())
    count, made = facts.result.tool_calls_count, len(facts.tools.runs)
    if made > count * tries:
        yield f"tools: {made} runs for {count} calls"
    for name, times in Counter(run.name for run in facts.tools.runs).items():
        uses = tools[name].max_uses
        if uses is not None and times > uses * (1 + tools[name].retries):
            yield f"tools: {name!r} ran {times} times, where max_uses={uses}"
    most = facts.options.get("max_parallel_calls", 8)
    for run in facts.tools.runs:
        if len(run.overlapping) >= most and not facts.is_meddled:
            yield f"tools: {len(run.overlapping) + 1} calls at once, where {most} may be"


def _of_tools(given: ChaosTools, facts: Facts) -> Iterator[str]:
    """Whether tools were only run with what they take, and beside what they may run beside."""
    tools = {tool.name: tool for tool in given}
    for run in given.runs:
        tool = tools[run.name]
        problems = tool.problems_of(run.arguments)
        if problems and "..." not in run.arguments:
            yield f"tools: {run.name!r} was given what its schema refuses: {problems[0]:.200}"
        if tool.timeout is None and not facts.is_meddled:
            yield from _beside_locks(tools, tool, run)
            if given is facts.tools:  # others may serve several runs at once
                yield from _beside_others(tools, tool, run)


def _beside_locks(tools: Mapping[str, Tool], tool: Tool, run: ToolRun) -> Iterator[str]:
    for other in run.overlapping:
        if keys_of(tool, run.arguments) & keys_of(tools[other.name], other.arguments):
            yield f"tools: {run.name!r} ran beside {other.name!r} under one lock"


def _beside_others(tools: Mapping[str, Tool], tool: Tool, run: ToolRun) -> Iterator[str]:
    for other in run.overlapping:
        if not (tool.parallel_safe and tools[other.name].parallel_safe):
            yield f"tools: {run.name!r} ran beside {other.name!r}"
    alike = 1 + sum(other.name == run.name for other in run.overlapping)
    if alike > (tool.max_parallel or alike):
        yield f"tools: {alike} calls of {run.name!r} at once"


def keys_of(tool: Tool, arguments: Mapping[str, Any]) -> set[str]:
    """The locks of a call; none where the rule for them raises."""
    with contextlib.suppress(Exception):
        return set(tool.lock_keys(arguments))
    return set()


def _of_events(events: Sequence[Any]) -> Iterator[str]:
    ends = [event for event in events if isinstance(event, RunFinished)]
    if len(ends) != 1 or events[-1] is not ends[0]:
        yield f"events: {len(ends)} of RunFinished, or not at the end"
    started = Counter(event.call.id for event in events if isinstance(event, ToolStarted))
    held = {event.call.id for event in events if isinstance(event, CallSuppressed)}
    for call_id in started.keys() & held:
        yield f"events: {call_id!r} was suppressed, and ran"
    for call_id, times in started.items():
        if times > 1:
            yield f"events: {call_id!r} was started {times} times"


def told(error: BaseException) -> str:
    """An error, whatever it is, with the last places that it came through."""
    trace, places = error.__traceback__, list[str]()
    while trace is not None:
        places.append(f"{PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    try:
        text = f"{error}"
    except Exception:  # noqa: BLE001 - chaos has such errors
        text = "(no text)"
    return f"{type(error).__name__}: {text:.150} ({' '.join(places[-6:])})"
