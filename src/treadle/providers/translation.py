"""What adapters do alike with histories: errors in results, later system messages, content that is not taken."""

from __future__ import annotations

import functools
import logging
from collections.abc import Container, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping
from treadle.messages.framed import framed
from treadle.messages.parts import data_url, placeholder

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
    return framed("system", text)


IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""The media types of images that OpenAI and Anthropic take."""


def image_of(value: Any, takes: Container[str] = IMAGES) -> tuple[str, str | None] | None:
    """The image of a part, if a provider takes it.

    Args:
        value: the value of the part.
        takes: the media types of the provider.

    Returns:
        The media type and the base64 data; or a link, which is one of the web, and None. None for another value.
    """
    url = value.get("url") if is_mapping(value) else value
    if not isinstance(url, str):
        return None
    found = data_url(url)
    if found is None:
        return (url, None) if url.lower().startswith(("https://", "http://")) else None
    return (found.media, found.data) if found.data and found.media in takes else None


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
