"""`Output`, with which a run has to end: the forms in which a model may give it, and how each is checked."""

from __future__ import annotations

import collections
import dataclasses
import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar, Unpack, overload

from treadle.checks import FUNCTIONS, check_fields, checked, choice, copied, number
from treadle.errors import OptionError, check_names
from treadle.fast_dataclass import fast_dataclass, light_dataclass
from treadle.messages import CallChunk, Chunk, is_mapping, safe_str
from treadle.messages.json_text import MalformedJSONError, parse_json
from treadle.messages.sanitizing import valid_name
from treadle.tools.conversion import as_tool
from treadle.tools.definition import Tool, parsed
from treadle.tools.docstrings import read_docstring
from treadle.type_vars import OutputT_co

if TYPE_CHECKING:
    from pydantic import TypeAdapter

U = TypeVar("U")
V = TypeVar("V")
OutputMode = typing.Literal["tool", "json"]
Validator: TypeAlias = Callable[..., Any]
Checked: TypeAlias = tuple[Any, Sequence[str]]
"""An output, and its violations with their paths; without violations, it is valid."""

NAME = "final_answer"
"""The name of the tool for an output that has no name itself."""
DESCRIPTION = "Give the final answer."
VALUE = "value"
"""The argument that holds an output which is not a JSON object: arguments always are one."""


class _Options(TypedDict, total=False):
    """For type checkers: the fields of `Output` after the first."""

    mode: OutputMode
    max_retries: int
    validators: Validator | Sequence[Validator]


@fast_dataclass
class Output(Generic[OutputT_co]):
    """What a run has to end with: ``Loop(output=Output(Invoice, max_retries=1))``.

    Raises:
        OptionError: a value that a field does not accept.
    """

    form: Any
    """A pydantic model, dataclass, TypedDict, union, list, scalar or any type that pydantic validates; a JSON
    Schema; a tool, or the name of a tool of the loop, whose arguments are the output; or a list of alternatives.
    ``str`` among them allows plain text."""
    mode: OutputMode = checked("tool", choice("tool", "json"))
    """How the model gives the output: ``tool``, by the call of a tool, works with every model; ``json``, as text,
    uses the provider's ``response_format``."""
    max_retries: int = checked(2, number(0))
    """How often the model is asked again if it gives no valid output. In tool mode, the last request forces the
    call."""
    validators: Validator | Sequence[Validator] = checked((), FUNCTIONS)
    """Functions that check the output, sync or async: they take it, or the context and it. They return what to use
    instead, or None, and raise `Retry` with the reason if the model should correct it."""

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Output[U | V], form: tuple[type[U], type[V]], **options: Unpack[_Options]
        ) -> None: ...
        @overload
        def __init__(
            self: Output[U], form: type[U] | Sequence[type[U]], **options: Unpack[_Options]
        ) -> None: ...
        @overload
        def __init__(self: Output[Any], form: Any, **options: Unpack[_Options]) -> None: ...
        def __init__(self, *_: Any, **__: Any) -> None: ...

    def __post_init__(self) -> None:
        if self.form is None:
            raise OptionError("output: Output takes the type of the output, got None")
        check_fields(self)
        object.__setattr__(self, "form", copied(self.form))
        object.__setattr__(self, "validators", copied(self.validators))


REJECTED = "loop_decision.rejected_outputs"
"""The key, in the memo of a context, of the violations of each response that had no valid output."""


@light_dataclass(frozen=True)
class OutputContract:
    """An `Output` with everything that a run needs of it."""

    forms: tuple[_Form, ...]
    """The alternatives; in JSON mode, one."""
    tools: Mapping[str, Tool]
    """The tools by which the model gives it; empty in JSON mode."""
    validators: tuple[tuple[Validator, bool], ...]
    """Each with whether it takes the context."""
    max_retries: int
    is_json: bool = False
    allows_text: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    """Of each request: the ``response_format`` of JSON mode."""

    def check(self, value: Any) -> Checked:
        """Make the output from a value that a stage passed to ``ctx.done``."""
        if self.allows_text and isinstance(value, str):
            return value, ()
        problems: Sequence[str] = [f"expected text, got {type(value).__name__}"]
        for form in self.forms:
            made, problems = form.check(value)
            if not problems:
                return made, ()
        return None, problems

    def of_text(self, text: str) -> Checked:
        """Make the output from the text of a response; JSON may be in a fence of Markdown."""
        if not self.is_json:
            return text, () if self.allows_text else ("it was plain text",)
        inner = text.strip()
        if inner.startswith("```") and inner.endswith("```"):
            inner = inner.strip("`").removeprefix("json")
        try:
            data = parse_json(inner)
        except MalformedJSONError as error:
            return None, [f"the reply is not JSON: {error}"]
        return self.forms[0].of_json(data)

    def rejected(self, memo: Mapping[str, Any]) -> tuple[Sequence[str], ...]:
        """The violations of each response so far that had no valid output."""
        return memo.get(REJECTED, ())

    def is_last_attempt(self, memo: Mapping[str, Any]) -> bool:
        """Whether the model is asked for the last time."""
        return 0 < self.max_retries <= len(self.rejected(memo))

    def tool_choice(self, offered: Iterable[str]) -> str | None:
        """The choice among the tools of a request that makes the model give the output; None if no choice can."""
        names = self.tools.keys() & offered
        if not names or self.allows_text:
            return None
        return "required" if len(names) > 1 else names.pop()


