"""What adapters do alike with histories: errors in results, later system messages, content that is not taken."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping, placeholder

log = logging.getLogger("treadle.providers")

BEGINNING = "(The conversation begins.)"
"""The message of the user before a history that starts otherwise, for providers that want the user first."""


def in_places(placed: Mapping[int, JSONDict], others: list[JSONDict]) -> list[JSONDict]:
    """What an assistant message has, in the order of the response that an adapter made it of.

    Args:
        placed: what the message has kept, by its place in the response.
        others: the rest, in order; it fills the places between.
    """
    made: list[JSONDict] = []
    taken = 0
    for place in sorted(placed):
        end = taken + max(0, place - len(made))
        made += [*others[taken:end], placed[place]]
        taken = end
    return [*made, *others[taken:]]


def is_error_result(message: Mapping[str, Any]) -> bool:
    """Whether a tool message has an error: treadle begins the text of one with ``Error:``."""
    content: Any = message.get("content")
    first: Any = content[0] if is_list(content) and content else content
    text = first.get("text") if is_mapping(first) else first
    return isinstance(text, str) and text.startswith("Error:")


def marked_system(text: str) -> str:
    """The text of a system message within a conversation, for providers that take them at the start only."""
    return f"<system>\n{text}\n</system>"


def data_of(url: str) -> tuple[str, str | None]:
    """The media type and the base64 data of a data URL; an empty type and None for another URL."""
    head, comma, data = url.partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        return "", None
    return head.removeprefix("data:").removesuffix(";base64"), data


def text_for(part: Mapping[str, Any], title: str) -> str:
    """The text in place of a content part that a provider does not take.

    Args:
        part: the part.
        title: the name of the provider, for the log.
    """
    plain = {key: value for key, value in part.items() if key != "cache_control"}
    shown = placeholder(plain)
    _log_once(title, shown)
    return shown


@functools.lru_cache(maxsize=256)
def _log_once(title: str, shown: str) -> None:
    """Log once, and not with each request of a run."""
    log.warning("%s takes no content of this kind; the model receives the text %s", title, shown)
