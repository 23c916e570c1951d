"""Tools: what a model may call, from a function, a schema, a pydantic model or another library's dict."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from treadle.types.errors import ToolDefinitionError
from treadle.types.messages import copy_json
from treadle.types.quick_check import Check, quick_check
from treadle.types.schema import shown_name

if TYPE_CHECKING:
    from pydantic import BaseModel

    from treadle.types.signature import Signature
    from treadle.types.validation import SchemaValidator

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""What providers take as a name: OpenAI, Anthropic and MCP agree on these characters, MCP's 128 is the
longest of their lengths."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the run that calls it; a parameter of this type is filled by the loop.

    Args:
        call_id: the id of the call.
        tool_name: the name under which it was called.
        iteration: the number of the iteration, from 1.
        attempt: the number of the try, from 1.
        run_id: the id of the run.
        agent_name: whose run it is.
    """

    call_id: str
    tool_name: str
    iteration: int
    attempt: int = 1
    run_id: str = ""
    agent_name: str = ""


@dataclass(frozen=True)
class Tool:
    """Something a model may call. Called itself, it calls its function.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``.
        description: what it does, for the model.
        input_schema: a JSON Schema of an object.
        fn: what runs; None where a resolver runs it.
        parallel_safe: it may run while other calls of its batch run.
        timeout: seconds that one try may take; None is no limit of its own.
        retries: tries after the first, where it raises.
        terminal: its call ends the run, its arguments are the output.
        volatile: the same call may well bring something else, as with clocks and polling; its repetition
            is never taken for a loop.

    Raises:
        ToolDefinitionError: a bad name, schema or number.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    fn: Callable[..., Any] | None = None
    parallel_safe: bool = True
    timeout: float | None = None
    retries: int = 0
    terminal: bool = False
    volatile: bool = False
    signature: Signature | None = field(default=None, repr=False, compare=False)
    model: type[BaseModel] | None = field(default=None, repr=False)
    is_async: bool = field(init=False, repr=False, compare=False, default=False)
    _validator: SchemaValidator = field(init=False, repr=False, compare=False)
    _further: Callable[[Mapping[str, Any]], list[str]] | None = field(
        init=False, repr=False, compare=False
    )
    _accepts: Check | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolDefinitionError(
                f"a tool's name has 1 to 128 letters, digits, '_', '-' or '.', not {self.name!r}"
            )
        if self.timeout is not None and not (_is_number(self.timeout) and self.timeout > 0):
            raise ToolDefinitionError(
                f"tool {self.name!r}: timeout must be above 0, not {self.timeout!r}"
            )
        if not isinstance(self.retries, int) or self.retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolDefinitionError(
                f"tool {self.name!r}: retries must be a whole number of at least 0, "
                f"not {self.retries!r}"
            )
        if not isinstance(self.input_schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolDefinitionError(
                f"tool {self.name!r}: input_schema: expected a JSON Schema, "
                f"got {type(self.input_schema).__name__}"
            )
        from treadle.types.validation import SchemaValidator  # noqa: PLC0415 - see there

        schema = copy_json(dict(self.input_schema))
        object.__setattr__(self, "input_schema", schema)
        where = f"tool {self.name!r}: input_schema"
        object.__setattr__(self, "_validator", SchemaValidator(schema, where))
        object.__setattr__(self, "_further", _further_checks(self.signature, self.model))
        is_own = self.signature is None or schema == self.signature.input_schema
        says_all = self._further is None and is_own
        object.__setattr__(self, "_accepts", quick_check(schema) if says_all else None)
        object.__setattr__(self, "is_async", _is_async(self.fn))

    def problems_of(self, arguments: Mapping[str, Any]) -> list[str]:
        """Tell every violation of the schema by a call's arguments; an empty list where they are valid."""
        return self.checked(arguments)[0]

    def checked(self, arguments: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
        """Check a call's arguments.

        Args:
            arguments: what the model gave, decoded.

        Returns:
            Every violation, with its path; and the arguments, in the one form that JSON has for them as
            far as plain types tell: ``1.0``, which is an integer to JSON Schema, is ``1`` for an int.
        """
        if self._accepts is not None and self._accepts(arguments):
            return [], arguments
        try:
            problems = self._validator.problems_of(arguments)
            if not problems and self._further is not None:
                problems = self._further(arguments)
            elif not problems and self.signature is not None:
                arguments = self.signature.normal(arguments)
        except Exception as error:  # noqa: BLE001 - numbers or nesting beyond what a check can take
            told = shown_name(f"{type(error).__name__}: {error}")
            problems = [f"arguments: they cannot be checked: {told}"]
        return problems, arguments

    def bound(
        self, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
    ) -> Callable[[], Any]:
        """The call of its function with valid arguments, ready to be made.

        Args:
            arguments: valid ones.
            context: makes what is given to the function if it has a parameter for it.
        """
        if self.fn is None:
            raise ToolDefinitionError(f"tool {self.name!r} has no function")
        if self.signature is None or self.signature.takes_as_given:
            return functools.partial(self.fn, **arguments)
        positional, named = self.signature.bind(arguments)
        if self.signature.context_position is not None:
            positional.insert(self.signature.context_position, context())
        elif self.signature.context_parameter is not None:
            named[self.signature.context_parameter] = context()
        return functools.partial(self.fn, *positional, **named)

    def as_openai(self) -> dict[str, Any]:
        """The tool as OpenAI's chat completions and all that are compatible with it take it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": copy_json(self.input_schema),
        }
        return {"type": "function", "function": function}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, as if it had not been made a tool."""
        if self.fn is None:
            raise TypeError(f"tool {self.name!r} has no function; a resolver runs it")
        return self.fn(*args, **kwargs)


@overload
def tool(fn: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel_safe: bool = True,
    timeout: float | None = None,
    retries: int = 0,
    terminal: bool = False,
    volatile: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a function: the schema from its type hints, the descriptions from its docstring.

    Args:
        fn: sync or async. A parameter annotated with `ToolContext` is filled by the loop.
        **options: the arguments of `Tool`; ``name`` and ``description`` win over the function's.

    Returns:
        A `Tool`, which can still be called as the function; or a decorator.

    Raises:
        ToolDefinitionError: the signature is nothing that a model could fill.
    """
    if fn is None:
        return functools.partial(tool, **options)
    from treadle.types.signature import Signature  # noqa: PLC0415 - see there

    signature = Signature(fn, ToolContext)
    facts: dict[str, Any] = {
        "name": signature.name,
        "description": signature.description,
        **_given(options),
    }
    made = Tool(input_schema=signature.input_schema, fn=fn, signature=signature, **facts)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        object.__setattr__(made, name, getattr(fn, name, None))
    return made


def _further_checks(
    signature: Signature | None, model: type[BaseModel] | None
) -> Callable[[Mapping[str, Any]], list[str]] | None:
    """What types demand beyond their schema, such as a validator of one's own; None where it is nothing."""
    if signature is not None:
        return None if signature.is_plain else signature.problems_of
    if model is not None:
        from treadle.types.signature import model_problems  # noqa: PLC0415 - see there

        return functools.partial(model_problems, model)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - its code, not whether it has one
    )


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
