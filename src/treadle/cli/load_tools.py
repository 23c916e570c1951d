"""Tools and loops named on the command line: `module:name,name`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from treadle.cli.exits import UsageError
from treadle.errors import ToolDefinitionError, did_you_mean
from treadle.loop import Loop
from treadle.tools import Tool, as_tool


def load_tools(specs: Iterable[str]) -> list[Tool]:
    """Import tools.

    Args:
        specs: each a module and names in it. A name is that of a tool, of anything `as_tool`
            accepts, or of a list of them. The module may be in the current folder.

    Raises:
        UsageError: the module or name does not exist, it cannot be imported, or it is not a tool.
    """
    tools: list[Tool] = []
    for spec in specs:
        module_name, _, listed = spec.partition(":")
        names = [name.strip() for name in listed.split(",")]
        if not module_name or not all(names):
            raise UsageError(f"--tools: expected MODULE:NAME[,NAME...], got {spec!r}")
        module = _imported(module_name, "--tools")
        tools += [tool for name in names for tool in _tools_of(module, name)]
    return tools


def load_loop(spec: str) -> Any:
    """Import a loop.

    Args:
        spec: a module, which may be in the current folder, and the name of a `Loop` in it.

    Raises:
        UsageError: the module or name does not exist, it cannot be imported, or it is not a loop.
    """
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"--loop: expected MODULE:NAME, got {spec!r}")
    found = _found(_imported(module_name, "--loop"), name, "--loop")
    if not issubclass(type(found), Loop):
        raise UsageError(f"--loop: {spec} is not a Loop, but {type(found).__name__}")
    return found


def load_loops(specs: Iterable[str]) -> dict[str, Loop[Any]]:
    """Import loops, by their names.

    Args:
        specs: each a module and a name in it, of a `Loop`, a list of loops, or a dict of loops by name. The
            name of a loop is its option ``name``.

    Raises:
        UsageError: the module or name does not exist, it cannot be imported, it is no loop, or two loops have the
            same name.
    """
    loops: dict[str, Loop[Any]] = {}
    for spec in specs:
        module_name, _, name = spec.partition(":")
        if not module_name or not name:
            raise UsageError(f"LOOPS: expected MODULE:NAME, got {spec!r}")
        found: Any = _found(_imported(module_name, "LOOPS"), name, "LOOPS")
        for key, loop in _named(found, spec):
            if key in loops:
                raise UsageError(f"LOOPS: {spec}: there are two loops named {key!r}")
            loops[key] = loop
    return loops


def _named(found: Any, spec: str) -> list[tuple[str, Loop[Any]]]:
    """The loops that a name in a module stands for, each with its own name."""
    listed: list[Any] = [*found] if isinstance(found, (list, tuple)) else [found]
    pairs: list[tuple[Any, Any]] = (
        [*found.items()]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        if isinstance(found, dict)
        else [(one.settings.name if isinstance(one, Loop) else "", one) for one in listed]
    )
    for _, one in pairs:
        if not isinstance(one, Loop):
            raise UsageError(f"LOOPS: {spec} is not a Loop or several, but {type(one).__name__}")
    return pairs


def _imported(name: str, option: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - what sys.path holds is text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageError(f"{option}: no module {name!r} in {here} or installed") from error
        raise UsageError(f"{option}: {name!r} needs the module {missing!r}") from error
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{option}: importing {name!r} failed: {type(error).__name__}: {error}"
        ) from error


def _tools_of(module: ModuleType, name: str) -> list[Tool]:
    found = _found(module, name, "--tools")
    where = f"{module.__name__}:{name}"
    several: list[Any] = [*found] if isinstance(found, (list, tuple)) else [found]
    try:
        return [as_tool(one, where) for one in several]
    except ToolDefinitionError as error:
        raise UsageError(f"--tools: {error}") from error


def _found(module: ModuleType, name: str, option: str) -> Any:
    found: Any = getattr(module, name, None)
    if found is None:
        public = [known for known in vars(module) if not known.startswith("_")]
        hint = did_you_mean(name, public) if len(public) <= _LISTED else ""
        raise UsageError(f"{option}: module {module.__name__!r} has no {name!r}{hint}")
    return found


_LISTED = 50
"""Maximum number of names that an error lists."""
