"""JSON Schemas in the subsets of providers that enforce a part of a schema: the description says the rest."""

from __future__ import annotations

from typing import ClassVar

from treadle.messages import JSONDict, is_list
from treadle.tools.strict_schema import ASSERTIONS, TYPED, NotInSubsetError, StrictSchema, types_of
from treadle.tools.validation import is_recursive


class LooseSchema(StrictSchema):
    """Rewrites a schema in the keywords of a provider; it may accept more values.

    Attributes:
        is_closed: whether every object has to forbid other keys, and every value has a type.
        has_type_lists: whether ``type`` may be a list.
        has_recursion: whether a reference may lead back to where it is.
    """

    is_closed: ClassVar[bool] = True
    has_type_lists: ClassVar[bool] = True
    has_recursion: ClassVar[bool] = True

    def fitted(self) -> JSONDict:
        """The whole schema; raises `NotInSubsetError`."""
        if not self.has_recursion and is_recursive(self.root):
            raise NotInSubsetError("the output contains itself")
        return super().fitted()

    def rewritten(self, schema: JSONDict) -> JSONDict:
        """The same values in other keywords."""
        if "$ref" in schema and not schema.keys() <= {"$ref", "$defs", "definitions"}:
            schema["anyOf"] = [{"$ref": schema.pop("$ref")}]
        has_type = "type" in schema
        schema = super().rewritten(schema)
        if not has_type:  # a list of values is enough
            schema.pop("type", None)
        if "const" in schema and "enum" not in schema and "const" not in self.keywords:
            schema["enum"] = [schema.pop("const")]
        types = schema.get("type")
        if is_list(types) and not self.has_type_lists and "anyOf" not in schema:
            # Null needs none of the other keywords.
            parts = [{"type": one} if one == "null" else {**schema, "type": one} for one in types]
            return {"anyOf": parts}
        return schema

    def is_noted(self, key: str, schema: JSONDict, place: str) -> bool:  # noqa: ARG002 - of the base
        """Whether the description repeats a keyword that cannot be sent."""
        if key == "default":
            return schema[key] is not None and "properties" not in schema
        return key in ASSERTIONS or key in {"format", "examples"}

    def check(self, schema: JSONDict, made: JSONDict, place: str) -> None:
        """Forbid other keys where the provider wants it; raise for what it refuses."""
        if self.is_closed and made.keys().isdisjoint(TYPED):
            raise NotInSubsetError(f"{place} has any type")
        if self.is_closed and "object" in types_of(made):
            others = schema.get("additionalProperties", "properties" not in schema)
            if others is not False and (others is not True or not schema.get("properties")):
                raise NotInSubsetError(f"{place} is an object with free keys")
            made["additionalProperties"] = False
            made.setdefault("properties", {})
