"""What has changed of a loop since a run of it was recorded, in sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from treadle.messages import is_list, is_mapping

MAX_TEXT = 60
"""How many characters of a text are shown, from a few before the first difference."""
_BEFORE = 20
_PARTS = {"options": "option", "requests": "request option"}


def changes_between(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Name what differs between two configurations of a loop.

    Args:
        old: what `treadle.recording.configuration_of.configuration_of` returned when the run was recorded.
        new: what it returns now.

    Returns:
        A sentence for each change, such as ``tool 'search': retries changed from 1 to 3``; none if they are equal.
    """
    return list(_changes(old, new))


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = old.get("tools", {}), new.get("tools", {})
    yield from (f"tool {name!r} was removed" for name in before if name not in after)
    yield from (f"tool {name!r} was added" for name in after if name not in before)
    for name, tool in before.items():
        if name in after:
            yield from _changes_of_tool(f"tool {name!r}", tool, after[name])
    yield from _change_of_order("tools", [*before], [*after])
    yield from _changes_of_stages(old.get("stages", ()), new.get("stages", ()))
    for name in ("instructions", "model", "provider"):
        yield from _change(name, old.get(name), new.get(name))
    for part, what in _PARTS.items():
        yield from _changes_of(f"{what} ", old.get(part, {}), new.get(part, {}))


def _changes_of_tool(tool: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    inner = "loop"
    if inner in old and inner in new:
        changes = _changes(old[inner], new[inner])
        yield from (f"{tool}: its loop: {change}" for change in changes)
        old, new = ({k: v for k, v in one.items() if k != inner} for one in (old, new))
    yield from _changes_of(f"{tool}: ", old, new)


def _changes_of_stages(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    yield from (f"stage {name!r} was removed" for name in old if name not in new)
    for place, name in enumerate(new):
        if name not in old:
            where = f"after {new[place - 1]!r}" if place else "as the first one"
            yield f"stage {name!r} was added {where}"
    yield from _change_of_order("stages", old, new)


def _change_of_order(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    before, after = [n for n in old if n in new], [n for n in new if n in old]
    if before != after:
        yield f"the order of the {what} changed from {', '.join(before)} to {', '.join(after)}"


def _changes_of(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in [*old, *(name for name in new if name not in old)]:
        yield from _change(f"{what}{name}", old.get(name), new.get(name))


def _change(what: str, old: Any, new: Any) -> Iterator[str]:
    if is_mapping(old) and is_mapping(new):
        yield from _changes_of(f"{what}.", old, new)
    elif old != new:
        before, after = excerpts(_text(old), _text(new))
        yield f"{what} changed from {before} to {after}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    is_data = is_mapping(value) or is_list(value)
    return json.dumps(value, default=str) if is_data else str(value)


def excerpts(old: str, new: str) -> tuple[str, str]:
    """Two texts, each shortened to the part around their first difference."""
    least = min(len(old), len(new))
    first = next((at for at in range(least) if old[at] != new[at]), least)
    start = max(0, first - _BEFORE) if max(len(old), len(new)) > MAX_TEXT else 0
    return _excerpt(old, start), _excerpt(new, start)


def _excerpt(text: str, start: int) -> str:
    end = start + MAX_TEXT
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"
