"""What a loop is made of, from its settings: the pipeline of its stages, and its tools."""

from __future__ import annotations

import functools
import operator
from typing import Any

from treadle.loop.options import OF_DEFAULT_STAGES, Settings
from treadle.pipeline import Pipeline, did_you_mean
from treadle.stages import GIVEN, default_stages
from treadle.types import Context, OptionError, Tool, as_tool, is_mapping, terminal_copy, toolset

_is_decided = operator.attrgetter("decision")
"""What has a context leave the stages. It is asked after each of them, and this takes no frame of Python."""


def pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline; raises `PipelineError` where they cannot work together."""
    if settings.stages is None:
        return _default_pipeline(**{name: getattr(settings, name) for name in OF_DEFAULT_STAGES})
    return _pipeline(settings.stages)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**options: Any) -> Pipeline[Context]:
    """The pipeline of the default stages; runs that are configured alike share one."""
    return _pipeline(default_stages(**options))


def _pipeline(stages: Any) -> Pipeline[Context]:
    if isinstance(stages, Pipeline):
        stages = stages.components
    return Pipeline(list(stages), until=_is_decided, item=Context, given=GIVEN)


def tools_of(settings: Settings) -> dict[str, Tool]:
    """The tools of a loop by name, the terminal one among them; raises what a broken tool raises."""
    tools = toolset(settings.tools)
    output = settings.output
    if output is None:
        return tools
    if isinstance(output, str):
        if output not in tools:
            raise OptionError(f"output: there is no tool {output!r}{did_you_mean(output, tools)}")
        return {**tools, output: terminal_copy(tools[output])}
    if is_mapping(output) and output.get("type") == "object":
        output = Tool("final_answer", "Give the final answer.", output)
    made = terminal_copy(as_tool(output, "output"))
    return {**tools, made.name: made}
