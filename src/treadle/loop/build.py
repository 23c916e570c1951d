"""Builds the parts of a loop from its settings: the pipeline of its stages, and its tools."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from treadle.context import Context
from treadle.errors import OptionError
from treadle.loop.custom_stage import checked
from treadle.loop.options import OF_ASK_MODEL, OF_DEFAULT_STAGES, Settings, check_choice
from treadle.messages import ReadOnlyDict
from treadle.pipeline import Pipeline, PipelineError, Stage
from treadle.pipeline.components import Component, components_of
from treadle.stages import BUILT_IN, GIVEN, ask_model, default_stages, plan_calls
from treadle.tools import Catalog, Tool, toolset

if TYPE_CHECKING:
    from treadle.tools.output import Output

_is_decided = operator.attrgetter("decision")
"""Ends a pass through the stages. It is called after each stage; an `attrgetter` takes no Python frame."""


def pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline; raises `PipelineError` if the list is invalid."""
    options = {name: getattr(settings, name) for name in OF_DEFAULT_STAGES}
    options["model_middleware"] = tuple(settings.model_middleware)  # which can be a key of a cache
    if settings.stages is None:
        if options["repair_call"] is None:  # runs with the same configuration share one
            return _default_pipeline(**options)
        return _pipeline(default_stages(**options))
    stages: Any = settings.stages
    if settings.has_default_stages:
        stages = [default_stages(**options) if one is ... else one for one in stages]
    components = components_of(stages.components if isinstance(stages, Pipeline) else list(stages))  # pyright: ignore[reportUnknownMemberType]
    _check(components)
    if settings.output is not None and not any(_provides(c, "output") for c in components):
        raise PipelineError(
            "output: the list of stages has no loop_decision, which takes the output; add it, or declare "
            "provides=('output',) for the stage that ends the run with ctx.done(output)"
        )
    if any(_provides(component, "response") for component in components):
        if not settings.has_default_stages:
            settings.check_is_default(OF_ASK_MODEL)
        return _pipeline(components)
    asking = ask_model(**{name: options[name] for name in OF_ASK_MODEL})
    return _pipeline([asking, *components])


def _check(components: Iterable[Component]) -> None:
    for component in components:
        made: Any = component
        if getattr(made, "fn", None) is plan_calls.fn:
            for name, value in made.options.items():
                check_choice(name, value)
        for inner in component.nested():
            _check(inner)


def _provides(component: Component, name: str) -> bool:
    """Whether a component, or a stage nested in it, provides a field of the context."""
    if isinstance(component, Stage):
        return name in component.provides
    return any(_provides(inner, name) for part in component.nested() for inner in part)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**options: Any) -> Pipeline[Context]:
    return _pipeline(default_stages(**options))


def _pipeline(stages: Any) -> Pipeline[Context]:
    components = [_checked(component) for component in stages]
    return Pipeline(components, until=_is_decided, item=Context, given=GIVEN)


def _checked(component: Component) -> Component:
    """Let the custom stages of a component check their contexts."""
    if isinstance(component, Stage):
        made = cast("Stage[..., Any]", component)
        return made if any(made.fn is fn for fn in BUILT_IN) else checked(made)
    nested = [tuple(map(_checked, part)) for part in component.nested()]
    return component.with_nested(nested) if nested else component


def catalog_of(
    settings: Settings, tools: Mapping[str, Tool]
) -> tuple[Mapping[str, Tool], Catalog | None]:
    """The tools of a loop by name, with the fixed ones of its tool search; and its catalog, None without a search.

    Args:
        settings: those of the loop.
        tools: its tools, including those for its output.

    Raises:
        OptionError: a tool has the name of a fixed one, or ``always`` names a tool that does not exist.
    """
    if settings.tool_search is None:
        return tools, None
    catalog = settings.tool_search.catalog(tools)
    return ReadOnlyDict({**catalog.fixed, **tools}), catalog


def tools_of(settings: Settings) -> tuple[Mapping[str, Tool], Output | None]:
    """The tools of a loop by name, including those for its output; and the output, None if it is text.

    Raises:
        OptionError: the output is invalid.
        ToolDefinitionError: a tool is invalid.
    """
    tools = toolset(settings.tools)
    if settings.output is None:
        return ReadOnlyDict(tools), None  # runs share them
    from treadle.tools.output import make_output  # noqa: PLC0415 - it imports pydantic

    validators = settings.output_validators
    output = make_output(
        settings.output,
        tools,
        mode=settings.output_mode,
        validators=(validators,) if callable(validators) else tuple(validators),
        max_retries=settings.max_output_retries,
    )
    for tool in tools.values():
        if tool.terminal and tool.name not in output.names:
            raise OptionError(
                f"output: the terminal tool {tool.name!r} would end the run with another output; add its name "
                f"to the alternatives: output=[..., {tool.name!r}]"
            )
    return ReadOnlyDict({**tools, **{tool.name: tool for tool in output.tools}}), output