def make_output(wanted: Output[Any], tools: Mapping[str, Tool]) -> OutputContract:
    """Compile an output for a loop with some tools; raise `OptionError` or `ToolDefinitionError`."""
    alternatives = _alternatives(wanted.form, tools)
    given: Any = wanted.validators
    validators = tuple(
        (one, _takes_context(one)) for one in ([given] if callable(given) else given)
    )
    contract = functools.partial(
        OutputContract, validators=validators, max_retries=wanted.max_retries
    )
    if wanted.mode == "json":
        if any(
            isinstance(one, Tool) or (is_mapping(one) and len(alternatives) > 1)
            for one in alternatives
        ):
            raise OptionError(
                "output: Output(mode='json') takes types, or one JSON Schema with the alternatives in 'anyOf'; "
                "it has no tools"
            )
        form = _form_of_any(alternatives)
        return contract((form,), {}, is_json=True, options=form.response_format())
    made = [(one, _form_of(one)) for one in alternatives if one is not str]
    forms = [form for _, form in made if not form.is_wrapped]
    others = [one for one, form in made if form.is_wrapped]
    forms += [_form_of_any(others)] if others else []
    named: dict[str, Tool] = {}
    for tool in (form.tool for form in forms):
        if tool.name in named or tools.get(tool.name, tool) is not tool:
            raise OptionError(f"output: there are two tools named {tool.name!r}")
        named[tool.name] = dataclasses.replace(tool, terminal=True)
    return contract(tuple(forms), named, allows_text=str in alternatives)


def _takes_context(validator: Validator) -> bool:
    """Whether a validator takes the context before the output."""
    try:
        inspect.signature(validator).bind(None)
    except ValueError:  # of a builtin
        return False
    except TypeError:
        return True
    return False


# Forms


@light_dataclass(frozen=True)
class _Form:
    """One alternative of an output, with the tool that takes its values as arguments."""

    name: str
    tool: Tool
    is_wrapped: bool = False
    """Whether a value is no JSON object, so that it is the argument `VALUE`."""
    of_python: Callable[[Any], Any] | None = None
    """Makes a value of the type from a Python value; None if the type is a JSON Schema."""

    def check(self, value: Any) -> Checked:
        """Make a value of the type from a Python value."""
        if self.of_python is not None:
            return parsed(self.of_python, value)
        if not (self.is_wrapped or is_mapping(value)):
            return None, [f"expected an object, got {type(value).__name__}"]
        problems = self.tool.problems_of({VALUE: value} if self.is_wrapped else value)
        if problems:
            return None, problems
        return value if self.is_wrapped else self.tool.output_of(value), ()

    def of_json(self, data: Any) -> Checked:
        """Make a value of the type from what the model wrote as JSON text."""
        if self.is_wrapped and (not is_mapping(data) or list(data) != [VALUE]):
            return None, [f"expected an object with the field {VALUE!r} only"]
        if self.of_python is not None and self.tool.parse is not None:
            return parsed(self.tool.parse, data)
        return self.check(data[VALUE] if self.is_wrapped else data)

    def response_format(self) -> dict[str, Any]:
        """The option of a request that asks for a value as JSON text, in strict mode where that is possible."""
        from treadle.tools.strict_schema import strict_form  # noqa: PLC0415 - few need it

        schema = self.tool.input_schema
        strict = strict_form(schema, is_of_type=self.of_python is not None)
        facts = {"name": self.name, "schema": strict or schema, "strict": strict is not None}
        return {"response_format": {"type": "json_schema", "json_schema": facts}}


