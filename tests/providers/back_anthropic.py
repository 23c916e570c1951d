"""Bodies of requests to Anthropic: checked by the SDK's types, and read back as chat dicts."""

import itertools
import json
import re

from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from tests.providers.typed_dicts import strict_adapter

_SAMPLING = {"temperature", "top_p", "top_k"}
"""Parameters that the SDK no longer has, and earlier models take."""
_OF_THE_SDK = {"extra_body", "timeout"}


def check_body(body):
    """Check a body by the types of the SDK, and by the rules of the API that they do not state."""
    known = {key: value for key, value in body.items() if key not in _SAMPLING | _OF_THE_SDK}
    kind = MessageCreateParamsStreaming if body.get("stream") else MessageCreateParamsNonStreaming
    strict_adapter(kind).validate_python(known)
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in itertools.pairwise(roles))
    blocks = [block for message in body["messages"] for block in message["content"]]
    assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    if any(block["type"] == "tool_use" for block in blocks):
        assert body["tools"]
    uses = [block for block in blocks if block["type"] == "tool_use"]
    assert all(
        re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", use[key]) for use in uses for key in ("id", "name")
    )
    for block in blocks:
        assert not ("cache_control" in block and "thinking" in block["type"])
        if block.get("is_error"):
            assert all(part["type"] == "text" for part in block.get("content", ()))
    for message in body["messages"]:
        if message["role"] == "assistant":
            assert not any(block["type"] in {"image", "document"} for block in message["content"])
    for message in body["messages"]:  # results come first
        kinds = [block["type"] == "tool_result" for block in message["content"]]
        assert kinds == sorted(kinds, reverse=True)


def messages_of(body):
    """The history that a body says, in OpenAI's form."""
    system = body.get("system") or []
    history = [{"role": "system", "content": _content(system)}] if system else []
    for message in body["messages"]:
        read = _user if message["role"] == "user" else _assistant
        history += read(message["content"])
    return history


def _user(blocks):
    rest = []
    for block in blocks:
        if block["type"] == "tool_result":
            content = _content(block.get("content") or [])
            if block.get("is_error"):
                text = content if isinstance(content, str) else content[0]["text"]
                assert text.startswith("Error:")
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": content}
        else:
            rest.append(block)
    if rest:
        yield {"role": "user", "content": _content(rest)}


def _assistant(blocks):
    made = {"role": "assistant"}
    texts = [block for block in blocks if block["type"] == "text"]
    made["content"] = _content(texts) if texts else None
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    details = [
        _detail(block, index)
        for index, block in enumerate(blocks)
        if block["type"] in {"thinking", "redacted_thinking"}
    ]
    if calls:
        made["tool_calls"] = calls
    if details:
        made["reasoning_details"] = details
    yield made


def _detail(block, index):
    item = {"format": "anthropic-messages", "index": index}
    if block["type"] == "redacted_thinking":
        return {"type": "reasoning.encrypted", **item, "data": block["data"]}
    return {
        "type": "reasoning.text",
        **item,
        "text": block["thinking"],
        "signature": block["signature"],
    }


def _content(blocks):
    """A text if there is nothing else."""
    if isinstance(blocks, str):
        return blocks
    parts = [_part(block) for block in blocks]
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return parts[0]["text"]
    return parts


def _part(block):
    hint = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
    if block["type"] == "text":
        return {"type": "text", "text": block["text"], **hint}
    source = block["source"]
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
    if block["type"] == "image":
        return {"type": "image_url", "image_url": {"url": url}, **hint}
    return {"type": "file", "file": {"filename": block["title"], "file_data": url}, **hint}
