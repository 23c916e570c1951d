"""How a response ended: one meaning for the words of all providers."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from enum import StrEnum

log = logging.getLogger("treadle.messages")


class Ending(StrEnum):
    """How a response ended."""

    COMPLETE = "complete"
    """The model was done."""
    CUT = "cut"
    """A limit of tokens ended the response: the end of its text, or of its last call, may be missing."""
    FILTERED = "filtered"
    """A filter ended the response, or the model refused to answer."""
    FAILED = "failed"
    """The provider could not finish the response."""
    PAUSED = "paused"
    """The provider continues the response when it receives it back."""


def ending_of(word: str) -> Ending | None:
    """The meaning of a provider's finish reason; None for an unknown word, which is logged once."""
    normal = _normal(word)
    found = _ENDINGS.get(normal)
    if found is None:
        _log_unknown(normal[:80])
    return found


def gravest(one: str | None, two: str | None) -> str | None:
    """The graver one of two finish reasons of one response; the second one if they are equally grave."""
    if one is None or two is None:
        return one or two
    return one if _GRAVITY.get(ending_of(one), 0) > _GRAVITY.get(ending_of(two), 0) else two


def is_permanent(word: str) -> bool:
    """Whether a response that failed with this finish reason would fail again."""
    return _normal(word) in _PERMANENT


def is_of_context(word: str) -> bool:
    """Whether the context window was full, so that a larger limit of output tokens does not help."""
    return _normal(word) in _OF_CONTEXT


def _normal(word: str) -> str:
    """The word without letter case, hyphens and the name of an enumeration, as in ``FinishReason.STOP``."""
    return word.strip().rpartition(".")[2].lower().replace("-", "_").replace(" ", "_")


@functools.lru_cache(maxsize=256)
def _log_unknown(word: str) -> None:
    text = "the finish reason %r is unknown; a text counts as complete, a call only if it is whole"
    log.warning(text, word)


def words_of(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_WORDS: Mapping[Ending, str] = {
    Ending.COMPLETE: """
        stop stopped stop_sequence stop_word end_turn end end_of_turn eos eos_token eot complete completed done
        finish finished normal success tool_calls tool_call tool_use function_call function_calls load unload none
        finish_reason_unspecified unspecified word
    """,
    Ending.CUT: """
        length max_tokens max_output_tokens max_completion_tokens max_new_tokens max_token max_length max_output
        limit token_limit not_finished incomplete time_limit truncated cutoff repetition other
    """,
    Ending.FILTERED: """
        content_filter content_filtered contentfilter filtered filter refusal refused sensitive guardrail
        guardrail_intervened guardrails error_toxic safety moderation moderated blocked censored recitation
        blocklist prohibited_content spii model_armor escalation jailbreak language image_safety
        image_prohibited_content image_recitation image_other block_reason_other blocked_reason_unspecified
    """,
    Ending.FAILED: """
        error failed failure network_error insufficient_system_resource server_error internal_error abort aborted
        timeout timed_out overloaded engine_overloaded rate_limit rate_limit_exceeded malformed_function_call
        malformed_response malformed_model_output malformed_tool_use malformed_tool_call unexpected_tool_call
        too_many_tool_calls no_image
    """,
    Ending.PAUSED: "pause_turn pause paused",
}
"""The words of each meaning. They are those of OpenAI's two APIs, Anthropic, Gemini, Ollama, Bedrock, Cohere,
Mistral and watsonx; and of servers that implement these: DeepSeek (``insufficient_system_resource``), Zhipu
(``sensitive``, ``network_error``), OpenRouter (``error``), vLLM and SGLang (``abort``, ``repetition``), Hugging
Face and Together (``eos``, ``eos_token``), Baidu (``normal``)."""
_GRAVITY: Mapping[Ending | None, int] = {Ending.CUT: 1, Ending.FILTERED: 2, Ending.FAILED: 3}
_PERMANENT = words_of(
    "cancelled canceled cancel user_cancel queued in_progress expired missing_thought_signature"
)
"""Further words of failed responses, which another attempt does not help."""
_OF_CONTEXT = words_of(
    """
    model_length model_context_window_exceeded context_window_exceeded error_limit context_length
    context_length_exceeded max_context max_context_length
    """
)
"""Further words of responses that were cut: the context window is full."""
_ENDINGS: Mapping[str, Ending] = {
    **{word: ending for ending, words in _WORDS.items() for word in words_of(words)},
    **dict.fromkeys(_PERMANENT, Ending.FAILED),
    **dict.fromkeys(_OF_CONTEXT, Ending.CUT),
}
