"""A whole response of the Responses API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages import NotAResponseError, Response, ToolCall, is_list
from treadle.messages.decode import check_no_error, provider_error, to_usage
from treadle.messages.ending import ending_of
from treadle.providers.openai_responses.provider_state import (
    BETWEEN_MESSAGES,
    details_of,
    kept_items,
    texts_of,
)
from treadle.providers.sdk_object import as_dict


def response_of(raw: Any) -> Response:
    """Translate a response of the SDK.

    Raises:
        ProviderError: the response failed, or the server sent an error in its place.
        NotAResponseError: the server sent JSON that is no response.
    """
    if getattr(raw, "status", None) == "failed":
        error = as_dict(raw).get("error")
        raise provider_error(error or "the response failed", retryable=None if error else True)
    check_no_error(as_dict(raw))
    if not is_list(getattr(raw, "output", None)):
        raise NotAResponseError(
            "llm_send_fn: the server sent JSON that is no response of the Responses API; check the base URL, "
            "and whether the server implements this API (openai:NAME uses chat completions)"
        )
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
        finish_reason=finish_reason_of(raw, output),
        usage=usage_of(raw),
        model=raw.model,
        id=raw.id,
        extra=extra,
        refusal=refusal,
    )


def _call(item: Mapping[str, Any]) -> ToolCall:
    call_id, name, arguments = (item.get(key) or "" for key in ("call_id", "name", "arguments"))
    return ToolCall(call_id, name, arguments, is_whole=is_whole(item))


def is_whole(item: Mapping[str, Any]) -> bool | None:
    """Whether an item is complete, by its status; None if it has none."""
    status = item.get("status")
    return None if status is None else status == "completed"


def usage_of(raw: Any) -> Any:
    """The usage of a response; None if there is none."""
    usage = getattr(raw, "usage", None)
    return None if usage is None else to_usage(as_dict(usage))


def finish_reason_of(raw: Any, output: Iterable[Mapping[str, Any]]) -> str | None:
    """Why the response is incomplete, else its status; None if the server gives none.

    Args:
        raw: the response of the SDK.
        output: its items; a text that is incomplete was cut, whatever the status says.
    """
    details, status = getattr(raw, "incomplete_details", None), getattr(raw, "status", None)
    reason = getattr(details, "reason", None)
    # The status says that the response was cut, if the reason is a new one.
    if not (reason and ending_of(str(reason))):
        reason = status
    is_cut = any(one.get("type") == "message" and is_whole(one) is False for one in output)
    return "incomplete" if is_cut and reason in {None, "completed"} else reason and str(reason)
