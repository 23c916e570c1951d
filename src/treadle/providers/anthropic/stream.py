"""A streamed response of Anthropic's Messages API: its events as chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from treadle.messages import CallChunk, Chunk, JSONDict, parse_object, valid_arguments
from treadle.providers.anthropic.kept import OWN_BLOCKS, detail_of, kept_blocks
from treadle.providers.anthropic.response import NO_REASON, as_dict, finish_reason_of, usage_of


class StreamReader:
    """Translates the events of one stream."""

    def __init__(self) -> None:
        self._others: dict[int, JSONDict] = {}
        """The blocks that OpenAI's form has no place for, by their index."""
        self._inputs: dict[int, list[str]] = {}
        """The pieces of the inputs of these blocks."""
        self._has_text = False

    def read(self, event: Any) -> Iterator[Chunk]:
        """The chunks for one event."""
        read = self._EVENTS.get(event.type)
        return iter(()) if read is None else read(self, event)

    def _started(self, event: Any) -> Iterator[Chunk]:
        message = event.message
        usage = usage_of(message.usage)
        yield Chunk(usage=usage, model=message.model, id=message.id, ends_with_reason=True)

    def _block(self, event: Any) -> Iterator[Chunk]:
        block, index = as_dict(event.content_block), event.index
        kind = block.get("type")
        if kind == "text":
            yield self._text(block.get("text") or "")
        elif kind == "tool_use":
            given = block.get("input")  # empty, unless a server does not stream it
            begun = CallChunk(
                index,
                block.get("id") or "",
                block.get("name") or "",
                json.dumps(given) if given else "",
            )
            yield Chunk(tool_calls=(begun,), ends_with_reason=True)
        elif kind in OWN_BLOCKS:
            yield _reasoning(detail_of(block, index))
        else:
            self._others[index] = {**block, "index": index}

    def _delta(self, event: Any) -> Iterator[Chunk]:
        delta, index = event.delta, event.index
        kind = delta.type
        if kind == "text_delta":
            yield self._text(delta.text)
        elif kind == "input_json_delta" and index in self._others:
            self._inputs.setdefault(index, []).append(delta.partial_json)
        elif kind == "input_json_delta":
            piece = CallChunk(index, arguments=delta.partial_json)
            yield Chunk(tool_calls=(piece,), ends_with_reason=True)
        elif kind == "thinking_delta":
            yield _reasoning(detail_of({"thinking": delta.thinking}, index))
        elif kind == "signature_delta":
            yield _reasoning(detail_of({"signature": delta.signature}, index))

    def _text(self, text: str) -> Chunk:
        self._has_text = self._has_text or bool(text)
        return Chunk(text, ends_with_reason=True)

    def _ended(self, event: Any) -> Iterator[Chunk]:
        reason = event.delta.stop_reason
        extra = kept_blocks(self._whole(index) for index in sorted(self._others))
        if reason == "refusal" and not self._has_text:
            extra["refusal"] = NO_REASON
        yield Chunk(
            finish_reason=finish_reason_of(reason),
            usage=usage_of(event.usage),
            extra=extra,
            ends_with_reason=True,
        )

    def _whole(self, index: int) -> JSONDict:
        block, pieces = self._others[index], self._inputs.get(index)
        if pieces:
            block["input"] = parse_object(valid_arguments("".join(pieces)))
        return block

    _EVENTS: ClassVar[Mapping[str, Callable[[Any, Any], Iterator[Chunk]]]] = {
        "message_start": _started,
        "content_block_start": _block,
        "content_block_delta": _delta,
        "message_delta": _ended,
    }
    """What reads an event, by its type. The others, such as a ping, say nothing."""


def _reasoning(detail: JSONDict) -> Chunk:
    return Chunk(extra={"reasoning_details": [detail]}, ends_with_reason=True)
