"""Converts the return values of a backend (text, dicts, SDK objects) to responses and chunks."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.errors import ProviderError, TreadleError, safe_str
from treadle.messages.json_text import short_json
from treadle.messages.measurement import COUNTS, Usage
from treadle.messages.message import (
    NOTHING,
    JSONDict,
    copy_json,
    describe,
    dumped_of,
    is_list,
    is_mapping,
    is_part,
)
from treadle.messages.response import CallChunk, Chunk, Response, ToolCall, refusal_of_parts

MOST_TOKENS = 2**63
"""A count of tokens is below this number."""


class NotAResponseError(TreadleError, TypeError):
    """The model returned something that is not a response."""


_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "text"),
    "str | None": ((str, type(None)), "text"),
    "int": ((int,), "a number"),
    "tuple[ToolCall, ...]": ((tuple, list), "a tuple of calls"),
    "tuple[CallChunk, ...]": ((tuple, list), "a tuple of calls"),
    "Mapping[str, Any]": ((dict, Mapping), "a mapping"),
    "Usage | None": ((Usage, type(None)), "Usage"),
}
"""The types of the values of a field by its annotation, and their description for errors."""
_CALLS: Mapping[type[Any], type[Any]] = {Response: ToolCall, Chunk: CallChunk}
_FIELDS = {
    kind: [
        (spec.name, _KINDS[spec.type]) for spec in dataclasses.fields(kind) if spec.type in _KINDS
    ]
    for kind in (*_CALLS, *_CALLS.values())
}


def _wrong(expectation: str, value: Any) -> NotAResponseError:
    return NotAResponseError(f"llm_send_fn: {expectation}, got {describe(value)}")


def _checked(made: Any, base: type[Any]) -> Any:
    """Check the types of the fields of an object that the backend made, and of its calls."""
    where = type(made).__name__
    for name, (kinds, expected) in _FIELDS[base]:
        value = getattr(made, name, ...)
        if not isinstance(value, kinds):
            raise _wrong(f"{where}.{name}: expected {expected}", value)
    for key in made.extra:
        if not isinstance(key, str):
            raise _wrong(f"{where}.extra: expected keys that are text", key)
    if base in _CALLS:
        for call in made.tool_calls:
            if not isinstance(call, _CALLS[base]):
                raise _wrong(f"{where}.tool_calls: expected calls", call)
            _checked(call, _CALLS[base])
        _check_values(where, made.extra, made.usage)
    return made


def _check_values(where: str, extra: Mapping[str, Any], usage: Usage | None) -> None:
    parts = extra.get("content")
    if parts is not None and not (is_list(parts) and all(map(is_part, parts))):
        raise _wrong(f"{where}.extra['content']: expected a list of parts, each with a type", parts)
    if not isinstance(extra.get("refusal"), (str, type(None))):
        raise _wrong(f"{where}.extra['refusal']: expected text", extra["refusal"])
    if usage is not None and not all(_is_count(getattr(usage, name)) for name in COUNTS):
        raise _wrong("usage: expected numbers of tokens of at least 0", usage)
    if usage is not None and usage.cost is not None and not is_cost(usage.cost):
        raise _wrong("usage.cost: expected US dollars", usage.cost)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS


def is_cost(value: Any) -> bool:
    """Whether a value is a valid number of US dollars."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < math.inf


def to_response(raw: Any) -> Response:
    """Convert the return value of a backend to a response; `NotAResponseError` says what another value is."""
    if isinstance(raw, Response):
        return _checked(raw, Response)
    if isinstance(raw, str):
        return Response(raw)
    value = _as_mapping(raw)
    if value is None:
        found = describe(raw)
    elif _KNOWN.issuperset(value) and value:  # the common case
        return _from_message(value, None, None, value)
    else:
        check_no_error(value)
        if "role" in value or "content" in value or "tool_calls" in value:
            # A function of the user may put the reason into the message; the second name is Anthropic's.
            reason = value.get("finish_reason") or value.get("stop_reason")
            return _from_message(value, text_or_none(reason), None, value)
        if "choices" in value:
            return _from_completion(value)
        found = f"a dict with {', '.join(map(str, list(value)[:5])) or 'no keys'}"
    raise NotAResponseError(
        "llm_send_fn: expected text, an assistant message, a chat completion, a Response, "
        f"or an iterator of chunks, got {found}"
    )


def check_no_error(holder: Mapping[str, Any] | None) -> None:
    """Raise the `ProviderError` that a server reports in a body, a piece of a stream or a choice, if any."""
    if not holder:
        return
    error, errors = holder.get("error"), holder.get("errors")
    if isinstance(error, str) and error and "code" in holder:
        error = {**holder, "message": error}
    if not error and is_list(errors) and errors:
        error = errors[0]
    if error or holder.get("object") == "error":  # vLLM
        raise provider_error(error or holder)


