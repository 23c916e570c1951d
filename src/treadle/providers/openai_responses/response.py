"""A whole response of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.messages import JSONDict, Response, ToolCall, to_usage
from treadle.providers.openai_responses.kept import (
    BETWEEN_MESSAGES,
    details_of,
    kept_items,
    texts_of,
)
from treadle.providers.sdk_object import as_dict


def response_of(raw: Any) -> Response:
    """Translate a response of the SDK."""
    output = [as_dict(item) for item in raw.output]
    messages = [item for item in output if item.get("type") == "message"]
    calls = tuple(_call(item) for item in output if item.get("type") == "function_call")
    refusal = "".join(texts_of(item, "refusal") for item in messages) or None
    extra = kept_items(output)
    details = [
        one
        for index, item in enumerate(output)
        if item.get("type") == "reasoning"
        for one in details_of(item, index)
    ]
    if details:
        extra["reasoning_details"] = details
    if refusal:
        extra["refusal"] = refusal
    return Response(
        content=BETWEEN_MESSAGES.join(filter(None, map(texts_of, messages))) or None,
        tool_calls=calls,
        finish_reason=finish_reason_of(raw, bool(calls)),
        usage=usage_of(raw),
        model=raw.model,
        id=raw.id,
        extra=extra,
        refusal=refusal,
    )


def _call(item: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        item.get("call_id") or "", item.get("name") or "", item.get("arguments") or "{}"
    )


def usage_of(raw: Any) -> Any:
    """The usage of a response; None if there is none."""
    usage = getattr(raw, "usage", None)
    return None if usage is None else to_usage(as_dict(usage))


def finish_reason_of(raw: Any, has_calls: bool) -> str:
    """Why the model ended, as chat completions name it where they have a name."""
    status = str(raw.status)
    if status == "completed":
        return "tool_calls" if has_calls else "stop"
    details = getattr(raw, "incomplete_details", None)
    reason = str(getattr(details, "reason", None) or status)
    return {"max_output_tokens": "length"}.get(reason, reason)


def failure_of(sdk: Any, error: Any) -> Exception:
    """The SDK's exception for a response that failed, or an error in a stream."""
    body: JSONDict = {"message": "the response failed", "code": None}
    if error is not None:
        body |= {key: getattr(error, key, None) for key in ("message", "code", "param", "type")}
    failure: Exception = sdk.APIError(str(body["message"]), request=None, body=body)
    return failure
