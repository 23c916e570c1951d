"""Typed output: the forms in which a model may give it, and how each is checked.

The module is imported by loops with the option ``output``, since importing pydantic is slow.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Union, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_core import from_json

from treadle.errors import OptionError, check_names
from treadle.fast_dataclass import light_dataclass
from treadle.messages import (
    Chunk,
    MalformedJSONError,
    is_mapping,
    parse_json,
    safe_str,
    valid_name,
)
from treadle.tools.conversion import as_tool
from treadle.tools.definition import Tool
from treadle.tools.docstrings import read_docstring
from treadle.tools.function_schema import Parser, checked, type_schema
from treadle.tools.output_option import OutputMode
from treadle.tools.schema_subsets import OPENAI, NotInSubsetError, fit
from treadle.tools.validation import SchemaValidator

NAME = "final_answer"
"""The name of the tool for an output that has no name itself."""
DESCRIPTION = "Give the final answer."
VALUE = "value"
"""The argument that holds an output which is not a JSON object: arguments always are one."""

OutputValidator: TypeAlias = Callable[..., Any]
"""Takes the output, or the context and the output; sync or async. It returns the output to use instead, or None to
keep it, and raises `Retry` for an output that the model should correct."""


_REJECTED = "loop_decision.rejected_outputs"
"""The value of a context's memo that has the violations of each response without a valid output."""
Checked: TypeAlias = tuple[Any, Sequence[str]]
"""An output, and its violations with their paths; without violations, it is valid."""


