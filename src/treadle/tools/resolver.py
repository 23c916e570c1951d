"""Resolvers: what runs the calls of tools that have no function of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from treadle.effects import Mode, call_mode
from treadle.errors import OptionError
from treadle.messages import ToolResult, is_mapping

Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One sub-call of a recipe.

    Args:
        tool: the name of the tool to call.
        arguments: its arguments, or a function that makes them of the results so far, by label.
        label: names its result; None is the tool's name.
    """

    tool: str
    arguments: Arguments | Callable[[Mapping[str, ToolResult]], Arguments] = field(
        default_factory=dict[str, Any]
    )
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a call expands to. It is data, made anew wherever a run is replayed.

    Args:
        serial: steps that run one after another; one that fails is recorded and the rest goes on.
        parallel: steps that run at the same time, after these.
        compose: makes the result of all results, by label; None makes sections of them.
    """

    serial: tuple[Step, ...] | list[Step] = ()
    parallel: tuple[Step, ...] | list[Step] = ()
    compose: Callable[[Mapping[str, ToolResult]], Any] | None = None


class Resolver:
    """A resolver of whatever form, with how to call it decided once.

    Args:
        given: a callable that takes the call, or an object with ``resolve(call)`` and maybe
            ``available_tools()`` (names, or things with a name) and ``dispatch_recipe(name)``.

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
        """Whether calls of this name go to the resolver though no tool of the run has it.

        Args:
            name: the name that the model wrote.
            has_tools: whether the run has tools. Where neither they nor the resolver tell what there is,
                the resolver is asked for everything.
        """
        return name in self.names if self.names is not None else not has_tools

    def recipe(self, name: str) -> Callable[[Arguments], Any] | None:
        """What makes the recipe for calls of this name; None where they are resolved directly."""
        maker: Callable[[Arguments], Any] | None = None
        if self._recipe is not None:
            maker = self._recipe(name)
        return maker


def _name_of(available: Any) -> str:
    if isinstance(available, str):
        return available
    if is_mapping(available):
        facts: Any = available.get("function", available)
        return str(facts["name"])
    return str(available.name)


def as_recipe(made: Any) -> Recipe:
    """The recipe, of a `Recipe`, a mapping with its fields, or a triple of them."""
    if isinstance(made, Recipe):
        recipe = made
    elif is_mapping(made):
        recipe = Recipe(**made)
    else:
        recipe = Recipe(*made)
    return Recipe(_steps(recipe.serial), _steps(recipe.parallel), recipe.compose)


def _steps(given: Iterable[Any]) -> tuple[Step, ...]:
    return tuple(map(_as_step, given))


def _as_step(given: Any) -> Step:
    if isinstance(given, Step):
        return given
    return Step(**given) if is_mapping(given) else Step(*given)
