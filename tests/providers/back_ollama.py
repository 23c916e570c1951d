"""Bodies of requests to Ollama, translated back to chat dicts, and checked by the SDK's own types."""

import json

import ollama

BEYOND_THE_SDK = {"id", "tool_call_id"}
"""Keys that the server has (``api/types.go``) and the SDK's types do not."""


def strict(model, value, beyond=frozenset()):
    """Check that a value has no other keys than the fields of a pydantic model."""
    unknown = value.keys() - model.model_fields.keys() - beyond
    assert not unknown, f"{model.__name__} has no {unknown}"
    model.model_validate(value)


def check_body(body):
    strict(ollama._types.ChatRequest, body, {"timeout"})
    strict(ollama._types.Options, body.get("options", {}), {"min_p"})
    for message in body["messages"]:
        images = [ollama.Image(value=image) for image in message.get("images", ())]
        assert [image.model_dump() for image in images] == message.get("images", [])
        strict(ollama.Message, {**message, "images": images}, BEYOND_THE_SDK)
        for call in message.get("tool_calls", ()):
            strict(ollama.Message.ToolCall, call, BEYOND_THE_SDK)
            strict(ollama.Message.ToolCall.Function, call["function"])


def messages_of(body):
    return [_message(one) for one in body["messages"]]


def _message(sent):
    made = {"role": sent["role"], "content": sent["content"]}
    for image in sent.get("images", ()):
        made.setdefault("images", []).append(image)
    if "thinking" in sent:
        made["thinking"] = sent["thinking"]
    if "tool_calls" in sent:
        made["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["function"]["name"],
                    "arguments": json.dumps(call["function"]["arguments"]),
                },
            }
            for call in sent["tool_calls"]
        ]
    if sent["role"] == "tool":
        made["tool_call_id"] = sent["tool_call_id"]
        made["tool_name"] = sent["tool_name"]
    return made