@light_dataclass(frozen=True)
class OutputContract:
    """What a run has to end with.

    Args:
        wrapped: the names of the tools whose output is in the field `VALUE`; in JSON mode, None if it is.
        check: makes the output from a value that a stage passed to ``ctx.done``.
        validators: the user's validators, each with whether it takes the context.
        max_retries: how often the model is asked again.
        tools: the tools by which the model gives it; empty in JSON mode.
        allows_text: whether a text is an output, too.
        parse_text: in JSON mode, makes the output from a text; else None.
        options: options of each request: the ``response_format`` of JSON mode.
    """

    wrapped: frozenset[str | None]
    check: Callable[[Any], Checked]
    validators: tuple[tuple[OutputValidator, bool], ...]
    max_retries: int
    tools: tuple[Tool, ...] = ()
    allows_text: bool = False
    parse_text: Callable[[str], Checked] | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the output tools."""
        return tuple(tool.name for tool in self.tools)

    def of_text(self, text: str) -> Checked:
        """Make the output from a text."""
        if self.parse_text is not None:
            return self.parse_text(text)
        return text, () if self.allows_text else ("it was plain text",)

    def partial(self, offered: Iterable[str]) -> PartialReader:
        """Make a reader of the output of one streamed response.

        Args:
            offered: the names of the tools of the request.
        """
        return PartialReader(set(self.names).intersection(offered), self)

    def rejected(self, memo: Mapping[str, Any]) -> Sequence[Sequence[str]]:
        """The violations of each response so far that had no valid output.

        Args:
            memo: that of the context.
        """
        found: Sequence[Sequence[str]] = memo.get(_REJECTED, ())
        return found

    def reject(self, memo: Mapping[str, Any], problems: Sequence[str]) -> dict[str, Any]:
        """The memo after one more response without a valid output."""
        return {**memo, _REJECTED: (*self.rejected(memo), tuple(problems))}

    def is_last_attempt(self, memo: Mapping[str, Any]) -> bool:
        """Whether the model is asked for the last time."""
        return 0 < self.max_retries <= len(self.rejected(memo))

    def tool_choice(self, offered: Iterable[str]) -> str | None:
        """The choice that makes the model give the output; None if no choice can.

        Args:
            offered: the names of the tools of the request.
        """
        names = set(self.names).intersection(offered)
        if not names or self.allows_text:
            return None
        return "required" if len(names) > 1 else next(iter(names))


GROWTH = 1.05
"""An incomplete JSON text is read again when it has grown by this factor, so that the time for a whole response is
linear in its length."""


class PartialReader:
    """Reads the output from the pieces of a streamed response, as far as it is valid JSON.

    Args:
        names: the output tools of the request.
        output: what the run has to end with.
    """

    def __init__(self, names: set[str], output: OutputContract) -> None:
        self._names = names
        self._output = output
        self._texts: dict[int | None, _PartialText] = {}

    def add(self, chunk: Chunk) -> Iterator[Any]:
        """Add a piece; yield the output so far, where there is more of it than before.

        Args:
            chunk: the next piece of the response.
        """
        is_text = self._output.parse_text is not None
        pieces: list[tuple[int | None, str, str]] = [(None, "", chunk.text)] if is_text else []
        pieces += [(piece.index, piece.name, piece.arguments) for piece in chunk.tool_calls]
        for index, name, text in pieces:
            known = self._texts.setdefault(index, _PartialText())
            known.name += name
            is_output = index is None or known.name in self._names
            if not is_output or not known.has_changed(text):
                continue
            if (known.name or None) not in self._output.wrapped:
                yield known.data
            elif is_mapping(known.data) and VALUE in known.data:
                yield known.data[VALUE]


class _PartialText:
    """A JSON text that arrives in pieces."""

    def __init__(self) -> None:
        self.name = ""
        self.data: Any = None
        self._pieces: list[str] = []
        self._length = self._read = 0

    def has_changed(self, text: str) -> bool:
        """Add a piece; return whether there are other data than before."""
        self._pieces.append(text)
        self._length += len(text)
        if not text or self._length < self._read * GROWTH:
            return False
        self._pieces = ["".join(self._pieces)]
        self._read = self._length
        before, encoded = self.data, self._pieces[0].encode("utf-8", "replace")
        try:
            self.data = from_json(encoded, allow_inf_nan=False, allow_partial="trailing-strings")
        except ValueError:  # not JSON, or not yet
            return False
        return bool(self.data != before)


def make_output(
    given: Any,
    tools: Mapping[str, Tool],
    *,
    mode: OutputMode,
    validators: Sequence[OutputValidator],
    max_retries: int,
) -> OutputContract:
    """Make the output of a loop.

    Args:
        given: a pydantic model, dataclass, TypedDict, union, list, scalar or another type that pydantic
            validates; a JSON Schema; a `Tool`, a tool dict, or the name of one of ``tools``; or a list of these.
        tools: the tools of the loop, by name.
        mode: how the model gives it: by the call of a tool, or as JSON text.
        validators: functions that check it further.
        max_retries: how often the model is asked again.

    Raises:
        OptionError: there is no such type, or it cannot be given in this mode.
        ToolDefinitionError: the schema of a type cannot be made, or is invalid.
    """
    alternatives = _alternatives(given, tools)
    kept = tuple((validator, _takes_context(validator)) for validator in validators)
    if mode == "json":
        form = _json_form(alternatives)
        return OutputContract(
            frozenset(() if form.is_object else (None,)),
            form.check,
            kept,
            max_retries,
            parse_text=functools.partial(_parse_text, form),
            options={"response_format": _response_format(form)},
        )
    made: list[Tool] = [one for one in alternatives if isinstance(one, Tool)]
    forms = _forms([one for one in alternatives if not isinstance(one, Tool) and one is not str])
    made.extend(map(_tool_of, forms))
    named: dict[str, Tool] = {}
    for tool in made:
        if tool.name in named or tools.get(tool.name, tool) is not tool:
            raise OptionError(f"output: there are two tools named {tool.name!r}")
        named[tool.name] = dataclasses.replace(tool, terminal=True)
    allows_text = str in alternatives
    wrapped = frozenset[str | None](NAME for form in forms if not form.is_object)
    check = functools.partial(_check_any, forms, made, allows_text)
    return OutputContract(wrapped, check, kept, max_retries, tuple(named.values()), allows_text)


def _response_format(form: Form) -> dict[str, Any]:
    schema, is_strict = form.schema if form.is_object else _wrapped(form.schema), True
    try:
        schema = fit(schema, OPENAI, is_of_type=form.parse is not None)
    except NotInSubsetError:
        is_strict = False
    facts = {"name": form.name, "schema": schema, "strict": is_strict}
    return {"type": "json_schema", "json_schema": facts}


# Alternatives


@light_dataclass(frozen=True)
class Form:
    """One type of output.

    Args:
        name: the name of the type.
        description: what it is, for the model.
        schema: its JSON Schema.
        check: makes a value of the type from a Python value.
        parse: makes a value of the type from JSON data; raises `ValidationError`. None if they are its values.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    check: Callable[[Any], Checked]
    parse: Parser | None = None

    @property
    def is_object(self) -> bool:
        """Whether its values are JSON objects, so that they can be arguments as they are."""
        return self.schema.get("type") == "object"


