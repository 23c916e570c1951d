"""The configuration of a request to the Gemini API, from OpenAI's options or the API's own."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from treadle.errors import OptionError, check_names
from treadle.messages import JSONDict, is_list, is_mapping
from treadle.providers.gemini.client import milliseconds
from treadle.providers.gemini.request import is_earlier
from treadle.providers.loose_schema import LooseSchema
from treadle.tools.strict_schema import STRUCTURE, NotInSubsetError

BUDGETS = {
    "none": 0,
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24576,
    "xhigh": 24576,
}
"""Tokens for thoughts of models before Gemini 3, by OpenAI's efforts, as Google's chat completions have them."""
_LEVELS = {**dict(zip(BUDGETS, BUDGETS, strict=True)), "none": "minimal"}
"""The same for later models, which always think."""


class GeminiSchema(LooseSchema):
    """See "JSON schema support" in https://ai.google.dev/gemini-api/docs/structured-output."""

    keywords = {  # noqa: RUF012
        **STRUCTURE,
        **dict.fromkeys(("minimum", "maximum", "minItems", "maxItems")),
        "format": ("date", "date-time", "time").__contains__,
        "prefixItems": is_list,
    }
    is_closed = False


def check_options(opts: Mapping[str, Any]) -> None:
    """Check the names of options.

    Raises:
        OptionError: the API has no such option.
    """
    known = {"model", *_settings(), *_server_tools(), *_OPTIONS}
    check_names(opts, sorted(known), "model: the Gemini API has no option")


def config_of(model: str, opts: Mapping[str, Any]) -> JSONDict:
    """The configuration of a request, as the SDK takes it.

    Args:
        model: the name of the model.
        opts: valid options, see `check_options`; a later one takes precedence.

    Raises:
        OptionError: the API cannot do what an option asks for.
    """
    # The SDK would call Python functions on its own.
    config: JSONDict = {"automatic_function_calling": {"disable": True}}
    tools: list[Any] = []
    for name, value in opts.items():
        if name in _server_tools():
            tools += [] if value in (None, False) else [{name: {} if value is True else value}]
        elif value is not None:
            _OPTIONS.get(name, _put)(config, name, value)
    config["tools"] = [*config.get("tools", ()), *tools]
    effort = config.pop("reasoning_effort", None)
    if effort is not None:
        thinking = {**_thinking(model, effort), **config.get("thinking_config", {})}
        config["thinking_config"] = thinking
    return _with_output(model, _with_tools(config))


@functools.cache
def _settings() -> frozenset[str]:
    """The names of the API's own settings, by the SDK."""
    types = importlib.import_module("google.genai.types")
    return frozenset(types.GenerateContentConfig.model_fields) - _NOT_OPTIONS


_NOT_OPTIONS = frozenset({"should_return_http_response", "candidate_count"})
"""Settings whose responses have no place in a conversation."""


@functools.cache
def _server_tools() -> frozenset[str]:
    """The names of the tools that run at Google, by the SDK."""
    types = importlib.import_module("google.genai.types")
    return frozenset(types.Tool.model_fields) - {"function_declarations"}


def _with_tools(config: JSONDict) -> JSONDict:
    """The configuration without what the API refuses if there are no tools."""
    if config["tools"]:
        return config
    del config["tools"]
    tool_config = config.get("tool_config", {})
    tool_config.pop("function_calling_config", None)
    if not tool_config:
        config.pop("tool_config", None)
    return config


def _with_output(model: str, config: JSONDict) -> JSONDict:
    """The configuration with the schema of the output.

    Models before Gemini 3 refuse one together with functions. The system message describes it to them instead.
    """
    if "response_mime_type" not in config or not is_earlier(model) or not _has_functions(config):
        return config
    calling: Any = config.get("tool_config", {}).get("function_calling_config", {})
    if calling.get("mode") == "NONE":
        config["tools"] = [one for one in config["tools"] if "function_declarations" not in one]
        return _with_tools(config)
    del config["response_mime_type"]
    schema = config.pop("response_json_schema", None)
    text = "Write your final answer as JSON, and nothing else."
    if schema is not None:
        text += f" It has to match this JSON schema: {json.dumps(schema)}"
    config["system_instruction"] = [*_system(config.get("system_instruction")), {"text": text}]
    return config


