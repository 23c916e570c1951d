"""A staged pipeline, useful by itself. It knows nothing about LLMs."""

from treadle.pipeline.components import (
    Component,
    Stage,
    composer,
    dead_end,
    done,
    embed,
    goto,
    goto_point,
    plug_with,
    stage,
    switch,
    tbd,
)
from treadle.pipeline.errors import NotOneItemError, PipelineError, StageError
from treadle.pipeline.execute import Progress
from treadle.pipeline.observe import StageEvent, StageObserver
from treadle.pipeline.pipeline import Pipeline

__all__ = [
    "Component",
    "NotOneItemError",
    "Pipeline",
    "PipelineError",
    "Progress",
    "Stage",
    "StageError",
    "StageEvent",
    "StageObserver",
    "composer",
    "dead_end",
    "done",
    "embed",
    "goto",
    "goto_point",
    "plug_with",
    "stage",
    "switch",
    "tbd",
]
