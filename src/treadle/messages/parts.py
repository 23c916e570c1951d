"""Content parts in OpenAI's form: text, images, audio and files, and their place in a text."""

from __future__ import annotations

import binascii
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from treadle.errors import safe_str
from treadle.messages.json_text import sha256
from treadle.messages.message import JSONDict, copy_json, is_dict, is_list, is_mapping
from treadle.messages.sanitizing import sendable_json


def is_content_part(value: object) -> TypeGuard[JSONDict]:
    """Whether a value is a content part, and not other JSON that has a ``type``."""
    match value:
        case (
            {"type": "text", "text": str()}
            | {"type": "image_url", "image_url": {"url": str()}}
            | {"type": "input_audio", "input_audio": {"data": str(), "format": str()}}
            | {"type": "file", "file": {"file_data": str()} | {"file_id": str()}}
        ):
            return is_dict(value) and len(value) == 2  # noqa: PLR2004 - the type and the value
        case _:
            return False


def content_parts(value: Any) -> list[JSONDict] | None:
    """Copies of the parts in a value, with strings as text parts; None for a value that is ordinary JSON."""
    given: list[Any] = [*value] if isinstance(value, (list, tuple)) else [value]
    others = [one for one in given if not isinstance(one, str)]
    if not others or not all(map(is_content_part, others)):
        return None
    return [text_part(one) if isinstance(one, str) else copy_json(one) for one in given]


def text_part(text: str) -> JSONDict:
    """A content part with a text."""
    return {"type": "text", "text": text}


def text_of_parts(parts: Iterable[Mapping[str, Any]]) -> str:
    """The text of content parts, with a placeholder for each part that is not text."""
    return "\n".join(
        str(part.get("text", "")) if part.get("type") == "text" else placeholder(part)
        for part in parts
    )


def placeholder(part: Mapping[str, Any]) -> str:
    """A short text that differs for different parts, such as ``[image/png, 12,345 bytes, 3f2a9c1b]``."""
    kind = safe_str(part.get("type"))
    value = part.get(kind)
    facts: JSONDict = value if is_dict(value) else {"url": value}
    name = f"{safe_str(facts['filename'])}, " if facts.get("filename") else ""
    if kind == "file" and not facts.get("file_data"):
        return f"[file {facts.get('file_id')}]"
    key = {"input_audio": "data", "file": "file_data"}.get(kind, "url")
    given = safe_str(facts.get(key, value if key == "url" else ""))
    media, data = "file" if kind == "file" else f"audio/{facts.get('format')}", given
    if (found := data_url(given)) is not None:
        media, data, _ = found
    elif key == "url":
        return f"[{kind.removesuffix('_url')} at {given[:MAX_URL]}, {_digest(given)}]"
    size = len(data) * 3 // 4 - data[-2:].count("=")  # of base64
    return f"[{name}{media}, {size:,} bytes, {_digest(data)}]"


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "replace"))[:8]


MAX_URL = 80
"""The maximum length of a link in a placeholder."""


class DataURL(NamedTuple):
    """A URL with the data in it: the media type by its usual name, and the text after the comma."""

    media: str
    text: str
    is_base64: bool

    @property
    def data(self) -> str | None:
        """The data in base64; None if they are empty, or are no base64 although the URL says so."""
        if self.is_base64:
            return valid_base64(self.text)
        return binascii.b2a_base64(_unquoted(self.text), newline=False).decode() or None

    @property
    def url(self) -> str | None:
        """The URL in its usual form; None without data."""
        data = self.data
        return data and f"data:{self.media};base64,{data}"


def data_url(url: str) -> DataURL | None:
    """Read a ``data:`` URL, as RFC 2397 defines them; None for another URL."""
    scheme, colon, _ = url[:MAX_SCHEME].partition(":")
    if not colon or scheme.strip().lower() != "data":
        return None
    head, _, text = url.partition(":")[2].partition(",")
    media, *parameters = (one.strip().lower() for one in head.split(";"))
    return DataURL(_USUAL.get(media, media) or "text/plain", text, "base64" in parameters)


MAX_SCHEME = 16
"""The number of characters at the start of a URL that may have its scheme."""


def valid_base64(text: Any) -> str | None:
    """Base64 without white space, percent-encoding and the alphabet of URLs; None for an empty or another text."""
    if not isinstance(text, str):
        return None
    if _is_base64(text):
        return text or None
    text = _unquoted(text).decode("latin-1")
    bare = "".join(text.split()).translate(_OF_URLS).rstrip("=")
    padded = bare + "=" * (-len(bare) % 4)
    return padded if padded and _is_base64(padded) else None


def _is_base64(text: str) -> bool:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return False
    return True


_OF_URLS = str.maketrans("-_", "+/")


def _unquoted(text: str) -> bytes:
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415 - few runs need it

    return unquote_to_bytes(text.encode("utf-8", "replace"))


