"""The protocol of a search for tools: which tools a request offers, and how the model calls the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from treadle.messages import ToolCall
from treadle.tools.definition import Tool


class Catalog(Protocol):
    """The tools of a loop with the option ``tool_search``; runs share it.

    Attributes:
        fixed: the fixed tools by name, which requests offer in place of those that the model has to find.
    """

    fixed: Mapping[str, Tool]

    def offered(self, tools: Mapping[str, Tool], more: Iterable[str]) -> tuple[str, ...]:
        """The names of the tools of a request, of those that the run has: the fixed ones, and further names."""
        ...

    def unwrapped(self, call: ToolCall, tools: Mapping[str, Tool]) -> ToolCall:
        """The call of the tool that a call of a fixed tool names; any other call is returned unchanged."""
        ...

    def wrapped(self, call: ToolCall) -> tuple[str, str]:
        """The name and the arguments of a call as the history shows them: as the model made it."""
        ...

    def on_unknown(self, name: str, tools: Mapping[str, Tool], *, suggests: bool) -> str:
        """The answer to a call of a tool that does not exist; it may suggest similar ones, by a search."""
        ...


def as_made(catalog: Catalog | None, call: ToolCall) -> tuple[str, str]:
    """The name and the arguments of a call as the model made it, see `Catalog.wrapped`."""
    return (call.name, call.arguments) if catalog is None else catalog.wrapped(call)
