"""The data of a report's page: each run as JSON, in display order.

Keys that occur once per step are short, because a report has thousands of steps. Times are in seconds since the
start of the run, without pauses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from treadle.messages import JSONDict, Usage, is_dict, is_list
from treadle.reports.json_line import finite, to_json_line
from treadle.reports.recording.model import Call, Iteration, Recording, Retry, Run
from treadle.reports.report import explain

Clock = Callable[[float | None], float | None]


def report_data(recording: Recording) -> JSONDict:
    """The data of a page.

    Args:
        recording: the runs.
    """
    return {
        "problems": recording.problems,
        "runs": [_run(run, _clock_of(run)) for run in recording.runs],
    }


def _clock_of(run: Run) -> Clock:
    """The function that converts times of the run to times of the page."""
    start = run.started_at
    if start is None:
        start = next((one.started_at for one in run.iterations if one.started_at is not None), None)
    begin = start or 0.0

    def clock(at: float | None) -> float | None:
        if at is None:
            return None
        paused = sum(min(at, later) - before for before, later in run.pauses if at > before)
        return round(at - begin - paused, 6)

    return clock


def _run(run: Run, clock: Clock) -> JSONDict:
    end = run.last_at if run.ended_at is None else run.ended_at
    return {
        "id": run.run_id,
        "agent": run.agent_name,
        "status": run.status,
        "headline": explain.headline(run),
        "why": explain.why(run),
        "at": run.started_at,
        "t": clock(run.started_at),
        "e": clock(end),
        "duration": run.duration,
        "model": run.model or _answering_model(run),
        "provider": run.provider,
        "limits": {name: finite(most) for name, most in run.limits.items() if finite(most)},
        "request": to_json_line(run.request) if run.request else "",
        "tools": [name for tool in run.tools for name in _tool_name(tool)],
        "usage": _usage(run.usage),
        "iterations": run.total_iterations,
        "calls": run.tool_calls_count,
        "guards": len(run.guards),
        "retries": sum(map(_retries_of, run.iterations)),
        "answer": answer_of(run),
        "output": None if run.output is None else to_json_line(run.output),
        "repairs": list(run.repairs),
        "others": [to_json_line(other.get("data")) for other in run.others],
        "steps": list(_steps(run, clock)),
        "tail": [] if run.ending is None else [_message(one) for one in run.ending.messages],
    }


def _tool_name(tool: JSONDict) -> Iterator[str]:
    function = tool.get("function")
    if is_dict(function):
        yield str(function.get("name"))


def _answering_model(run: Run) -> str:
    for iteration in run.iterations:
        if iteration.response is not None and iteration.response["model"]:
            return str(iteration.response["model"])
    return ""


def answer_of(run: Run) -> str:
    """The text of the answer; empty if there is none."""
    if run.status != "ok" or not run.messages:
        return ""
    last = run.messages[-1]
    return content_of(last) if last.get("role") == "assistant" else ""


def _retries_of(iteration: Iteration) -> int:
    return len(iteration.retries) + sum(len(call.retries) for call in iteration.calls)


def _usage(usage: Usage) -> JSONDict:
    return {
        "in": usage.input_tokens,
        "out": usage.output_tokens,
        "total": usage.total_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
        "least": usage.is_lower_bound,
        "cost": usage.cost,
    }


def _steps(run: Run, clock: Clock) -> Iterator[JSONDict]:
    instructions: str | None = None
    for iteration in run.iterations:
        yield _iteration(iteration, instructions, clock)
        if iteration.sent is not None:
            instructions = iteration.instructions


def _iteration(iteration: Iteration, before: str | None, clock: Clock) -> JSONDict:
    """An iteration and its rows; ``before`` is the system message of the request before."""
    return {
        "n": iteration.number,
        "t": clock(iteration.started_at),
        "q": clock(iteration.asked_at),
        "p": clock(iteration.first_chunk_at),
        "a": clock(iteration.answered_at),
        "e": clock(iteration.ended_at),
        "m": iteration.model_seconds,
        "usage": None if iteration.usage is None else _usage(iteration.usage),
        "retries": [_retry(one, clock) for one in iteration.retries],
        "failed": bool(iteration.failure),
        "rows": list(_rows(iteration, before, clock)),
    }


def _rows(iteration: Iteration, before: str | None, clock: Clock) -> Iterator[JSONDict]:
    """The rows of an iteration, in the order of what happened."""
    yield from _asked(iteration, before)
    for retry in iteration.retries:
        yield {"k": "retry", **_retry(retry, clock)}
    if iteration.failure:
        yield {"k": "failure", "text": iteration.failure}
    if iteration.streamed:
        yield {"k": "streamed", "text": iteration.streamed}
    yield from _answer(iteration)
    contents = _tool_messages(iteration)
    for call in iteration.calls:
        yield _call(call, clock, contents.get(call.id))
    for guard in iteration.guards:
        if guard.call_id is None:  # guards of calls are part of the calls' rows
            yield {"k": "guard", "kind": guard.kind, "text": explain.explain_guard(guard)}
    for message in () if iteration.added is None else iteration.added.messages:
        if message.get("role") not in ("assistant", "tool"):  # a tuple: a role may be unhashable
            yield {"k": "message", **_message(message)}


def _asked(iteration: Iteration, before: str | None) -> Iterator[JSONDict]:
    """What the request has that the request before had not, and what stages changed in it."""
    sent = iteration.sent
    if sent is not None:
        if iteration.instructions != before:
            yield {"k": "instructions", "text": iteration.instructions or ""}
        if sent.dropped:
            yield {"k": "rewritten", "text": _rewritten(sent.start, sent.dropped)}
        for message in sent.messages:
            yield {"k": "message", **_message(message)}
    if iteration.view is not None:
        yield {"k": "view", "messages": [_message(one) for one in iteration.view]}
    if iteration.guidance is not None:
        yield {"k": "guidance", "text": iteration.guidance}


def _rewritten(start: int, dropped: int) -> str:
    what = "1 message was" if dropped == 1 else f"{dropped} messages were"
    return f"{what} replaced, starting at message {start + 1}."


def _answer(iteration: Iteration) -> Iterator[JSONDict]:
    """The text of the response and its other fields."""
    response = iteration.response
    if response is None:
        return
    text = response["content"] or response["refusal"] or ""
    extra = {name: value for name, value in response["extra"].items() if value not in (None, "")}
    if not text and "content" in extra:
        text = content_of({"content": extra.pop("content")})
    if text or extra or not response["tool_calls"]:
        yield {
            "k": "answer",
            "text": text,
            "extra": to_json_line(extra) if extra else "",
            "finish": response["finish_reason"] or "",
            "refusal": bool(response["refusal"]),
        }


def _tool_messages(iteration: Iteration) -> dict[str, str]:
    """The content that the model receives for each call, after notes were added and long results truncated."""
    messages = [] if iteration.added is None else iteration.added.messages
    return {
        str(message.get("tool_call_id")): content_of(message)
        for message in messages
        if message.get("role") == "tool"
    }


def _call(call: Call, clock: Clock, content: str | None) -> JSONDict:
    return {
        "k": "call",
        "id": call.id,
        "name": call.name,
        "args": call.arguments,
        "status": call.status,
        "error": call.is_error,
        "t": clock(call.started_at),
        "e": clock(call.ended_at),
        "d": call.duration,
        "within": call.within,
        "guard": _guard_of(call),
        "nudges": call.nudges,
        "retries": [_retry(one, clock) for one in call.retries],
        "result": call.content if content is None else content,
        "runs": [_run(run, clock) for run in call.runs],
    }


def _guard_of(call: Call) -> str:
    return explain.explain_not_run(call.not_run) if call.not_run else "; ".join(call.problems)


def _retry(retry: Retry, clock: Clock) -> JSONDict:
    return {
        "attempt": retry.attempt,
        "text": _failure_of(retry),
        "delay": retry.delay,
        "at": clock(retry.at),
    }


def _failure_of(retry: Retry) -> str:
    """The text of the error. Errors of tools name their class already."""
    is_named = retry.error_type in retry.error
    return retry.error if is_named else f"{retry.error_type}: {retry.error}"


_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id"})


def _message(message: JSONDict) -> JSONDict:
    extra = {name: value for name, value in message.items() if name not in _KNOWN}
    calls = message.get("tool_calls")
    return {
        "role": str(message.get("role")),
        "text": content_of(message),
        "calls": to_json_line(calls) if calls else "",
        "extra": to_json_line(extra) if extra else "",
    }


def content_of(message: JSONDict) -> str:
    """The text of a message. Content parts that are not text are shown as JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if is_list(content):
        return "\n".join(map(_part, content))
    return "" if content is None else json.dumps(content)


def _part(part: Any) -> str:
    text = part.get("text") if is_dict(part) else None
    return text if isinstance(text, str) else to_json_line(part)
