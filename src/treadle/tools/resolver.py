"""Resolvers, which run the calls of tools that have no function, and their recipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from treadle.effects import Mode, call_mode
from treadle.errors import OptionError
from treadle.messages import ToolResult, is_mapping

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a recipe.

    Args:
        tool: the name of the tool to call.
        arguments: its arguments, or a function that makes them from the results so far, by label.
        label: the name of its result; None is the tool's name.
    """

    tool: str
    arguments: Arguments | Callable[[Mapping[str, ToolResult]], Arguments] = field(
        default_factory=dict[str, Any]
    )
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """The calls that a call expands to. It is not recorded: a replay makes it again.

    Args:
        serial: steps that run one after another; the rest runs even if one fails.
        parallel: steps that run at the same time, after the serial ones.
        compose: makes the result from all results, by label; None formats them as sections.
    """

    serial: tuple[Step, ...] | list[Step] = ()
    parallel: tuple[Step, ...] | list[Step] = ()
    compose: Callable[[Mapping[str, ToolResult]], Any] | None = None


class Resolver:
    """A user-supplied resolver in one form.

    Args:
        given: a callable that takes the call, or an object with ``resolve(call)`` and optionally
            ``available_tools()`` (names, or objects or dicts with a name) and ``dispatch_recipe(name)``.

    Raises:
        OptionError: it is neither.
    """

    def __init__(self, given: Any) -> None:
        resolve = getattr(given, "resolve", None)
        self.fn: Callable[..., Any] = resolve if callable(resolve) else given
        if not callable(self.fn):
            raise OptionError(
                f"resolve_tool: expected a callable that takes a call, or an object with "
                f"resolve(call), got {type(given).__name__}"
            )
        self.mode: Mode = call_mode(self.fn)
        available = getattr(given, "available_tools", None)
        self.names: tuple[str, ...] | None = None
        if callable(available):
            listed: Any = available()
            self.names = tuple(map(_name_of, listed))
        recipe = getattr(given, "dispatch_recipe", None)
        self._recipe: Callable[[str], Any] | None = recipe if callable(recipe) else None

    def knows(self, name: str, has_tools: bool) -> bool:
        """Whether the resolver takes calls of a name that is not among the tools of the run.

        Args:
            name: the name that the model wrote.
            has_tools: whether the run has tools. Without tools, a resolver that lists no names takes every call.
        """
        return name in self.names if self.names is not None else not has_tools

    def recipe(self, name: str) -> Callable[[Arguments], Any] | None:
        """The function that makes the recipe for a call of this name; None if it is resolved directly."""
        return None if self._recipe is None else self._recipe(name)


def _name_of(available: Any) -> str:
    if isinstance(available, str):
        return available
    if is_mapping(available):
        function: Any = available.get("function", available)
        return str(function["name"])
    return str(available.name)


def as_recipe(made: Any) -> Recipe:
    """Make a recipe of a `Recipe`, a mapping with its fields, or a triple of them."""
    if isinstance(made, Recipe):
        recipe = made
    elif is_mapping(made):
        recipe = Recipe(**made)
    else:
        recipe = Recipe(*made)
    serial, parallel = tuple(map(_as_step, recipe.serial)), tuple(map(_as_step, recipe.parallel))
    return Recipe(serial, parallel, recipe.compose)


def _as_step(given: Any) -> Step:
    if isinstance(given, Step):
        return given
    return Step(**given) if is_mapping(given) else Step(*given)
