"""A streamed response of Anthropic's Messages API: its events as chunks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from treadle.messages import CallChunk, Chunk, JSONDict, parse_object
from treadle.messages.sanitizing import valid_arguments
from treadle.providers.anthropic.provider_state import (
    REASONING,
    detail_of,
    kept_blocks,
    kept_of_call,
)
from treadle.providers.anthropic.response import refusal_of, usage_of
from treadle.providers.sdk_object import as_dict


class StreamReader:
    """Translates the events of one stream."""

    def __init__(self) -> None:
        self._blocks: dict[int, JSONDict] = {}
        self._pieces: dict[int, list[str]] = {}
        """The pieces of a text, or of the input of a tool that runs at Anthropic, by the index of the block."""
        self._is_refused = False

    def read(self, event: Any) -> Iterator[Chunk]:
        """The chunks for one event."""
        read = self._EVENTS.get(event.type)
        return iter(()) if read is None else read(self, event)

    def _started(self, event: Any) -> Iterator[Chunk]:
        message = event.message
        usage = usage_of(message.usage)
        yield Chunk(usage=usage, model=message.model, id=message.id)

    def _block(self, event: Any) -> Iterator[Chunk]:
        block, index = as_dict(event.content_block), event.index
        self._blocks[index] = block
        kind = block.get("type")
        if kind == "text":
            yield self._text(block.pop("text", None) or "", index)
        elif kind == "tool_use":
            yield _call(_begun(block, index))
        elif kind in REASONING:
            yield _reasoning(detail_of(block, index))

    def _delta(self, event: Any) -> Iterator[Chunk]:
        delta, index = event.delta, event.index
        kind = delta.type
        if kind == "input_json_delta" and "input" not in self._blocks.get(index, {}):
            index = next(
                (at for at in reversed(self._blocks) if "input" in self._blocks[at]), index
            )
        block = self._blocks.get(index, {})  # some servers number the pieces of a call otherwise
        if kind == "text_delta":
            yield self._text(delta.text, index)
        elif kind == "input_json_delta" and block.get("type") == "tool_use":
            yield _call(CallChunk(index, arguments=delta.partial_json))
        elif kind == "input_json_delta":
            self._add(index, delta.partial_json)
        elif kind == "thinking_delta":
            yield _reasoning(detail_of({"thinking": delta.thinking}, index))
        elif kind == "signature_delta":
            yield _reasoning(detail_of({"signature": delta.signature}, index))
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), as_dict(delta.citation)]

    def _text(self, text: str, index: int) -> Chunk:
        self._add(index, text)
        return Chunk(text)

    def _add(self, index: int, piece: str) -> None:
        self._pieces.setdefault(index, []).append(piece)

    def _ended(self, event: Any) -> Iterator[Chunk]:
        extra = kept_blocks({index: self._whole(index) for index in self._blocks})
        refusal = None if self._is_refused else refusal_of(event.delta)
        self._is_refused = self._is_refused or refusal is not None
        yield Chunk(
            finish_reason=event.delta.stop_reason,
            usage=usage_of(event.usage),
            extra=extra if refusal is None else {**extra, "refusal": refusal},
        )

    def _whole(self, index: int) -> JSONDict:
        block, text = self._blocks[index], "".join(self._pieces.get(index, ()))
        if block.get("type") == "text":
            return {**block, "text": text}
        return {**block, "input": parse_object(valid_arguments(text))} if text else block

    _EVENTS: ClassVar[Mapping[str, Callable[[Any, Any], Iterator[Chunk]]]] = {
        "message_start": _started,
        "content_block_start": _block,
        "content_block_delta": _delta,
        "message_delta": _ended,
    }
    """What reads an event, by its type. The others, such as a ping, say nothing."""


def _begun(block: Mapping[str, Any], index: int) -> CallChunk:
    given = block.get("input")  # empty, unless a server does not stream it
    arguments = json.dumps(given) if given else ""
    call_id, name = block.get("id") or "", block.get("name") or ""
    return CallChunk(index, call_id, name, arguments, kept_of_call(block))


def _call(piece: CallChunk) -> Chunk:
    return Chunk(tool_calls=(piece,))


def _reasoning(detail: JSONDict) -> Chunk:
    return Chunk(extra={"reasoning_details": [detail]})
