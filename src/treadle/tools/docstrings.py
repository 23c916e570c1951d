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
_RULE = re.compile(r"^-{3,}\s*$")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section of a docstring, and the descriptions of arguments by name."""
    lines = inspect.cleandoc(text or "").splitlines()
    starts = bool(lines) and _SECTION.match(lines[0]) and (lines[1:] or [""])[0][:1] != " "
    if starts and not any(_SECTION.match(one) or _OTHER_SECTION.match(one) for one in lines[1:]):
        lines[1:] = [f"    {line}" for line in lines[1:]]  # `cleandoc` removed the indentation
    described: list[str] = []
    arguments: dict[str, list[str]] = {}
    section, current = "text", described  # the lines of the text, of an argument, or of none
    for index, line in enumerate(lines):
        ruled = index + 1 < len(lines) and _RULE.match(lines[index + 1]) is not None
        if _SECTION.match(line.strip() if ruled else line) or (
            ruled and line.strip().lower() in {"parameters", "other parameters"}
        ):
            section, current = ("numpy" if ruled else "google"), []
        elif not ruled and (sphinx := _SPHINX.match(line)):
            section, current = "sphinx", [sphinx[2]]
            arguments[sphinx[1]] = current
        elif _OTHER_SECTION.match(line) or line.startswith(":") or (ruled and line.strip()):
            section, current = "other", []
        elif section in {"google", "sphinx"} and line[:1].strip() and not lines[index - 1].strip():
            section, current = "other", []  # a paragraph that is not indented
        elif section in _NAMED and (named := _NAMED[section].match(line)):
            current = [named[2]]
            for name in named[1].replace(",", " ").replace("*", "").split():
                arguments[name] = current  # NumPy describes several at once
        else:
            current.append(line)
    joined = {name: " ".join(" ".join(parts).split()) for name, parts in arguments.items()}
    return "\n".join(described).strip(), {name: text for name, text in joined.items() if text}
