"""What a model without native tool use responded with: the text of its answer, or tool calls."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from treadle.messages import CallChunk, Chunk, Response, ToolCall, is_list, is_mapping, safe_str
from treadle.messages.decode import to_chunk as as_chunk
from treadle.messages.decode import to_response as as_response
from treadle.providers.json_tools.offer import ANSWER, ARGUMENTS, CALLS, TOOL, Offer

Reply: TypeAlias = tuple[str | None, tuple[ToolCall, ...]]
"""The text for the user, and the calls."""

_FENCE = r"\s*(?:```(?:json)?\s*)?"
_ANSWER_HEAD = re.compile(_FENCE + r'\{\s*"answer"\s*:\s*"')
MAX_HEAD = 64
"""The number of characters at the start of a response that decide whether its answer is streamed."""
_CALL_HEAD = re.compile(r'\{\s*(?:"calls"\s*:\s*\[\s*\{\s*)?"tool"\s*:\s*"(?P<name>[^"\\]*)')
_ARGUMENTS_HEAD = re.compile(r'"\s*,\s*"arguments"\s*:\s*')
MAX_TRIES = 64
"""The number of braces in a text at which JSON may begin. Others are text: to try all takes quadratic time."""

_decoder = json.JSONDecoder(strict=False)
_NAMES = (TOOL, "name")
_INPUTS = (ARGUMENTS, "parameters")
"""The keys of a call; the second ones are those that models write which were trained on another form."""


def read_reply(text: str, offer: Offer) -> Reply:
    """Read a response.

    A response that is not in the form of a call is an answer: without a constraint, a model may write plain text.
    One that begins like a call and is malformed becomes a call with malformed arguments; the loop answers it with
    the error, so that the model can correct it.

    Args:
        text: what the model wrote.
        offer: what it may respond with.
    """
    head = _answer_head(text, offer)
    if head is not None:
        return _StringReader().add(text[head:]), ()
    found: list[ToolCall] = []
    start = end = 0
    for place, end_of_object, value in _objects(text):
        if not found and _is_answer(value, offer):
            return _answer(value[ANSWER], offer), ()
        calls = [value] if isinstance(value, ToolCall) else _calls(value, offer)
        start = place if calls and not found else start
        end = end_of_object if calls else end
        found += calls
    if not found or not (_opens(text[:start]) and _closes(text[end:])):
        return text, ()
    return _without_opening(text[:start]) or None, tuple(found)


def _opens(before: str) -> bool:
    """Whether calls begin a line, a list or a block of code.

    A call within a sentence, in a thought, or before further text, is quoted: it does not act.
    """
    if before.rfind("<think>") > before.rfind("</think>"):
        return False
    bare = before.rstrip()
    line = (bare[:-1] if bare.endswith("[") else before).rpartition("\n")[2].strip()
    return not line or _OPENING_FENCE.fullmatch(line) is not None


_OPENING_FENCE = re.compile(r"```\w*")


def _closes(after: str) -> bool:
    """Whether nothing follows calls but the ends of their list and their block of code."""
    return after.strip().removeprefix("]").lstrip() in {"", "```"}


def _objects(text: str) -> Iterator[tuple[int, int, Any]]:
    """The JSON objects in a text, with their starts and ends; a malformed call, the last one, is a `ToolCall`."""
    end = 0
    for _ in range(MAX_TRIES):
        place = text.find("{", end)
        if place < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            broken = _broken_call(text, place)
            if broken is not None:
                yield place, len(text), broken
                return  # what is nested in it is not a response
            end = place + 1
        else:
            yield place, end, value


def _without_opening(text: str) -> str:
    """The text before a call, without the marks that open a list and a block of code."""
    for marks in (("[",), ("```json", "```")):
        text = text.rstrip()
        text = next((text.removesuffix(mark) for mark in marks if text.endswith(mark)), text)
    return text.strip()


def _answer_head(text: str, offer: Offer) -> int | None:
    """Where the text of an answer begins; None if the response is not an answer in text."""
    head = _ANSWER_HEAD.match(text[:MAX_HEAD]) if offer.answer is None else None
    return None if head is None else head.end()


def _is_answer(value: Any, offer: Offer) -> bool:
    return is_mapping(value) and ANSWER in value and not _is_call(value, offer)


def _answer(value: Any, offer: Offer) -> str:
    is_text = isinstance(value, str) and offer.answer is None
    return value if is_text else _dumped(value)


def _calls(value: Mapping[str, Any], offer: Offer) -> list[ToolCall]:
    listed: Any = value.get(CALLS)
    found: list[Any] = listed if is_list(listed) else [value]
    return [_call(one) for one in found if is_mapping(one) and _is_call(one, offer)]


def _is_call(value: Mapping[str, Any], offer: Offer) -> bool:
    if isinstance(value.get(TOOL), str):
        return True
    name: Any = value.get("name")  # of data, unless it is that of a tool
    return isinstance(name, str) and name in offer.functions


def _call(value: Mapping[str, Any]) -> ToolCall:
    name = next(value[key] for key in _NAMES if isinstance(value.get(key), str))
    arguments = next((value[key] for key in _INPUTS if key in value), None)
    if arguments is None:
        return ToolCall("", name)
    return ToolCall("", name, arguments if isinstance(arguments, str) else _dumped(arguments))


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or nested too deeply
        return safe_str(value)


def _broken_call(text: str, place: int) -> ToolCall | None:
    """The call that malformed JSON begins with; None if it does not begin like one."""
    head = _CALL_HEAD.match(text, place)
    if head is None:
        return None
    arguments = _ARGUMENTS_HEAD.match(text, head.end())
    rest = text[place:] if arguments is None else text[arguments.end() :]
    return ToolCall("", head["name"], rest if rest.strip() else "{")


class _StringReader:
    """Decodes a JSON string whose text arrives in pieces, in linear time; it ends at the quotation mark."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_done = False

    def add(self, piece: str) -> str:
        """Decode the next piece; an escape that is incomplete waits for the next one."""
        decoded: list[str] = []
        text, end = self._rest + piece, 0
        while not self._is_done:
            units = _UNITS.match(text, end)
            end = end if units is None else units.end()
            if units is not None:
                decoded.append(_decoded(units[0]))
            if end == len(text) or _INCOMPLETE.fullmatch(text, end):
                break
            self._is_done = text[end] == '"'
            decoded.append("" if self._is_done else text[end])  # a stray backslash
            end += 1
        self._rest = text[end:]
        return "".join(decoded)


