"""Makes a JSON Schema from a function's signature, and converts arguments to the types of its parameters.

The module is imported with the first tool, not with the package, since importing pydantic is slow.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import math
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaError, to_json

from treadle.errors import ToolDefinitionError
from treadle.messages import is_dict, is_list
from treadle.shown import callable_name
from treadle.tools.docstrings import read_docstring
from treadle.tools.tool_context import ToolContext

_ARGS, _KWARGS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class _Untitled(GenerateJsonSchema):
    """JSON Schema without the titles that pydantic generates, which only repeat the names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, float) and not math.isfinite(dft):  # JSON cannot represent it
            raise PydanticSerializationError("not JSON")
        return super().encode_default(dft)


class Signature:
    """The parameters of a function that a model fills; raises `ToolDefinitionError` if it cannot.

    It is *plain* if the schema fully describes the types. It *takes as given* if it takes valid arguments by
    keyword and without conversion. The loop fills the ``context_parameter``, which is not in the schema.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        inner, self._filled = _unwrapped(fn)
        self.name: str = getattr(fn, "__name__", callable_name(inner))
        self.description, described = _described(inner)
        self._positional: list[str] = []
        self._with_defaults: set[str] = set()
        given = self._read(fn, inner)
        if _dispatches(inner) and not self._positional:
            self._positional = [*given][:1]
        extra = self._hint_of_extra
        hints = (extra or Any, *(hint for hint, _ in given.values()))
        self.is_plain = not self._with_defaults and all(map(_is_plain, hints))
        self._with_defaults.update(self._positional)
        may_override = extra is not None and bool(self._filled)
        is_changed = self._positional or self.context_parameter is not None or may_override
        self.takes_as_given = self.is_plain and not is_changed
        # Fields are numbered, with the real names as aliases: a tool may call a parameter "schema".
        self._names = {f"p{number}": name for number, name in enumerate(given)}
        fields: dict[str, Any] = {}
        for field, name in self._names.items():
            hint, default = given[name]
            # Without a description in the docstring, the description in the type hint is kept.
            facts: Any = {"description": described[name]} if name in described else {}
            fields[field] = Annotated[hint, Field(alias=name, **facts)], default
        # The hint of ``**kwargs`` is the type of further arguments; without it, they are forbidden.
        config = ConfigDict(extra="forbid" if extra is None else "allow", validate_by_alias=True)
        base: Any = {"__module__": __name__, "model_config": config}
        base["__annotations__"] = {"__pydantic_extra__": types.GenericAlias(dict, (str, extra))}
        try:
            model: Any = create_model(
                self.name, __base__=type("Base", (BaseModel,), base), **fields
            )
        except (PydanticUserError, SchemaError, TypeError) as error:
            raise ToolDefinitionError(f"tool {self.name!r}: {error}") from error
        self.parse = Parser(model.__pydantic_validator__, model.__pydantic_core_schema__)
        self.input_schema = type_schema(model.model_json_schema, f"tool {self.name!r}")

    def _read(self, fn: Callable[..., Any], inner: Any) -> dict[str, tuple[Any, Any]]:
        """The parameters that the model fills, each with its type and its default."""
        given: dict[str, tuple[Any, Any]] = {}
        self.context_parameter: str | None = None
        self._hint_of_extra: Any = None
        hints = _hints_of(inner, self.name)
        parameters, filled = _parameters_of(fn, inner, self.name)
        for parameter in (one for one in parameters if one.name not in self._filled):
            name, default = parameter.name, parameter.default
            hint = hints.get(name, Any)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(name)
            if _takes_context(hint):
                self.context_parameter = name
            elif parameter.kind is _ARGS:
                raise ToolDefinitionError(
                    f"tool {self.name!r}: a model names its arguments, so *{name} "
                    f"cannot be filled; take a list instead"
                )
            elif parameter.kind is not _KWARGS:
                if isinstance(default, FieldInfo):  # it only describes the default
                    self._with_defaults.add(name)
                given[name] = hint, ... if default is parameter.empty else default
            elif (keys := _unpacked(hint)) is None:
                self._hint_of_extra = hint
            else:
                filled |= self._filled
                given.update({key: one for key, one in keys.items() if key not in filled})
        return given

    def normal(
        self, arguments: Mapping[str, Any], with_defaults: Collection[str] = ()
    ) -> dict[str, Any]:
        """Convert arguments to the types of the parameters, as ``1.0`` to ``1``; add the defaults of some."""
        model = self.parse(arguments)
        values = {
            name: getattr(model, field)
            for field, name in self._names.items()
            if field in model.model_fields_set or name in with_defaults
        }
        more: Mapping[str, Any] = model.model_extra or {}
        return {**values, **{name: more[name] for name in more if name not in self._filled}}

    def bind(
        self, arguments: Mapping[str, Any], context: ToolContext | None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Make the positional and the keyword arguments of the function from valid arguments and a context."""
        values = self.normal(arguments, self._with_defaults)
        if self.context_parameter is not None:
            values[self.context_parameter] = context
        return [values.pop(name) for name in self._positional], values


