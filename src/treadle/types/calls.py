"""Calls and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from treadle.types.record import record


def nothing() -> dict[str, Any]:
    """What most things have of keys that treadle does not know."""
    return {}


@record
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


@record
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
