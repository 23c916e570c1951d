"""The data of a report's page: each run as JSON, in display order.

Keys that occur once per step are short, because a report has thousands of steps. Times are in seconds since the
start of the run, without pauses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from treadle.codec import finite, to_json_line
from treadle.messages import ORIGIN, JSONDict, Usage, is_dict, is_list
from treadle.messages.parts import is_content_part, placeholder
from treadle.recording.model import Call, Iteration, Recording, Retry, Run
from treadle.reports.report import explain

Clock = Callable[[float | None], float | None]


def report_data(recording: Recording) -> JSONDict:
    """The data of a page."""
    return {
        "problems": recording.problems,
        "runs": [_run(run, _clock_of(run)) for run in recording.runs],
    }


def _clock_of(run: Run) -> Clock:
    """The function that converts times of the run to times of the page."""
    starts = [run.started_at, *(one.started_at for one in run.iterations)]
    begin = next((at for at in starts if at is not None), 0.0)

    def clock(at: float | None) -> float | None:
        if at is None:
            return None
        paused = sum(min(at, later) - before for before, later in run.pauses if at > before)
        return round(at - begin - paused, 6)

    return clock


def _run(run: Run, clock: Clock) -> JSONDict:
    end = run.last_at if run.ended_at is None else run.ended_at
    responses = (one.response for one in run.iterations if one.response is not None)
    answered_by = (str(response["model"] or "") for response in responses)
    return {
        "id": run.run_id,
        "agent": run.agent_name,
        "status": run.status,
        "headline": explain.headline(run),
        "why": explain.why(run),
        "trace": run.traceback,
        "at": run.started_at,
        "t": clock(run.started_at),
        "e": clock(end),
        "duration": run.duration,
        "model": run.model or next(filter(None, answered_by), ""),
        "provider": run.provider,
        "limits": {
            name: most
            for name in run.limits
            if name.startswith("max_") and (most := finite(run.limits[name]))
        },
        "request": to_json_line(run.request) if run.request else "",
        "tools": [
            str(one.get("name")) for tool in run.tools if is_dict(one := tool.get("function"))
        ],
        "usage": _usage(run.usage),
        "iterations": run.total_iterations,
        "calls": run.tool_calls_count,
        "guards": len(run.guards),
        "retries": sum(len(one.retries) for part in (run.iterations, run.calls) for one in part),
        "answer": _answer_of(run),
        "output": None if run.output is None else to_json_line(run.output),
        "repairs": list(run.repairs),
        "others": [to_json_line(other.get("data")) for other in run.others],
        "steps": list(_steps(run, clock)),
        "tail": [] if run.ending is None else [_message(one) for one in run.ending.messages],
    }


def _answer_of(run: Run) -> str:
    if run.status != "ok" or not run.messages or run.messages[-1].get("role") != "assistant":
        return ""
    return content_of(run.messages[-1])


def _usage(usage: Usage) -> JSONDict:
    return {
        "in": usage.input_tokens,
        "out": usage.output_tokens,
        "total": usage.total_tokens,
        "cached": usage.cached_tokens,
        "reasoning": usage.reasoning_tokens,
        "least": usage.is_lower_bound,
        "about": usage.is_estimate,
        "cost": usage.cost,
    }


def _steps(run: Run, clock: Clock) -> Iterator[JSONDict]:
    """The iterations and their rows."""
    before: str | None = None
    for iteration in run.iterations:
        yield {
            "n": iteration.number,
            "t": clock(iteration.started_at),
            "q": clock(iteration.asked_at),
            "p": clock(iteration.first_chunk_at),
            "a": clock(iteration.answered_at),
            "f": clock(iteration.failed_at),
            "e": clock(iteration.ended_at),
            "m": iteration.model_seconds,
            "first": finite(iteration.time_to_first_token),
            "rate": finite(iteration.tokens_per_second),
            "usage": None if iteration.usage is None else _usage(iteration.usage),
            "retries": [_retry(one, clock) for one in iteration.retries],
            "failed": bool(iteration.failure),
            "rows": list(_rows(iteration, before, clock)),
        }
        if iteration.sent is not None:
            before = iteration.instructions


def _rows(iteration: Iteration, before: str | None, clock: Clock) -> Iterator[JSONDict]:
    """The rows of an iteration as they happened; ``before`` is the system message of the request before."""
    added = [] if iteration.added is None else iteration.added.messages
    # What the model receives for each call, after notes were added and long results truncated.
    contents = {
        str(message.get("tool_call_id")): content_of(message)
        for message in added
        if message.get("role") == "tool"
    }
    yield from _asked(iteration, before)
    for retry in iteration.retries:
        yield {"k": "retry", **_retry(retry, clock)}
    if iteration.failure:
        yield {"k": "failure", "text": iteration.failure}
    if iteration.streamed:
        yield {"k": "streamed", "text": iteration.streamed}
    yield from _answer(iteration)
    for call in iteration.calls:
        yield _call(call, clock, contents.get(call.id))
    for guard in iteration.guards:
        if guard.call_id is None:  # guards of calls are part of the calls' rows
            yield {"k": "guard", "kind": guard.kind, "text": explain.explain_guard(guard)}
    for message in added:
        if message.get("role") not in ("assistant", "tool"):  # a tuple: a role may be unhashable
            yield {"k": "message", **_message(message)}


def _asked(iteration: Iteration, before: str | None) -> Iterator[JSONDict]:
    """What the request has that the request before had not, and what stages changed in it."""
    sent = iteration.sent
    if sent is not None:
        if iteration.instructions != before:
            yield {"k": "instructions", "text": iteration.instructions or ""}
        if sent.dropped:
            what = "1 message was" if sent.dropped == 1 else f"{sent.dropped} messages were"
            text = f"{what} replaced, starting at message {sent.start + 1}."
            yield {"k": "rewritten", "text": text}
        for message in sent.messages:
            yield {"k": "message", **_message(message)}
    if iteration.view is not None:
        yield {"k": "view", "messages": [_message(one) for one in iteration.view]}
    if iteration.guidance is not None:
        yield {"k": "guidance", "text": iteration.guidance}


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
        "guard": explain.explain_not_run(call.not_run)
        if call.not_run
        else "; ".join(call.problems),
        "nudges": call.nudges,
        "progress": call.progress,
        "retries": [_retry(one, clock) for one in call.retries],
        "result": call.content if content is None else content,
        "trace": call.traceback,
        "runs": [_run(run, clock) for run in call.runs],
    }


def _retry(retry: Retry, clock: Clock) -> JSONDict:
    # Errors of tools name their class already.
    named = retry.error_type in retry.error
    text = retry.error if named else f"{retry.error_type}: {retry.error}"
    return {
        "attempt": retry.attempt,
        "text": text,
        "trace": retry.traceback,
        "delay": retry.delay,
        "at": clock(retry.at),
    }


_KNOWN = frozenset({"role", "content", "tool_calls", "tool_call_id", ORIGIN})


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
    """The text of a message. Content parts that are not text have a placeholder, or are shown as JSON."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if is_list(content):
        return "\n".join(map(_part, content))
    return "" if content is None else json.dumps(content)


def _part(part: Any) -> str:
    if is_content_part(part) and part["type"] != "text":
        return placeholder(part)
    text = part.get("text") if is_dict(part) else None
    return text if isinstance(text, str) else to_json_line(part)
