"""A streamed response of the Responses API: its events as chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

from treadle.messages import CallChunk, Chunk, JSONDict
from treadle.messages.decode import provider_error
from treadle.providers.openai_responses.provider_state import (
    BETWEEN_MESSAGES,
    detail,
    details_of,
    kept_items,
    texts_of,
)
from treadle.providers.openai_responses.response import finish_reason_of, is_whole, usage_of
from treadle.providers.sdk_object import as_dict


class StreamReader:
    """Translates the events of one stream. An item that comes whole, without pieces, is one piece."""

    def __init__(self) -> None:
        self._calls: dict[int, int] = {}
        """The number of each call, by its place in the output."""
        self._done: dict[int, JSONDict] = {}
        """The items that are complete, by their place in the output."""
        self._begun: set[tuple[int, str]] = set()
        """The places of the items of which pieces came, each with the kind of its pieces."""
        self._message: int | None = None
        """The place of the last message with a text."""
        self._places: dict[str | None, int] = {}
        """The place of each item, by its id."""

    def read(self, event: Any) -> Iterator[Chunk]:
        """The chunks for one event.

        Raises:
            ProviderError: the event is an error, or says that the response failed.
        """
        read = self._EVENTS.get(event.type)
        return iter(()) if read is None else read(self, event)

    def _place(self, item_id: str | None, given: int | None) -> int:
        """The place of an item. Some servers give none, or count otherwise at the end: its id tells then."""
        if given is None:
            given = self._places.get(item_id, len(self._places))
        self._places.setdefault(item_id, given)
        return given

    def _place_of(self, event: Any) -> int:
        return self._place(getattr(event, "item_id", None), getattr(event, "output_index", None))

    def _added(self, event: Any) -> Iterator[Chunk]:
        item = as_dict(event.item)
        place = self._place(item.get("id"), getattr(event, "output_index", None))
        if item.get("type") == "function_call":
            yield self._call(place, item)

    def _call(self, place: int, item: Mapping[str, Any]) -> Chunk:
        number = self._calls[place] = len(self._calls)
        arguments = self._noted(place, "arguments", item.get("arguments"))
        begun = CallChunk(number, item.get("call_id") or "", item.get("name") or "", arguments)
        return Chunk(tool_calls=(begun,))

    def _arguments(self, event: Any) -> Iterator[Chunk]:
        place = self._place_of(event)
        if place in self._calls:  # else they are in the complete item
            yield self._more_arguments(place, self._noted(place, "arguments", event.delta))

    def _all_arguments(self, event: Any) -> Iterator[Chunk]:
        place = self._place_of(event)
        if place in self._calls and (place, "arguments") not in self._begun:
            yield self._more_arguments(place, self._noted(place, "arguments", event.arguments))

    def _more_arguments(self, place: int, arguments: str) -> Chunk:
        return Chunk(tool_calls=(CallChunk(self._calls[place], arguments=arguments),))

    def _text(self, event: Any) -> Iterator[Chunk]:
        yield self._said(self._place_of(event), event.delta)

    def _said(self, place: int, text: str) -> Chunk:
        is_another = self._message not in {None, place}
        self._message = place
        text = self._noted(place, "text", text)
        return Chunk(text=BETWEEN_MESSAGES + text if is_another else text)

    def _refusal(self, event: Any) -> Iterator[Chunk]:
        yield Chunk(extra={"refusal": self._noted(self._place_of(event), "refusal", event.delta)})

    def _refused(self, event: Any) -> Iterator[Chunk]:
        place = self._place_of(event)
        if (place, "refusal") not in self._begun:
            yield Chunk(extra={"refusal": self._noted(place, "refusal", event.refusal)})

    def _summary(self, event: Any) -> Iterator[Chunk]:
        yield self._reasoning(event, "summary", event.summary_index)

    def _thought(self, event: Any) -> Iterator[Chunk]:
        yield self._reasoning(event, "text", event.content_index)

    def _reasoning(self, event: Any, key: str, part: int) -> Chunk:
        place = self._place_of(event)
        text = self._noted(place, key, event.delta)
        return Chunk(extra={"reasoning_details": [detail(event.item_id, place, key, text, part)]})

    def _noted(self, place: int, kind: str, text: str | None) -> str:
        """Note that a piece of an item came; returns the piece."""
        if text:
            self._begun.add((place, kind))
        return text or ""

    # Complete items

    def _item_done(self, event: Any) -> Iterator[Chunk]:
        item = as_dict(event.item)
        return self._complete(
            self._place(item.get("id"), getattr(event, "output_index", None)), item
        )

    def _complete(self, place: int, item: JSONDict) -> Iterator[Chunk]:
        """Note a complete item; yields what did not come in pieces."""
        if place in self._done:
            return
        self._done[place] = item
        kind = item.get("type")
        if kind == "function_call":
            yield from self._rest_of_call(place, item)
        elif kind == "message":
            yield from self._rest_of_message(place, item)
        elif kind == "reasoning":
            yield from self._rest_of_reasoning(place, item)

    def _rest_of_call(self, place: int, item: JSONDict) -> Iterator[Chunk]:
        if place not in self._calls:
            yield self._call(place, item)
        elif (place, "arguments") not in self._begun:
            yield self._more_arguments(place, item.get("arguments") or "")
        if is_whole(item) is False:
            yield Chunk(tool_calls=(CallChunk(self._calls[place], is_whole=False),))

    def _rest_of_message(self, place: int, item: JSONDict) -> Iterator[Chunk]:
        text, refusal = texts_of(item), texts_of(item, "refusal")
        if text and (place, "text") not in self._begun:
            yield self._said(place, text)
        if refusal and (place, "refusal") not in self._begun:
            yield Chunk(extra={"refusal": refusal})

    def _rest_of_reasoning(self, place: int, item: JSONDict) -> Iterator[Chunk]:
        rest = [
            one
            for one in details_of(item, place)
            if not any((place, key) in self._begun for key in ("summary", "text") if key in one)
        ]
        if rest:
            yield Chunk(extra={"reasoning_details": rest})

    # The end

    def _ended(self, event: Any) -> Iterator[Chunk]:
        raw = event.response
        if getattr(raw, "error", None) or getattr(raw, "status", None) == "failed":
            self._failed(event)
        for place, one in enumerate(getattr(raw, "output", None) or ()):
            item = as_dict(one)
            known = self._places.get(item["id"], place) if item.get("id") else place
            yield from self._complete(known, item)
        yield Chunk(
            finish_reason=finish_reason_of(raw, self._done.values()),
            usage=usage_of(raw),
            model=getattr(raw, "model", None),
            id=getattr(raw, "id", None),
            extra=kept_items(item for _, item in sorted(self._done.items())),
        )

    def _failed(self, event: Any) -> NoReturn:
        error = getattr(event.response, "error", None)
        raise provider_error(error or "the response failed", retryable=None if error else True)

    def _error(self, event: Any) -> Iterator[Chunk]:
        error = as_dict(event)
        if error.get("type") == "error":  # that of the event
            del error["type"]
        raise provider_error(error.get("error") or error)

    _EVENTS: ClassVar[Mapping[str, Callable[[Any, Any], Iterator[Chunk]]]] = {
        "response.output_item.added": _added,
        "response.output_item.done": _item_done,
        "response.output_text.delta": _text,
        "response.refusal.delta": _refusal,
        "response.refusal.done": _refused,
        "response.reasoning_summary_text.delta": _summary,
        "response.reasoning_text.delta": _thought,
        "response.function_call_arguments.delta": _arguments,
        "response.function_call_arguments.done": _all_arguments,
        "response.completed": _ended,
        "response.incomplete": _ended,
        "response.failed": _failed,
        "error": _error,
    }
    """What reads each type of event. All others repeat what these have, or report the progress of the server."""
