"""The request of an iteration: what is sent to the model, and its changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, TypedDict, Unpack

from treadle.errors import OptionError, check_names
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import JSONDict, is_mapping
from treadle.model.client import check_no_tools
from treadle.tools import Tool

TOOL_CHOICES = ("auto", "none", "required")
"""The values of ``tool_choice`` that name no tool; another text names one."""


class RequestChanges(TypedDict, total=False):
    """What `Context.with_request` and `Request.replace` may change; `Request` describes each."""

    messages: Sequence[Mapping[str, Any]]
    tools: Iterable[str | Tool]
    tool_choice: str | Mapping[str, Any] | None
    options: Mapping[str, Any]
    instructions: str | None


@fast_dataclass
class Request:
    """What is sent to the model in one request.

    Args:
        messages: the conversation as the model sees it: the history, or a view of it that a stage made.
        tools: the names of the tools that are offered.
        tool_choice: ``auto``, ``none``, ``required``, the name of a tool, or the provider's own form; None
            leaves it to the provider.
        options: further options of the request, such as ``model`` and ``temperature``. They are not in the repr:
            a header may hold a secret.
        instructions: sent as a system message before the messages; not stored in the history.
    """

    messages: Sequence[JSONDict]
    tools: tuple[str, ...] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    instructions: str | None = None

    def replace(self, **changes: Unpack[RequestChanges]) -> Request:
        """Copy the request with some fields changed; ``options`` are merged.

        Raises:
            OptionError: a field that does not exist, or an invalid value.
        """
        checked = check_request_changes(changes, self.tools)
        options = {**self.options, **checked.get("options", {})}
        return dataclasses.replace(self, **{**checked, "options": options})


def forced_tool(choice: Any) -> str:
    """The name of the tool that a ``tool_choice`` forces, in any form; empty if it forces none."""
    if is_mapping(choice):
        named: Any = choice.get("function", choice)
        choice = named.get("name") if is_mapping(named) else None
    return choice if isinstance(choice, str) else ""


def check_request_changes(changes: Mapping[str, Any], tools: Iterable[str]) -> dict[str, Any]:
    """Check the changed fields of a request with some tools, and replace tools by their names."""
    check_names(changes, RequestChanges.__annotations__, "a request has no field")
    checked = dict(changes)
    for name, (kinds, expected) in _REQUEST_KINDS.items():
        value = checked.get(name)
        if value is not None and not isinstance(value, kinds):
            raise OptionError(f"{name}: expected {expected}, got {type(value).__name__}")
    if checked.get("options") is None:  # nothing to merge
        checked.pop("options", None)
    for key in checked.get("options", ()):
        if not isinstance(key, str):
            raise OptionError(f"options: expected names that are texts, got {type(key).__name__}")
    check_no_tools("options", checked.get("options", {}))
    if "tools" in checked:
        checked["tools"] = names_of("tools", checked["tools"])
    choice = checked.get("tool_choice")
    if isinstance(choice, str):
        expected = (
            "'auto', 'none', 'required', the name of a tool, or the provider's form as a mapping"
        )
        known = (*TOOL_CHOICES, *tools, *checked.get("tools", ()))
        check_names((choice,), known, f"tool_choice: expected {expected}, got")
    return checked


_REQUEST_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "tool_choice": ((str, Mapping), "a text or a mapping"),
    "options": ((Mapping,), "a mapping"),
    "instructions": ((str,), "a text"),
}


def names_of(option: str, tools: Iterable[str | Tool]) -> tuple[str, ...]:
    """The names of tools that are given as tools or by name; raises `OptionError` for anything else."""
    if isinstance(tools, str) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"{option}: expected a list of tools or their names, got {type(tools).__name__}"
        )
    names = tuple(tool.name if isinstance(tool, Tool) else tool for tool in tools)
    for name in names:
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"{option}: expected tools or their names, got {type(name).__name__}")
    return names
