"""`Tool`, which a model may call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

from treadle.checks import FLAG, ValueCheck, check_fields, checked, choice, instance, number
from treadle.effects import Mode, call_mode, generator_mode, is_sync_callable
from treadle.errors import OptionError, ToolDefinitionError
from treadle.fast_dataclass import light_dataclass
from treadle.messages import copy_json, safe_str, short_name
from treadle.messages.json_text import MAX_COUNTED, format_path
from treadle.messages.sanitizing import valid_name
from treadle.tools.fingerprints import DEDUPE_MODES, Dedupe
from treadle.tools.tool_context import ToolContext
from treadle.type_vars import ParamsT, ReturnT_co

if TYPE_CHECKING:
    from treadle.tools.function_schema import Signature
    from treadle.tools.validation import SchemaValidator


_TEXT = instance(str, "text")
_NAME = ValueCheck(
    lambda value: isinstance(value, str) and valid_name(value) == value,
    "1 to 128 letters, digits, '_', '-' or '.'",
    shows_value=True,
)
_SECONDS = ValueCheck(
    lambda value: number(0, "seconds").accepts(value) and value > 0, "seconds above 0", True
)
_NAMES = ValueCheck(
    lambda value: isinstance(value, (tuple, list)) and all(map(_TEXT.accepts, value)),  # pyright: ignore[reportUnknownArgumentType]
    "names of fields",
)
_LOCK = ValueCheck(
    lambda value: isinstance(value, str) or is_sync_callable(value),
    "a key, or a sync function of the arguments that makes one",
)
_APPROVAL = ValueCheck(
    lambda value: isinstance(value, bool) or is_sync_callable(value),
    "True, False, or a sync function of the arguments",
)
_SHOWN = ("__name__", "__qualname__", "__module__", "__doc__")

Lock: TypeAlias = str | Callable[[Mapping[str, Any]], Any]
ApprovalRule: TypeAlias = Callable[[Mapping[str, Any]], bool | str]
Invoke: TypeAlias = Callable[[Mapping[str, Any], ToolContext[Any] | None], Any]
"""Takes valid arguments, and the context if the tool takes one; returns what the tool returns."""


@light_dataclass(frozen=True)
class Tool(Generic[ParamsT, ReturnT_co]):
    """A tool that a model may call. Calling the object calls its function, with the same parameters.

    Args:
        name: 1 to 128 letters, digits, ``_``, ``-`` and ``.``.
        description: what it does, for the model.
        input_schema: a JSON Schema of an object.
        fn: the function that runs; None if a resolver runs the tool. Without a `signature`, an object may have a
            method ``call_in_context(arguments, context)`` as well: the loop calls that one, with a `ToolContext`.
        parallel_safe: it may run together with other calls. None takes the default: True unless the annotation
            ``destructiveHint`` is set and it is not read-only.
        read_only: it changes nothing, so that what other calls returned still holds after it. None takes the
            default from the annotations: True if ``readOnlyHint`` is set.
        requires_fresh_input: its arguments depend on the results of all calls before it: it runs alone, and only
            as the first call of a response.
        max_parallel: the maximum number of its calls that run at the same time; None means the limit of the run.
        lock: a key, or a function of the arguments that returns a key, several keys or None; calls that share a
            key never overlap.
        dedupe: when a repeated call is skipped: ``evidence``, ``strict`` or ``off``, see `Dedupe`. None means
            the option of the loop.
        dedupe_fields: the arguments that decide whether two calls are the same; None means all of them.
        volatile: the same call may return another result at any time, as when a job is polled; a repetition
            is never skipped, and never a loop.
        idempotent: calling it twice has the same effect as calling it once; it may return something else. None
            takes the default: True if it is read-only, or the annotation ``idempotentHint`` is set.
        timeout: seconds that one attempt may take; None means no limit.
        retries: the number of further attempts if it raises.
        max_uses: the maximum number of its calls in one run; None means no limit.
        requires_approval: whether its calls need a person's approval; or a function of the arguments that
            returns this, or the question to ask.
        terminal: its call ends the run, and its arguments are the output.
        annotations: MCP's annotations, such as ``readOnlyHint``: defaults of the options above.
        steps: a function of the context of the run and the call that returns the steps of the call, as effects.
            A subagent is a tool with steps. None if `fn` or a resolver runs the tool.
        signature: the parameters of `fn`; set by `tool`.
        parse: makes an instance of the type from which the tool was made, from its arguments; raises pydantic's
            ``ValidationError``. None if it was not made from a type.

    Raises:
        ToolDefinitionError: an invalid name, schema or option.
    """

    name: str = field(metadata={"check": _NAME})
    description: str = checked("", _TEXT)
    input_schema: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}},
        metadata={"check": instance(Mapping, "a JSON Schema")},
    )
    fn: Callable[ParamsT, ReturnT_co] | None = None
    parallel_safe: bool | None = checked(None, FLAG)
    read_only: bool | None = checked(None, FLAG)
    requires_fresh_input: bool = checked(False, FLAG)
    max_parallel: int | None = checked(None, number(1))
    lock: Lock | None = checked(None, _LOCK)
    dedupe: Dedupe | None = checked(None, choice(*DEDUPE_MODES))
    dedupe_fields: Sequence[str] | None = checked(None, _NAMES)
    volatile: bool = checked(False, FLAG)
    idempotent: bool | None = checked(None, FLAG)
    timeout: float | None = checked(None, _SECONDS)
    retries: int = checked(0, number(0))
    max_uses: int | None = checked(None, number(0))
    requires_approval: bool | ApprovalRule = checked(False, _APPROVAL)
    terminal: bool = checked(False, FLAG)
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: Callable[..., Any] | None = field(default=None, repr=False)
    signature: Signature | None = field(default=None, repr=False, compare=False)
    parse: Callable[[Mapping[str, Any]], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            check_fields(self)
        except OptionError as error:
            raise ToolDefinitionError(f"tool {self.name!r}: {error}") from None
        hints, made = dict(self.annotations), vars(self)
        made.update(annotations=hints, input_schema=copy_json(dict(self.input_schema)))
        if self.read_only is None:
            made["read_only"] = bool(hints.get("readOnlyHint"))
        if self.parallel_safe is None:
            made["parallel_safe"] = bool(self.read_only) or not hints.get("destructiveHint")
        if self.idempotent is None:
            made["idempotent"] = bool(self.read_only) or bool(hints.get("idempotentHint"))
        if self.fn is not None:  # documentation tools then show it; not every callable has a name
            made.update((name, getattr(self.fn, name)) for name in _SHOWN if hasattr(self.fn, name))
        _ = self._validator  # which raises the errors of the schema

    # What does not depend on a call is computed once.

    @cached_property
    def invoke(self) -> Invoke:
        """Calls `fn` with a copy of valid arguments, and with a `ToolContext` if it takes one."""
        tool = cast("Tool[..., Any]", self)
        fn, signature = tool.fn, tool.signature
        if fn is None:
            return lambda _arguments, _context: tool()  # which raises
        in_context: Invoke | None = getattr(fn, "call_in_context", None)
        if signature is None and in_context is not None:
            return lambda arguments, context: in_context(copy_json(arguments), context)
        if signature is None or signature.takes_as_given:
            return lambda arguments, _context: fn(**copy_json(arguments))

        def bound(arguments: Mapping[str, Any], context: ToolContext | None) -> Any:
            positional, named = signature.bind(copy_json(arguments), context)
            return fn(*positional, **named)

        return bound

    @cached_property
    def takes_context(self) -> bool:
        """Whether `fn` takes a `ToolContext`."""
        if self.signature is None:
            return hasattr(self.fn, "call_in_context")
        return self.signature.context_parameter is not None

    @cached_property
    def is_generator(self) -> bool:
        """Whether each value that `fn` yields is progress, and the last or the returned one is the result."""
        return self.fn is not None and generator_mode(self.fn) is not None

    @cached_property
    def is_async(self) -> bool:
        """Whether calling `fn` returns an awaitable, or an async generator."""
        fn = self.fn
        return fn is not None and (generator_mode(fn) or call_mode(fn)) is Mode.ASYNC

    @cached_property
    def is_plain(self) -> bool:
        """Whether a plan has nothing to check but duplicates."""
        bounds = (self.max_parallel, self.max_uses)
        needs_check = self.requires_approval is not False or self.requires_fresh_input
        return bool(self.parallel_safe) and bounds == (None, None) and not needs_check

    @cached_property
    def is_slow_to_check(self) -> bool:
        """Whether checking even short arguments may take long: by custom validators, or a recursive schema."""
        runs_code = self._type is not None and getattr(self._type, "runs_code", True)
        return runs_code or self._validator.is_recursive

    @cached_property
    def _validator(self) -> SchemaValidator:
        from treadle.tools.validation import SchemaValidator  # noqa: PLC0415 - slow to import

        return SchemaValidator(self.input_schema, f"tool {self.name!r}: input_schema")

    @cached_property
    def _type(self) -> Callable[[Mapping[str, Any]], Any] | None:
        """Makes an instance of the type of the arguments; None if the schema fully describes it."""
        if self.signature is None:
            return self.parse
        return None if self.signature.is_plain else self.signature.parse

    @cached_property
    def _accepts(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """Accepts arguments that are valid as they are; None if the schema does not fully describe them."""
        signature = self.signature
        is_as_signed = signature is None or self.input_schema == signature.input_schema
        return self._validator.accepts if is_as_signed and self._type is None else None

    @property
    def has_implementation(self) -> bool:
        """Whether it runs without a resolver."""
        return self.fn is not None or self.steps is not None

    def dedupe_key(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments that decide whether two calls are the same."""
        if self.dedupe_fields is None:
            return arguments
        return {name: arguments[name] for name in self.dedupe_fields if name in arguments}

    def lock_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The keys that a call with valid arguments has to hold, in the order in which to acquire them."""
        made: Any = self.lock(arguments) if callable(self.lock) else self.lock
        if made is None:
            return ()
        return (made,) if isinstance(made, str) else tuple(sorted(set(map(str, made))))

    def approval_question(self, arguments: Mapping[str, Any]) -> str | None:
        """The question to ask before a call runs; None if it needs no approval. A rule that raises asks, too."""
        question: Any = self.requires_approval
        if callable(question):
            try:
                question = question(arguments)
            except Exception as error:  # noqa: BLE001 - a rule may raise anything
                return f"the rule for approvals raised {type(error).__name__}: {safe_str(error)}"
        if isinstance(question, str):
            return question or None
        return f"{self.name!r} needs approval" if question else None

    def problems_of(self, arguments: Mapping[str, Any]) -> list[str]:
        """Every violation of the schema by the arguments of a call; empty if they are valid."""
        return self.validate(arguments)[0]

    def validate(self, arguments: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
        """Every violation by decoded arguments; and the arguments, with ``1.0`` as ``1`` for a plain int."""
        accepts = self._accepts
        if accepts is not None and accepts(arguments):
            return [], arguments
        try:
            problems = self._validator.problems_of(arguments)
            if not problems and self._type is not None:
                problems = parsed(self._type, arguments)[1]
            elif not problems and self.signature is not None:
                arguments = self.signature.normal(arguments)
        except Exception as error:  # noqa: BLE001 - validators of types may raise anything
            text = short_name(f"{type(error).__name__}: {error}")
            problems = [f"arguments: they cannot be checked: {text}"]
        return problems, arguments

    def output_of(self, arguments: Mapping[str, Any]) -> Any:
        """The output of a run that a valid call ended: an instance of the type of the tool, or the arguments."""
        return dict(arguments) if self.parse is None else self.parse(arguments)

    def as_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's chat completions API and compatible ones."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": copy_json(self.input_schema),
        }
        return {"type": "function", "function": function}

    def __call__(self, *args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ReturnT_co:
        """Call the function."""
        if self.fn is None:
            raise ToolDefinitionError(f"tool {self.name!r} has no function; a resolver runs it")
        return self.fn(*args, **kwargs)


def parsed(parse: Callable[[Any], Any], value: Any) -> tuple[Any, list[str]]:
    """An instance of a type, and the violations with their paths that the type finds in a value."""
    from pydantic_core import ValidationError  # noqa: PLC0415 - slow to import

    try:
        return parse(value), []
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [f"{format_path(one['loc'])}: {one['msg']}" for one in found[:MAX_COUNTED]]
