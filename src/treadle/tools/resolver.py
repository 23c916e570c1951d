"""Resolvers, which run the calls of tools that have no function, and their recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeAlias, TypeVar

from treadle.effects import Mode, call_mode, generator_mode
from treadle.errors import OptionError, ToolDefinitionError
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import ToolResult, is_mapping
from treadle.tools.definition import Tool

T = TypeVar("T")
Arguments: TypeAlias = Mapping[str, Any]


@fast_dataclass
class RecipeStep:
    """One call of a recipe.

    Args:
        tool: the name of the tool to call.
        arguments: its arguments, or a function that makes them from the results so far, by label.
        label: the name of its result; None means the tool's name.
    """

    tool: str
    arguments: Arguments | Callable[[Mapping[str, ToolResult]], Arguments] = field(
        default_factory=dict[str, Any]
    )
    label: str | None = None


@fast_dataclass
class Recipe:
    """The calls to which a call expands. It is not recorded: a replay makes it again.

    Args:
        serial: steps that run one after another; the rest runs even if one fails.
        parallel: steps that run at the same time, after the serial ones.
        compose: makes the result from all results, by label; None formats them as sections.
    """

    serial: tuple[RecipeStep, ...] | list[RecipeStep] = ()
    parallel: tuple[RecipeStep, ...] | list[RecipeStep] = ()
    compose: Callable[[Mapping[str, ToolResult]], Any] | None = None


class Resolver:
    """A resolver in a uniform form.

    Args:
        given: a callable that takes the call, or an object with ``resolve(call)`` and optionally
            ``available_tools()`` (names, or objects or dicts with a name) and ``dispatch_recipe(name)``.

    Raises:
        OptionError: it is neither.
    """

    def __init__(self, given: Any) -> None:
        self.fn: Callable[..., Any] = _method(given, "resolve") or given
        if not callable(self.fn):
            raise OptionError(
                f"resolve_tool: expected a callable that takes a call, or an object with "
                f"resolve(call), got {type(given).__name__}"
            )
        generator = generator_mode(self.fn)
        self.is_generator = generator is not None
        self.mode: Mode = generator or call_mode(self.fn)
        available = _method(given, "available_tools")
        self.names = None if available is None else tuple(map(_name_of, available()))
        self._recipe = _method(given, "dispatch_recipe")

    def knows(self, name: str, has_tools: bool) -> bool:
        """Whether it takes calls of a name that is no tool: one that it lists, or any in a run without tools."""
        return name in self.names if self.names is not None else not has_tools

    def recipe(self, name: str, arguments: Arguments) -> Recipe | None:
        """The recipe for a call, from any form of it; None if the call is resolved directly."""
        maker = None if self._recipe is None else self._recipe(name)
        if maker is None:
            return None
        made = _as(Recipe, maker(arguments))
        serial, parallel = (
            tuple(_as(RecipeStep, step) for step in steps) for steps in (made.serial, made.parallel)
        )
        return Recipe(serial, parallel, made.compose)


def _method(given: Any, name: str) -> Callable[..., Any] | None:
    method = getattr(given, name, None)
    return method if callable(method) else None


def _name_of(available: Any) -> str:
    if isinstance(available, str):
        return available
    if is_mapping(available):
        function: Any = available.get("function", available)
        return str(function["name"])
    return str(available.name)


def _as(kind: type[T], given: Any) -> T:
    """A recipe or a step from itself, a mapping with its fields, or a tuple of them."""
    if isinstance(given, kind):
        return given
    return kind(**given) if is_mapping(given) else kind(*given)


def check_implementations(
    tools: Iterable[Tool], resolver: Resolver | None, where: str = ""
) -> None:
    """Raise `ToolDefinitionError` for a tool that nothing can run; a terminal tool does not have to run."""
    for tool in tools if resolver is None else ():
        if not tool.has_implementation and not tool.terminal:
            raise ToolDefinitionError(
                f"{where}tool {tool.name!r} has no function, and there is no resolve_tool to run it"
            )
