"""Which server a message came from: the values that only this server reads go back to it, and to no other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from treadle.messages.message import ORIGIN, JSONDict, is_list, is_mapping
from treadle.messages.parts import KNOWN_PARTS
from treadle.messages.repair import is_blank

_KEYS = frozenset({"role", "content", "name", "refusal", "tool_calls", ORIGIN})
"""The keys of an assistant message that every server reads."""
_CALL_KEYS = frozenset({"id", "type", "function", "custom"})


def has_bound_values(message: Mapping[str, Any]) -> bool:
    """Whether a value of an assistant message, its calls and its parts is only read by the server that sent it."""
    content: Any = message.get("content")
    holders = [(message, _KEYS), *((call, _CALL_KEYS) for call in message.get("tool_calls") or ())]
    if is_list(content):
        holders += [(part, _keys_of_part(part)) for part in content]
    return any(one[key] for one, known in holders for key in one if key not in known)


def for_sdk(messages: Iterable[JSONDict], origin: str | None = None) -> list[JSONDict]:
    """The messages of a history as a server takes them: without treadle's own key.

    The key ``treadle`` of an assistant message names the origin of its values, such as
    ``{"origin": "openai@api.openai.com"}``. `Loop` and the adapters remove it; use this function if you hand a
    history to the SDK of a provider yourself.

    Args:
        messages: a valid history; it is not changed.
        origin: the server that receives the messages, as the key names it. It receives no reasoning, signatures
            and unknown keys that another server sent. None keeps them.

    Returns:
        The messages; those without the key are the same objects. A message that has nothing for this server is
        left out.
    """
    sent: list[JSONDict] = []
    for message in messages:
        if ORIGIN not in message:
            sent.append(message)
            continue
        mark = message[ORIGIN]
        theirs = mark.get("origin") if is_mapping(mark) else None
        is_foreign = isinstance(theirs, str) and origin not in {None, theirs}
        if not is_foreign or message.get("role") != "assistant":
            sent.append(_only(message, message.keys() - {ORIGIN}))
            continue
        made = _portable(message)
        if made.get("tool_calls") or made.get("refusal") or not is_blank(made.get("content")):
            sent.append(made)
    return sent


def _portable(message: Mapping[str, Any]) -> JSONDict:
    made = _only(message, _KEYS - {ORIGIN})
    if made.get("tool_calls"):
        made["tool_calls"] = [_only(call, _CALL_KEYS) for call in made["tool_calls"]]
    if is_list(made.get("content")):
        parts = (_only(part, _keys_of_part(part)) for part in made["content"])
        made["content"] = [part for part in parts if part] or None
    return made


def _keys_of_part(part: Mapping[str, Any]) -> frozenset[str]:
    """The keys that every server reads: of a part of a known type, its type and the key of this name."""
    kind = str(part.get("type"))
    return frozenset({"type", kind}) if kind in KNOWN_PARTS else frozenset()


def _only(holder: Mapping[str, Any], keys: Iterable[str]) -> JSONDict:
    return {key: holder[key] for key in holder if key in keys}
