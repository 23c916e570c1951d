"""The configuration of a request to Gemini, from OpenAI's options or the API's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from treadle.errors import OptionError, check_names, one_of
from treadle.messages import JSONDict, is_mapping
from treadle.providers.gemini.request import Conversation, generation_of

_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24_576}
"""The tokens of reasoning for each effort, for models of generation 2: those of Google's API that is compatible
with OpenAI's; it has none for ``minimal``, which is half of ``low`` here."""
_WITH_LEVELS = 3
"""The first generation that takes a level of reasoning in place of a number of tokens."""


def check_options(opts: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Check the names of options.

    Args:
        opts: the options.
        parameters: the fields of the SDK's configuration.

    Raises:
        OptionError: the API has no such option.
    """
    check_names(opts, {*parameters, *_OPTIONS, "model"}, "model: Gemini's API has no option")


def body_of(model: str, conversation: Conversation, opts: Mapping[str, Any]) -> JSONDict:
    """The arguments of the SDK's method.

    Args:
        model: the name of the model; an option ``model`` takes precedence.
        conversation: what the request says.
        opts: valid options, see `check_options`.

    Raises:
        OptionError: the API cannot do what an option asks for.
    """
    config: JSONDict = {"automatic_function_calling": {"disable": True}}
    for name, value in opts.items():
        if value is not None and name != "model":
            _OPTIONS.get(name, _put)(config, name, value)
    effort = config.pop("reasoning_effort", None)
    if effort is not None:
        _think(config, effort, generation_of(model))
    if not config.get("tools"):
        config.pop("tools", None)
        config.pop("tool_config", None)
    if conversation.system:
        config["system_instruction"] = {"parts": conversation.system}
    return {
        "model": opts.get("model") or model,
        "contents": conversation.contents,
        "config": config,
    }


def _think(config: JSONDict, effort: Any, generation: int) -> None:
    if effort not in _BUDGETS:
        raise OptionError(f"reasoning_effort: expected {one_of(_BUDGETS)}, got {effort!r}")
    own: JSONDict = {"include_thoughts": effort != "none"}
    if generation >= _WITH_LEVELS:
        own["thinking_level"] = "minimal" if effort == "none" else effort
    else:
        own["thinking_budget"] = _BUDGETS[effort]
    config["thinking_config"] = {**own, **(config.get("thinking_config") or {})}


# Options


def _put(config: JSONDict, name: str, value: Any) -> None:
    config[name] = value


def _as(own: str) -> Callable[[JSONDict, str, Any], None]:
    """An option that has another name here."""
    return lambda config, _name, value: config.update({own: value})


def _stop(config: JSONDict, _name: str, value: Any) -> None:
    config["stop_sequences"] = [value] if isinstance(value, str) else value


def _timeout(config: JSONDict, _name: str, value: Any) -> None:
    config["http_options"] = {**(config.get("http_options") or {}), "timeout": round(value * 1000)}


def _parallel(_config: JSONDict, name: str, value: Any) -> None:
    if not value:
        raise OptionError(f"{name}: Gemini's API cannot limit a response to one call")


def _response_format(config: JSONDict, _name: str, value: Any) -> None:
    kind: Any = value.get("type") if is_mapping(value) else None
    if kind == "text":
        return
    config["response_mime_type"] = "application/json"
    schema: Any = value.get("json_schema") if is_mapping(value) else None
    if is_mapping(schema) and is_mapping(schema.get("schema")):
        config["response_json_schema"] = schema["schema"]
    elif kind != "json_object":
        raise OptionError(f"response_format: expected a form of OpenAI's, got {value!r}")


def _tools(config: JSONDict, _name: str, value: Any) -> None:
    """Tools of chat completions are function declarations; the API's own, such as a search, stay as they are."""
    given: list[Any] = [*(value or ())]
    functions = [one["function"] for one in given if is_mapping(one) and "function" in one]
    others = [one for one in given if not (is_mapping(one) and "function" in one)]
    declared = {"function_declarations": list(map(_declaration, functions))}
    config["tools"] = [*([declared] if functions else []), *others]


def _declaration(function: Mapping[str, Any]) -> JSONDict:
    schema = function.get("parameters")
    made: JSONDict = {"name": function.get("name"), "description": function.get("description")}
    return {**made, "parameters_json_schema": schema} if schema else made


def _tool_choice(config: JSONDict, _name: str, value: Any) -> None:
    function: Any = value.get("function") if is_mapping(value) else None
    if is_mapping(function):
        chosen = {"mode": "ANY", "allowed_function_names": [function.get("name")]}
    elif isinstance(value, str) and value in _MODES:
        chosen = {"mode": _MODES[value]}
    else:
        raise OptionError(f"tool_choice: expected {one_of(_MODES)}, or a function, got {value!r}")
    config["tool_config"] = {
        **(config.get("tool_config") or {}),
        "function_calling_config": chosen,
    }


_MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}

_OPTIONS: Mapping[str, Callable[[JSONDict, str, Any], None]] = {
    "max_completion_tokens": _as("max_output_tokens"),
    "max_tokens": _as("max_output_tokens"),
    "n": _as("candidate_count"),
    "parallel_tool_calls": _parallel,
    "reasoning_effort": _put,
    "response_format": _response_format,
    "stop": _stop,
    "timeout": _timeout,
    "tool_choice": _tool_choice,
    "tools": _tools,
}
"""The options that are not put into the configuration as they are."""
