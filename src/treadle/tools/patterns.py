"""The regular expressions of schemas, matched in time linear in the length of the text.

Python's ``re`` backtracks: ``^(a+)+$`` takes hours for 40 characters, and holds the interpreter's lock meanwhile,
so that no time limit is reached in any thread. A model writes the text, so a model could stop the program.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import re
from collections.abc import Callable
from typing import Any, TypeAlias

Matcher: TypeAlias = Callable[[str], bool]
"""Whether a pattern occurs anywhere in a text, as JSON Schema defines ``pattern``."""

MAX_BACKTRACKED = 1_000
"""The maximum length of a text that ``re`` searches, in characters: a pattern with one quantifier takes time
that is at most quadratic in it. A longer text does not match."""
MAX_WAYS = 4 * MAX_BACKTRACKED
"""In how many ways ``re`` may match a pattern at one place: a repetition has one for each length."""

_parse: Any = importlib.import_module("re._parser").parse
"""Python's own parser of regular expressions, which has no public name."""


class UnsupportedPatternError(ValueError):
    """A pattern that is invalid, or that may take more than linear time."""


@functools.lru_cache(maxsize=1_000)
def matcher_of(pattern: str) -> Matcher:
    """Compile a pattern; raise `UnsupportedPatternError` if no engine is fit for it.

    Rust's engine matches it, the one that pydantic uses; it has neither look-around nor backreferences.
    Look-aheads directly after a leading ``^`` are separate patterns: ``^(?!a)b`` is ``^b`` and not ``^a``. Any
    other pattern is left to ``re`` if it can match a text in few ways only: no repetition of an ambiguous part,
    and not two repetitions without a bound.
    """
    try:
        matcher = _linear(pattern) or _with_lookahead(pattern)
        if matcher is not None:
            return matcher
        if len(pattern) > MAX_BACKTRACKED or _ways(_parse(pattern)) > MAX_WAYS:
            raise UnsupportedPatternError(
                "it may take exponential time: it can match a text in many ways, by nested or several repetitions "
                "or alternatives that overlap; these are only supported without backreferences and look-around, "
                "except look-ahead directly after a leading '^'"
            )
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsupportedPatternError(f"it is not a regular expression: {error}") from None
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


def _with_lookahead(pattern: str) -> Matcher | None:
    """The matcher of a pattern that starts with ``^`` and look-aheads; None for any other."""
    if not pattern.startswith(("^(?=", "^(?!")):
        return None
    closing = (n for n, (_, depth) in enumerate(_depths(pattern[1:]), 1) if depth == 0)
    end = next(closing, len(pattern))
    inner, following = _linear(f"^(?:{pattern[4:end]})"), pattern[end + 1 :]
    is_quantified = following.startswith(("*", "+", "?", "{"))
    if inner is None or is_quantified or ("|", 0) in _depths(following):
        return None
    rest, is_wanted = (
        _linear(f"^{following}") or _with_lookahead(f"^{following}"),
        pattern[3] == "=",
    )
    return rest and (lambda text: inner(text) is is_wanted and rest(text))


def _ways(tree: Any) -> int:
    """In how many ways a parsed pattern can match at one place, at most; ``MAX_WAYS + 1`` if there are more."""
    product = 1
    for operation, argument in tree:
        match str(operation), argument:
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, most, body):
                ways = _ways_repeated(least, most, body)
            case "ASSERT" | "ASSERT_NOT", (_, body):  # a long one takes time at each place
                ways = _ways(body) * (1 + min(body.getwidth()[0], MAX_BACKTRACKED) // 50)
            case "BRANCH", (_, branches):  # the first character of a text may choose the only one
                starts = [one[0][1] for one in branches if one and str(one[0][0]) == "LITERAL"]
                is_chosen = len({chr(code).casefold() for code in starts}) == len(branches)
                ways = (max if is_chosen else sum)(map(_ways, branches))
            case ("SUBPATTERN", (*_, body)) | ("ATOMIC_GROUP", body):
                ways = _ways(body)
            case "GROUPREF_EXISTS", (_, *bodies):
                ways = sum(_ways(body) for body in bodies if body is not None)
            case _:  # a character, a place, or the text of a group
                ways = 1
        product = min(product * ways, MAX_WAYS + 1)
    return product


def _ways_repeated(least: int, most: int, body: Any) -> int:
    inner = _ways(body)
    if body.getwidth()[0] == 0 and most > 1:
        return MAX_WAYS + 1
    if inner == 1:
        return min(most, MAX_BACKTRACKED) - min(least, MAX_BACKTRACKED) + 1
    # Each repetition multiplies them; so many repetitions exceed the limit in any case.
    counts = range(min(least, MAX_WAYS), min(most, MAX_WAYS.bit_length() + least, MAX_WAYS) + 1)
    return min(sum(inner**count for count in counts), MAX_WAYS + 1)


_OPAQUE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
"""An escape, or a character class, whose first ``]`` is a member."""


def _depths(pattern: str) -> list[tuple[str, int]]:
    """Each character, with the depth of groups after it; those of escapes and classes are replaced."""
    plain = _OPAQUE.sub(lambda found: "_" * len(found[0]), pattern)
    depths = itertools.accumulate((one == "(") - (one == ")") for one in plain)
    return list(zip(plain, depths, strict=True))
