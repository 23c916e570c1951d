"""Responses of a model, whole or in chunks, with their tool calls, tool results and token usage."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from treadle.errors import ProviderError
from treadle.fast_dataclass import fast_dataclass
from treadle.messages.ending import Ending, ending_of, is_permanent
from treadle.messages.json_text import is_object, parse_object
from treadle.messages.measurement import ModelCallStatus, Timing, Usage, usage_status
from treadle.messages.message import JSONDict, is_list, is_mapping


@fast_dataclass
class ToolCall:
    """A tool call that the model requests.

    Args:
        id: unique in its history; generated if the provider gave none, or the same one twice.
        name: the tool's name, as the model wrote it.
        arguments: JSON text, as the model wrote it; it may be malformed, and is empty if the model wrote none.
        input: the validated arguments; None before validation, and if they are invalid.
        fingerprint: equal for calls of the same name and arguments; set by validation.
        extra: unknown keys of the call, such as a signature; they are kept.
        raw_arguments: if the model made the call through ``call_tool``, the arguments of ``call_tool`` as it wrote
            them; None for a call by the tool's own name. See `ToolSearch`.
        is_whole: whether the model finished the call, as far as it is known; see `settled`. A call that is not
            whole does not run.
    """

    id: str
    name: str
    arguments: str = "{}"
    input: Mapping[str, Any] | None = field(default=None, compare=False)
    fingerprint: str = field(default="", compare=False, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    raw_arguments: str | None = field(default=None, compare=False, repr=False)
    is_whole: bool | None = field(default=None, compare=False)


@fast_dataclass
class ToolResult:
    """The result of a call.

    Args:
        tool_call_id: the id of the call.
        content: the text for the model. A content part that is not text has a placeholder in it, such as
            ``[image/png, 12,345 bytes, 3f2a9c1b]``.
        is_error: whether the call failed or did not run.
        status: ``done`` (it ran, with or without an error), ``timeout``, ``retry`` (the tool raised `Retry`, or
            the output was not accepted), ``waiting`` (for a person), ``unknown`` (it was started, and whether it
            ran to its end is not known); else the reason why it did not run, a value of `NotRun`.
        parts: the whole content in OpenAI's form if some of it is not text, such as an image; None for a text.
    """

    tool_call_id: str
    content: str
    is_error: bool = False
    status: str = "done"
    parts: Sequence[JSONDict] | None = field(default=None, repr=False)


@fast_dataclass
class Response:
    """One response of a model.

    Args:
        content: the text; None if there is none.
        tool_calls: the requested calls, as the provider gave them.
        finish_reason: why the model ended, as the provider names it; `ending` is what it means.
        usage: the tokens used; None if the provider reported none.
        model: the model that answered, as the provider names it.
        id: the provider's id of the response.
        extra: unknown keys of the assistant message, such as ``reasoning``; they are kept in the history. A
            content of several parts is here too, as ``content``; and the log probabilities of the tokens, as
            ``logprobs``, which are not kept.
        refusal: the text of a refusal, if the provider reports it separately.
        provider: the provider that served the model, if a router reports it.
        is_streamed: whether it was assembled from the pieces of a stream.
        is_cached: whether it comes from a cache of responses; its usage and its cost are then zero.
        times: as in `Timing`: when the request was sent, when the response was complete and, if it was streamed,
            when its first piece arrived. None if it did not come through a run.
        origin: the server that sent it, such as ``openai@api.openai.com``, or the name of the callable; None if
            only what every server reads is in it. See `treadle.messages.for_sdk`.
    """

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    refusal: str | None = None
    provider: str | None = None
    is_streamed: bool = field(default=False, compare=False)
    is_cached: bool = field(default=False, compare=False)
    times: tuple[float, ...] | None = field(default=None, compare=False, repr=False)
    origin: str | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text for the user: the content, else the refusal, else empty."""
        return self.content or self.refusal or ""

    @property
    def ending(self) -> Ending:
        """How the response ended, by its finish reason.

        Without a finish reason it is complete; so is a text with an unknown one. Calls with an unknown one are
        only complete if all of them are known to be whole. Calls beside a refusal count as filtered; a refusal
        alone is a text of the model.
        """
        if self.tool_calls and (
            self.refusal is not None or (self.extra and refusal_of_parts(self.extra.get("content")))
        ):
            return Ending.FILTERED
        if self.finish_reason is None:
            return _COMPLETE
        known = ending_of(self.finish_reason)
        return known or (Ending.COMPLETE if _are_closed(self) else Ending.CUT)

    @property
    def is_blank(self) -> bool:
        """Whether there is neither text nor a call."""
        return not self.tool_calls and not self.text.strip()

    @property
    def timing(self) -> Timing | None:
        """The times of the request that was answered, not of the failed ones before it; see ``times``."""
        return None if self.times is None else Timing(*self.times)

    @property
    def duration(self) -> float | None:
        """Seconds from the request to the end of the response; None if unknown."""
        return None if self.times is None else Timing(*self.times).duration

    @property
    def time_to_first_token(self) -> float | None:
        """Seconds from the request to the first piece of the response; None if it was not streamed."""
        return None if self.times is None else Timing(*self.times).time_to_first_token

    @property
    def tokens_per_second(self) -> float | None:
        """Output tokens per second, see `Timing.tokens_per_second`; None if unknown."""
        return None if self.times is None else Timing(*self.times).tokens_per_second(self.usage)

    @property
    def status(self) -> ModelCallStatus:
        """Whether its tokens were counted by the provider, are not all known, or were estimated."""
        return usage_status(self.usage)


