"""Digests of what is asked of models and tools, by which a replay sees that a run asks something else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treadle import labels
from treadle.effects import Call
from treadle.messages import JSONDict, ToolCall, is_list
from treadle.model import ModelClient, ModelRequest
from treadle.redaction import is_credential

LENGTH = 16
"""The length of a digest, in hexadecimal digits."""


class _Known(NamedTuple):
    """The messages of the latest request to a model, and the state of the digest after each."""

    messages: list[JSONDict]
    states: list[Any]


class Digests:
    """Makes the digests of one run. Each message is serialized once, however long the conversation is."""

    def __init__(self) -> None:
        self._known: dict[ModelClient, _Known] = {}

    def of(self, call: Call) -> str:
        """A digest of the request to a model, or of the name and arguments of a tool call; empty for others."""
        if call.label == labels.CHAT and call.args and isinstance(call.args[0], ModelRequest):
            return self._of_request(call.args[0])
        if call.label == labels.EXECUTE_TOOL:
            for given in call.args:
                if isinstance(given, ToolCall):
                    value = given.arguments if given.input is None else given.input
                    return hashlib.sha256(_text([given.name, value])).hexdigest()[:LENGTH]
        return ""

    def _of_request(self, request: ModelRequest) -> str:
        known = self._known.setdefault(request.model, _Known([], []))
        messages = request.messages
        common = 0
        for one, other in zip(known.messages, messages, strict=False):
            # The instructions are a new message in each request.
            if one is not other and (common or one != other):
                break
            common += 1
        del known.messages[common:], known.states[common:]
        state = known.states[-1] if common else hashlib.sha256()
        for message in messages[common:]:
            state = state.copy()
            state.update(_text(message))
            known.messages.append(message)
            known.states.append(state)
        whole = state.copy()
        # A key that was replaced changes nothing that is asked.
        opts = {key: part for key, part in request.opts.items() if not is_credential(key)}
        if is_list(opts.get("tools")):  # in any order
            opts["tools"] = sorted(opts["tools"], key=_text)
        whole.update(_text(opts))
        return whole.hexdigest()[:LENGTH]


def _text(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, default=_plain, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Replace a value that is no JSON; an object counts by its class alone, since its text may differ."""
    if isinstance(value, Mapping):
        return dict(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, Sequence):
        return list(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{type(value).__module__}.{type(value).__qualname__}"
