"""`ToolSearch`: the option of a loop that offers two fixed tools in place of hundreds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from treadle.errors import OptionError, one_of
from treadle.fast_dataclass import light_dataclass
from treadle.tool_search.catalog import MAX_RESULTS, Embed, SearchCatalog
from treadle.tools import Tool

MODES = ("call", "native")


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
        given: Any = self.always
        is_many = given.__class__ in {list, tuple}
        are_names = is_many and all(isinstance(name, str) for name in given)
        is_whole = type(self.limit) is int
        embed: Any = self.embed
        for name, is_right, expected, got in (
            ("mode", self.mode in MODES, one_of(MODES), repr(self.mode)),
            ("always", are_names, "a list of names of tools", f"{given!r:.80}"),
            (
                "limit",
                is_whole and 1 <= self.limit <= MAX_RESULTS,
                f"a whole number from 1 to {MAX_RESULTS}",
                repr(self.limit),
            ),
            (
                "embed",
                embed is None or callable(embed),
                "a callable that takes a list of texts",
                type(embed).__name__,
            ),
        ):
            if not is_right:
                raise OptionError(f"ToolSearch: {name}: expected {expected}, got {got}")
        object.__setattr__(self, "always", tuple(given))

    def catalog(self, tools: Mapping[str, Tool]) -> SearchCatalog:
        """Make the catalog of a loop, see `treadle.tools.catalog`.

        Args:
            tools: the tools of the loop.

        Raises:
            OptionError: a name in ``always`` that no tool has, or a tool has the name of a fixed one.
        """
        return SearchCatalog(
            tools,
            is_native=self.mode == "native",
            always=self.always,
            limit=self.limit,
            embed=self.embed,
        )
