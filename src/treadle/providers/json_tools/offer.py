"""What a model without native tool use may respond with: its description in the prompt, and its JSON schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.errors import OptionError
from treadle.fast_dataclass import light_dataclass
from treadle.messages import JSONDict, is_mapping
from treadle.providers.json_schema import simplify, simplify_any

ANSWER, TOOL, ARGUMENTS, CALLS = "answer", "tool", "arguments", "calls"
"""The keys of a response: ``{"answer": ...}``, ``{"tool": ..., "arguments": ...}`` or ``{"calls": [...]}``."""

_NO_PARAMETERS: JSONDict = {"type": "object", "properties": {}}
"""OpenAI's rule for a tool without parameters."""


@light_dataclass(frozen=True)
class Offer:
    """What a model may respond with.

    Args:
        functions: the tools that it may call by name, as the ``function`` of OpenAI's dicts.
        may_answer: whether it may answer without a call.
        is_parallel: whether it may call several tools at once.
        answer: the schema of the answer; None for a text.
    """

    functions: Mapping[str, JSONDict]
    may_answer: bool
    is_parallel: bool
    answer: JSONDict | None

    def schema(self) -> JSONDict:
        """The JSON schema of a response."""
        calls = [_call_schema(function) for function in self.functions.values()]
        if self.is_parallel:
            several = {"type": "array", "items": _any_of(calls), "minItems": 1}
            calls = [_object(**{CALLS: several})]
        if self.may_answer:
            text = {"type": "string"}
            answer = text if self.answer is None else simplify_any(self.answer)
            calls.append(_object(**{ANSWER: answer}))
        return _any_of(calls)

    def instructions(self) -> str:
        """The text for the system message: the tools, and the form of a response."""
        described = [_described(function) for function in self.functions.values()]
        return "\n\n".join(["You can call these tools:", *described, "\n".join(self._forms())])

    def _forms(self) -> list[str]:
        call = '{"tool": NAME, "arguments": {...}}'
        forms = ["Respond with one JSON object and no other text."]
        if self.is_parallel:
            forms.append(f'To call tools: {{"calls": [{call}, ...]}}')
        else:
            forms.append(f"To call a tool: {call}")
        if not self.may_answer:
            forms.append("You have to call a tool now.")
        elif self.answer is None:
            forms.append('To answer the user: {"answer": TEXT}')
        else:
            shown = json.dumps(self.answer, ensure_ascii=False)
            forms.append(f'To answer the user: {{"answer": VALUE}}, where VALUE matches {shown}')
        return forms


def offer_of(opts: Mapping[str, Any], *, is_parallel: bool) -> Offer | None:
    """What a request offers to the model; None if there is no tool that it may call.

    Args:
        opts: the options of the request: ``tools``, ``tool_choice``, ``parallel_tool_calls`` and
            ``response_format``, in OpenAI's form. A named tool is called once.
        is_parallel: whether it may call several tools at once, if the options do not say.

    Raises:
        OptionError: ``tool_choice`` is not "auto", "none" or "required", and names none of the tools; or
            see `schema_of`.
    """
    tools: Sequence[JSONDict] = opts.get("tools") or ()
    choice = opts.get("tool_choice") or "auto"
    if not tools or choice == "none":
        return None
    given = opts.get("parallel_tool_calls")
    is_parallel = is_parallel if given is None else bool(given)
    functions: dict[str, JSONDict] = {one["function"]["name"]: one["function"] for one in tools}
    if choice not in ("auto", "required"):
        name = _named(choice, functions)
        functions, is_parallel = {name: functions[name]}, False
    return Offer(
        functions,
        may_answer=choice == "auto",
        is_parallel=is_parallel,
        answer=schema_of(opts.get("response_format")),
    )


def _named(choice: Any, functions: Mapping[str, JSONDict]) -> str:
    function = choice.get("function") if is_mapping(choice) else None
    name = function.get("name") if is_mapping(function) else None
    if not isinstance(name, str) or name not in functions:
        names = ", ".join(functions)
        raise OptionError(f"tool_choice: {choice!r} names none of the tools: {names}")
    return name


def schema_of(response_format: Any) -> JSONDict | None:
    """The schema of an answer by OpenAI's ``response_format``; None for a text.

    Raises:
        OptionError: it is none of OpenAI's forms.
    """
    given: Mapping[str, Any] = response_format if is_mapping(response_format) else {}
    kind, form = given.get("type"), given.get("json_schema")
    schema = form.get("schema") if is_mapping(form) else None
    if kind == "json_schema" and is_mapping(schema):
        return dict(schema)
    if kind == "json_object":
        return {"type": "object"}
    if response_format is None or kind == "text":
        return None
    raise OptionError(
        "response_format: expected json_schema with its schema, json_object or text, got "
        f"{response_format!r}"
    )


def _described(function: Mapping[str, Any]) -> str:
    purpose = str(function.get("description") or "").strip()
    parameters = json.dumps(function.get("parameters") or _NO_PARAMETERS, ensure_ascii=False)
    head = f"{function['name']}: {purpose}" if purpose else str(function["name"])
    return f"{head}\nJSON schema of the arguments: {parameters}"


def _call_schema(function: Mapping[str, Any]) -> JSONDict:
    arguments = simplify(function.get("parameters") or _NO_PARAMETERS)
    # In this order: the grammar has the properties in theirs, and the name decides the arguments.
    return _object(**{TOOL: {"const": function["name"]}, ARGUMENTS: arguments})


def _object(**properties: JSONDict) -> JSONDict:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _any_of(schemas: Sequence[JSONDict]) -> JSONDict:
    return schemas[0] if len(schemas) == 1 else {"anyOf": [*schemas]}