def provider_error(error: Any, retryable: bool | None = None) -> ProviderError:
    """The exception for an error in a body; its code and its type decide on a retry if ``retryable`` is None."""
    value = _as_mapping(error)
    if value is None:
        return ProviderError(safe_str(error), retryable=retryable)
    texts = (value.get(key) for key in ("message", "detail", "msg", "error"))
    text = next((text for text in texts if isinstance(text, str) and text), None)
    code, kind = value.get("code"), value.get("type") or value.get("status")
    if isinstance(code, str) and code.isdecimal():
        code = int(code)
    return ProviderError(text or short_json(dict(value)), code=code, kind=kind, retryable=retryable)


def _as_mapping(raw: Any) -> Mapping[str, Any] | None:
    if isinstance(raw, dict) or is_mapping(raw):  # the first is fast, and common
        return raw  # pyright: ignore[reportUnknownVariableType]
    dumped = dumped_of(raw)
    return dumped if is_mapping(dumped) else None


def _from_completion(value: Mapping[str, Any]) -> Response:
    choices = value.get("choices")
    first = _first(choices) or NOTHING
    check_no_error(first)
    message, reason = _as_mapping(first.get("message")), _reason_of(first)
    if message is None and reason is None:  # a filter may have replaced the message
        raise _wrong("expected a chat completion with choices[0].message", choices)
    message = _with_logprobs(message or NOTHING, first)
    return _from_message(message, reason, value.get("usage"), value)


def _with_logprobs(message: Mapping[str, Any], choice: Mapping[str, Any]) -> Mapping[str, Any]:
    """The message of a choice, with the log probabilities of its tokens, which are next to it in the choice."""
    found: Any = choice.get("logprobs")
    tokens: Any = found.get("content") if is_mapping(found) else None
    return {**message, "logprobs": tokens} if is_list(tokens) else message


def _from_message(
    message: Mapping[str, Any], finish_reason: str | None, usage: Any, completion: Mapping[str, Any]
) -> Response:
    content = message.get("content")
    parts: list[Any] = content if is_list(content) else []
    if parts and any(is_mapping(part) and part.get("type") in _CALL_KINDS for part in parts):
        raise NotAResponseError(
            "llm_send_fn: the content has calls in the form of another API; use the name of the model, such as "
            "'anthropic:NAME', or return a Response with tool_calls"
        )
    if (message.get("role") or "assistant") != "assistant":
        raise _wrong("expected a message of the role assistant", message["role"])
    calls = tuple(map(_to_call, _calls_of(message)))
    if completion is message and not parts and _KNOWN.issuperset(message):
        return Response(_text_of(content), calls)  # the common case
    extra = _unknown(message, _KNOWN)
    if is_list(content) and all(map(is_part, content)):
        # Malformed parts would make the history invalid; only their text is kept.
        extra["content"] = copy_json(content)
    return Response(
        content=_text_of(content),
        tool_calls=calls,
        finish_reason=finish_reason,
        usage=to_usage(usage),
        model=text_or_none(completion.get("model")),
        id=text_or_none(completion.get("id")),
        extra=extra,
        refusal=take_refusal(extra),
        provider=text_or_none(completion.get("provider")),
    )


_CALL_KINDS = ("tool_use", "function_call")
_KNOWN = frozenset({"role", "content", "tool_calls"})
_CHUNK_KEYS = frozenset({"choices", "usage"})
_KNOWN_OF_CALL = frozenset({"id", "type", "function", "index"})