_COMPLETE = Ending.COMPLETE
"""Python 3.11 runs code at each access to a member of an enumeration; every iteration has two."""


def _are_closed(response: Response) -> bool:
    """Whether the arguments of all calls are closed JSON objects.

    In a whole body, an empty object may stand for arguments that never began.
    """
    calls = response.tool_calls
    if not all(call.is_whole is not False and is_object(call.arguments) for call in calls):
        return False
    return response.is_streamed or not calls or bool(parse_object(calls[-1].arguments))


def refusal_of_parts(content: Any) -> str:
    """The text of the parts of a content in which the model refuses; empty if there is none."""
    parts: list[Any] = content if is_list(content) else []
    found = (part.get("refusal") for part in parts if is_mapping(part))
    return "".join(text for text in found if isinstance(text, str))


def settled(response: Response) -> Response:
    """Note which calls of a response are whole; every response of a model passes through this function once.

    In a complete response, every call is whole that the provider does not mark as incomplete. In one that was cut,
    a call is whole if its arguments have begun and it has an end: the response was streamed (arguments that are no
    closed JSON object are invalid in any case), or another call follows, or the provider marks the call as
    complete. No call of a filtered response is whole. A failed response is raised, as a `ProviderError`.
    """
    ending = response.ending
    if ending is _COMPLETE:
        return response
    if ending is Ending.FAILED:
        word = str(response.finish_reason)
        said = f": {response.text[:_SHOWN]}" if response.text.strip() else ""
        raise ProviderError(
            f"the provider could not finish the response (finish reason {word!r}){said}",
            retryable=not is_permanent(word),
        )
    if not response.tool_calls:
        return response
    last = None if response.is_streamed else response.tool_calls[-1]
    calls: list[ToolCall] = []
    for call in response.tool_calls:
        has_begun = ending is not Ending.FILTERED and bool(call.arguments.strip())
        is_whole = call is not last if call.is_whole is None else call.is_whole
        calls.append(dataclasses.replace(call, is_whole=has_begun and is_whole))
    return dataclasses.replace(response, tool_calls=tuple(calls))


_SHOWN = 500
"""Characters of a failed response that the error shows."""


@fast_dataclass
class CallChunk:
    """A piece of a call in a streamed response.

    Args:
        index: the index of the call in the response.
        id: the call's id, in its first piece.
        name: a piece of its name.
        arguments: a piece of its arguments.
        extra: pieces of unknown keys of the call, such as a signature.
        is_whole: whether the provider says that the call is complete, or incomplete; None if it does not say.
    """

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_whole: bool | None = None


REASONING_KEYS = ("reasoning_content", "reasoning")
"""The keys under which servers send the reasoning as a text: DeepSeek and llama.cpp, OpenRouter, Ollama and vLLM.

Some send the same text under both.
"""


@fast_dataclass
class Chunk:
    """A piece of a streamed response.

    Args:
        text: a piece of the text.
        tool_calls: pieces of calls.
        finish_reason: why the model ended; in the last piece.
        usage: the tokens of the whole response so far. Most providers send them in the last piece; of several,
            the largest counts are used.
        model: the model that answers.
        id: the provider's id of the response.
        extra: pieces of unknown keys, such as ``reasoning_content``.
        ends_with_reason: whether the last piece of such a stream has a finish reason, so that a stream without
            one is incomplete.
        choice: the number of the response, if the provider makes several at once; the first that comes counts.
    """

    text: str = ""
    tool_calls: tuple[CallChunk, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ends_with_reason: bool = False
    choice: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no part of a response, such as a piece with the usage alone."""
        return not (self.text or self.tool_calls or self.extra or self.finish_reason)

    @property
    def reasoning(self) -> str:
        """The piece of the reasoning: the text under a key that servers use, else OpenRouter's details."""
        for key in REASONING_KEYS:
            text = self.extra.get(key)
            if text and isinstance(text, str):
                return text
        details: Any = self.extra.get("reasoning_details")
        found = filter(is_mapping, details if is_list(details) else ())
        texts = [detail.get("text") or detail.get("summary") for detail in found]
        return "".join(text for text in texts if isinstance(text, str))
