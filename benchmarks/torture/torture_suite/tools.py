"""Tools of scenarios: declared once, created for each run; each logs what it does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torture_suite.log import Log, ToolRun

NO_PARAMETERS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True)
class ToolSpec:
    """A tool of a scenario.

    Args:
        name: its name.
        fn: takes the `ToolRun` (which has ``arguments`` and ``mark``) and returns the result; sync or async.
        description: what it does, for the model.
        parameters: a JSON Schema of an object.
        timeout: seconds that a call may take; only in scenarios that need `TOOL_TIMEOUT`.
        is_volatile: the same call may return something else each time, as with polling; a hint, for loops
            that have such an option.
    """

    name: str
    fn: Callable[[ToolRun], Any]
    description: str = "A tool."
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS)
    timeout: float | None = None
    is_volatile: bool = False

    def made(self, log: Log) -> Tool:
        """The tool for one run of the scenario, which writes its runs to a log."""
        return Tool(self, log)


class Tool:
    """What an adapter gives to its loop, in one of several forms.

    Attributes:
        name: its name; it need not be a Python identifier.
        description: what it does, for the model.
        parameters: a JSON Schema of an object.
        timeout: seconds that a call may take; None is no limit.
        is_volatile: a hint that the same call may return something else each time.
        is_async: whether ``fn`` and ``function`` are async.
        fn: takes the arguments by name. As with any function, one that is missing or not known is a
            TypeError; types are not checked.
        function: the same, with the signature, type hints and docstring of a function written by hand, for
            loops that make their schema of these. Its ``__name__`` is ``name``.
    """

    def __init__(self, spec: ToolSpec, log: Log) -> None:
        self.name = spec.name
        self.description = spec.description
        self.parameters: dict[str, Any] = dict(spec.parameters)
        self.timeout = spec.timeout
        self.is_volatile = spec.is_volatile
        self.is_async = inspect.iscoroutinefunction(spec.fn)
        signature = _signature(self.parameters, spec.name)
        self.fn: Callable[..., Any] = _noting(spec, log, signature, is_async=self.is_async)
        self.function: Callable[..., Any] = _by_hand(self, signature)

    def as_openai(self) -> dict[str, Any]:
        """The tool in the form of OpenAI's chat completions."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}


def _noting(
    spec: ToolSpec, log: Log, signature: inspect.Signature, *, is_async: bool
) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        signature.bind(**arguments)
        run = log.begin(spec.name, arguments)
        try:
            result = spec.fn(run)
        except BaseException as error:
            log.end(run, error=error)
            raise
        log.end(run, result)
        return result

    async def call_async(**arguments: Any) -> Any:
        signature.bind(**arguments)
        run = log.begin(spec.name, arguments)
        try:
            result = await spec.fn(run)
        except BaseException as error:
            log.end(run, error=error)
            raise
        log.end(run, result)
        return result

    return call_async if is_async else call


def _by_hand(tool: Tool, signature: inspect.Signature) -> Callable[..., Any]:
    fn = tool.fn

    def function(*args: Any, **arguments: Any) -> Any:
        return fn(**signature.bind(*args, **arguments).arguments)

    async def function_async(*args: Any, **arguments: Any) -> Any:
        return await fn(**signature.bind(*args, **arguments).arguments)

    made: Any = function_async if tool.is_async else function
    lines = [f"    {name}: {name}." for name in signature.parameters]
    made.__name__ = made.__qualname__ = tool.name
    made.__doc__ = "\n".join(
        [tool.description, "", "Args:", *lines] if lines else [tool.description]
    )
    made.__signature__ = signature
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    made.__annotations__ = {**hints, "return": Any}
    return made


_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
}


def _signature(parameters: Mapping[str, Any], name: str) -> inspect.Signature:
    required = parameters.get("required", ())
    properties: Mapping[str, Any] = parameters.get("properties", {})
    made: list[inspect.Parameter] = []
    for key, schema in sorted(properties.items(), key=lambda item: item[0] not in required):
        if not key.isidentifier():
            raise ValueError(f"tool {name!r}: a parameter has to be an identifier, not {key!r}")
        hint = _hint(schema)
        is_required = key in required
        made.append(
            inspect.Parameter(
                key,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if is_required else None,
                annotation=hint if is_required else hint | None,
            )
        )
    return inspect.Signature(made, return_annotation=Any)


def _hint(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return Literal[tuple(schema["enum"])]
    if schema.get("type") == "array" and "items" in schema:
        return list[_hint(schema["items"])]  # type: ignore[misc]  # a hint made at run time
    return _TYPES[schema["type"]]
