"""What a model answers: a response, or the chunks that it is made of, and the tokens it took."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from treadle.fast_dataclass import fast_dataclass


def nothing() -> dict[str, Any]:
    """What most things have of keys that treadle does not know."""
    return {}


@fast_dataclass
class ToolCall:
    """A tool that the model asks for.

    Args:
        id: unique in its history; made up here where a provider gave none, or gave one twice.
        name: the tool's name, as the model wrote it.
        arguments: JSON text, as the model wrote it; it may be malformed.
        input: the arguments once they are validated; None before, and where they are not valid.
        fingerprint: the same for calls of the same name and arguments, once they are validated.
        extra: keys of the call that treadle does not know, such as a signature; they are kept.
    """

    id: str
    name: str
    arguments: str = "{}"
    input: Mapping[str, Any] | None = field(default=None, compare=False)
    fingerprint: str = field(default="", compare=False, repr=False)
    extra: Mapping[str, Any] = field(default_factory=nothing, repr=False)


@fast_dataclass
class ToolResult:
    """The answer to a call, whatever happened to it.

    Args:
        tool_call_id: the id of the call.
        content: what the model is told.
        is_error: the call failed, or was not made.
        status: what happened: ``done`` (it ran, well or not), ``invalid`` (the call made no sense),
            ``suppressed`` (it was answered before), ``deferred`` (it may be asked for again),
            ``over_budget``, ``denied`` (by a person), ``broken`` (its tool is out of order), ``skipped`` (it was
            not run for another reason), ``cancelled`` or ``timeout``.
    """

    tool_call_id: str
    content: str
    is_error: bool = False
    status: str = "done"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the provider counted them.

    Args:
        input_tokens: of the prompt.
        output_tokens: of the answer.
        total_tokens: of both; their sum where the provider gave none.
        cached_tokens: those of the prompt that came from the provider's cache.
        reasoning_tokens: those of the answer that were not shown.
        is_lower_bound: some calls reported nothing, so that these are at least the tokens used.
        cost: US dollars, as far as they are known; None where nobody told.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    is_lower_bound: bool = False
    cost: float | None = None

    def __post_init__(self) -> None:
        if not self.total_tokens:
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)

    def plus(self, other: Usage | None) -> Usage:
        """The sum; with None, which is unknown and not zero, a lower bound."""
        if other is None:
            return self if self.is_lower_bound else dataclasses.replace(self, is_lower_bound=True)
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.total_tokens + other.total_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.is_lower_bound or other.is_lower_bound,
            _sum_of(self.cost, other.cost),
        )

    def as_json(self) -> dict[str, Any]:
        """All fields, as JSON takes them."""
        return {spec.name: getattr(self, spec.name) for spec in dataclasses.fields(self)}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Usage:
        """What `as_json` was made of."""
        return cls(**given)


def _sum_of(cost: float | None, other: float | None) -> float | None:
    return other if cost is None else cost if other is None else cost + other


@fast_dataclass
class Response:
    """One answer of a model.

    Args:
        content: its text; None where there is none.
        tool_calls: the calls it asks for, as the provider gave them.
        finish_reason: why the model ended, in the provider's words.
        usage: the tokens it took; None where the provider did not say.
        model: the model that answered, as the provider names it.
        id: the provider's id of the answer.
        extra: keys of the assistant message that treadle does not know, such as ``reasoning``; they are
            kept in the history. A content of several parts is here too, as ``content``.
        refusal: the text with which a model declined, where that is set apart.
        provider: who served the model, where a router between says so.
    """

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=nothing, repr=False)
    refusal: str | None = None
    provider: str | None = None

    @property
    def text(self) -> str:
        """What the model said to a person: its text, or its refusal; empty where it said nothing."""
        return self.content or self.refusal or ""

    @property
    def is_blank(self) -> bool:
        """Whether there is neither text nor a call."""
        return not self.tool_calls and not self.text.strip()


@dataclass(frozen=True, slots=True)
class CallChunk:
    """A piece of a call.

    Args:
        index: which call of the answer it belongs to.
        id: the call's id, with its first piece.
        name: a piece of its name.
        arguments: a piece of its arguments.
        extra: pieces of keys of the call that treadle does not know, such as a signature.
    """

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Mapping[str, Any] = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a streamed answer.

    Args:
        text: a piece of the text.
        tool_calls: pieces of calls.
        finish_reason: why the model ended, with the last piece.
        usage: the tokens of the whole answer, as a provider sends them with the last piece.
        model: the model that answers.
        id: the provider's id of the answer.
        extra: pieces of keys that treadle does not know, such as ``reasoning_content``.
        ends_with_reason: it is of a kind of stream whose last piece has a finish reason; one that ends
            without has broken off.
    """

    text: str = ""
    tool_calls: tuple[CallChunk, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None
    id: str | None = None
    extra: Mapping[str, Any] = field(default_factory=nothing)
    ends_with_reason: bool = False