_USUAL = {
    **dict.fromkeys(("image/jpg", "image/pjpeg", "image/x-jpeg", "image/x-jpg"), "image/jpeg"),
    "image/x-png": "image/png",
    **dict.fromkeys(("audio/mp3", "audio/x-mp3", "audio/x-mpeg", "audio/mpeg3"), "audio/mpeg"),
    **dict.fromkeys(("audio/x-wav", "audio/wave", "audio/vnd.wave"), "audio/wav"),
    "application/x-pdf": "application/pdf",
}
"""The usual names of media types that have others."""


def audio_format(media: str) -> str:
    """OpenAI's name of an audio format, by its media type or a name."""
    kind = f"audio/{media.lower().removeprefix('audio/')}"
    return _USUAL.get(kind, kind).removeprefix("audio/").replace("mpeg", "mp3")


def sendable_parts(parts: Iterable[Any]) -> list[JSONDict]:
    """Copy content parts so that they can be sent.

    Empty texts and values that are no parts are left out. A part without valid data becomes a text with its
    placeholder. Parts of unknown types and forms are kept.
    """
    sent: list[JSONDict] = []
    for part in parts:
        kind = part.get("type") if is_mapping(part) else None
        if not isinstance(kind, str):
            continue
        made: JSONDict = sendable_json(part)
        is_of_form = kind in _TEXTS or kind in made or len(made) == 1
        if is_of_form and kind in KNOWN_PARTS:
            value = KNOWN_PARTS[kind](made.get(kind))
            made = text_part(placeholder(made)) if value is None else {**made, kind: value}
        if kind not in _TEXTS or made[kind]:
            sent.append(made)
    return sent


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else safe_str(value)


def _image(value: Any) -> JSONDict | None:
    image: JSONDict = value if is_dict(value) else {"url": value}
    url = image.get("url")
    if isinstance(url, str) and (found := data_url(url)) is not None:
        url = found.url if found.media.startswith("image/") else None
    return {**image, "url": url} if isinstance(url, str) and url.strip() else None


def _audio(value: Any) -> JSONDict | None:
    data = valid_base64(value.get("data")) if is_dict(value) else None
    kind = value.get("format") if data else None
    return {**value, "data": data, "format": audio_format(kind)} if isinstance(kind, str) else None


def _file(value: Any) -> JSONDict | None:
    file: JSONDict = value if is_dict(value) else {}
    given = file.get("file_data")
    if not isinstance(given, str):
        return file if isinstance(file.get("file_id"), str) and file["file_id"] else None
    found = data_url(given)
    if found is None and "://" in given[:MAX_SCHEME]:
        return file
    made = valid_base64(given) if found is None else found.url
    return {**file, "file_data": made} if made else None


_TEXTS: Mapping[str, Callable[[Any], Any]] = {"text": _text, "refusal": _text}
KNOWN_PARTS = {**_TEXTS, "image_url": _image, "input_audio": _audio, "file": _file}
"""The types of the parts that every server reads, each with what makes the value that can be sent, or None."""


def has_parts(message: Mapping[str, Any]) -> bool:
    """Whether a message is a tool message whose content is a list of parts."""
    return message.get("role") == "tool" and is_list(message.get("content"))


def as_text_results(messages: Sequence[JSONDict]) -> list[JSONDict]:
    """Rewrite the tool messages of a valid history as text, for a backend that takes nothing else in them.

    Each part that is not text becomes a placeholder. The parts themselves follow in a user message after the last
    result of the exchange, each after its placeholder. It is joined with a user message that is there already.
    """
    sent: list[JSONDict] = []
    media: list[JSONDict] = []
    for message in messages:
        role, content, changed = message.get("role"), message.get("content"), message
        if role == "tool" and is_list(content):
            changed = {**message, "content": text_of_parts(content)}
            for part in content:
                if part.get("type") != "text":
                    media += text_part(placeholder(part)), part
        elif media and role != "tool":
            shown, media = {"role": "user", "content": [_INTRODUCTION, *media]}, []
            if role == "user":
                changed = join_messages(shown, message)
            else:
                sent.append(shown)
        sent.append(changed)
    if media:
        sent.append({"role": "user", "content": [_INTRODUCTION, *media]})
    return sent


_INTRODUCTION = text_part("Content of the tool results:")


def join_messages(*messages: JSONDict) -> JSONDict:
    """Join assistant messages, since providers require the roles to alternate."""
    joined: JSONDict = {}
    for message in messages:
        joined.update(message)
    joined.setdefault("content", None)
    for key in ("content", "refusal"):
        if key in joined:
            joined[key] = joined_contents([message.get(key) for message in messages], "\n\n")
    return joined


def joined_contents(contents: Sequence[Any], separator: str) -> Any:
    """Join message contents: texts with the separator, else as parts."""
    found = [content for content in contents if content]
    texts = [*itertools.takewhile(lambda content: isinstance(content, str), found)]
    text, others = separator.join(texts), found[len(texts) :]
    if not others:
        return text or contents[-1]
    joined: Iterable[Any] = filter(None, (text, *others))
    parts = ([text_part(one)] if isinstance(one, str) else one for one in joined)
    return [*itertools.chain.from_iterable(parts)]
