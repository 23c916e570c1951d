"""The outer loop: `Loop`, its options, runs, handles and observers."""

from treadle.loop import presets
from treadle.loop.event_stream import EventStream
from treadle.loop.handle import RunHandle
from treadle.loop.loop import Loop
from treadle.loop.observers import Observer
from treadle.loop.options import LoopOptions, Middleware
from treadle.model import LLMSendFn

__all__ = [
    "EventStream",
    "LLMSendFn",
    "Loop",
    "LoopOptions",
    "Middleware",
    "Observer",
    "RunHandle",
    "presets",
]
