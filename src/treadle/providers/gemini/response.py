"""A response of Gemini, whole or streamed: both have the same form, and a stream has several."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from treadle.messages import CallChunk, Chunk, JSONDict, Response, StreamAccumulator, Usage
from treadle.providers.gemini.kept import signature_of, signed, thought_of

_REASONS = {"STOP": "stop", "MAX_TOKENS": "length"}
_FILTERED = frozenset({
    "BLOCKLIST", "IMAGE_PROHIBITED_CONTENT", "IMAGE_SAFETY", "MODEL_ARMOR", "PROHIBITED_CONTENT", "RECITATION",
    "SAFETY", "SPII",
})  # fmt: skip
"""The finish reasons of responses that a filter ended."""


def response_of(raw: Any) -> Response:
    """Translate a response of the SDK.

    Raises:
        ConnectionError: it has no finish reason, so it is incomplete.
    """
    reader, accumulator = ResponseReader(), StreamAccumulator()
    for chunk in reader.read(raw):
        accumulator.add(chunk)
    made = accumulator.response()
    return Response(
        made.content,
        made.tool_calls,
        made.finish_reason,
        made.usage,
        made.model,
        made.id,
        made.extra,
        made.refusal,
    )


class ResponseReader:
    """Translates the responses of one stream, or one whole response."""

    def __init__(self) -> None:
        self._index = -1
        """The place of the latest part in the whole response; consecutive texts are one part."""
        self._kind = ""
        self._calls = 0
        self._own: JSONDict = {}
        self._has_text = False

    def read(self, raw: Any) -> Iterator[Chunk]:
        """The chunks for one response of the SDK."""
        facts = {
            "model": raw.model_version,
            "id": raw.response_id,
            "usage": usage_of(raw.usage_metadata),
        }
        candidate = raw.candidates[0] if raw.candidates else None
        if candidate is not None and candidate.content is not None:
            for part in candidate.content.parts or ():
                yield self._chunk(part)
        yield Chunk(**facts, **self._end(raw, candidate), ends_with_reason=True)

    def _end(self, raw: Any, candidate: Any) -> JSONDict:
        """The finish reason, if the response has ended; and the refusal, if it is one."""
        feedback = raw.prompt_feedback
        blocked = None if feedback is None else feedback.block_reason
        given = candidate.finish_reason if candidate is not None else None
        reason = _name_of(given if given is not None else blocked)
        if reason is None:
            return {}
        is_filtered = reason in _FILTERED or blocked is not None
        if is_filtered and not (self._has_text or self._calls):
            refusal = {"refusal": f"The model refused to answer ({reason})."}
            return {"finish_reason": "content_filter", "extra": refusal}
        if self._calls and reason in {"STOP", "FUNCTION_CALL"}:
            return {"finish_reason": "tool_calls"}
        named = "content_filter" if is_filtered else _REASONS.get(reason, reason.lower())
        return {"finish_reason": named}

    def _chunk(self, part: Any) -> Chunk:
        if part.function_call is not None:
            return self._call(part)
        if part.text is not None and part.thought:
            detail = thought_of(part, self._place("thought"))
            return Chunk(extra={"reasoning_details": [detail]}, ends_with_reason=True)
        if part.text is not None:
            self._place("text")
            self._has_text = self._has_text or bool(part.text)
            signature = signature_of(part)
            extra = self._kept(thought_signature=signature) if signature else {}
            return Chunk(part.text, extra=extra, ends_with_reason=True)
        data = part.model_dump(mode="json", exclude_none=True)
        parts = [*self._own.get("parts", ()), {**data, "index": self._place("")}]
        return Chunk(extra=self._kept(parts=parts), ends_with_reason=True)

    def _call(self, part: Any) -> Chunk:
        self._place("")
        call = part.function_call
        arguments = json.dumps(call.args or {})
        extra = signed(signature_of(part))
        made = CallChunk(self._calls, call.id or "", call.name or "", arguments, extra)
        self._calls += 1
        return Chunk(tool_calls=(made,), ends_with_reason=True)

    def _place(self, kind: str) -> int:
        """The place of a part; a text goes on in the place of the text before."""
        if not kind or kind != self._kind:
            self._index += 1
        self._kind = kind
        return self._index

    def _kept(self, **own: Any) -> JSONDict:
        self._own.update(own)
        return {"extra_content": {"google": {**self._own}}}


def _name_of(reason: Any) -> str | None:
    """The name of a reason; the SDK makes an enum of it."""
    return None if reason is None else str(getattr(reason, "value", reason))


def usage_of(raw: Any) -> Usage | None:
    """The usage. The API counts reasoning apart from the rest of the response."""
    if raw is None:
        return None
    prompt = _sum((raw.prompt_token_count, raw.tool_use_prompt_token_count))
    answer = _sum((raw.candidates_token_count, raw.thoughts_token_count))
    if not (prompt or answer):  # no request takes zero tokens
        return None
    return Usage(
        prompt,
        answer,
        cached_tokens=raw.cached_content_token_count or 0,
        reasoning_tokens=raw.thoughts_token_count or 0,
        is_lower_bound=not (prompt and answer),
    )


def _sum(counts: Iterable[int | None]) -> int:
    return sum(count for count in counts if count)