def _unknown(value: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    if known.issuperset(value):
        return {}
    return {key: copy_json(value[key]) for key in value if key not in known}


def take_refusal(extra: JSONDict) -> str | None:
    """The refusal among the unknown keys of a message. One without a text is removed: no provider takes it."""
    refusal: Any = extra.get("refusal")
    if isinstance(refusal, str) and refusal:
        return refusal
    extra.pop("refusal", None)
    return None


def text_or_none(value: Any) -> str | None:
    """The value if it is text, else None."""
    return value if isinstance(value, str) else None


def _text_of(content: Any) -> str | None:
    """The text of message content: the content itself, or the text of its parts."""
    if content is None or isinstance(content, str):
        return content
    if is_list(content):
        parts = filter(is_mapping, content)
        thoughts = ("thinking", "reasoning")
        texts = (p.get("text") for p in parts if not str(p.get("type")).startswith(thoughts))
        return "".join(text for text in texts if isinstance(text, str))
    raise _wrong("message.content: expected text or a list of parts", content)


def _first(choices: Any) -> Mapping[str, Any] | None:
    """The first choice, by its index if there are several."""
    given: Any = choices
    found: list[Any] = [*map(_as_mapping, given)] if isinstance(choices, (list, tuple)) else []
    if len(found) > 1 and all(one and isinstance(one.get("index"), int) for one in found):
        return min(found, key=lambda one: one["index"])
    return found[0] if found else None


def _calls_of(message: Mapping[str, Any]) -> Sequence[Any]:
    calls: Any = message.get("tool_calls") or ()
    if not isinstance(calls, (list, tuple)):
        raise _wrong("message.tool_calls: expected a list", calls)
    return calls  # pyright: ignore[reportUnknownVariableType]


def _to_call(raw: Any) -> ToolCall:
    value = _as_mapping(raw) or NOTHING
    function = _as_mapping(value.get("function", value)) or NOTHING
    name = function.get("name")
    if not isinstance(name, str):
        raise _wrong("a call needs a function with a name", raw)
    extra = _unknown(value, _KNOWN_OF_CALL)
    arguments = _as_text(function.get("arguments"))
    return ToolCall(text_or_none(value.get("id")) or "", name, arguments, None, "", extra)


def _as_text(arguments: Any) -> str:
    """The arguments of a call, of which some servers return the object; what is not JSON is rejected later."""
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    try:
        return json.dumps(arguments, default=safe_str)
    except (TypeError, ValueError, RecursionError):
        return safe_str(arguments)


def to_usage(raw: Any) -> Usage | None:
    """Read the usage by the keys of OpenAI's two APIs; None if nothing was reported.

    No request takes zero tokens: a server that reports zeros does not count. If only some of the tokens are
    reported, the usage is a lower bound.
    """
    value = _as_mapping(raw)
    if not value:
        return raw if isinstance(raw, Usage) else None
    prompt = _count(value, "input_tokens", "prompt_tokens")
    answer = _count(value, "output_tokens", "completion_tokens")
    total = _count(value, "total_tokens")
    reasoning = _detail(value, "reasoning_tokens", "completion", "output")
    reported: Any = value.get("cost")  # OpenRouter's name for it; in US dollars
    cost = float(reported) if is_cost(reported) else None
    if not (prompt or answer or total):
        return None if cost is None else Usage(is_lower_bound=True, cost=cost)
    if total is not None and (prompt is None) != (answer is None):  # one follows from the others
        rest = max(0, total - (prompt or answer or 0))
        prompt, answer = (rest, answer) if prompt is None else (prompt, rest)
    is_partial = prompt is None or answer is None
    if reasoning and total == (prompt or 0) + (answer or 0) + reasoning:
        answer = (answer or 0) + reasoning  # xAI counts it apart from the rest
    return Usage(
        prompt or 0,
        answer or 0,
        total or 0,
        _detail(value, "cached_tokens", "prompt", "input"),
        reasoning,
        is_partial,
        cost,
        cache_write_tokens=_detail(value, "cache_write_tokens", "prompt", "input"),
    )


def _count(source: Mapping[str, Any], *names: str) -> int | None:
    """The first value of these keys that is a number of tokens."""
    return next((source[name] for name in names if _is_count(source.get(name))), None)


def _detail(value: Mapping[str, Any], name: str, *sides: str) -> int:
    """A count at the top level, or among the details of a side, such as ``prompt_tokens_details``."""
    details = (_as_mapping(value.get(f"{side}_tokens_details")) or NOTHING for side in sides)
    found = (_count(holder, name) for holder in (value, *details))
    return next((number for number in found if number is not None), 0)


def to_chunk(raw: Any) -> Chunk:
    """Convert one piece of a stream to a chunk; `NotAResponseError` says what another value is."""
    if isinstance(raw, Chunk):
        return _checked(raw, Chunk)
    if isinstance(raw, str):
        return Chunk(raw)
    value = _as_mapping(raw)
    check_no_error(value)
    if value is None or (value and _CHUNK_KEYS.isdisjoint(value)):
        raise _wrong("a chunk is text, a Chunk or a chat-completion chunk", raw)
    choice = _first(value.get("choices")) or {}
    check_no_error(choice)
    delta = _with_logprobs(_as_mapping(choice.get("delta")) or {}, choice)
    content, extra = delta.get("content"), _unknown(delta, _KNOWN)
    if refusal := refusal_of_parts(content):
        extra["refusal"] = refusal
    number: Any = choice.get("index")
    groq = _as_mapping(value.get("x_groq")) or {}
    # The usage is at the top; in the choice, as Moonshot sends it; or in ``x_groq``.
    return Chunk(
        text=_text_of(content) or "",
        tool_calls=tuple(map(_to_call_chunk, _calls_of(delta))),
        finish_reason=_reason_of(choice),
        usage=to_usage(value.get("usage") or choice.get("usage") or groq.get("usage")),
        model=text_or_none(value.get("model")),
        id=text_or_none(value.get("id")),
        extra=extra,
        ends_with_reason=True,
        choice=number if isinstance(number, int) else 0,
    )


def _reason_of(choice: Mapping[str, Any]) -> str | None:
    """The finish reason of a choice. Some servers send an empty text, or ``null`` as a text, before the end."""
    reason = choice.get("finish_reason")
    return None if reason in (None, "", "null") else safe_str(reason)


def _to_call_chunk(raw: Any) -> CallChunk:
    value = _as_mapping(raw) or {}
    function = _as_mapping(value.get("function")) or {}
    index: Any = value.get("index")
    return CallChunk(
        index if isinstance(index, int) else 0,
        text_or_none(value.get("id")) or "",
        text_or_none(function.get("name")) or "",
        _as_text(function.get("arguments") or ""),
        _unknown(value, _KNOWN_OF_CALL),
    )