def type_schema(make: Callable[..., dict[str, Any]], where: str) -> dict[str, Any]:
    """The JSON Schema that a method of pydantic makes of a type, without titles; raises `ToolDefinitionError`."""
    try:
        schema = make(by_alias=True, schema_generator=_Untitled)
    except PydanticUserError as error:
        raise ToolDefinitionError(f"{where}: {error}") from error
    reference = schema.get("$ref")
    if reference is not None:  # a type that contains itself; providers want its fields at the root
        schema = {**schema["$defs"][reference.removeprefix("#/$defs/")], "$defs": schema["$defs"]}
    schema.pop("title", None)
    if schema.get("type") == "object":
        schema.setdefault("properties", {})
    return schema


class Parser:
    """Makes instances of a type from JSON data, or from one field of it; raises pydantic's ``ValidationError``."""

    def __init__(self, validator: Any, core_schema: Any, field: str | None = None) -> None:
        self._validator = validator
        self._field = field
        self.runs_code = _runs_code(core_schema)  # of the user, such as a validator

    def __call__(self, data: Any) -> Any:
        """Make an instance from JSON text: only there does a strict field accept a date as text."""
        data = data if self._field is None else data[self._field]
        try:
            text = to_json(data)
        except ValueError:  # a lone surrogate
            return self._validator.validate_python(data)
        return self._validator.validate_json(text)


_HOOKS = ("function", "post_init", "custom_init", "default_factory", "missing")
_NO_CHECKS = frozenset({"serialization", "metadata"})


def _runs_code(schema: Any) -> bool:
    """Whether a schema of pydantic has a function that is neither pydantic's nor of the standard library."""
    if is_list(schema) or isinstance(schema, tuple):
        return any(map(_runs_code, schema))  # pyright: ignore[reportUnknownArgumentType]
    if not is_dict(schema):
        return False
    hooks = (schema.get(key) for key in _HOOKS)  # a function may be a dict, with its signature
    if any(hook and not (is_dict(hook) or _is_known(hook)) for hook in hooks):
        return True
    return any(_runs_code(part) for key, part in schema.items() if key not in _NO_CHECKS)


def _is_known(fn: Any) -> bool:
    inner, _ = _unwrapped(fn)
    root = str(getattr(inner, "__module__", None) or "builtins").partition(".")[0]
    return callable(inner) and (root.startswith("pydantic") or root in sys.stdlib_module_names)


def _unwrapped(fn: Callable[..., Any]) -> tuple[Any, set[str]]:
    """The function of a partial, and the keywords that the partial fills, which are not part of the schema."""
    filled: set[str] = set()
    while isinstance(fn, functools.partial):
        filled |= fn.keywords.keys()
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return fn, filled


def _described(fn: Any) -> tuple[str, dict[str, str]]:
    """The description, and those of the arguments; of an object, from its class and its ``__call__``."""
    text, arguments = read_docstring(inspect.getdoc(fn))
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return text, arguments
    of_call, more = read_docstring(inspect.getdoc(type(fn).__call__))
    return text or of_call, {**arguments, **more}


def _parameters_of(
    fn: Callable[..., Any], inner: Any, name: str
) -> tuple[list[inspect.Parameter], set[str]]:
    try:
        parameters, filled = _signature_of(fn)
    except (TypeError, ValueError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: its signature cannot be read: {error}"
        ) from error
    first = parameters[0] if parameters and inspect.isfunction(inner) else None
    if first is not None and _dispatches(inner) and not hasattr(inner, "dispatch"):
        return parameters[1:], filled  # a method of `singledispatchmethod`, bound to its object
    if first is not None and first.name in {"self", "cls"} and first.annotation is first.empty:
        where = inner.__qualname__.rpartition("<locals>.")[2]
        if "." in where:
            raise ToolDefinitionError(
                f"tool {name!r}: {where} is a method without its object, and a model cannot give "
                f"{first.name!r}; make the tool of a bound method: tool(thing.{name})"
            )
    return parameters, filled


def _hints_of(fn: Any, name: str) -> dict[str, Any]:
    # As with signatures, a wrapper has the type hints of the function that it wraps.
    fn = inspect.unwrap(fn, stop=lambda wrapper: hasattr(wrapper, "__signature__"))
    call = fn.__init__ if inspect.isclass(fn) else type(fn).__call__
    target = fn if inspect.isroutine(fn) else call
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ToolDefinitionError(
            f"tool {name!r}: its type hints cannot be read: {error}; define or import the name at the top of the "
            "module, outside of TYPE_CHECKING: hints that are texts do not see the names of a function"
        ) from error


