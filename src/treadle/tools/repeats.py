"""Repeated calls: which calls are the same, what they returned, and whether anything new was learned since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from treadle.messages import ATOMS, ToolCall, canonical_json, sha256
from treadle.tools.rendering import json_encoder

Dedupe: TypeAlias = Literal["evidence", "strict", "off"]
"""When a repeated call is skipped, that is answered with its earlier result.

``evidence``: once a repetition has returned the same result, and nothing new was learned since. So a cursor, a
counter, a clock, or a poll whose result changes, runs each time. ``strict``: from the first repetition on, if
nothing new was learned since the call (RunaxAI's rule). ``off``: never. A call that failed is never skipped.
"""
DEDUPE_MODES: tuple[Dedupe, ...] = get_args(Dedupe)


def fingerprint(name: str, arguments: Mapping[str, Any] | str) -> str:
    """Make a digest of a call that does not depend on the order of keys and on white space.

    Args:
        name: the tool's name.
        arguments: the decoded arguments; or their text if it cannot be decoded, so that two different malformed
            calls are never equal.

    Returns:
        SHA-256 in hexadecimal.
    """
    try:
        # pydantic's encoder takes half the time of json's; name and arguments are encoded together.
        text = json_encoder()([name, _sorted(arguments)])
    except (ValueError, RecursionError):  # lone surrogates; endless nesting
        text = canonical_json([name, arguments]).encode()
    return sha256(text)


def marked(call: ToolCall) -> ToolCall:
    """Mark a call as invalid: without input, with the fingerprint of its text, even if an edit left others."""
    print_ = fingerprint(call.name, call.arguments)
    return ToolCall(call.id, call.name, call.arguments, None, print_, call.extra, call.written)


def _sorted(value: Any) -> Any:
    """JSON with the keys of every object in order."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
        ordered: dict[str, Any] = {}
        for key in sorted(fields):  # sorting items, or one expression, takes longer
            part = fields[key]
            ordered[key] = part if part.__class__ in ATOMS else _sorted(part)
        return ordered
    if isinstance(value, list):
        return [_sorted(part) for part in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def signature(fingerprints: Iterable[str]) -> str:
    """Make a digest of all calls of an iteration that does not depend on their order."""
    ordered = sorted(fingerprints)
    if len(ordered) == 1:
        return ordered[0]
    return sha256("\n".join(ordered).encode())


class CachedResult(NamedTuple):
    """The latest result of a call.

    Args:
        version: the version of the known facts after its iteration.
        iteration: the number of that iteration.
        content: the text of the result.
        is_error: whether it failed; then the call may be repeated.
        is_repeated: whether the call had returned the same when it ran before.
    """

    version: int
    iteration: int
    content: str
    is_error: bool
    is_repeated: bool


class ResultCache:
    """The results of a turn, by fingerprint, and the version of the known facts.

    The version increases with every iteration that returns something new in this turn, and with a user message.
    A call whose result has the current version would return nothing new.
    """

    def __init__(self) -> None:
        self.version = 0
        # Plain tuples: there is one for each call of a turn, and the garbage collector skips them.
        self._results: dict[str, tuple[int, int, str, bool, bool]] = {}
        self._before: dict[str, set[str]] = {}

    def fresh(self, fingerprint: str) -> CachedResult | None:
        """The result of a call if it succeeded and nothing new was learned since; else None."""
        answer = self.latest(fingerprint)
        if answer is None or answer.version != self.version or answer.is_error:
            return None
        return answer

    def latest(self, fingerprint: str) -> CachedResult | None:
        """The latest result of a call in this turn; None if it was not made."""
        answer = self._results.get(fingerprint)
        return None if answer is None else CachedResult(*answer)

    def learn(
        self,
        iteration: int,
        results: Sequence[tuple[str, str, bool]],
        *,
        has_changed: bool = False,
        outdated: int = 0,
    ) -> None:
        """Record the results of an iteration, which count as one step.

        Args:
            iteration: its number.
            results: of each call that ran, in order: fingerprint, content, whether it failed.
            has_changed: a call ran that may have changed what others return.
            outdated: the number of results, from the first on, that are older than such a change.
        """
        known, is_new = self._results, has_changed
        for fingerprint, content, _ in results:
            last = known.get(fingerprint)
            # Every result is checked, since `_is_other` notes the previous one.
            if last is None or (
                last[2] != content and self._is_other(fingerprint, last[2], content)
            ):
                is_new = True
        if is_new:
            self.version += 1
        version = self.version
        for place, (fingerprint, content, is_error) in enumerate(results):
            last = known.get(fingerprint)
            is_repeated = last is not None and last[2] == content and last[3] == is_error
            known_at = version - 1 if place < outdated else version
            known[fingerprint] = (known_at, iteration, content, is_error, is_repeated)

    def _is_other(self, fingerprint: str, last: str, content: str) -> bool:
        """Whether a call that returned something else last has never returned this result before."""
        seen = self._before.setdefault(fingerprint, set())
        seen.add(last)
        return content not in seen

    def new_turn(self) -> None:
        """Forget everything: a user message arrived."""
        self.version += 1
        self._results.clear()
        self._before.clear()

    def as_json(self) -> dict[str, Any]:
        """All results, as JSON data, for a paused run."""
        return {
            "version": self.version,
            "answers": {key: list(answer) for key, answer in self._results.items()},
            "before": {key: sorted(seen) for key, seen in self._before.items()},
        }

    def restore(self, given: Mapping[str, Any]) -> None:
        """Restore what `as_json` returned."""
        self.version = given["version"]
        self._results = {key: tuple(answer) for key, answer in given["answers"].items()}
        self._before = {key: set(seen) for key, seen in given["before"].items()}
