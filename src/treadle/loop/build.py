"""Builds the parts of a loop from its settings: the pipeline of its stages, and its tools."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.context import Context
from treadle.errors import check_names
from treadle.loop.options import OF_ASK_MODEL, OF_DEFAULT_STAGES, Settings
from treadle.loop.stage_guard import protect, review
from treadle.messages import ReadOnlyDict, is_mapping
from treadle.pipeline import Pipeline, PipelineError, Stage
from treadle.pipeline.components import Component, Composer, DeadEnd, components_of, nested_in
from treadle.stages import BUILT_IN, GIVEN, ask_model, default_stages
from treadle.tools import Tool, as_tool, terminal_copy, toolset

_is_decided = operator.attrgetter("decision")
"""Ends a pass through the stages. It is called after each stage; an `attrgetter` takes no Python frame."""


def pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline; raises `PipelineError` if the list is invalid."""
    options = {name: getattr(settings, name) for name in OF_DEFAULT_STAGES}
    if settings.stages is None:
        if options["repair_call"] is None:  # runs with the same configuration share one
            return _default_pipeline(**options)
        return _pipeline(default_stages(**options))
    stages: Any = settings.stages
    components = components_of(stages.components if isinstance(stages, Pipeline) else list(stages))  # pyright: ignore[reportUnknownMemberType]
    _check_keeps_one_context(components)
    if any(map(_asks, components)):
        settings.check_is_default(OF_ASK_MODEL)
        return _pipeline(components)
    asking = ask_model(**{name: options[name] for name in OF_ASK_MODEL})
    return _pipeline([asking, *components])


def _check_keeps_one_context(components: Iterable[Component]) -> None:
    for component in components:
        if isinstance(component, (Composer, DeadEnd)):
            raise PipelineError(
                f"stages: {component.name!r} may drop the context of a run, or make several of it: "
                f"a loop has no composer and no dead_end"
            )
        for inner in nested_in(component):
            _check_keeps_one_context(inner)


def _asks(component: Component) -> bool:
    """Whether a component asks the model, or has a stage nested in it that does."""
    if isinstance(component, Stage):
        return component.fn is ask_model.fn or "response" in component.provides
    return any(_asks(inner) for inner_list in nested_in(component) for inner in inner_list)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**options: Any) -> Pipeline[Context]:
    return _pipeline(default_stages(**options))


def _pipeline(stages: Any) -> Pipeline[Context]:
    return Pipeline(
        list(stages),
        until=_is_decided,
        item=Context,
        given=GIVEN,
        review=review,
        prepare=protect,
        trusted=BUILT_IN,
    )


def tools_of(settings: Settings) -> Mapping[str, Tool]:
    """The tools of a loop by name, including the terminal tool; raises the errors of `as_tool`."""
    return ReadOnlyDict(_tools_of(settings))  # runs share them


def _tools_of(settings: Settings) -> Mapping[str, Tool]:
    tools = toolset(settings.tools)
    output = settings.output
    if output is None:
        return tools
    if isinstance(output, str):
        check_names([output], tools, "output: there is no tool")
        return {**tools, output: terminal_copy(tools[output])}
    if is_mapping(output) and output.get("type") == "object":
        output = Tool("final_answer", "Give the final answer.", output)
    made = terminal_copy(as_tool(output, "output"))
    return {**tools, made.name: made}