def _dispatches(fn: Any) -> bool:
    """Whether a function chooses its implementation by the type of its first argument, which has no name then."""
    return inspect.isfunction(fn) and hasattr(fn, "register")


def _unpacked(hint: Any) -> dict[str, tuple[Any, Any]] | None:
    """The keys of ``**kwargs: Unpack[SomeTypedDict]``, each with its type and its default; or None."""
    if not str(typing.get_origin(hint)).endswith(".Unpack"):
        return None
    (kind,) = typing.get_args(hint)
    hints = typing.get_type_hints(kind, include_extras=True)
    # A factory, since a default would be in the schema; a key that was not given is not passed.
    optional: Any = Field(default_factory=dict)
    required: frozenset[str] = kind.__required_keys__
    return {key: (_bare(one), ... if key in required else optional) for key, one in hints.items()}


_QUALIFIERS = frozenset({"Required", "NotRequired", "ReadOnly"})


def _bare(hint: Any) -> Any:
    """A type without the qualifiers of a key of a TypedDict."""
    while getattr(typing.get_origin(hint), "_name", None) in _QUALIFIERS:
        (hint,) = typing.get_args(hint)
    return hint


def _takes_context(hint: Any) -> bool:
    if ToolContext in (hint, typing.get_origin(hint)):
        return True
    return any(map(_takes_context, typing.get_args(hint)))


_PLAIN = frozenset({str, int, float, bool, type(None), Any, list, dict})


def _is_plain(hint: Any) -> bool:
    """Whether JSON Schema fully describes a type."""
    origin = typing.get_origin(hint)
    if origin is None:
        return isinstance(hint, type) and hint in _PLAIN
    parts = typing.get_args(hint)
    if origin is Literal:  # a member of an enumeration is not its value in JSON
        return _PLAIN.issuperset(map(type, parts))
    if origin is dict and parts[0] not in {str, Any}:  # keys are text in JSON
        return False
    return origin in {list, dict, Union, types.UnionType} and all(map(_is_plain, parts))


# Wrappers


def _signature_of(fn: Callable[..., Any]) -> tuple[list[inspect.Parameter], set[str]]:
    """The parameters with which a callable can be called, and the names of those that its wrappers fill.

    A wrapper that takes ``*args`` and ``**kwargs`` is called with the parameters of the function that it wraps,
    without those that its source fills. Any other one is called with the parameters that it names.
    """
    wrapped = getattr(fn, "__wrapped__", None)
    if not isinstance(fn, types.FunctionType) or wrapped is None or hasattr(fn, "__signature__"):
        return [*inspect.signature(fn).parameters.values()], set()
    own = [*inspect.signature(fn, follow_wrapped=False).parameters.values()]
    named = [one for one in own if one.kind not in {_ARGS, _KWARGS}]
    if len(named) == len(own):
        return own, set()
    inner, before = _signature_of(wrapped)
    filled = _filled_by(fn, own, wrapped, inner)
    rest = {one.name: one for one in inner if one.name not in filled}
    added = [one for one in named if one.name not in rest]
    first = [one for one in added if one.kind is not one.KEYWORD_ONLY and one.default is one.empty]
    others = [one.replace(kind=one.KEYWORD_ONLY) for one in added if one not in first]
    return [*first, *rest.values(), *others], before | filled


def _filled_by(
    fn: types.FunctionType,
    parameters: list[inspect.Parameter],
    wrapped: Any,
    inner: list[inspect.Parameter],
) -> set[str]:
    """The names of the arguments of a function that a wrapper of it fills."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn.__code__)))
        cells = inspect.getclosurevars(fn).nonlocals
    except (OSError, TypeError, SyntaxError, ValueError):  # `exec` made it; a cell is empty
        return set()
    names = {name for name, one in cells.items() if one is wrapped}
    kinds = {one.kind: one.name for one in parameters}
    args, kwargs = kinds.get(_ARGS), kinds.get(_KWARGS)
    filled = set[Any]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in names:
                plain = itertools.takewhile(lambda one: ast.unparse(one) != f"*{args}", node.args)
                filled.update(one.name for one, _ in zip(inner, plain, strict=False))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="setdefault" | "update")
            ) if name == kwargs:  # kwargs.setdefault("db", db), kwargs.update(db=db)
                filled.update(one.value for one in node.args[:1] if isinstance(one, ast.Constant))
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Constant(value=key), ctx=ast.Store()
            ) if name == kwargs:  # kwargs["db"] = db
                filled.add(key)
            case _:
                continue
        filled.update(keyword.arg for keyword in getattr(node, "keywords", ()))
    return filled