def _alternatives(given: Any, tools: Mapping[str, Tool]) -> list[Any]:
    """The types and tools of which the output is one; a union is the list of its members."""
    if isinstance(given, (list, tuple)):
        if not given:
            raise OptionError("output: expected at least one type, got an empty list")
        parts = cast("Sequence[Any]", given)
        return [one for part in parts for one in _alternatives(part, tools)]
    if typing.get_origin(given) in {Union, types.UnionType}:
        return [one for part in typing.get_args(given) for one in _alternatives(part, tools)]
    if isinstance(given, str):
        check_names([given], tools, "output: there is no tool")
        return [tools[given]]
    if isinstance(given, Tool):
        return [given]
    if is_mapping(given) and _is_tool_dict(given):
        return [as_tool(given, "output")]
    return [given]


def _is_tool_dict(given: Mapping[str, Any]) -> bool:
    schemas = {"input_schema", "inputSchema", "parameters"}
    return given.get("type") == "function" or ("name" in given and not schemas.isdisjoint(given))


def _forms(alternatives: Sequence[Any]) -> list[Form]:
    """The forms of the alternatives: one for each JSON object, one for all other types together."""
    made = [(one, _form_of(one)) for one in alternatives]
    forms = [form for _, form in made if form.is_object]
    others = [one for one, form in made if not form.is_object]
    if len(others) > 1:
        forms.append(_form_of(Union[tuple(others)]))  # noqa: UP007 - the members are known at run time only
    elif others:
        forms.append(_form_of(others[0]))
    return forms


def _json_form(alternatives: Sequence[Any]) -> Form:
    for one in alternatives:
        if isinstance(one, Tool):
            raise OptionError(
                f"output: {one.name!r} is a tool, and output_mode='json' has no tools; give a type"
            )
    if len(alternatives) == 1:
        return _form_of(alternatives[0])
    if any(map(is_mapping, alternatives)):
        raise OptionError(
            "output: output_mode='json' takes one JSON Schema, or types; put the alternatives in 'anyOf'"
        )
    return _form_of(Union[tuple(alternatives)])  # noqa: UP007 - as above


