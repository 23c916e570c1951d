"""What a run needs of its loop: the settings, the pipeline of the stages, and the tools."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Collection, Mapping
from typing import Any, Generic, Self, cast

from treadle.context import Context
from treadle.errors import OptionError
from treadle.loop.custom_stage import checked
from treadle.loop.options import OF_STAGES, OF_TOOLS, OPTIONS, STAGE_OPTIONS, Settings
from treadle.messages import ReadOnlyDict
from treadle.model import LLMSendFn, Model
from treadle.model.registry import named_model
from treadle.pipeline import Pipeline, PipelineError, Stage
from treadle.pipeline.compiler import Component
from treadle.pipeline.components import components_of
from treadle.stages import BUILT_IN, GIVEN, ask_model, check_options, default_stages
from treadle.tools import (
    Catalog,
    Output,
    OutputContract,
    Resolver,
    Tool,
    check_implementations,
    make_output,
    toolset,
)
from treadle.type_vars import OutputT_co

_is_decided = operator.attrgetter("decision")
"""Ends a pass through the stages. It is called after each stage; an `attrgetter` takes no Python frame."""


class BuiltLoop(Generic[OutputT_co]):
    """The settings of a loop, and the pipeline and tools built from them; a `treadle.Loop` is one."""

    settings: Settings
    pipeline: Pipeline[Context]
    tools: Mapping[str, Tool]  # with those for its output and the fixed ones of its tool search
    output: OutputContract | None  # what its runs have to end with; None if that is a text
    catalog: Catalog | None  # its tool search
    resolver: Resolver | None  # runs the calls of tools without a function

    def model_for(self, llm_send_fn: Model | None) -> LLMSendFn:
        """The model of a run: the given one, else that of the loop; raises `OptionError` if there is none."""
        chosen = self.settings.llm_send_fn if llm_send_fn is None else llm_send_fn
        if chosen is None:
            raise OptionError(
                "llm_send_fn: there is no model; give one to the run, or to Loop(llm_send_fn=...)"
            )
        return named_model(chosen) if isinstance(chosen, str) else chosen

    def _changed(self, options: Mapping[str, Any]) -> Self:
        if not options:
            return self
        made = object.__new__(type(self))
        vars(made).update(vars(self))  # parts that no changed option affects are shared
        made._build(Settings(options, self.settings), options)
        return made

    def _build(self, settings: Settings, changed: Collection[str] = OPTIONS) -> None:
        """Build the pipeline and the tools from settings, if the changed options affect them."""
        self.settings = settings
        if not OF_STAGES.isdisjoint(changed):
            self.pipeline = _pipeline_of(settings)
        if not OF_TOOLS.isdisjoint(changed):
            tools, self.output = _tools_of(settings)
            search = settings.tool_search
            self.catalog = None if search is None else search.catalog(tools)
            fixed: Mapping[str, Tool] = {} if self.catalog is None else self.catalog.fixed
            self.tools = ReadOnlyDict({**fixed, **tools})  # runs share them
        resolve = settings.resolve_tool
        self.resolver = None if resolve is None else Resolver(resolve)
        check_implementations(self.tools.values(), self.resolver)


def _pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline, checked, with the options of the loop that belong to stages."""
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
    made = [_built(component, chosen, taken) for component in components]
    for name in chosen:
        if name not in taken:
            raise OptionError(
                f"{name}: no stage of the list takes it, since it has no {STAGE_OPTIONS[name].name}; give the "
                f"option to your stage"
            )
    return Pipeline(made, until=_is_decided, item=Context, given=GIVEN)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**chosen: Any) -> Pipeline[Context]:
    made = [_built(default, chosen, set()) for default in default_stages()]
    return Pipeline(made, until=_is_decided, item=Context, given=GIVEN)


def _expanded(given: list[Any]) -> tuple[Component, ...]:
    """The components of a list, with the default stages in place of ``...``; those in the list replace theirs."""
    others = components_of([one for one in given if one is not ...])
    if not any(one is ... for one in given):
        return others
    stages: list[Stage[Any, Any]] = [one for one in others if isinstance(one, Stage)]
    defaults = [
        placed
        for default in default_stages()
        for placed in [one for one in stages if one.role is default.fn] or [default]
    ]
    made: list[Component] = []
    for one in given:
        made += defaults if one is ... else [c for c in components_of(one) if c not in defaults]
    return tuple(made)


def _provides(component: Component, name: str) -> bool:
    """Whether a component, or a stage nested in it, provides a field of the context."""
    if isinstance(component, Stage):
        return name in component.provides
    return any(_provides(inner, name) for part in component.parts.values() for inner in part)


def _built(component: Component, chosen: Mapping[str, Any], taken: set[str]) -> Component:
    """A component with the chosen options, which are added to ``taken``; custom stages check their contexts."""
    if isinstance(component, Stage):
        stage = cast("Stage[..., Any]", component)
        if not any(stage.fn is fn for fn in BUILT_IN):
            return checked(stage)
        mine = {name for name in chosen if STAGE_OPTIONS[name].fn is stage.fn}
        taken |= mine
        options = {**{name: chosen[name] for name in mine}, **stage.options}
        check_options(stage, options)
        return dataclasses.replace(stage, options=options) if mine else stage
    return component.with_parts(lambda part: tuple(_built(c, chosen, taken) for c in part))


def _tools_of(settings: Settings) -> tuple[dict[str, Tool], OutputContract | None]:
    """The tools of a loop by name, including those for its output; and the output, None if it is text."""
    tools = toolset(settings.tools)
    if settings.output is None:
        return tools, None
    given = settings.output
    wanted: Output[Any] = given if isinstance(given, Output) else Output(given)  # pyright: ignore[reportUnknownVariableType]
    output = make_output(wanted, tools)
    for tool in tools.values():
        if tool.terminal and tool.name not in output.tools:
            raise OptionError(
                f"output: the terminal tool {tool.name!r} would end the run with another output; add its name "
                f"to the alternatives: output=[..., {tool.name!r}]"
            )
    return {**tools, **output.tools}, output
