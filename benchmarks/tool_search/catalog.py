"""A catalog of 1,000 tools of many services, made from ``catalog.txt``.

Many are near duplicates: eleven services have something to refund, twelve something to comment.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle import Tool

SOURCE = Path(__file__).with_name("catalog.txt")
COUNT = 1_000
VERBS = {
    "create": "Create a new {one} in {service}.",
    "get": "Retrieve one {one} of {service} by its identifier.",
    "list": "List the {many} of {service}, with filters and paging.",
    "update": "Update an existing {one} in {service}; fields that are left out keep their values.",
    "delete": "Delete a {one} from {service}. This cannot be undone.",
    "search": "Search the {many} of {service} by text and filters.",
    "send": "Send a {one} with {service}.",
    "add": "Add a {one} in {service}.",
    "cancel": "Cancel a {one} of {service} that is not done yet.",
}
"""The descriptions of the common verbs; those of the others are the verb itself."""
BY_ID = frozenset(
    {"get", "update", "delete", "cancel", "close", "archive", "restart", "share", "move"}
)
"""Verbs of one object, which the caller names."""


def catalog() -> list[Tool]:
    """The tools, in the order of the file; those of verbs that a service could have as well make up the number."""
    made = {tool.name: tool for tool in _tools()}
    assert len(made) >= COUNT, len(made)
    return list(made.values())[:COUNT]


def _tools() -> Iterator[Tool]:
    service = label = ""
    objects: list[tuple[str, str, list[str]]] = []
    for line in SOURCE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        if "|" not in line:
            service, _, label = line.partition(" ")
            continue
        names, what, fields, verbs = (part.strip() for part in line.split("|"))
        objects.append((f"{service}|{label}", f"{names}|{what}|{fields}", verbs.split()))
    for owner, facts, verbs in objects:
        for verb in verbs:
            yield _tool(owner, facts, verb)
    for owner, facts, verbs in objects:  # what most services have as well
        for verb in ("export", "watch", "tag"):
            if verb not in verbs:
                yield _tool(owner, facts, verb)


MORE = {
    "export": "Export the {many} of {service} as a CSV file.",
    "watch": "Get notified about changes of a {one} in {service}.",
    "tag": "Put a tag on a {one} in {service}, to find it later.",
}


def _tool(owner: str, facts: str, verb: str) -> Tool:
    service, _, label = owner.partition("|")
    names, what, fields = facts.split("|")
    one, _, many = names.partition(" / ")
    shown = {"one": one.replace("_", " "), "many": many.replace("_", " "), "service": label}
    form = {**VERBS, **MORE}.get(
        verb, verb.replace("_", " ").capitalize() + " a {one} in {service}."
    )
    named = many if verb in {"list", "search", "export"} else one
    properties: dict[str, Any] = {}
    if verb in BY_ID or verb in {"watch", "tag"}:
        properties[f"{one}_id"] = {
            "type": "string",
            "description": f"The id of the {shown['one']}.",
        }
    if verb in {"list", "search"}:
        properties["limit"] = {"type": "integer", "description": "The maximum number of results."}
    if verb not in {"get", "delete", "cancel", "watch"}:
        for field in fields.split(", "):
            properties[field] = {
                "type": "string",
                "description": f"The {field.replace('_', ' ')} of the {shown['one']}.",
            }
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return Tool(
        f"{service}_{verb}_{named}", f"{form.format(**shown)} {what}", schema, lambda **_: "done"
    )