def _alternatives(given: Any, tools: Mapping[str, Tool]) -> list[Any]:
    """The types and tools of which the output is one; a union is the list of its members."""
    is_union = typing.get_origin(given) in {typing.Union, types.UnionType}
    if is_union or isinstance(given, (list, tuple)):
        parts: Any = typing.get_args(given) if is_union else typing.cast("Any", given)
        if not parts:
            raise OptionError("output: expected at least one type, got an empty list")
        return [one for part in parts for one in _alternatives(part, tools)]
    if isinstance(given, str):
        check_names([given], tools, "output: there is no tool")
        return [tools[given]]
    schemas = {"input_schema", "inputSchema", "parameters"}
    if is_mapping(given) and (
        given.get("type") == "function" or ("name" in given and not schemas.isdisjoint(given))
    ):
        return [as_tool(given, "output")]
    return [given]


def _form_of_any(kinds: Sequence[Any]) -> _Form:
    # The members of the union are known at run time only.
    return _form_of(kinds[0] if len(kinds) == 1 else typing.Union[tuple(kinds)])  # noqa: UP007


def _form_of(given: Any) -> _Form:
    if isinstance(given, Tool):
        tool = typing.cast("Tool", given)
        return _Form(tool.name, tool)
    from treadle.tools.function_schema import Parser, type_schema  # noqa: PLC0415 - slow to import

    is_schema = is_mapping(given)
    adapter = _adapter_of(Any if is_schema else given)
    schema: Mapping[str, Any] = given if is_schema else type_schema(adapter.json_schema, "output")
    name, description = _described(given)
    of_python = None if is_schema else adapter.validate_python
    parse = functools.partial(Parser, adapter.validator, adapter.core_schema)
    if schema.get("type") != "object":
        tool = Tool(NAME, description, _wrapped(schema), parse=parse(VALUE))
        return _Form(name, tool, True, of_python)
    schema = {**schema, "properties": schema.get("properties", {})}
    tool = Tool(name, description, schema, parse=None if is_schema else parse())
    return _Form(name, tool, False, of_python)


def _adapter_of(given: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # noqa: PLC0415 - slow to import
    from pydantic.errors import PydanticUserError  # noqa: PLC0415

    reason = "a function that checks the output goes to Output(validators=...)"
    try:
        if not inspect.isroutine(given):  # pydantic would validate calls of it
            return TypeAdapter(given)
    except PydanticUserError as error:
        reason = error.message.splitlines()[0]
    raise OptionError(
        "output: expected a type, a JSON Schema, a Tool or the name of a tool, "
        f"got {safe_str(given):.80}: {reason}"
    )


def _described(given: Any) -> tuple[str, str]:
    """The name and the description of a JSON Schema or a type."""
    if is_mapping(given):
        title = str(given.get("title") or "")
        return valid_name(title) if title else NAME, str(given.get("description") or DESCRIPTION)
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


# Streams

GROWTH = 1.05
"""An incomplete JSON text is read again when it has grown by this factor, so that the time for a whole response is
linear in its length."""


class PartialReader:
    """Parses the partial output in the chunks of a response."""

    def __init__(self, output: OutputContract, offered: Iterable[str]) -> None:
        self._is_json = output.is_json
        names = {""} if self._is_json else {*offered}
        forms = (("" if self._is_json else form.tool.name, form) for form in output.forms)
        self._is_wrapped = {name: form.is_wrapped for name, form in forms if name in names}
        self._texts: Mapping[int, _PartialText] = collections.defaultdict(_PartialText)

    def add(self, chunk: Chunk) -> Iterator[Any]:
        """Add a piece; yield the output so far, where there is more of it than before."""
        pieces = (CallChunk(arguments=chunk.text),) if self._is_json else chunk.tool_calls
        for piece in pieces:
            known = self._texts[piece.index]
            known.name += piece.name
            is_wrapped = self._is_wrapped.get(known.name)
            if is_wrapped is None or not known.has_changed(piece.arguments):
                continue
            if not is_wrapped:
                yield known.data
            elif is_mapping(known.data) and VALUE in known.data:
                yield known.data[VALUE]


class _PartialText:
    def __init__(self) -> None:
        self.name = ""
        self.data: Any = None
        self._encoded = bytearray()
        self._read = 0

    def has_changed(self, text: str) -> bool:
        """Add a piece; return whether there are other data than before."""
        from pydantic_core import from_json  # noqa: PLC0415 - slow to import

        self._encoded += text.encode("utf-8", "replace")
        if not text or len(self._encoded) < self._read * GROWTH:
            return False
        self._read = len(self._encoded)
        before = self.data
        try:
            self.data = from_json(
                self._encoded, allow_inf_nan=False, allow_partial="trailing-strings"
            )
        except ValueError:  # not JSON, or not yet
            return False
        return bool(self.data != before)
