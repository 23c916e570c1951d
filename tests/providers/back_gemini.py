"""Bodies of requests to Gemini, as they are on the wire: checked by the SDK's types, and read back."""

import base64
import json

from google.genai import types

_CONFIG = {
    "contents": None,
    "systemInstruction": types.Content,
    "tools": types.Tool,
    "toolConfig": types.ToolConfig,
    "generationConfig": types.GenerationConfig,
    "safetySettings": types.SafetySetting,
    "cachedContent": str,
}
FORMAT = "gemini-content"
NO_SIGNATURE = "skip_thought_signature_validator"


def check_body(body):
    """Check a body by the SDK's types, which refuse unknown keys, and by the rules that they do not state."""
    assert body.keys() <= _CONFIG.keys(), body.keys() - _CONFIG.keys()
    for key in ("systemInstruction", "toolConfig", "generationConfig"):
        if key in body:
            _CONFIG[key].model_validate(body[key])
    for tool in body.get("tools", ()):
        types.Tool.model_validate(tool)
    contents = [types.Content.model_validate(content) for content in body["contents"]]
    assert contents[0].role == "user"
    for content, following in zip(contents, [*contents[1:], None], strict=True):
        calls = [part for part in content.parts if part.function_call]
        if (
            calls and following is not None
        ):  # the next content has their responses, and nothing else
            answers = [part.function_response for part in following.parts]
            assert [call.function_call.id for call in calls] == [one.id for one in answers]
            assert [call.function_call.name for call in calls] == [one.name for one in answers]


def messages_of(body):
    """The history that a body says, in OpenAI's form."""
    system = body.get("systemInstruction", {}).get("parts") or []
    history = [{"role": "system", "content": _content(system)}] if system else []
    for content in body["contents"]:
        read = _assistant if content["role"] == "model" else _user
        history += read(content["parts"])
    return history


def _user(parts):
    for part in parts:
        if "functionResponse" in part:
            result = part["functionResponse"]
            (text,) = result["response"].values()
            assert text.startswith("Error:") is ("error" in result["response"])
            yield {"role": "tool", "tool_call_id": result["id"], "content": text}
    rest = [part for part in parts if "functionResponse" not in part]
    if rest:
        yield {"role": "user", "content": _content(rest)}


def _assistant(parts):
    made = {"role": "assistant"}
    texts = [part for part in parts if "text" in part and not part.get("thought")]
    made["content"] = _content(texts) if texts else None
    calls = [_call(part) for part in parts if "functionCall" in part]
    details = [_thought(part, index) for index, part in enumerate(parts) if part.get("thought")]
    for part in texts:
        made |= _signed(part)
    if calls:
        made["tool_calls"] = calls
    if details:
        made["reasoning_details"] = details
    yield made


def _signed(part):
    signature = part.get("thoughtSignature")
    if signature is None or signature == NO_SIGNATURE:
        return {}
    return {"extra_content": {"google": {"thought_signature": _standard(signature)}}}


def _standard(text):
    """The SDK encodes bytes in the alphabet for URLs."""
    return base64.b64encode(base64.urlsafe_b64decode(text)).decode()


def _call(part):
    call = part["functionCall"]
    function = {"name": call["name"], "arguments": json.dumps(call.get("args", {}))}
    return {"id": call["id"], "type": "function", "function": function, **_signed(part)}


def _thought(part, index):
    item = {"type": "reasoning.text", "format": FORMAT, "index": index, "text": part["text"]}
    signature = part.get("thoughtSignature")
    return item if signature is None else {**item, "signature": _standard(signature)}


def _content(parts):
    made = [_part(part) for part in parts]
    if len(made) == 1 and made[0]["type"] == "text":
        return made[0]["text"]
    return made


def _part(part):
    if "text" in part:
        return {"type": "text", "text": part["text"]}
    if "fileData" in part:
        return {"type": "image_url", "image_url": {"url": part["fileData"]["fileUri"]}}
    given = part["inlineData"]
    media = given.get("mimeType") or given["mime_type"]  # the SDK sends the latter
    data = _standard(given["data"])
    url = f"data:{media};base64,{data}"
    if media.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": data, "format": media[6:]}}
    if media.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}
