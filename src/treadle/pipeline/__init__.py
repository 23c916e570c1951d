"""A staged pipeline, useful by itself: components, effects, drivers. It knows nothing of LLMs."""

from treadle.pipeline.async_driver import drive
from treadle.pipeline.awaiting import InContext, Then
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
from treadle.pipeline.effects import (
    NOW,
    Call,
    CallCancelled,
    Cancelled,
    Effect,
    Emit,
    Mode,
    Now,
    Parallel,
    Signal,
    Sleep,
    Steps,
    Stopped,
    TimeLimitReached,
    Wait,
    Within,
    call_mode,
    is_awaitable,
)
from treadle.pipeline.errors import NotOneItemError, PipelineError, StageError, did_you_mean
from treadle.pipeline.groups import companion
from treadle.pipeline.layers import layered
from treadle.pipeline.observe import StageEvent, StageObserver
from treadle.pipeline.pipeline import Pipeline
from treadle.pipeline.sync_driver import drive_sync
from treadle.pipeline.walk import Trace

__all__ = [
    "NOW",
    "Call",
    "CallCancelled",
    "Cancelled",
    "Component",
    "Effect",
    "Emit",
    "InContext",
    "Mode",
    "NotOneItemError",
    "Now",
    "Parallel",
    "Pipeline",
    "PipelineError",
    "Signal",
    "Sleep",
    "Stage",
    "StageError",
    "StageEvent",
    "StageObserver",
    "Steps",
    "Stopped",
    "Then",
    "TimeLimitReached",
    "Trace",
    "Wait",
    "Within",
    "call_mode",
    "companion",
    "composer",
    "dead_end",
    "did_you_mean",
    "done",
    "drive",
    "drive_sync",
    "embed",
    "goto",
    "goto_point",
    "is_awaitable",
    "layered",
    "plug_with",
    "stage",
    "switch",
    "tbd",
]
