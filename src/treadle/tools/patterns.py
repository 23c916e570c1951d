"""The regular expressions of schemas, matched in time linear in the length of the text.

Python's ``re`` backtracks: ``^(a+)+$`` takes hours for 40 characters, and holds the interpreter's lock meanwhile,
so that no time limit is reached in any thread. A model writes the text, so a model could stop the program.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TypeAlias

Matcher: TypeAlias = Callable[[str], bool]
"""Whether a pattern occurs anywhere in a text, as JSON Schema defines ``pattern``."""

MAX_BACKTRACKED = 1_000
"""The maximum length of a text that ``re`` searches, in characters: a pattern with one quantifier takes time
that is at most quadratic in it. A longer text does not match."""

_QUANTIFIER = re.compile(r"(?<!\()[*+?{]")  # the question mark of a group is none


class UnsupportedPatternError(ValueError):
    """A pattern that is invalid, or that may take more than linear time."""


@functools.lru_cache(maxsize=1_000)
def matcher_of(pattern: str) -> Matcher:
    """Compile a pattern.

    Rust's engine matches it, the one that pydantic uses; it has neither look-around nor backreferences.
    Look-aheads directly after a leading ``^`` are separate patterns: ``^(?!a)b`` is ``^b`` and not ``^a``. Any
    other pattern is left to ``re`` if it has at most one quantifier.

    Args:
        pattern: a regular expression.

    Raises:
        UnsupportedPatternError: there is no such engine for it.
    """
    matcher = _linear(pattern) or _with_lookaheads(pattern)
    if matcher is not None:
        return matcher
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsupportedPatternError(f"it is not a regular expression: {error}") from None
    if len(_QUANTIFIER.findall(pattern)) > 1:
        raise UnsupportedPatternError(
            "it may take exponential time: look-around, except look-ahead directly after a leading '^', and "
            "backreferences are only supported with at most one quantifier"
        )
    return lambda text: len(text) <= MAX_BACKTRACKED and compiled.search(text) is not None


def _linear(pattern: str) -> Matcher | None:
    """The matcher of Rust's engine; None if it does not support the pattern."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - slow to import

    schema = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex", strict=True)
    try:
        matches = SchemaValidator(schema).isinstance_python
    except SchemaError:
        return None
    # A lone surrogate cannot be encoded, and pydantic would refuse the text.
    return lambda text: matches(
        text if text.isascii() else text.encode("utf-8", "replace").decode()
    )


def _with_lookaheads(pattern: str) -> Matcher | None:
    """The matcher of a pattern that starts with ``^`` and look-aheads; None for any other."""
    place, conditions = 1, list[tuple[Matcher, bool]]()
    while pattern.startswith("^") and pattern.startswith(("(?=", "(?!"), place):
        end = _end_of_group(pattern, place)
        inner = _linear(f"^(?:{pattern[place + 3 : end - 1]})")
        if inner is None:
            return None
        conditions.append((inner, pattern[place + 2] == "="))
        place = end
    following = pattern[place:]
    if not conditions or following.startswith(("*", "+", "?", "{")) or _is_alternation(following):
        return None
    rest = _linear(f"^{following}")
    if rest is None:
        return None
    return lambda text: rest(text) and all(inner(text) is wanted for inner, wanted in conditions)


def _depths(pattern: str, start: int) -> list[tuple[int, str, int]]:
    """Each place outside of escapes and character classes, with its character and the depth of groups after it."""
    found: list[tuple[int, str, int]] = []
    depth, place = 0, start
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 2
            continue
        if character == "[":
            place = _end_of_class(pattern, place)
            continue
        depth += (character == "(") - (character == ")")
        found.append((place, character, depth))
        place += 1
    return found


def _end_of_class(pattern: str, start: int) -> int:
    place = start + 1
    place += pattern.startswith("^", place)
    place += pattern.startswith("]", place)  # the first one is a member
    while place < len(pattern) and pattern[place] != "]":
        place += 2 if pattern[place] == "\\" else 1
    return place + 1


def _end_of_group(pattern: str, start: int) -> int:
    """The place after the parenthesis that closes a group; the end of the pattern if none does."""
    closing = (place for place, _, depth in _depths(pattern, start) if depth == 0)
    return next(closing, len(pattern)) + 1


def _is_alternation(pattern: str) -> bool:
    """Whether a pattern has alternatives outside of groups."""
    return any(character == "|" and depth == 0 for _, character, depth in _depths(pattern, 0))
