"""The body of a request to Anthropic, from OpenAI's options or the API's own."""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping
from typing import Any

from treadle.errors import OptionError, check_names
from treadle.messages import JSONDict, is_mapping
from treadle.providers.anthropic.request import Conversation
from treadle.providers.loose_schema import LooseSchema
from treadle.providers.request_options import Option, merged, put, renamed, within
from treadle.tools.strict_schema import FORMATS, STRUCTURE, NotInSubsetError, is_scalar

log = logging.getLogger("treadle.providers")

MAX_TOKENS = 16_384
"""The limit of a response in tokens, if the request sets none: the API requires one. Every model that Anthropic
offers since Claude 4 takes it (the smallest maximum is 32,000, in Anthropic's list of models), and so does its SDK
for a response that is not streamed, within 10 minutes. A ``budget_tokens`` of ``thinking`` is added to it: the API
counts reasoning, and wants a limit above the budget."""


class AnthropicSchema(LooseSchema):
    """See "JSON Schema limitations" in https://platform.claude.com/docs/en/build-with-claude/structured-outputs.

    The SDK's ``transform_schema`` has the same list.
    """

    keywords = {  # noqa: RUF012
        **STRUCTURE,
        "const": is_scalar,
        "format": frozenset({*FORMATS, "uri"}).__contains__,
        "minItems": (0, 1).__contains__,
    }
    has_type_lists = False
    has_recursion = False


def check_options(opts: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Check the names of options.

    Args:
        opts: the options.
        parameters: the parameters of the SDK's method.

    Raises:
        OptionError: the API has no such option.
    """
    check_names(opts, sorted({*parameters, *_OPTIONS}), "model: Anthropic's API has no option")


def body_of(model: str, conversation: Conversation, opts: Mapping[str, Any]) -> JSONDict:
    """The arguments of the SDK's method.

    Args:
        model: the name of the model; an option ``model`` takes precedence.
        conversation: what the request says.
        opts: valid options, see `check_options`.

    Raises:
        OptionError: the API cannot do what an option asks for.
    """
    body: JSONDict = {"model": model, "messages": conversation.messages}
    for name, value in opts.items():
        if value is not None or name == "timeout":  # None is no time limit
            _OPTIONS.get(name, put)(body, name, value)
    body.setdefault("max_tokens", MAX_TOKENS + _budget(body.get("thinking")))
    if conversation.system:
        own: Any = body.get("system") or []
        body["system"] = [*([{"type": "text", "text": own}] if isinstance(own, str) else own)]
        body["system"] += conversation.system
    _finish_tools(body, conversation)
    _finish_format(body)
    return body


def _budget(thinking: Any) -> int:
    budget: Any = thinking.get("budget_tokens") if is_mapping(thinking) else None
    return budget if isinstance(budget, int) else 0


def _finish_tools(body: JSONDict, conversation: Conversation) -> None:
    """Make tools and the choice of them fit together, and the history."""
    is_parallel = body.pop("parallel_tool_calls", True)
    if not body.get("tools"):
        body.pop("tools", None)
        body.pop("tool_choice", None)
        if conversation.tool_names:  # calls in the history need declared tools
            schema = {"type": "object"}
            body["tools"] = [
                {"name": name, "input_schema": schema} for name in conversation.tool_names
            ]
            body["tool_choice"] = {"type": "none"}
        return
    choice: Any = body.get("tool_choice")
    if not is_parallel and (choice is None or choice.get("type") != "none"):
        body["tool_choice"] = {"type": "auto", **(choice or {}), "disable_parallel_tool_use": True}
    if choice is not None and choice.get("type") in {"any", "tool"}:
        _stop_thinking(body)


def _stop_thinking(body: JSONDict) -> None:
    """Ask for no thinking, which the API refuses in a request that forces a call."""
    thinking: Any = body.get("thinking")
    if thinking is not None and thinking.get("type") != "disabled":
        _log_no_thinking()
        del body["thinking"]


@functools.cache
def _log_no_thinking() -> None:
    log.info(
        "requests to Anthropic that force a call are sent without thinking=, as its API wants it"
    )


def _finish_format(body: JSONDict) -> None:
    given = body.pop("response_format", None)
    if given is None:
        return
    try:
        form = {"type": "json_schema", "schema": AnthropicSchema(given).fitted()}
    except NotInSubsetError as error:
        raise OptionError(
            f"response_format: Anthropic's API has no form for this JSON schema: {error}; "
            "Output(type, mode='tool') takes it"
        ) from None
    body["output_config"] = {**(body.get("output_config") or {}), "format": form}


# Options


def _stop(body: JSONDict, _name: str, value: Any) -> None:
    body["stop_sequences"] = [value] if isinstance(value, str) else value


def _effort(body: JSONDict, _name: str, value: Any) -> None:
    """An effort is one of adaptive thinking."""
    if value == "none":
        body["thinking"] = {"type": "disabled"}
    else:
        body.setdefault("thinking", {"type": "adaptive"})
        within("output_config", "effort")(body, "", {"minimal": "low"}.get(value, value))


def _response_format(body: JSONDict, _name: str, value: Any) -> None:
    schema: Any = value.get("json_schema") if is_mapping(value) else None
    if is_mapping(schema) and is_mapping(schema.get("schema")):
        body["response_format"] = schema["schema"]
    elif not (is_mapping(value) and value.get("type") == "text"):
        raise OptionError(
            "response_format: Anthropic's API has no JSON without a schema; expected "
            "{'type': 'json_schema', 'json_schema': {'schema': ...}}"
        )


def _tools(body: JSONDict, _name: str, value: Any) -> None:
    body["tools"] = [_tool(one) for one in value or ()]


def _tool(given: Any) -> Any:
    """A tool of chat completions in the API's form. Others, such as a web search, stay as they are."""
    function: Any = given.get("function") if is_mapping(given) else None
    if not is_mapping(function):
        return given
    made: JSONDict = {
        "name": function.get("name"),
        "input_schema": {"type": "object", **(function.get("parameters") or {})},
    }
    if function.get("description"):
        made["description"] = function["description"]
    if function.get("strict"):
        made["strict"] = True
    hint = given.get("cache_control") or function.get("cache_control")
    return {**made, "cache_control": hint} if hint else made


def _tool_choice(body: JSONDict, name: str, value: Any) -> None:
    if isinstance(value, str):
        if value not in _CHOICES:
            raise OptionError(f"tool_choice: expected one of {', '.join(_CHOICES)}, got {value!r}")
        value = {"type": _CHOICES[value]}
    function: Any = value.get("function") if is_mapping(value) else None
    is_named = is_mapping(function) and function.get("name")
    merged(body, name, {"type": "tool", "name": function["name"]} if is_named else value)


_CHOICES = {"auto": "auto", "none": "none", "required": "any"}

_OPTIONS: Mapping[str, Option] = {
    "extra_body": merged,
    "max_completion_tokens": renamed("max_tokens"),
    "output_config": merged,
    "parallel_tool_calls": put,
    "reasoning_effort": _effort,
    "response_format": _response_format,
    "stop": _stop,
    # The SDK has no parameters for these: its newest models refuse them, earlier ones take them.
    "temperature": within("extra_body"),
    "tool_choice": _tool_choice,
    "tools": _tools,
    "top_k": within("extra_body"),
    "top_p": within("extra_body"),
    "user": within("metadata", "user_id"),
}
"""The options that are not put into the body as they are."""
