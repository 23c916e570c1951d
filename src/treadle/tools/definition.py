"""Tools: what a model may call, from a function, a schema, a pydantic model or another library's dict."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from treadle.errors import ToolDefinitionError
from treadle.messages import copy_json, is_mapping, shown_name, text_of
from treadle.tools.context import ToolContext
from treadle.tools.fast_check import Check, quick_check

if TYPE_CHECKING:
    from pydantic import BaseModel

    from treadle.tools.function_schema import Signature
    from treadle.tools.validation import SchemaValidator


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Check the options of a tool.

    Args:
        name: the tool's name.
        options: its fields.

    Raises:
        ToolDefinitionError: one is not what it has to be; the text says what was expected.
    """
    for option, (accepts, expected) in _EXPECTED.items():
        value = options[option]
        if not accepts(value):
            raise ToolDefinitionError(f"tool {name!r}: {option} must be {expected}, not {value!r}")


def is_safe_beside_others(annotations: Mapping[str, Any]) -> bool:
    """Whether calls may run at the same time as others: not where they are said to destroy something."""
    return bool(annotations.get("readOnlyHint")) or not annotations.get("destructiveHint")


def is_idempotent(annotations: Mapping[str, Any]) -> bool:
    """Whether a call made twice does no more than a call made once."""
    return bool(annotations.get("readOnlyHint") or annotations.get("idempotentHint"))


def _is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0


