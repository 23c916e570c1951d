"""The options of a request to the Responses API, from OpenAI's names in chat completions or the API's own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from treadle.errors import OptionError, check_names
from treadle.messages import JSONDict, is_list, is_mapping
from treadle.providers.request_options import Option, merged, put, renamed, within

ENCRYPTED = "reasoning.encrypted_content"
"""What a request includes so that the reasoning can be sent back although nothing is stored."""

_WITHOUT_REASONING = ("gpt-3.5", "gpt-4", "gpt-5-chat", "chatgpt-", "ft:gpt-")
"""Starts of the names of models that refuse a request for encrypted reasoning, since they have none."""


def body_of(model: str, opts: Mapping[str, Any]) -> JSONDict:
    """The body of a request, without its input.

    Args:
        model: the name of the model; an option ``model`` takes precedence.
        opts: valid options, see `check_options`; a later one takes precedence.
    """
    body: JSONDict = {"model": model, "store": False}
    for name, value in opts.items():
        _OPTIONS.get(name, put)(body, name, value)
    if body["store"] is False and not body["model"].startswith(_WITHOUT_REASONING):
        _include(body, ENCRYPTED)
    return body


def check_options(opts: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Check the names of options.

    Args:
        opts: the options.
        parameters: the parameters of the SDK's method.

    Raises:
        OptionError: the API has no such option.
    """
    known = {*parameters, *_OPTIONS} - {"input"}
    check_names(opts, sorted(known), "model: OpenAI's Responses API has no option")


def _include(body: JSONDict, what: str) -> None:
    given: list[str] = body.get("include") or []
    body["include"] = given if what in given else [*given, what]


def _includes(body: JSONDict, _name: str, value: Any) -> None:
    for one in value or ():
        _include(body, one)


def _logprobs(body: JSONDict, _name: str, value: Any) -> None:
    if value:
        _include(body, "message.output_text.logprobs")


def _response_format(body: JSONDict, _name: str, value: Any) -> None:
    if not is_mapping(value):
        raise OptionError(f"response_format: expected a dict, got {type(value).__name__}")
    schema: Any = value.get("json_schema")
    form = {**schema, "type": "json_schema"} if is_mapping(schema) else dict(value)
    within("text", "format")(body, "", form)


def _tools(body: JSONDict, _name: str, value: Any) -> None:
    body["tools"] = value and [_flat(tool, {"strict": False}) for tool in value]


def _flat(tool: Any, defaults: Mapping[str, Any]) -> Any:
    """A tool of chat completions without its inner dict. The API has others, such as a web search."""
    function: Any = tool.get("function") if is_mapping(tool) else None
    # A function is strict here unless the request says otherwise; in chat completions, it is not.
    return {"type": "function", **defaults, **function} if is_mapping(function) else tool


def _tool_choice(body: JSONDict, name: str, value: Any) -> None:
    allowed: Any = value.get("allowed_tools") if is_mapping(value) else None
    if is_mapping(allowed):
        tools: Any = allowed.get("tools")
        flat = [_flat(tool, {}) for tool in tools] if is_list(tools) else tools
        body[name] = {"type": "allowed_tools", **allowed, "tools": flat}
    else:
        body[name] = _flat(value, {})


_OPTIONS: Mapping[str, Option] = {
    "include": _includes,
    "logprobs": _logprobs,
    "max_completion_tokens": renamed("max_output_tokens"),
    "max_tokens": renamed("max_output_tokens"),
    "reasoning": merged,
    "reasoning_effort": within("reasoning", "effort"),
    "response_format": _response_format,
    "text": merged,
    "tool_choice": _tool_choice,
    "tools": _tools,
    "verbosity": within("text", "verbosity"),
}
"""The options that are not put into the body as they are."""