def _system(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [{"text": given}]
    return [*given] if is_list(given) else [] if given is None else [given]


def with_system(config: JSONDict, parts: list[JSONDict]) -> JSONDict:
    """The configuration with the system messages of the conversation before its own."""
    system = [*parts, *_system(config.get("system_instruction"))]
    return {**config, "system_instruction": system} if system else config


def _has_functions(config: JSONDict) -> bool:
    return any("function_declarations" in one for one in config.get("tools", ()))


def _thinking(model: str, effort: str) -> JSONDict:
    if effort not in BUDGETS:
        expected = ", ".join(BUDGETS)
        raise OptionError(f"reasoning_effort: expected one of {expected}, got {effort!r}")
    shown = {"include_thoughts": effort != "none"}
    if is_earlier(model):
        return {"thinking_budget": BUDGETS[effort], **shown}
    return {"thinking_level": _LEVELS[effort], **shown}


# Options


def _put(config: JSONDict, name: str, value: Any) -> None:
    config[name] = value


def _as(own: str) -> Callable[[JSONDict, str, Any], None]:
    """An option that has another name here."""
    return lambda config, _name, value: config.update({own: value})


def _merged(config: JSONDict, name: str, value: Any) -> None:
    config[name] = {**config.get(name, {}), **_as_dict(value)}


def _as_dict(value: Any) -> JSONDict:
    if is_mapping(value):
        return dict(value)
    made: JSONDict = value.model_dump(exclude_none=True)  # an object of the SDK
    return made


def _http(own: str) -> Callable[[JSONDict, str, Any], None]:
    return lambda config, _name, value: _merged(config, "http_options", {own: value})


def _timeout(config: JSONDict, _name: str, value: Any) -> None:
    _merged(config, "http_options", {"timeout": milliseconds(value)})


def _stop(config: JSONDict, _name: str, value: Any) -> None:
    config["stop_sequences"] = [value] if isinstance(value, str) else value


def _logprobs(config: JSONDict, _name: str, value: Any) -> None:
    config["response_logprobs" if isinstance(value, bool) else "logprobs"] = value


def _parallel(_config: JSONDict, name: str, value: Any) -> None:
    if not value:
        raise OptionError(f"{name}: the Gemini API cannot forbid parallel calls")


def _response_format(config: JSONDict, name: str, value: Any) -> None:
    kind: Any = value.get("type") if is_mapping(value) else None
    schema: Any = value.get("json_schema") if is_mapping(value) else None
    if kind == "json_schema" and is_mapping(schema):
        config["response_json_schema"] = _fitted(schema.get("schema"))
    elif kind not in {"json_object", "text"}:
        raise OptionError(f"{name}: expected a json_schema, a json_object or a text, got {value!r}")
    if kind != "text":
        config["response_mime_type"] = "application/json"


def _tools(config: JSONDict, _name: str, value: Any) -> None:
    functions = [_function(one["function"]) for one in value if _is_function(one)]
    others = [one for one in value if not _is_function(one)]
    config["tools"] = [{"function_declarations": functions}, *others] if functions else others


def _is_function(tool: Any) -> bool:
    return is_mapping(tool) and is_mapping(tool.get("function"))


def _function(given: Mapping[str, Any]) -> JSONDict:
    made: JSONDict = {"name": given.get("name"), "description": given.get("description") or None}
    made["parameters_json_schema"] = _fitted(given.get("parameters"))
    return {key: value for key, value in made.items() if value is not None}


def _fitted(schema: Any) -> Any:
    try:
        return GeminiSchema(schema).fitted() if is_mapping(schema) else schema
    except NotInSubsetError:  # a field that has no value
        return {"type": "object"}


def _tool_choice(config: JSONDict, name: str, value: Any) -> None:
    calling = _calling(value)
    if calling is None:
        expected = f"one of {', '.join(_MODES)}, or a function by name"
        raise OptionError(f"{name}: expected {expected}, got {value!r}")
    _merged(config, "tool_config", {"function_calling_config": calling})


def _calling(choice: Any) -> JSONDict | None:
    if isinstance(choice, str):
        return {"mode": _MODES[choice]} if choice in _MODES else None
    if not is_mapping(choice):
        return None
    allowed: Any = choice.get("allowed_tools")
    tools: list[Any] = allowed.get("tools") or [] if is_mapping(allowed) else [choice]
    names = [one["function"].get("name") for one in tools if _is_function(one)]
    # With the mode AUTO, names are refused.
    mode = "VALIDATED" if is_mapping(allowed) and allowed.get("mode") == "auto" else "ANY"
    return {"mode": mode, "allowed_function_names": names} if names and all(names) else None


_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

_OPTIONS: Mapping[str, Callable[[JSONDict, str, Any], None]] = {
    "extra_body": _http("extra_body"),
    "extra_headers": _http("headers"),
    "http_options": _merged,
    "logprobs": _logprobs,
    "max_completion_tokens": _as("max_output_tokens"),
    "max_tokens": _as("max_output_tokens"),
    "parallel_tool_calls": _parallel,
    "reasoning_effort": _put,
    "response_format": _response_format,
    "stop": _stop,
    "thinking_config": _merged,
    "timeout": _timeout,
    "tool_choice": _tool_choice,
    "tool_config": _merged,
    "tools": _tools,
    "top_logprobs": _as("logprobs"),
}
"""The options that are not put into the configuration as they are. Each takes it, the name and the value."""
