"""`ToolSearch`: the configuration of a loop that offers two fixed tools in place of hundreds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from treadle.errors import OptionError, one_of
from treadle.fast_dataclass import light_dataclass

SEARCH_TOOLS = "search_tools"
"""The name of the tool that searches the others."""
MODES = ("call", "native")
MAX_RESULTS = 20
"""The maximum number of results of a search."""

Vectors: TypeAlias = Sequence[Sequence[float]]
Embed: TypeAlias = Callable[[list[str]], Vectors | Awaitable[Vectors]]
"""Takes texts and returns a vector for each; sync or async."""


def _is_names(given: Any) -> bool:
    is_many = isinstance(given, (list, tuple))
    return is_many and all(isinstance(name, str) for name in given)  # pyright: ignore[reportUnknownVariableType]


@light_dataclass(frozen=True)
class ToolSearch:
    """Offers a model two fixed tools, `search_tools` and `call_tool`, in place of hundreds.

    Args:
        mode: how a tool that was found is called. ``call``: through `call_tool`, so that the tools of the requests
            never change and a provider can cache them. ``native``: it is offered itself from then on, in this run.
        always: names of tools that are offered in any case, as are tools that end the run.
        limit: the number of tools that a search returns, unless the model asks for another number; at most 20.
        embed: returns a vector for each of a list of texts, sync or async. Searches then combine the similarity of
            the vectors with BM25. The tools are embedded once per loop, before the first search. None means BM25
            alone.

    Raises:
        OptionError: a value of the wrong type.
    """

    mode: Literal["call", "native"] = "call"
    always: Sequence[str] = ()
    limit: int = 10
    embed: Embed | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise OptionError(f"ToolSearch: mode: expected {one_of(MODES)}, got {self.mode!r}")
        given: Any = self.always
        if not _is_names(given):
            raise OptionError(
                f"ToolSearch: always: expected a list of names of tools, got {given!r:.80}"
            )
        if type(self.limit) is not int or not 1 <= self.limit <= MAX_RESULTS:
            raise OptionError(
                f"ToolSearch: limit: expected a whole number from 1 to {MAX_RESULTS}, got {self.limit!r}"
            )
        if self.embed is not None and not callable(self.embed):  # pyright: ignore[reportUnnecessaryComparison]
            raise OptionError(
                f"ToolSearch: embed: expected a callable that takes a list of texts, "
                f"got {type(self.embed).__name__}"
            )
        object.__setattr__(self, "always", tuple(given))
