"""Requests to Ollama: chat dicts and OpenAI's options, as its native interface has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle.errors import OptionError, did_you_mean
from treadle.messages import JSONDict, is_list, is_mapping, parse_object
from treadle.messages.sanitizing import valid_arguments
from treadle.providers.json_tools.offer import schema_of
from treadle.providers.translation import image_of, text_for

FORMAT = "ollama-chat"
"""The ``format`` of items of ``reasoning_details`` that came from Ollama."""


def body_of(model: str, messages: Sequence[JSONDict], opts: Mapping[str, Any]) -> JSONDict:
    """The body of a request.

    Args:
        model: the name of the model.
        messages: a valid history; it is not changed.
        opts: see `options_of`.

    Raises:
        OptionError: see `options_of`.
    """
    return {"model": model, "messages": messages_of(messages), **options_of(opts)}


# Messages


def messages_of(messages: Sequence[JSONDict]) -> list[JSONDict]:
    """Translate messages. Keys and content that Ollama has no form for are left out or become placeholders."""
    names: dict[str, str] = {}
    translated: list[JSONDict] = []
    for message in messages:
        calls = [one for one in message.get("tool_calls") or () if "function" in one]
        names |= {one["id"]: one["function"]["name"] for one in calls}
        role = message["role"]
        made: JSONDict = {"role": "system" if role == "developer" else role, **_content(message)}
        thinking = _thinking(message) if role == "assistant" else ""
        if thinking:
            made["thinking"] = thinking
        if calls:
            made["tool_calls"] = [_call(one) for one in calls]
        if role == "tool":
            made["tool_call_id"] = call_id = message["tool_call_id"]
            made["tool_name"] = names.get(call_id, "")
        translated.append(made)
    return translated


def _content(message: Mapping[str, Any]) -> JSONDict:
    content = message.get("content") or message.get("refusal") or ""
    if not is_list(content):
        return {"content": content}
    images = [_image(part) for part in content]
    texts = [_text(part) for part, image in zip(content, images, strict=True) if image is None]
    found = [image for image in images if image is not None]
    return {"content": "\n".join(texts), **({"images": found} if found else {})}


def _image(part: Mapping[str, Any]) -> str | None:
    """The base64 data of an image; None for another part. Ollama takes no links."""
    found = image_of(part.get("image_url"), _IMAGES) if part.get("type") == "image_url" else None
    return None if found is None else found[1]


_IMAGES = frozenset({"image/jpeg", "image/png", "image/webp"})
"""The media types of images that the server decodes."""


def _text(part: Mapping[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part.get("text", ""))
    return text_for(part, "Ollama")


def _thinking(message: Mapping[str, Any]) -> str:
    details: Any = message.get("reasoning_details")
    own = [
        one.get("text")
        for one in (details if is_list(details) else ())
        if is_mapping(one) and one.get("format") == FORMAT
    ]
    return "".join(text for text in own if isinstance(text, str))


def _call(call: Mapping[str, Any]) -> JSONDict:
    function = call["function"]
    arguments = parse_object(valid_arguments(function.get("arguments") or ""))
    return {"id": call["id"], "function": {"name": function["name"], "arguments": arguments}}


# Options

_NAMES = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict"}
"""OpenAI's names of Ollama's model options, where they differ."""
_MODEL_OPTIONS = frozenset({
    "num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "use_mmap", "use_mlock", "numa", "low_vram",
    "num_keep", "num_predict", "seed", "temperature", "top_k", "top_p", "min_p", "typical_p", "tfs_z",
    "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty", "mirostat", "mirostat_tau",
    "mirostat_eta", "penalize_newline",
})  # fmt: skip
"""What goes under ``options`` of a request; from Ollama's documentation of the Modelfile and from its SDK."""


def _format(response_format: Any) -> Any:
    kind = response_format.get("type") if is_mapping(response_format) else None
    return "json" if kind == "json_object" else schema_of(response_format)


def _think(effort: Any) -> Any:
    # As Ollama's own endpoint for OpenAI's clients; what other names mean depends on the model.
    return {"none": False, "minimal": "low"}.get(effort, effort)


_TRANSLATED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "response_format": ("format", _format),
    "reasoning_effort": ("think", _think),
}
"""OpenAI's options that are not options of the model: Ollama's name, and the translation of the value."""
_PASSED_ON = frozenset({"tools", "format", "think", "keep_alive", "timeout"})
_DEFAULTS: Mapping[str, Any] = {"n": 1, "parallel_tool_calls": True}
"""OpenAI's options that may only have the value that is Ollama's only one."""
_SPECIAL = frozenset({"options", "stop", "tool_choice"})
KNOWN = (
    _MODEL_OPTIONS | _NAMES.keys() | _TRANSLATED.keys() | _PASSED_ON | _DEFAULTS.keys() | _SPECIAL
)


def options_of(opts: Mapping[str, Any]) -> JSONDict:
    """Translate options.

    Args:
        opts: by OpenAI's names or Ollama's; ``options`` has further ones of the model. One that is None is not
            given. ``tool_choice`` is "auto" or "none": `OllamaModel` has no others here.

    Returns:
        The keys of the body.

    Raises:
        OptionError: Ollama does not have an option, or its value.
    """
    given = {name: value for name, value in opts.items() if value is not None}
    check_names(given)
    body: JSONDict = {}
    options: JSONDict = {}
    for name, value in given.items():
        if name in _DEFAULTS:
            _check_default(name, value)
        elif name in _TRANSLATED:
            target, translate = _TRANSLATED[name]
            body[target] = translate(value)
        elif name in _PASSED_ON:
            body[name] = value
        elif name not in _SPECIAL:
            options[_NAMES.get(name, name)] = value
    if "stop" in given:
        options["stop"] = [given["stop"]] if isinstance(given["stop"], str) else given["stop"]
    options |= given.get("options", {})
    if options:
        body["options"] = options
    if given.get("tool_choice") == "none":
        body.pop("tools", None)
    return {name: value for name, value in body.items() if value is not None}


def check_names(opts: Mapping[str, Any]) -> None:
    """Check the names of options.

    Raises:
        OptionError: Ollama does not have one of them.
    """
    for name in opts:
        if name not in KNOWN:
            raise OptionError(f"Ollama has no option {name!r}{did_you_mean(name, sorted(KNOWN))}")


def _check_default(name: str, value: Any) -> None:
    if value != _DEFAULTS[name]:
        raise OptionError(f"{name}: Ollama only supports {_DEFAULTS[name]!r}, got {value!r}")
