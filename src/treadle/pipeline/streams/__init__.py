"""Pipelines for many items: they are streamed, dropped, made and converted."""

from treadle.pipeline.streams.components import composer, dead_end, plug_with, replicated
from treadle.pipeline.streams.stream import NotOneItemError, StreamPipeline

__all__ = [
    "NotOneItemError",
    "StreamPipeline",
    "composer",
    "dead_end",
    "plug_with",
    "replicated",
]
