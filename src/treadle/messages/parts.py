"""Content parts in OpenAI's form: text, images, audio and files, and their place in a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from treadle.messages.json_text import safe_str, sha256
from treadle.messages.message import JSONDict, copy_json, is_dict, is_list


def is_content_part(value: object) -> TypeGuard[JSONDict]:
    """Whether a value is a content part, and not other JSON that has a ``type``.

    A part has the keys ``type`` and the one that has the name of the type, and no others:
    ``{"type": "text", "text": str}``, ``{"type": "image_url", "image_url": {"url": str}}``,
    ``{"type": "input_audio", "input_audio": {"data": str, "format": str}}``, or
    ``{"type": "file", "file": {...}}`` with ``file_data`` or ``file_id``.
    """
    if not is_dict(value) or len(value) != _KEYS_OF_A_PART:
        return False
    kind = value.get("type")
    is_right = _KINDS.get(kind) if isinstance(kind, str) else None
    return is_right is not None and is_right(value.get(str(kind)))


_KEYS_OF_A_PART = 2


def _has_texts(*keys: str) -> Callable[[Any], bool]:
    return lambda value: is_dict(value) and all(isinstance(value.get(key), str) for key in keys)


def _is_file(value: Any) -> bool:
    return is_dict(value) and any(isinstance(value.get(key), str) for key in _FILE_KEYS)


_FILE_KEYS = ("file_data", "file_id")
_KINDS: Mapping[Any, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "image_url": _has_texts("url"),
    "input_audio": _has_texts("data", "format"),
    "file": _is_file,
}
"""The check of a part's value, by its type."""


def content_parts(value: Any) -> list[JSONDict] | None:
    """The parts that a value stands for; None for a value that is ordinary JSON.

    Args:
        value: a part; or a list or tuple of parts and strings, with at least one part.

    Returns:
        Copies. Strings become text parts.
    """
    if is_content_part(value):
        return [copy_json(value)]
    if not isinstance(value, (list, tuple)):
        return None
    found: list[JSONDict] = []
    has_part = False
    items: list[Any] = [*value]
    for one in items:
        if is_content_part(one):
            has_part = True
            found.append(copy_json(one))
        elif isinstance(one, str):
            found.append(text_part(one))
        else:
            return None
    return found if has_part else None


def text_part(text: str) -> JSONDict:
    """A content part with a text."""
    return {"type": "text", "text": text}


def text_of_parts(parts: Iterable[Mapping[str, Any]]) -> str:
    """The text of content parts, with a placeholder for each part that is not text."""
    return "\n".join(_text_of(part) for part in parts)


def _text_of(part: Mapping[str, Any]) -> str:
    return str(part.get("text", "")) if part.get("type") == "text" else placeholder(part)


def placeholder(part: Mapping[str, Any]) -> str:
    """A short placeholder for a part, which differs for different parts.

    Returns:
        The media type, the size in bytes and the start of a digest: ``[image/png, 12,345 bytes, 3f2a9c1b]``. A
        part that is a link has no size.
    """
    kind = safe_str(part.get("type"))
    value = part.get(kind)
    facts: JSONDict = value if is_dict(value) else {}
    if kind == "input_audio":
        name, media, data = "", f"audio/{facts.get('format')}", str(facts.get("data", ""))
    elif kind == "file":
        name = str(facts.get("filename") or "")
        if not facts.get("file_data"):
            return f"[file {facts.get('file_id')}]"
        media, data = _data_of(str(facts["file_data"]), "file")
    else:
        url = str(facts.get("url", value))
        name, (media, data) = "", _data_of(url, "")
        if not media:
            digest = sha256(url.encode("utf-8", "replace"))[:DIGEST_LENGTH]
            return f"[{kind.removesuffix('_url')} at {url[:MAX_URL]}, {digest}]"
    size = len(data) * 3 // 4 - data[-2:].count("=")  # of base64
    digest = sha256(data.encode("utf-8", "replace"))[:DIGEST_LENGTH]
    return f"[{name}{', ' if name else ''}{media}, {size:,} bytes, {digest}]"


DIGEST_LENGTH = 8
"""The number of hexadecimal digits of a digest in a placeholder."""
MAX_URL = 80
"""The maximum length of a link in a placeholder."""


def _data_of(url: str, otherwise: str) -> tuple[str, str]:
    """The media type and the base64 data of a data URL; other text is taken as data."""
    found = _DATA_URL.match(url[:MAX_HEAD])
    if found is None:
        return otherwise, url
    return found["type"] or "text/plain", url[found.end() :]


MAX_HEAD = 200
"""The maximum length of what comes before the data in a data URL."""
_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^,]*)?,")


# The form for backends that take only text in tool messages


def has_parts(message: Mapping[str, Any]) -> bool:
    """Whether a message is a tool message whose content is a list of parts."""
    return message.get("role") == "tool" and is_list(message.get("content"))


def as_text_results(messages: Sequence[JSONDict]) -> list[JSONDict]:
    """Rewrite tool messages as text, for a backend that takes nothing else in them.

    Each part that is not text becomes a placeholder. The parts themselves follow in a user message after the last
    result of the exchange, each after its placeholder. It is joined with a user message that is there already.

    Args:
        messages: a valid history; it is not changed.
    """
    sent: list[JSONDict] = []
    media: list[JSONDict] = []
    for message in messages:
        if message.get("role") != "tool":
            if media:
                message = _with_media(media, message, sent)  # noqa: PLW2901 - the one to send
                media = []
            sent.append(message)
            continue
        content = message.get("content")
        if is_list(content):
            media += [part for part in content if part.get("type") != "text"]
            message = {**message, "content": text_of_parts(content)}  # noqa: PLW2901 - as above
        sent.append(message)
    if media:
        sent.append({"role": "user", "content": _shown(media)})
    return sent


def _with_media(media: list[JSONDict], following: JSONDict, sent: list[JSONDict]) -> JSONDict:
    """The message that follows tool messages, with their media if it is one of the user."""
    if following.get("role") != "user":
        sent.append({"role": "user", "content": _shown(media)})
        return following
    content: Any = following.get("content") or []
    own = [text_part(content)] if isinstance(content, str) else content
    return {**following, "content": [*_shown(media), *own]}


def _shown(media: Iterable[JSONDict]) -> list[JSONDict]:
    shown = [text_part("Content of the tool results:")]
    for part in media:
        shown += text_part(placeholder(part)), part
    return shown
