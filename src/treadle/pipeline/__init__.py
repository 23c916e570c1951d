"""A staged pipeline, useful by itself. It knows nothing about LLMs."""

from treadle.pipeline.compiler import Component
from treadle.pipeline.components import (
    Stage,
    done,
    goto,
    goto_point,
    stage,
    switch,
    tbd,
)
from treadle.pipeline.errors import PipelineError, StageError
from treadle.pipeline.execute import Progress
from treadle.pipeline.observe import StageEvent, StageObserver
from treadle.pipeline.pipeline import Pipeline, embed

__all__ = [
    "Component",
    "Pipeline",
    "PipelineError",
    "Progress",
    "Stage",
    "StageError",
    "StageEvent",
    "StageObserver",
    "done",
    "embed",
    "goto",
    "goto_point",
    "stage",
    "switch",
    "tbd",
]
