"""What scripted models answer: the steps of a script, and short ways to write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JSONDict: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """What a step may look at.

    Args:
        index: the number of the request, from 0.
        messages: the very messages that the model was handed.
        tools: the tools it was handed, in OpenAI's form.
    """

    index: int
    messages: list[JSONDict]
    tools: list[JSONDict]


@dataclass(frozen=True)
class Reply:
    """An answer, with what a provider reports next to the message.

    Args:
        message: an assistant message.
        finish_reason: None is ``tool_calls`` or ``stop``, as fits the message.
        usage: tokens; None is not reported.
    """

    message: JSONDict
    finish_reason: str | None = None
    usage: Mapping[str, int] | None = field(
        default_factory=lambda: {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    )


@dataclass(frozen=True)
class Broken:
    """A stream that breaks off.

    Args:
        message: what would have been said.
        pieces: how many chunks come through.
        error: what is raised then; None is that the stream just ends, with no finish reason.
    """

    message: JSONDict
    pieces: int = 1
    error: Exception | None = None


@dataclass(frozen=True)
class Chunked:
    """A stream of exactly these chunks.

    Args:
        message: what they say together.
        deltas: the ``delta`` of each chunk; a finish reason comes after the last.
    """

    message: JSONDict
    deltas: tuple[JSONDict, ...] = ()


@dataclass(frozen=True)
class Raw:
    """A value that is not a message, returned unchanged; only in scenarios that need `RAW_MODEL`."""

    value: Any


Step: TypeAlias = JSONDict | Reply | Broken | Chunked | Raw | Exception | Callable[["Request"], Any]
Script: TypeAlias = Sequence[Step] | Callable[[Request], Any]
"""Steps in order, and after them the answer ``done``; or a function that makes the step of each request."""


def call(name: str, arguments: str | Mapping[str, Any] | None = None, **more: Any) -> JSONDict:
    """Make a call.

    Args:
        name: the tool's name.
        arguments: text is used unchanged; a mapping is serialized as JSON.
        **more: other keys of the call, such as ``id``. A call without ``id`` gets one that is unique.
    """
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"type": "function", "function": {"name": name, "arguments": text}, **more}


def calls(*made: JSONDict, text: str | None = None) -> JSONDict:
    """Make an assistant message of calls, with or without text."""
    return {"role": "assistant", "content": text, "tool_calls": list(made)}


def says(text: str | None, **more: Any) -> JSONDict:
    """Make an assistant message of text; ``more`` are other keys of it."""
    return {"role": "assistant", "content": text, **more}


def always(step: Step) -> Callable[[Request], Any]:
    """A script that repeats one step."""
    return lambda _: step


class ModelError(Exception):
    """An error of a model's API, as the SDKs shape them.

    Args:
        status_code: the status of HTTP.
        text: what it says.
        code: OpenAI's code for it.
    """

    def __init__(self, status_code: int, text: str, code: str | None = None) -> None:
        super().__init__(f"Error code: {status_code} - {text}")
        self.status_code = status_code
        self.code = code
        self.headers = {"retry-after": "0.01"}
        self.response = self


NO_ID = "(no id)"
"""As the id of a call, it makes a call without an id."""


def with_ids(message: JSONDict, index: int) -> JSONDict:
    """Give ids to the calls of a message for which the script has none."""
    made = message.get("tool_calls")
    if not isinstance(made, list):
        return message
    filled: list[JSONDict] = []
    for place, one in enumerate(made):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        numbered: JSONDict = {"id": f"call_{index}_{place}", **one}
        if numbered["id"] == NO_ID:
            del numbered["id"]
        filled.append(numbered)
    return {**message, "tool_calls": filled}
