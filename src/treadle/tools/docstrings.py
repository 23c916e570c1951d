"""Reads the descriptions of a tool and of its arguments from a docstring."""

from __future__ import annotations

import inspect
import re

_SECTION = re.compile(
    r"^(?:(?:keyword|other) )?(?:args|arguments|parameters|params):\s*$", re.IGNORECASE
)
_OTHER_SECTION = re.compile(
    r"^(?:(?:returns?|raises?|yields?|examples?|notes?|attributes|see also|warnings?|todo):?\s*$"
    r"|(?:returns?|raises?|yields?):\s)",
    re.IGNORECASE,
)
_NAMED = {
    "google": re.compile(r"^(?: {2,4}|\t)\*{0,2}(\w+)\s*(?:\(.*?\))?:\s*(.*)$"),
    # The description is on the lines that follow.
    "numpy": re.compile(r"^\*{0,2}(\w+(?:, ?\*{0,2}\w+)*)\s*(?::.*)?()$"),
}
_SPHINX = re.compile(r"^:(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?(\w+):\s*(.*)$")
_INDENTED = frozenset({"google", "sphinx"})
"""Styles whose sections end with a paragraph that is not indented."""
_RULE = re.compile(r"^-{3,}\s*$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section of a docstring, and the descriptions of arguments by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    starts = bool(lines) and _SECTION.match(lines[0]) and (lines[1:] or [""])[0][:1] != " "
    if starts and not any(_SECTION.match(one) or _OTHER_SECTION.match(one) for one in lines[1:]):
        lines[1:] = [f"    {line}" for line in lines[1:]]  # `cleandoc` removed the indentation
    described: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current = "text", ""
    for index, line in enumerate(lines):
        ruled = index + 1 < len(lines) and _RULE.match(lines[index + 1]) is not None
        if _SECTION.match(line.strip() if ruled else line) or (
            ruled and line.strip().lower() in {"parameters", "other parameters"}
        ):
            section, current = ("numpy" if ruled else "google"), ""
        elif _OTHER_SECTION.match(line) or (ruled and line.strip()):
            section, current = "other", ""
        elif sphinx := _SPHINX.match(line):
            section, current = "sphinx", sphinx[1]
            arguments[current] = [sphinx[2]]
        elif line.startswith(":") or (
            section in _INDENTED and line[:1].strip() and not lines[index - 1].strip()
        ):
            section = "other"
        elif section == "text":
            described.append(line)
        elif section != "other" and not _RULE.match(line):
            current = _read_argument(line, section, current, arguments)
    joined = {name: " ".join(" ".join(parts).split()) for name, parts in arguments.items()}
    return "\n".join(described).strip(), {name: text for name, text in joined.items() if text}


def _read_argument(line: str, section: str, current: str, arguments: dict[str, list[str]]) -> str:
    """Read one line of a section of arguments; return the argument that it describes."""
    named = _NAMED[section].match(line) if section in _NAMED else None
    if named is not None:
        names, parts = named[1].replace(",", " ").replace("*", "").split(), [named[2]]
        arguments.update((name, parts) for name in names)  # NumPy describes several at once
        return names[0]
    if current and line.strip():
        arguments[current].append(line.strip())
    return current
