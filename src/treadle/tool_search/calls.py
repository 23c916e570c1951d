"""Calls that a model makes through `call_tool`: to the call of the tool itself, and back for the history."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

from treadle.messages import MalformedJSONError, ToolCall, is_dict, parse_object

CALL_TOOL = "call_tool"
"""The name of the tool that calls another."""


def unwrapped(call: ToolCall) -> ToolCall:
    """The call of the tool that a call of `call_tool` names; one that is not well formed is returned unchanged.

    Some models write the arguments as a JSON text, which is accepted, or call `call_tool` through itself.
    """
    while call.name == CALL_TOOL:
        try:
            given = parse_object(call.arguments)
        except MalformedJSONError:
            break
        name, arguments = given.pop("name", None), given.pop("arguments", None)
        if arguments is None:
            arguments = "{}"
        elif is_dict(arguments):
            arguments = json.dumps(arguments, ensure_ascii=False)
        if given or not isinstance(name, str) or not isinstance(arguments, str):
            break
        raw = call.arguments if call.raw_arguments is None else call.raw_arguments
        call = dataclasses.replace(call, name=name, arguments=arguments, raw_arguments=raw)
    return call


def wrapped(call: ToolCall) -> tuple[str, str]:
    """The name and the arguments of a call as the history shows them: as the model made it.

    If a stage has changed a call that was made through `call_tool`, the arguments are those of such a call.
    """
    if call.raw_arguments is None:
        return call.name, call.arguments
    before = unwrapped(ToolCall(call.id, CALL_TOOL, call.raw_arguments))
    if (before.name, before.arguments) == (call.name, call.arguments):
        return CALL_TOOL, call.raw_arguments
    arguments: Any = call.arguments
    with contextlib.suppress(MalformedJSONError):
        arguments = parse_object(call.arguments)
    return CALL_TOOL, json.dumps({"name": call.name, "arguments": arguments}, ensure_ascii=False)