_HEX = "[0-9a-fA-F]"
_UNITS = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]'
    rf"|\\u(?![dD][89a-fA-F]){_HEX}{{4}}"
    rf"|\\u[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}})+"
)
"""Characters and whole escapes of a JSON string; a pair of surrogates is one."""
_INCOMPLETE = re.compile(
    rf"\\(?:u(?:{_HEX}{{0,3}}|[dD][89abAB]{_HEX}{{2}}(?:\\(?:u(?:[dD](?:[c-fC-F]{_HEX}?)?)?)?)?))?"
)
"""The start of an escape, or of a pair."""


def _decoded(units: str) -> str:
    return str(_decoder.decode(f'"{units}"'))


class _ReplyStream:
    """Translates the chunks of a response."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._held: list[str] = []
        self._length = 0
        self._reader: _StringReader | None = None
        self._finish_reason: str | None = None
        self._needs_finish_reason = False

    def add(self, chunk: Chunk) -> Chunk:
        """The chunk with what it has of the text of an answer, and nothing else of the text."""
        self._finish_reason = chunk.finish_reason or self._finish_reason
        self._needs_finish_reason = chunk.ends_with_reason or self._needs_finish_reason
        text = self._text(chunk.text) if chunk.text else ""
        return chunk if text == chunk.text else dataclasses.replace(chunk, text=text)

    def _text(self, piece: str) -> str:
        if self._reader is not None:
            return self._reader.add(piece)
        self._held.append(piece)
        is_head = self._length < MAX_HEAD
        self._length += len(piece)
        if is_head:
            text = "".join(self._held)
            start = _answer_head(text, self._offer)
            if start is not None:
                self._reader = _StringReader()
                return self._reader.add(text[start:])
        return ""

    def end(self) -> Chunk:
        """The rest, after the last chunk; nothing of a stream that broke off, which may be requested again."""
        is_incomplete = self._needs_finish_reason and self._finish_reason is None
        if self._reader is not None or not self._held or is_incomplete:
            return Chunk()
        text, calls = read_reply("".join(self._held), self._offer)
        pieces = [
            CallChunk(index, call.id, call.name, call.arguments) for index, call in enumerate(calls)
        ]
        return Chunk(text or "", tuple(pieces))


def translated(raw: Any, offer: Offer) -> Any:
    """Translate what a model returned: a whole response, or a sync or async iterator of chunks.

    Raises:
        NotAResponseError: it is neither.
    """
    if not isinstance(raw, (str, dict, Response)):
        if isinstance(raw, AsyncIterable):
            return _async_chunks(raw, offer)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(raw, Iterator):
            return _chunks(raw, offer)  # pyright: ignore[reportUnknownArgumentType]
    return _whole(as_response(raw), offer)


def _whole(response: Response, offer: Offer) -> Response:
    if response.content is None:
        return response
    text, calls = read_reply(response.content, offer)
    return dataclasses.replace(
        response,
        content=text,
        tool_calls=(*response.tool_calls, *calls),
        extra={key: value for key, value in response.extra.items() if key != "content"},
    )


def _chunks(raw: Iterator[Any], offer: Offer) -> Iterator[Chunk]:
    stream = _ReplyStream(offer)
    try:
        for piece in raw:
            yield stream.add(as_chunk(piece))
        yield stream.end()
    finally:
        _close(raw)


async def _async_chunks(raw: AsyncIterable[Any], offer: Offer) -> AsyncIterator[Chunk]:
    stream = _ReplyStream(offer)
    # OpenAI's client has another iterator behind `__aiter__`, which closes nothing.
    iterator = raw if isinstance(raw, AsyncIterator) else aiter(raw)
    try:
        async for piece in iterator:
            yield stream.add(as_chunk(piece))
        yield stream.end()
    finally:
        closing = _close(iterator)
        if closing is not None:
            await closing


def _close(iterator: AsyncIterator[Any] | Iterable[Any]) -> Any:
    for name in ("aclose", "close"):
        close = getattr(iterator, name, None)
        if callable(close):
            return close()
    return None
