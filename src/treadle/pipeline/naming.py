"""What things are called: a component has one name in errors, in traces and in edits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from treadle.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from treadle.pipeline.stage import Component

PLUGGED = "/"
"""What follows the name of a plug in the names of the components it holds."""

EMBEDDED = "."
"""What follows the name of an embedded pipeline in the names of its components."""


def name_of(fn: Callable[..., Any]) -> str:
    """The name a component gets from its function where it is given none."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return "lambda" if name == "<lambda>" else str(name)


class Names:
    """Gives each component of a pipeline its full name, in the order in which they are written."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, component: Component, prefix: str) -> str:
        """The full name of the next component.

        Args:
            component: whose name it is. One whose own name was made up is numbered where it is
                taken.
            prefix: the name space it stands in.

        Raises:
            PipelineError: another one has this name.
        """
        name = base = prefix + component.name
        number = 1
        while component.anonymous and name in self._taken:
            number += 1
            name = f"{base}_{number}"
        if name in self._taken:
            raise PipelineError(
                f"there are two components named {name!r}; give one another name, "
                f"as in stage(fn, name=...)"
            )
        self._taken.add(name)
        return name
