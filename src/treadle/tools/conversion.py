"""Makes tools from functions, schemas, pydantic models and the dicts of other libraries."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, TypeGuard, Unpack, cast, overload

from treadle.errors import ToolDefinitionError, check_names, migration_hints
from treadle.messages import is_mapping
from treadle.messages.message import dumped_of
from treadle.tools.definition import ApprovalRule, Lock, Tool
from treadle.tools.docstrings import read_docstring
from treadle.tools.fingerprints import Dedupe
from treadle.type_vars import ParamsT, ReturnT_co


class MCPTool(Protocol):
    """A tool of an MCP server, as its SDK describes it, with hints about its behaviour."""

    name: str
    annotations: Any


ToolLike: TypeAlias = Callable[..., Any] | Mapping[str, Any] | MCPTool
"""What ``tools=`` takes: functions, `Tool` objects, pydantic models, tool dicts, and MCP's ``Tool``."""


class ToolBehaviour(TypedDict, total=False):
    """The options of a tool except its name and description; see `Tool`."""

    parallel_safe: bool | None
    requires_fresh_input: bool
    max_parallel: int | None
    lock: Lock | None
    dedupe: Dedupe | None
    dedupe_fields: Sequence[str] | None
    volatile: bool
    idempotent: bool | None
    read_only: bool | None
    timeout: float | None
    retries: int
    max_uses: int | None
    requires_approval: bool | ApprovalRule
    terminal: bool
    annotations: Mapping[str, Any]


class ToolOptions(ToolBehaviour, total=False):
    """The options of `tool`."""

    name: str | None
    description: str | None


@overload
def tool(fn: Mapping[str, Any] | MCPTool, /, **options: Unpack[ToolOptions]) -> Tool: ...
@overload
def tool(
    fn: Callable[ParamsT, ReturnT_co], /, **options: Unpack[ToolOptions]
) -> Tool[ParamsT, ReturnT_co]: ...
@overload
def tool(
    fn: None = None, /, **options: Unpack[ToolOptions]
) -> Callable[[Callable[ParamsT, ReturnT_co]], Tool[ParamsT, ReturnT_co]]: ...
def tool(fn: Any = None, /, **options: Any) -> Any:
    """Make a tool of a function: the schema from its type hints, the descriptions from its docstring.

    Args:
        fn: a sync or async function; a parameter annotated with `ToolContext` is filled by the loop. Or a
            pydantic model, a tool dict, a tool of an MCP server or a `Tool`, to set its options.
        **options: options of `Tool`; ``name`` and ``description`` override those of the function.

    Returns:
        A `Tool`, which can still be called like the function; or a decorator.

    Raises:
        ToolDefinitionError: a model cannot fill the parameters of the function, or an option is invalid.
        OptionError: an option is unknown.
    """
    check_names(options, ToolOptions.__annotations__, "tool: unknown option", tool_hint)
    if fn is None:
        return functools.partial(tool, **options)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(fn, (Tool, Mapping)) or _is_model(fn) or _is_mcp_tool(fn):
        if "annotations" in given:  # new annotations replace the earlier defaults
            given = {"parallel_safe": None, "read_only": None, "idempotent": None, **given}
        return dataclasses.replace(as_tool(fn), **given)
    from treadle.tools.function_schema import Signature  # noqa: PLC0415 - slow to import

    signature = Signature(fn)
    facts: dict[str, Any] = {"name": signature.name, "description": signature.description, **given}
    return Tool(input_schema=signature.input_schema, fn=fn, signature=signature, **facts)


def tool_hint(name: str) -> str | None:
    """Where an option that other frameworks give to a tool belongs; None if it is not known."""
    return migration_hints("treadle.tools").get(name)


def as_tool(given: Any, where: str = "tool") -> Tool:
    """Make a tool of any form of it; raise `ToolDefinitionError`, with its place, for anything else."""
    if isinstance(given, Tool):
        return cast("Tool", given)
    if is_mapping(given):
        return _from_dict(given, where)
    if _is_model(given):
        from treadle.tools.function_schema import Parser, type_schema  # noqa: PLC0415 - slow to import

        description, _ = read_docstring(given.__doc__)
        schema = type_schema(given.model_json_schema, where)
        parse = Parser(given.__pydantic_validator__, given.__pydantic_core_schema__)
        return Tool(given.__name__, description, schema, parse=parse)
    if callable(given):
        return tool(given)
    if _is_mcp_tool(given):
        return _from_dict(dumped_of(given, mode="json", by_alias=True), where)
    kind: Any = given.__class__
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    raise ToolDefinitionError(
        f"{where}: expected a Tool, a function, a pydantic model, a tool dict or an MCP tool, "
        f"got {module}{kind.__qualname__}"
    )


def _is_model(given: Any) -> TypeGuard[type[Any]]:
    """Whether a value is a pydantic model class; decided without importing pydantic."""
    return inspect.isclass(given) and hasattr(given, "model_json_schema")


def _is_mcp_tool(given: Any) -> TypeGuard[MCPTool]:
    """Whether a value is a ``Tool`` of MCP's SDK: a pydantic model with a name and an input schema."""
    if callable(given) or not hasattr(given, "model_dump") or not hasattr(given, "name"):
        return False
    return any(is_mapping(getattr(given, name, None)) for name in ("inputSchema", "input_schema"))


def _from_dict(given: Mapping[str, Any], where: str) -> Tool:
    facts: Any = given.get("function", given) if given.get("type") == "function" else given
    if not is_mapping(facts) or not isinstance(facts.get("name"), str):
        raise ToolDefinitionError(f"{where}.name: expected text, got {facts!r:.80}")
    schemas: Any = map(facts.get, ("input_schema", "inputSchema", "parameters"))
    anything: Any = {"type": "object", "properties": {}}
    schema: Any = next((schema for schema in schemas if schema is not None), anything)
    annotations: Any = given.get("annotations")
    annotations = dumped_of(annotations, by_alias=True) or annotations
    hints: dict[str, Any] = dict(annotations) if is_mapping(annotations) else {}
    if isinstance(given.get("title"), str):  # MCP has it in either place
        hints.setdefault("title", given["title"])
    description = facts.get("description") or hints.get("title") or ""
    return Tool(facts["name"], str(description), schema, annotations=hints)


def toolset(given: Any, where: str = "tools") -> dict[str, Tool]:
    """Make the tools of a list, by name; raise `ToolDefinitionError` with the index of an invalid one."""
    made: dict[str, Tool] = {}
    if given is None:
        return made
    is_many = isinstance(given, Iterable) and not isinstance(given, (Mapping, str, Tool))
    if not is_many:
        name = type(given).__name__  # pyright: ignore[reportUnknownArgumentType]
        raise ToolDefinitionError(f"{where}: expected a list of tools, got {name}")
    for index, one in enumerate(given):  # pyright: ignore[reportUnknownArgumentType]
        place = f"{where}[{index}]"
        candidate = as_tool(one, place)
        if candidate.name in made:
            raise ToolDefinitionError(f"{place}: there are two tools named {candidate.name!r}")
        made[candidate.name] = candidate
    return made
