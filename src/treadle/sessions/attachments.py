"""Attachments: content parts with a file, an image or a sound, in the forms of OpenAI, Anthropic and Gemini."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from treadle.messages import JSONDict, is_list, is_mapping, sha256
from treadle.messages.json_text import canonical_json

KEYS = (
    "image_url",  # OpenAI
    "input_audio",
    "file",
    "file_id",  # OpenAI's Responses: input_image and input_file
    "file_url",
    "file_data",  # also Gemini
    "inline_data",  # Gemini
    "inlineData",
    "fileData",
    "source",  # Anthropic: image and document
)
"""The keys of a content part that hold what is attached, or a reference to it.

Sources: https://platform.openai.com/docs/api-reference/chat, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/caching#Part
"""


def is_attachment(part: object) -> bool:
    """Whether a content part has an attachment, in whichever form."""
    return is_mapping(part) and any(part.get(key) for key in KEYS)


def attachments_of(message: Mapping[str, Any]) -> list[JSONDict]:
    """The content parts of a message that have attachments, in order."""
    content = message.get("content")
    return [part for part in content if is_attachment(part)] if is_list(content) else []


def digest_of(part: Mapping[str, Any]) -> str:
    """A digest of what is attached: parts that differ in other keys, such as ``cache_control``, have the same.

    Args:
        part: a content part with an attachment.

    Returns:
        SHA-256 in hexadecimal.
    """
    attached = {key: part[key] for key in KEYS if part.get(key)}
    return sha256(canonical_json(attached).encode("utf-8", "replace"))


def distinct(parts: Iterable[JSONDict], without: Iterable[JSONDict] = ()) -> Iterator[JSONDict]:
    """The attachments among some parts, each once.

    Args:
        parts: the parts.
        without: parts whose attachments are left out.
    """
    seen = set(map(digest_of, without))
    for part in parts:
        digest = digest_of(part)
        if digest not in seen:
            seen.add(digest)
            yield part
