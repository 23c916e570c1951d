"""A response of the Gemini API: whole, or piece by piece."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from treadle.messages import CallChunk, Chunk, JSONDict, Response, Usage
from treadle.messages.stream import StreamAccumulator
from treadle.providers.gemini.provider_state import detail, google, signature_text

_BLOCKED_OTHER = "BLOCK_REASON_OTHER"
"""A prompt that was blocked for other reasons; the same word as a finish reason means something else."""
_METADATA = ("grounding_metadata", "citation_metadata", "url_context_metadata")


def response_of(raw: Any) -> Response:
    """Translate a whole response of the SDK."""
    whole = StreamAccumulator()
    whole.add(Reader().read(raw))
    return dataclasses.replace(whole.response(), is_streamed=False)


class Reader:
    """Translates one response, which comes in one or more pieces.

    The parts of the response are counted as a history has them: consecutive texts, or consecutive thoughts, are
    one; each other part is one by itself.
    """

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""
        self._calls = 0
        self._kept: JSONDict = {}

    def read(self, raw: Any) -> Chunk:
        """Translate a piece of the response."""
        texts: list[str] = []
        details: list[JSONDict] = []
        calls: list[CallChunk] = []
        candidate = next((one for one in raw.candidates or () if not one.index), None)
        content = getattr(candidate, "content", None)
        for part in getattr(content, "parts", None) or ():
            if part.function_call is not None:
                calls.append(self._call(part))
            elif part.text is None:
                self._keep(part)
            elif part.thought:
                details.append(detail(part.text, part.thought_signature, self._place("thought")))
                if part.thought_signature is not None:
                    self._kind = ""  # a signed thought is over
            else:
                texts.append(self._text(part))
        extra: JSONDict = {"reasoning_details": details} if details else {}
        feedback = raw.prompt_feedback
        if feedback is not None and feedback.block_reason is not None:
            reason = _name_of(feedback.block_reason)
            reason = _BLOCKED_OTHER if reason == "OTHER" else reason
            if feedback.block_reason_message:
                extra["refusal"] = feedback.block_reason_message
        else:
            reason = None if candidate is None else _name_of(candidate.finish_reason)
        self._note_metadata(candidate)
        if reason is not None:  # each piece of a value would be joined to those before
            extra |= google(self._kept)
        return Chunk(
            text="".join(texts),
            tool_calls=tuple(calls),
            finish_reason=reason,
            usage=usage_of(raw.usage_metadata),
            model=raw.model_version,
            id=raw.response_id,
            extra=extra,
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
        if part.thought_signature is not None:
            self._kept["thought_signature"] = signature_text(part.thought_signature)
        return part.text

    def _call(self, part: Any) -> CallChunk:
        self._place("call")
        given = part.function_call
        signature = part.thought_signature
        signed = {} if signature is None else {"thought_signature": signature_text(signature)}
        self._calls += 1
        # A call whose arguments come in pieces of their own is not whole: the pieces are not assembled.
        is_whole = False if given.partial_args or given.will_continue else None
        arguments = "" if given.args is None else json.dumps(given.args)
        return CallChunk(
            self._calls - 1, given.id or "", given.name or "", arguments, google(signed), is_whole
        )

    def _keep(self, part: Any) -> None:
        """Keep a part of another kind. A signature alone belongs to the text."""
        made: JSONDict = part.model_dump(mode="json", exclude_none=True, by_alias=True)
        if made.keys() == {"thoughtSignature"}:
            self._kept["thought_signature"] = signature_text(part.thought_signature)
        elif made:
            self._kept.setdefault("parts", []).append({**made, "index": self._place("other")})

    def _note_metadata(self, candidate: Any) -> None:
        for name in _METADATA:
            found = getattr(candidate, name, None)
            if found is not None:
                self._kept[name] = found.model_dump(mode="json", exclude_none=True)


def _name_of(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "value", value))


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