def _form_of(given: Any) -> Form:
    if is_mapping(given):
        return _form_of_schema(given)
    expected = "expected a type, a JSON Schema, a Tool or the name of a tool"
    if inspect.isroutine(given):  # pydantic would validate calls of it
        raise OptionError(
            f"output: {expected}, got the function {safe_str(given):.80}; a function that checks the output "
            f"goes to output_validators="
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(given)
    except PydanticUserError as error:
        raise OptionError(
            f"output: {expected}, got {given!r:.80}: {error.message.splitlines()[0]}"
        ) from error
    name, description = _named(given)

    schema = type_schema(adapter.json_schema, "output")
    check = functools.partial(checked, adapter.validate_python)
    return Form(name, description, schema, check, Parser(adapter.validator, adapter.core_schema))


def _form_of_schema(schema: Mapping[str, Any]) -> Form:
    # The validator of a tool's arguments takes objects only.
    validator = SchemaValidator(_wrapped(schema), "output")

    def check(value: Any) -> Checked:
        problems = validator.problems_of({VALUE: value})
        return value, [problem.removeprefix(f"{VALUE}.") for problem in problems]

    title = str(schema.get("title") or "")
    name = valid_name(title) if title else NAME
    return Form(name, str(schema.get("description") or DESCRIPTION), schema, check)


def _named(given: Any) -> tuple[str, str]:
    """The name and the description of a type."""
    if not inspect.isclass(given) or given.__module__ == "builtins":
        return NAME, DESCRIPTION
    text = given.__dict__.get("__doc__") or ""
    if text.startswith(f"{given.__name__}("):  # a dataclass without a docstring has its signature
        text = ""
    return valid_name(given.__name__), read_docstring(inspect.cleandoc(text))[0] or DESCRIPTION


_TO_THE_ROOT = re.compile(r'("\$ref": "#)(?!/(?:\$defs|definitions)/)')
"""The start of a reference, in JSON text, to the root or to what is not a definition."""


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object whose only field holds the value; definitions stay at the root."""
    text = _TO_THE_ROOT.sub(rf"\1/properties/{VALUE}", json.dumps(schema, default=dict))
    inner: dict[str, Any] = json.loads(text)
    root: dict[str, Any] = {
        key: inner.pop(key) for key in ("$defs", "definitions", "$schema") if key in inner
    }
    fields = {"properties": {VALUE: inner}, "required": [VALUE], "additionalProperties": False}
    return {"type": "object", **fields, **root}


def _tool_of(form: Form) -> Tool:
    if form.is_object:
        schema = {**form.schema, "properties": form.schema.get("properties", {})}
        return Tool(form.name, form.description, schema, parse=form.parse)
    unwrap = _Unwrapping(form.parse)
    return Tool(NAME, form.description, _wrapped(form.schema), parse=unwrap)


class _Unwrapping:
    """Makes an output from the arguments whose only field holds it."""

    def __init__(self, parse: Parser | None) -> None:
        self._parse = parse
        self.runs_code = parse is not None and parse.runs_code

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        value = arguments[VALUE]
        return value if self._parse is None else self._parse(value)


# Values


def _check_any(
    forms: Sequence[Form], tools: Sequence[Tool], allows_text: bool, value: Any
) -> Checked:
    """Check a value against each form; the problems are those of the last one."""
    if allows_text and isinstance(value, str):
        return value, ()
    problems: Sequence[str] = [f"expected an output, got {type(value).__name__}"]
    for form in forms:
        made, problems = form.check(value)
        if not problems:
            return made, ()
    for tool in tools:
        if tool.parse is None and is_mapping(value):
            problems = tool.problems_of(value)
            if not problems:
                return value, ()
    return None, problems


def _parse_text(form: Form, text: str) -> Checked:
    """Make an output from the JSON text of a model, which may be in a fence of Markdown."""
    inner = text.strip()
    if inner.startswith("```") and inner.endswith("```"):
        inner = inner.strip("`").removeprefix("json")
    try:
        data = parse_json(inner)
    except MalformedJSONError as error:
        return None, [f"the reply is not JSON: {error}"]
    if not form.is_object:
        if not is_mapping(data) or list(data) != [VALUE]:
            return None, [f"expected an object with the field {VALUE!r} only"]
        data = data[VALUE]
    return form.check(data) if form.parse is None else checked(form.parse, data)


def _takes_context(validator: OutputValidator) -> bool:
    """Whether a validator takes the context before the output."""
    try:
        parameters = inspect.signature(validator).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return False
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    return len(required) > 1
