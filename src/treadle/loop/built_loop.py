"""What a run needs of its loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol

from treadle.context import Context
from treadle.loop.options import Settings
from treadle.model import LLMSendFn, Model
from treadle.pipeline import Pipeline
from treadle.tools import Catalog, OutputContract, Resolver, Tool
from treadle.type_vars import OutputT_co


class OfOutput(Generic[OutputT_co]):
    """The base of a loop whose results have an output of a type."""


class BuiltLoop(Protocol):
    """The settings of a loop, and what follows from them; a `treadle.Loop` is one.

    Attributes:
        settings: its options.
        pipeline: its stages.
        tools: its tools by name, with those for its output.
        output: what its runs have to end with; None if that is a text.
        catalog: its tool search; None if it has none.
        resolver: runs the calls of tools without a function; None if there is none.
    """

    settings: Settings
    pipeline: Pipeline[Context]
    tools: Mapping[str, Tool]
    output: OutputContract | None
    catalog: Catalog | None
    resolver: Resolver | None

    def model_for(self, llm_send_fn: Model | None) -> LLMSendFn:
        """The model of a run: the given one, else that of the loop."""
        ...

    @property
    def with_options(self) -> Callable[..., Any]:
        """Make a loop with some options changed."""
        ...