def _or_none(accepts: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or accepts(value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_names(value: Any) -> bool:
    is_many = isinstance(value, (tuple, list))
    return is_many and all(isinstance(name, str) for name in value)  # pyright: ignore[reportUnknownVariableType]


_FLAG = (_is_flag, "True or False")
_EXPECTED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "timeout": (_or_none(_is_seconds), "above 0"),
    "retries": (_is_whole(0), "a whole number of at least 0"),
    "max_parallel": (_or_none(_is_whole(1)), "a whole number of at least 1"),
    "max_uses": (_or_none(_is_whole(0)), "a whole number of at least 0"),
    "parallel_safe": _FLAG,
    "requires_fresh_input": _FLAG,
    "dedupe": _FLAG,
    "volatile": _FLAG,
    "terminal": _FLAG,
    "idempotent": _FLAG,
    "dedupe_fields": (_or_none(_is_names), "names of fields"),
    "lock": (
        lambda value: value is None or isinstance(value, str) or callable(value),
        "a key, or a function of the arguments that makes one",
    ),
    "requires_approval": (
        lambda value: isinstance(value, bool) or callable(value),
        "True, False, or a function of the arguments",
    ),
}


_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
"""What providers take as a name: OpenAI, Anthropic and MCP agree on these characters, MCP's 128 is the
longest of their lengths."""

Lock: TypeAlias = str | Callable[[Mapping[str, Any]], Any]
ApprovalRule: TypeAlias = Callable[[Mapping[str, Any]], bool | str]


@dataclass(frozen=True)
class Tool:
    """Something a model may call. Called itself, it calls its function.

    Args:
        name: letters, digits, ``_``, ``-`` and ``.``.
        description: what it does, for the model.
        input_schema: a JSON Schema of an object.
        fn: what runs; None where a resolver runs it.
        parallel_safe: it may run while other calls of its batch run. None is what its annotations say:
            yes, but for what is destructive.
        requires_fresh_input: its arguments have to be chosen in the light of all results before them: it
            runs alone, and only as the first call of an answer.
        max_parallel: calls of it that may run at the same time; None is as many as the run allows.
        lock: a key, or a function of the arguments that makes one, or several, or None; calls that share
            a key never overlap.
        dedupe: a call that was answered already, and nothing new was learned since, is not made again.
        dedupe_fields: the arguments that tell whether two calls are the same; None is all.
        volatile: the same call may well bring something else, as with clocks and polling; its repetition
            is never taken for a duplicate or a loop.
        idempotent: a call made twice does no more than one made once. None is what its annotations say.
        timeout: seconds that one try may take; None is no limit of its own.
        retries: tries after the first, where it raises.
        max_uses: calls of it that may run in one run; None is no limit of its own.
        requires_approval: a person has to approve its calls; or a function of the arguments that says
            so, or gives the words in which to ask.
        terminal: its call ends the run, its arguments are the output.
        annotations: MCP's, such as ``readOnlyHint``; they are the defaults of the options above.
        steps: takes the context of the run and the call, and makes the steps of one call, as effects; a loop is a
            tool by this. None where `fn` or a resolver runs it.

    Raises:
        ToolDefinitionError: a bad name, schema or option.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    fn: Callable[..., Any] | None = None
    parallel_safe: bool | None = None
    requires_fresh_input: bool = False
    max_parallel: int | None = None
    lock: Lock | None = None
    dedupe: bool = True
    dedupe_fields: Sequence[str] | None = None
    volatile: bool = False
    idempotent: bool | None = None
    timeout: float | None = None
    retries: int = 0
    max_uses: int | None = None
    requires_approval: bool | ApprovalRule = False
    terminal: bool = False
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: Callable[..., Any] | None = field(default=None, repr=False)
    signature: Signature | None = field(default=None, repr=False, compare=False)
    model: type[BaseModel] | None = field(default=None, repr=False)
    is_async: bool = field(init=False, repr=False, compare=False, default=False)
    is_plain: bool = field(init=False, repr=False, compare=False, default=False)
    has_flat_input: bool = field(init=False, repr=False, compare=False, default=False)
    watches_duplicates: bool = field(init=False, repr=False, compare=False, default=True)
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
        self._settle_options()
        if not isinstance(self.input_schema, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ToolDefinitionError(
                f"tool {self.name!r}: input_schema: expected a JSON Schema, "
                f"got {type(self.input_schema).__name__}"
            )
        from treadle.tools.validation import SchemaValidator  # noqa: PLC0415 - see there

        schema = copy_json(dict(self.input_schema))
        object.__setattr__(self, "input_schema", schema)
        object.__setattr__(self, "has_flat_input", _is_flat(schema))
        where = f"tool {self.name!r}: input_schema"
        object.__setattr__(self, "_validator", SchemaValidator(schema, where))
        object.__setattr__(self, "_further", _further_checks(self.signature, self.model))
        is_own = self.signature is None or schema == self.signature.input_schema
        says_all = self._further is None and is_own
        object.__setattr__(self, "_accepts", quick_check(schema) if says_all else None)
        object.__setattr__(self, "is_async", _is_async(self.fn))

    def _settle_options(self) -> None:
        """Fill in what was left to the annotations, and check the options."""
        hints = dict(self.annotations)
        settled: dict[str, Any] = {"annotations": hints}
        if self.parallel_safe is None:
            settled["parallel_safe"] = is_safe_beside_others(hints)
        if self.idempotent is None:
            settled["idempotent"] = is_idempotent(hints)
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        check_options(self.name, vars(self))
        # A plan need not look at one of those twice: nothing but duplicates concerns it.
        is_plain = (
            self.parallel_safe
            and self.max_parallel is None
            and self.max_uses is None
            and self.requires_approval is False
            and not self.requires_fresh_input
        )
        object.__setattr__(self, "is_plain", is_plain)
        object.__setattr__(self, "watches_duplicates", self.dedupe and not self.volatile)

    @property
    def runs_by_itself(self) -> bool:
        """Whether it needs no resolver to run."""
        return self.fn is not None or self.steps is not None

    def dedupe_key(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments that tell whether two calls are the same."""
        if self.dedupe_fields is None:
            return arguments
        return {name: arguments[name] for name in self.dedupe_fields if name in arguments}

    def lock_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys of the locks that a call has to hold, in the order in which to take them.

        Args:
            arguments: valid ones.
        """
        made: Any = self.lock(arguments) if callable(self.lock) else self.lock
        if made is None:
            return ()
        return (made,) if isinstance(made, str) else tuple(sorted(set(map(str, made))))

    def approval_of(self, arguments: Mapping[str, Any]) -> str | None:
        """In what words to ask for the approval of a call; None where it needs none.

        A rule that raises says nothing, so that a person has to look.

        Args:
            arguments: valid ones.
        """
        rule = self.requires_approval
        if not callable(rule):
            return f"{self.name!r} needs approval" if rule else None
        try:
            said = rule(arguments)
        except Exception as error:  # noqa: BLE001 - somebody else's function
            return f"the rule for approvals raised {type(error).__name__}: {text_of(error)}"
        if isinstance(said, str):
            return said or None
        return f"{self.name!r} needs approval" if said else None

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


def _further_checks(
    signature: Signature | None, model: type[BaseModel] | None
) -> Callable[[Mapping[str, Any]], list[str]] | None:
    """What types demand beyond their schema, such as a validator of one's own; None where it is nothing."""
    if signature is not None:
        return None if signature.is_plain else signature.problems_of
    if model is not None:
        from treadle.tools.function_schema import model_problems  # noqa: PLC0415 - see there

        return functools.partial(model_problems, model)
    return None


def _is_async(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - its code, not whether it has one
    )


def _is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether valid arguments hold nothing that could be changed in place, as far as the schema tells at once."""
    properties: Any = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False and schema.keys() <= _OF_PLAIN_SCHEMAS
    return (is_closed and is_mapping(properties)) and all(
        is_mapping(part) and part.get("type") in _ATOMIC for part in properties.values()
    )


_OF_PLAIN_SCHEMAS = frozenset(
    {"type", "properties", "required", "additionalProperties", "title", "description"}
)
_ATOMIC = ("string", "integer", "number", "boolean")
