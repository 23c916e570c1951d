"""JSON schemas, simplified so that servers can convert them to a grammar that constrains a model's output.

The keywords are those of llama.cpp, on which most servers of local models are based. The grammar only guides the
model; the loop validates the arguments against the tool's own schema. So if a keyword cannot be converted, the
schema becomes looser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.messages import is_list, is_mapping
from treadle.tools.strict_schema import resolve

# A grammar is compiled on every call and grows with the schema; larger schemas are not worth it.
MAX_NODES = 400
MAX_DEPTH = 12
# llama.cpp unrolls bounded repetitions, so a large bound makes a huge grammar.
MAX_BOUND = 64

_TYPES = {"string", "integer", "number", "boolean", "array", "object", "null"}
_BOUNDS = {"minItems", "maxItems", "minLength", "maxLength"}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}


def simplify(schema: Any) -> dict[str, Any]:
    """Rewrite the input schema of a tool so that it can constrain a model's output.

    Local references are inlined, unions become `anyOf`, and keywords that llama.cpp's converter
    does not support (`pattern`, `format`, `not`, conditions, recursion) are dropped.

    The new schema is at least as loose as the given one, except that it excludes additional properties. It is
    `{"type": "object"}` if the given one is too large or does not describe an object.
    """
    if not is_mapping(schema):
        return {"type": "object"}
    plain = simplify_any(schema)
    return plain if plain.get("type") == "object" else {"type": "object"}


def simplify_any(schema: Mapping[str, Any]) -> dict[str, Any]:
    """As `simplify`, for a schema of any value; it is ``{}`` if the given one is too large."""
    plain = _Simplifier(schema).node(schema, ())
    return plain if _size(plain) <= MAX_NODES else {}


class _Simplifier:
    """Simplifies one schema; ``path`` are the steps to a node: references, and empty texts for other steps."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_NODES

    def node(self, node: Any, path: tuple[str, ...]) -> dict[str, Any]:
        self._left -= 1
        if not is_mapping(node) or len(path) > MAX_DEPTH or self._left < 0:
            return {}
        if "$ref" in node:
            reference = str(node["$ref"])
            if reference in path:
                return {}
            return self.node(resolve(self._root, reference), (*path, reference))
        if "const" in node:
            return {"const": node["const"]}
        if is_list(node.get("enum")) and node["enum"]:
            return {"enum": node["enum"]}
        union = self._union(node, (*path, ""))
        return self._plain(node, (*path, "")) if union is None else union

    def _union(self, node: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any] | None:
        for keyword in ("anyOf", "oneOf"):
            either = node.get(keyword)
            if is_list(either) and either:
                return {"anyOf": [self.node(each, path) for each in either]}
        parts = node.get("allOf")
        if is_list(parts) and parts:
            # Merging several would be a guess.
            return self.node(parts[0], path) if len(parts) == 1 else {}
        return None

    def _plain(self, node: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        plain = _scalars(node)
        properties, extra = node.get("properties"), node.get("additionalProperties")
        if is_mapping(properties):
            plain["type"] = "object"
            plain["properties"] = {name: self.node(each, path) for name, each in properties.items()}
            # A required name without a schema would make llama.cpp guess one.
            required = node.get("required")  # in draft 3 a boolean
            plain["required"] = [
                name for name in properties if is_list(required) and name in required
            ]
            plain["additionalProperties"] = False
        elif plain.get("type") == "object" and is_mapping(extra):
            plain["additionalProperties"] = self.node(extra, path)
        if is_mapping(node.get("items")):
            plain["items"] = self.node(node["items"], path)
        return plain


def _scalars(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords without subschemas that the converter supports."""
    kept: dict[str, Any] = {}
    kind = node.get("type")
    kinds = kind if is_list(kind) else [kind]
    if kinds and all(isinstance(each, str) and each in _TYPES for each in kinds):
        kept["type"] = kind
    for keyword in sorted(_BOUNDS & node.keys()):
        if isinstance(node[keyword], int) and 0 <= node[keyword] <= MAX_BOUND:
            kept[keyword] = node[keyword]
    for keyword in sorted(_NUMBERS & node.keys()):
        # In draft 4 the exclusive bounds are booleans.
        if isinstance(node[keyword], int) and not isinstance(node[keyword], bool):
            kept[keyword] = node[keyword]
    return kept


def _size(schema: Any) -> int:
    """Count the values in a schema, about as many as the rules of its grammar."""
    inner = schema.values() if is_mapping(schema) else schema if is_list(schema) else ()
    return 1 + sum(map(_size, inner))
