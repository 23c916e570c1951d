"""Pipelines for many items: they are streamed, dropped, made and converted."""

from treadle.pipeline.streams.components import composer as composer
from treadle.pipeline.streams.components import dead_end as dead_end
from treadle.pipeline.streams.components import plug_with as plug_with
from treadle.pipeline.streams.components import replicated as replicated
from treadle.pipeline.streams.stream import NotOneItemError as NotOneItemError
from treadle.pipeline.streams.stream import StreamPipeline as StreamPipeline
