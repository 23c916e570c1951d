"""Bodies of requests to OpenAI's Responses API: checked by the SDK's types, and read back as chat dicts."""

import itertools

from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from tests.providers.typed_dicts import strict_adapter

from treadle.providers.openai_responses.provider_state import FORMAT

_WHOLE, _STREAMED = map(
    strict_adapter, (ResponseCreateParamsNonStreaming, ResponseCreateParamsStreaming)
)


def check_body(body):
    """Check a body; raises if the SDK has no such parameter, item or part."""
    (_STREAMED if body.get("stream") else _WHOLE).validate_python(body)


def messages_of(body):
    """The history that a body has, in the form of chat dicts."""
    messages = []
    for is_answer, group in itertools.groupby(body["input"], _is_of_answer):
        items = list(group)
        messages += [_answer(items)] if is_answer else map(_message, items)
    return messages


def _is_of_answer(item):
    return item.get("role") == "assistant" or item.get("type") in {"reasoning", "function_call"}


def _message(item):
    if item.get("type") == "function_call_output":
        content = _content(item["output"])
        return {"role": "tool", "tool_call_id": item["call_id"], "content": content}
    return {"role": item["role"], "content": _content(item["content"])}


def _content(content):
    return content if isinstance(content, str) else list(map(_part, content))


def _part(part):
    match part["type"]:
        case "input_text":
            return {"type": "text", "text": part["text"]}
        case "input_image":
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case "input_file":
            return {"type": "file", "file": {key: part[key] for key in part if key != "type"}}


def _answer(items):
    message = {"role": "assistant", "content": None}
    for index, item in enumerate(items):
        match item["type"]:
            case "message":
                message["content"] = item["content"]
            case "function_call":
                function = {key: item[key] for key in ("name", "arguments")}
                call = {"id": item["call_id"], "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(call)
            case "reasoning":
                message.setdefault("reasoning_details", []).extend(_details(item, index))
    return message


def _details(item, index):
    same = {"format": FORMAT, "id": item["id"], "index": index}
    for summary in item["summary"]:
        yield {"type": "reasoning.summary", "summary": summary["text"], **same}
    yield {"type": "reasoning.encrypted", "data": item["encrypted_content"], **same}
