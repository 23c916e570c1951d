"""What a server says about its tools: their definitions, the digests to notice a change, and their annotations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from treadle.messages import JSONDict, is_mapping
from treadle.messages.message import dumped_of
from treadle.tools.conversion import MCPTool

DIGESTED = ("name", "title", "description", "inputSchema", "annotations")
"""What the digest of a definition covers: everything that the model reads, or that becomes a policy."""


@dataclass(frozen=True)
class Definition:
    """A tool as its server describes it.

    Args:
        name: its name at the server.
        facts: the fields of `DIGESTED` that the server gave, as JSON data.
        digest: ``sha256:`` and the digest of these fields, in hexadecimal digits.
    """

    name: str
    facts: JSONDict
    digest: str


def definition_of(given: MCPTool) -> Definition:
    """Read a ``Tool`` of the SDK."""
    dumped = dumped_of(given, mode="json", by_alias=True)
    facts = {name: dumped[name] for name in DIGESTED if dumped.get(name) is not None}
    if is_mapping(facts.get("annotations")):
        hints = facts["annotations"]
        facts["annotations"] = {name: hint for name, hint in hints.items() if hint is not None}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return Definition(given.name, facts, f"sha256:{digest}")


_LOOSENING: Mapping[str, bool] = {
    "readOnlyHint": True,
    "idempotentHint": True,
    "destructiveHint": False,
    "openWorldHint": False,
}
"""The values of hints that claim that a tool is harmless, so that a policy may be less strict."""


def believed(hints: Mapping[str, Any], *, is_trusted: bool) -> dict[str, Any]:
    """The annotations from which the policies of a tool are derived.

    Args:
        hints: the annotations of the server.
        is_trusted: whether to believe all of them. Else those that could make a policy less strict than that of a
            tool without annotations are left out. The specification says that clients must not rely on the
            annotations of servers that they do not trust.
    """
    return {
        name: hint
        for name, hint in hints.items()
        if is_trusted or name not in _LOOSENING or bool(hint) is not _LOOSENING[name]
    }
