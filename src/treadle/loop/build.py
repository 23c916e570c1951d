"""Builds the parts of a loop from its settings: the pipeline of its stages, and its tools."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard, cast

from treadle.context import Context
from treadle.errors import OptionError
from treadle.loop.custom_stage import checked
from treadle.loop.options import OPTIONS, STAGE_OPTIONS, Settings
from treadle.messages import ReadOnlyDict
from treadle.pipeline import Pipeline, PipelineError, Stage
from treadle.pipeline.compiler import Component
from treadle.pipeline.components import components_of
from treadle.stages import BUILT_IN, GIVEN, ask_model, check_options, default_stages
from treadle.tools import Catalog, Output, OutputContract, Tool, make_output, toolset

_is_decided = operator.attrgetter("decision")
"""Ends a pass through the stages. It is called after each stage; an `attrgetter` takes no Python frame."""


def pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline.

    Raises:
        PipelineError: the list is invalid.
        OptionError: an option of a default stage is invalid, or no stage of the list takes it.
    """
    chosen = {
        name: value
        for name in STAGE_OPTIONS
        if (value := getattr(settings, name)) != OPTIONS[name].default
    }
    if settings.stages is None:  # runs with the same configuration share one
        return _default_pipeline(**chosen)
    stages: Any = settings.stages
    components = stages.components if isinstance(stages, Pipeline) else _expanded(list(stages))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    if settings.output is not None and not any(_provides(c, "output") for c in components):
        raise PipelineError(
            "output: the list of stages has no loop_decision, which takes the output; add it, or declare "
            "provides=('output',) for the stage that ends the run with ctx.done(output)"
        )
    if not any(_provides(component, "response") for component in components):
        components = (ask_model, *components)
    taken: set[str] = set()
    components = _configured(components, chosen, taken)
    for name in chosen:
        if name not in taken:
            raise OptionError(
                f"{name}: no stage of the list takes it, since it has no {STAGE_OPTIONS[name].name}; give the "
                f"option to your stage"
            )
    return _pipeline(components)


def _expanded(given: list[Any]) -> tuple[Component, ...]:
    """The components of a list of stages, with the default ones in place of ``...``.

    A default stage elsewhere in the list takes the position of the default one.
    """
    others = components_of([one for one in given if one is not ...])
    if len(given) == 0 or not any(one is ... for one in given):
        return others
    own = [one for one in others if _is_default(one)]
    defaults = [
        placed
        for default in default_stages()
        for placed in [one for one in own if one.fn is default.fn] or [default]
    ]
    made: list[Component] = []
    for one in given:
        made += defaults if one is ... else [c for c in components_of(one) if c not in own]
    return tuple(made)


def _is_default(made: Component) -> TypeGuard[Stage[..., Any]]:
    return isinstance(made, Stage) and any(made.fn is one.fn for one in default_stages())


def _configured(
    components: Iterable[Component], chosen: Mapping[str, Any], taken: set[str]
) -> tuple[Component, ...]:
    """The components, in which the default stages have the options of the loop besides their own.

    Args:
        components: the components.
        chosen: the options of the loop that have another value than the default.
        taken: gets the names of the options that some stage takes.
    """
    made: list[Component] = []
    for component in components:
        nested = component.nested()
        if _is_default(component):
            mine = {name for name in chosen if STAGE_OPTIONS[name].fn is component.fn}
            taken |= mine
            options = {**{name: chosen[name] for name in mine}, **component.options}
            check_options(component, options)
            made.append(dataclasses.replace(component, options=options) if mine else component)
        else:
            inner = [_configured(part, chosen, taken) for part in nested]
            made.append(component if inner == nested else component.with_nested(inner))
    return tuple(made)


def _provides(component: Component, name: str) -> bool:
    """Whether a component, or a stage nested in it, provides a field of the context."""
    if isinstance(component, Stage):
        return name in component.provides
    return any(_provides(inner, name) for part in component.nested() for inner in part)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**chosen: Any) -> Pipeline[Context]:
    return _pipeline(_configured(default_stages(), chosen, set()))


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


def tools_of(settings: Settings) -> tuple[Mapping[str, Tool], OutputContract | None]:
    """The tools of a loop by name, including those for its output; and the output, None if it is text.

    Raises:
        OptionError: the output is invalid.
        ToolDefinitionError: a tool is invalid.
    """
    tools = toolset(settings.tools)
    if settings.output is None:
        return ReadOnlyDict(tools), None  # runs share them
    given = settings.output
    wanted: Output[Any] = given if isinstance(given, Output) else Output(given)  # pyright: ignore[reportUnknownVariableType]
    output = make_output(wanted, tools)
    for tool in tools.values():
        if tool.terminal and tool.name not in output.tools:
            raise OptionError(
                f"output: the terminal tool {tool.name!r} would end the run with another output; add its name "
                f"to the alternatives: output=[..., {tool.name!r}]"
            )
    return ReadOnlyDict({**tools, **output.tools}), output
