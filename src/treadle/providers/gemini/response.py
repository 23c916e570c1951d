"""A response of the Gemini API: whole, or piece by piece."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from treadle.errors import TreadleError
from treadle.messages import CallChunk, Chunk, JSONDict, Response, StreamAccumulator, Usage
from treadle.providers.gemini.kept import detail, google, signature_text

_BLOCKED = frozenset(
    {
        *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION"),
    }
)
"""The finish reasons of a response that a filter ended."""
_REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "FUNCTION_CALL": "tool_calls"}
_MALFORMED = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE"})
"""The finish reasons of a response that has a call, which the API could not read, and leaves out."""
_METADATA = ("grounding_metadata", "citation_metadata", "url_context_metadata")


class MalformedCallError(TreadleError):
    """Gemini made a call that its API could not read; worth another attempt.

    The response does not have the call, and the SDK leaves out what the API says about it.
    """

    retryable = True


def response_of(raw: Any) -> Response:
    """Translate a whole response of the SDK.

    Raises:
        MalformedCallError: the model made a call that cannot be read.
    """
    whole = StreamAccumulator()
    whole.add(dataclasses.replace(Reader().read(raw), ends_with_reason=False))
    return dataclasses.replace(whole.response(), is_streamed=False)


class Reader:
    """Translates one response, which comes in one or more pieces.

    The parts of the response are counted as a history has them: consecutive texts, or consecutive thoughts, are
    one; each other part is one by itself.
    """

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""
        self._has_text = False
        self._calls = 0
        self._kept: JSONDict = {}

    def read(self, raw: Any) -> Chunk:
        """Translate a piece of the response.

        Raises:
            MalformedCallError: the model made a call that cannot be read.
        """
        texts: list[str] = []
        details: list[JSONDict] = []
        calls: list[CallChunk] = []
        candidate = raw.candidates[0] if raw.candidates else None
        content = getattr(candidate, "content", None)
        for part in getattr(content, "parts", None) or ():
            if part.function_call is not None:
                calls.append(self._call(part))
            elif part.text is None:
                self._keep(part)
            elif part.thought:
                details.append(detail(part.text, part.thought_signature, self._place("thought")))
            else:
                texts.append(self._text(part))
        extra: JSONDict = {"reasoning_details": details} if details else {}
        reason = None if candidate is None else _name_of(candidate.finish_reason)
        if reason in _MALFORMED and not self._calls:
            raise MalformedCallError(f"Gemini made a call that its API could not read ({reason})")
        refusal = self._refusal(raw, candidate, reason)
        if refusal is not None:
            extra["refusal"] = refusal
        return Chunk(
            text="".join(texts),
            tool_calls=tuple(calls),
            finish_reason=self._finish_reason(reason, refusal),
            usage=usage_of(raw.usage_metadata),
            model=raw.model_version,
            id=raw.response_id,
            extra={**extra, **self._kept_so_far(candidate)},
            ends_with_reason=True,
        )

    # Parts

    def _place(self, kind: str) -> int:
        if kind != self._kind or kind not in {"text", "thought"}:
            self._index += 1
        self._kind = kind
        return self._index

    def _text(self, part: Any) -> str:
        if part.text:
            self._place("text")
            self._has_text = True
        if part.thought_signature is not None:
            self._kept["thought_signature"] = signature_text(part.thought_signature)
        return part.text

    def _call(self, part: Any) -> CallChunk:
        self._place("call")
        given = part.function_call
        signature = part.thought_signature
        signed = {} if signature is None else {"thought_signature": signature_text(signature)}
        self._calls += 1
        arguments = json.dumps(given.args or {})
        return CallChunk(
            self._calls - 1, given.id or "", given.name or "", arguments, google(signed)
        )

    def _keep(self, part: Any) -> None:
        """Keep a part of another kind. A signature alone belongs to the text."""
        made: JSONDict = part.model_dump(mode="json", exclude_none=True, by_alias=True)
        if made.keys() == {"thoughtSignature"}:
            self._kept["thought_signature"] = signature_text(part.thought_signature)
        elif made:
            self._kept.setdefault("parts", []).append({**made, "index": self._place("other")})

    def _kept_so_far(self, candidate: Any) -> JSONDict:
        for name in _METADATA:
            found = getattr(candidate, name, None)
            if found is not None:
                self._kept[name] = found.model_dump(mode="json", exclude_none=True)
        return google(self._kept)

    # The end

    def _refusal(self, raw: Any, candidate: Any, reason: str | None) -> str | None:
        if reason in _BLOCKED:
            return None if self._has_text else _refused(reason)
        feedback = raw.prompt_feedback
        if candidate is None and feedback is not None and feedback.block_reason is not None:
            return feedback.block_reason_message or _refused(_name_of(feedback.block_reason))
        return None

    def _finish_reason(self, reason: str | None, refusal: str | None) -> str | None:
        if refusal is not None or reason in _BLOCKED:
            return "content_filter"
        if reason is None:
            return None
        if self._calls and reason in {"STOP", *_MALFORMED}:
            return "tool_calls"
        return _REASONS.get(reason, reason)


def _name_of(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "value", value))


def _refused(reason: str | None) -> str:
    return f"The model refused to answer ({reason})."


def usage_of(raw: Any) -> Usage | None:
    """The usage. The API counts thoughts apart from the text, and results of its own tools from the prompt.

    Args:
        raw: the SDK's usage; in a stream, that of the pieces so far.
    """
    prompt = _count(raw, "prompt_token_count") + _count(raw, "tool_use_prompt_token_count")
    thoughts = _count(raw, "thoughts_token_count")
    answer = _count(raw, "candidates_token_count") + thoughts
    if not (prompt or answer):  # no request takes zero tokens
        return None
    return Usage(
        prompt,
        answer,
        cached_tokens=_count(raw, "cached_content_token_count"),
        reasoning_tokens=thoughts,
        is_lower_bound=not prompt,
    )


def _count(holder: Any, name: str) -> int:
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and value > 0 else 0
