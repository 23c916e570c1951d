"""The outer loop: `Loop`, its options, runs, handles and observers."""

from treadle.loop import presets as presets
from treadle.loop.event_stream import EventStream as EventStream
from treadle.loop.handle import RunHandle as RunHandle
from treadle.loop.loop import Loop as Loop
from treadle.loop.observers import Observer as Observer
from treadle.loop.options import LoopOptions as LoopOptions
from treadle.loop.options import Middleware as Middleware
from treadle.model import LLMSendFn as LLMSendFn
