"""The outer loop: `Loop`, its runs, their handle, and what wraps them."""

from treadle.loop import presets
from treadle.loop.backend import LLMSendFn
from treadle.loop.handle import EventStream, RunHandle
from treadle.loop.loop import Loop
from treadle.loop.observers import Observer
from treadle.loop.options import Layer, LoopOptions
from treadle.loop.pause import PausedStateError

__all__ = [
    "EventStream",
    "LLMSendFn",
    "Layer",
    "Loop",
    "LoopOptions",
    "Observer",
    "PausedStateError",
    "RunHandle",
    "presets",
]
