"""Bodies of requests to the Gemini API: checked by the SDK's types, and read back as chat dicts."""

import base64
import itertools
import json

from google.genai import types

_OF_CONFIG = {  # the settings that are not in generationConfig on the wire
    "systemInstruction": "system_instruction",
    "tools": "tools",
    "toolConfig": "tool_config",
    "safetySettings": "safety_settings",
    "cachedContent": "cached_content",
    "serviceTier": "service_tier",
}
FORMAT = "gemini-content"
NO_SIGNATURE = "skip_thought_signature_validator"


def check_body(body):
    """Check a body, as it is on the wire, by the types of the SDK, and by the rules that they do not state."""
    known = {"contents", "generationConfig", *_OF_CONFIG, "model"}
    assert body.keys() <= known, body.keys() - known
    _checked(types.GenerationConfig, body.get("generationConfig") or {})
    config = {own: body[key] for key, own in _OF_CONFIG.items() if key in body}
    _checked(types.GenerateContentConfig, config)
    contents = [_checked(types.Content, content) for content in body["contents"]]
    roles = [content.role for content in contents]
    assert roles[0] == "user"
    assert set(roles) <= {"user", "model"}
    for content in contents:
        assert content.parts
        for part in content.parts:
            assert part.text != "" or part.thought_signature
    for one, other in itertools.pairwise([*contents, types.Content(parts=[])]):
        called = [part.function_call.id for part in one.parts if part.function_call]
        told = [part.function_response.id for part in other.parts if part.function_response]
        assert called == told
        assert len(told) in {0, len(other.parts)}  # results are by themselves
        assert told or one.role != other.role or _has_results(one)


def _has_results(content):
    return any(part.function_response for part in content.parts)


def _checked(kind, value):
    return kind.model_validate_json(json.dumps(value))


def messages_of(body):
    """The history that a body says, in OpenAI's form."""
    system = (body.get("systemInstruction") or {}).get("parts") or []
    history = [{"role": "system", "content": _content(system)}] if system else []
    for content in body["contents"]:
        read = _user if content["role"] == "user" else _assistant
        history += read(content["parts"])
    return history


def _user(parts):
    rest = []
    for part in parts:
        if "functionResponse" in part:
            found = part["functionResponse"]
            ((key, text),) = found["response"].items()
            assert (key == "error") is text.startswith("Error:")
            media = [_part(one) for one in found.get("parts") or ()]
            content = [{"type": "text", "text": text}, *media] if media else text
            yield {"role": "tool", "tool_call_id": found["id"], "content": content}
        else:
            rest.append(part)
    if rest:
        yield {"role": "user", "content": _content(rest)}


def _assistant(parts):
    thoughts = [_thought(part, index) for index, part in enumerate(parts) if part.get("thought")]
    texts = [part for part in parts if "text" in part and not part.get("thought")]
    made = {"role": "assistant", "content": _content(texts) if texts else None}
    calls = [_call(part) for part in parts if "functionCall" in part]
    if calls:
        made["tool_calls"] = calls
    if thoughts:
        made["reasoning_details"] = thoughts
    signatures = [part["thoughtSignature"] for part in texts if "thoughtSignature" in part]
    if signatures:
        made |= _signed(signatures[-1])
    yield made


def _thought(part, index):
    item = {"type": "reasoning.text", "text": part["text"], "format": FORMAT, "index": index}
    signature = part.get("thoughtSignature")
    return item if signature is None else {**item, "signature": _standard(signature)}


def _call(part):
    call = part["functionCall"]
    arguments = json.dumps(call.get("args", {}))
    made = {
        "id": call["id"],
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }
    signature = part.get("thoughtSignature", NO_SIGNATURE)
    return made if signature == NO_SIGNATURE else {**made, **_signed(signature)}


def _signed(signature):
    return {"extra_content": {"google": {"thought_signature": _standard(signature)}}}


def _standard(text):
    """Base64 with the alphabet of a history; the SDK sends that of URLs."""
    return base64.b64encode(base64.urlsafe_b64decode(text)).decode()


def _content(parts):
    """A text if there is nothing else."""
    made = [_part(part) for part in parts]
    return made[0]["text"] if len(made) == 1 and made[0]["type"] == "text" else made


def _part(part):
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "fileData" in part:
        given = part["fileData"]
        return {
            "type": "image_url",
            "image_url": {"url": given.get("fileUri") or given["file_uri"]},
        }
    given = part["inlineData"]
    media = given.get("mimeType") or given["mime_type"]  # the SDK sends the latter
    data = _standard(given["data"])
    if media.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": data, "format": media[6:]}}
    url = f"data:{media};base64,{data}"
    if media.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}
