"""Typed output: the forms in which a model may give it, and how each is checked.

The module is imported by loops with the option ``output``, since importing pydantic is slow.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Union, cast

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import from_json

from treadle.errors import OptionError, check_names
from treadle.fast_dataclass import light_dataclass
from treadle.messages import (
    Chunk,
    MalformedJSONError,
    is_list,
    is_mapping,
    parse_json,
    safe_str,
    valid_name,
)
from treadle.tools.conversion import as_tool, terminal_copy
from treadle.tools.definition import Tool
from treadle.tools.docstrings import read_docstring
from treadle.tools.function_schema import (
    Parse,
    parser_of,
    problems_in,
    runs_code,
    type_schema,
    with_runs_code,
)
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
        tools: the tools by which the model gives it; empty in JSON mode.
        allows_text: whether a text is an output, too.
        parse_text: in JSON mode, makes the output from a text; else None.
        options: options of each request: the ``response_format`` of JSON mode.
        wrapped: the names of the tools whose output is in the field `VALUE`; in JSON mode, None if it is.
        check: makes the output from a value that a stage passed to ``ctx.done``.
        validators: the user's validators, each with whether it takes the context.
        max_retries: how often the model is asked again.
    """

    tools: tuple[Tool, ...]
    allows_text: bool
    parse_text: Callable[[str], Checked] | None
    options: Mapping[str, Any]
    wrapped: frozenset[str | None]
    check: Callable[[Any], Checked]
    validators: tuple[tuple[OutputValidator, bool], ...]
    max_retries: int

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
        if self._output.parse_text is not None and chunk.text:
            yield from self._add(None, "", chunk.text)
        for piece in chunk.tool_calls:
            yield from self._add(piece.index, piece.name, piece.arguments)

    def _add(self, index: int | None, name: str, text: str) -> Iterator[Any]:
        known = self._texts.setdefault(index, _PartialText())
        known.name += name
        if index is not None and known.name not in self._names:
            return
        value_of = self._value_of if (known.name or None) in self._output.wrapped else _whole
        for data in known.add(text):
            yield from value_of(data)

    @staticmethod
    def _value_of(data: Any) -> Iterator[Any]:
        if is_mapping(data) and VALUE in data:
            yield data[VALUE]


def _whole(data: Any) -> Iterator[Any]:
    yield data


class _PartialText:
    """A JSON text that arrives in pieces."""

    def __init__(self) -> None:
        self.name = ""
        self._pieces: list[str] = []
        self._length = self._read = 0
        self._latest: Any = None

    def add(self, text: str) -> Iterator[Any]:
        """Add a piece; yield the data so far if it has changed."""
        if not text:
            return
        self._pieces.append(text)
        self._length += len(text)
        if self._length < self._read * GROWTH:
            return
        self._pieces = ["".join(self._pieces)]
        self._read = self._length
        try:
            data = from_json(
                self._pieces[0].encode("utf-8", "replace"),
                allow_inf_nan=False,
                allow_partial="trailing-strings",
            )
        except ValueError:  # not JSON, or not yet
            return
        if data != self._latest:
            self._latest = data
            yield data


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
        return _json_output(_json_form(alternatives), kept, max_retries)
    made: list[Tool] = [one for one in alternatives if isinstance(one, Tool)]
    forms = _forms([one for one in alternatives if not isinstance(one, Tool) and one is not str])
    made.extend(map(_tool_of, forms))
    named: dict[str, Tool] = {}
    for tool in made:
        if tool.name in named or tools.get(tool.name, tool) is not tool:
            raise OptionError(f"output: there are two tools named {tool.name!r}")
        named[tool.name] = terminal_copy(tool)
    allows_text = str in alternatives
    return OutputContract(
        tools=tuple(named.values()),
        allows_text=allows_text,
        parse_text=None,
        options={},
        wrapped=frozenset(NAME for form in forms if not form.is_object),
        check=functools.partial(_check_any, forms, made, allows_text),
        validators=kept,
        max_retries=max_retries,
    )


def _json_output(
    form: Form, validators: tuple[tuple[OutputValidator, bool], ...], max_retries: int
) -> OutputContract:
    schema = form.schema if form.is_object else _wrapped(form.schema)
    is_strict = True
    try:
        schema = fit(schema, OPENAI, is_of_type=form.parse is not None)
    except NotInSubsetError:
        is_strict = False
    response_format = {
        "type": "json_schema",
        "json_schema": {"name": form.name, "schema": schema, "strict": is_strict},
    }
    return OutputContract(
        tools=(),
        allows_text=False,
        parse_text=functools.partial(_parse_text, form),
        options={"response_format": response_format},
        wrapped=frozenset(() if form.is_object else (None,)),
        check=form.check,
        validators=validators,
        max_retries=max_retries,
    )


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
    parse: Parse | None = None

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
    check = functools.partial(_checked, adapter.validate_python)
    return Form(name, description, schema, check, parser_of(adapter.validator, adapter.core_schema))


def _checked(parse: Parse, value: Any) -> Checked:
    try:
        return parse(value), ()
    except ValidationError as error:
        return None, problems_in(error)


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


def _wrapped(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object whose only field holds the value; definitions stay at the root."""
    inner = dict(schema)
    root: dict[str, Any] = {
        key: inner.pop(key) for key in ("$defs", "definitions", "$schema") if key in inner
    }
    return {
        "type": "object",
        "properties": {VALUE: _moved(inner)},
        "required": [VALUE],
        "additionalProperties": False,
        **_moved(root),
    }


def _moved(part: Any) -> Any:
    """A part of a schema whose references to the root, and to what is not a definition, lead to the field."""
    if is_list(part):
        return list(map(_moved, part))
    if not is_mapping(part):
        return part
    return {
        key: _moved_reference(value) if key == "$ref" else _moved(value)
        for key, value in part.items()
    }


def _moved_reference(value: Any) -> Any:
    is_moved = isinstance(value, str) and re.match(r"#(?!/(\$defs|definitions)/)", value)
    return f"#/properties/{VALUE}{value[1:]}" if is_moved else _moved(value)


def _tool_of(form: Form) -> Tool:
    if form.is_object:
        schema = {**form.schema, "properties": form.schema.get("properties", {})}
        return Tool(form.name, form.description, schema, parse=form.parse)
    parse = form.parse

    def unwrap(arguments: Mapping[str, Any]) -> Any:
        value = arguments[VALUE]
        return value if parse is None else parse(value)

    with_runs_code(unwrap, runs=parse is not None and runs_code(parse))
    return Tool(NAME, form.description, _wrapped(form.schema), parse=unwrap)


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
    return form.check(data) if form.parse is None else _checked(form.parse, data)


def _takes_context(validator: OutputValidator) -> bool:
    """Whether a validator takes the context before the output."""
    try:
        parameters = inspect.signature(validator).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return False
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    required = [p for p in parameters if p.kind in kinds and p.default is p.empty]
    return len(required) > 1
