"""Repeated calls: which calls are the same, what they returned, and whether anything new was learned since."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

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
    return dataclasses.replace(call, input=None, fingerprint=print_)


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


class Learned(NamedTuple):
    """What is known of the calls of an iteration besides their results.

    Args:
        has_changed: a call ran that may have changed what others return.
        outdated: the number of results, from the first on, that are older than such a change.
        writes: the number of calls of tools that are not read-only.
        has_polled: a call of a volatile tool ran, which may always return something new.
    """

    has_changed: bool = False
    outdated: int = 0
    writes: int = 0
    has_polled: bool = False


@dataclass
class ResultCache:
    """The results of a turn, by fingerprint, and the version of the known facts. It is not part of the history.

    The version increases with every iteration that returns something new in this turn, and with a user message.
    A call whose result has the current version would return nothing new.

    Results that were compacted away are *hidden*: the model no longer sees them. Such a call is no repetition. If
    the result still holds, the call is *recalled*, that is answered with it; else it runs.

    Args:
        version: the version of the known facts.
        evidence: how often a call returned a result that it had not returned before.
        hidden: the calls whose results are hidden, by fingerprint, each with whether the stored text is the whole
            result.
        results: the latest result of each call, by fingerprint.
        before: the earlier results of calls that returned different ones, by fingerprint.
        writes: the number of calls that may have changed something.
    """

    version: int = 0
    evidence: int = 0
    hidden: dict[str, bool] = field(default_factory=dict[str, bool])
    # Plain tuples: there is one for each call of a turn, and the garbage collector skips them. The last number is
    # the one of the writes before it.
    results: dict[str, tuple[int, int, str, bool, bool, int]] = field(
        default_factory=cast("Callable[[], dict[str, tuple[int, int, str, bool, bool, int]]]", dict)
    )
    before: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    writes: int = 0

    def fresh(self, fingerprint: str) -> CachedResult | None:
        """The result of a call if it succeeded and nothing new was learned since; else None."""
        answer = self.latest(fingerprint)
        if answer is None or answer.version != self.version or answer.is_error:
            return None
        return answer

    def latest(self, fingerprint: str) -> CachedResult | None:
        """The latest result of a call in this turn; None if it was not made."""
        answer = self.results.get(fingerprint)
        return None if answer is None else CachedResult(*answer[:-1])

    def hide(self, calls: Mapping[str, bool]) -> None:
        """Note that the model no longer sees the results of some calls.

        Args:
            calls: by fingerprint, each with whether the stored text is the whole result.
        """
        self.hidden.update(calls)

    def recall(self, fingerprint: str) -> CachedResult | None:
        """The hidden result of a call if it still holds; else None.

        It holds if the call succeeded, always returned the same, and no tool ran since that may have changed
        anything, that is one which is not read-only.
        """
        if not self.hidden.get(fingerprint) or fingerprint in self.before:
            return None
        answer = self.results.get(fingerprint)
        if answer is None or answer[-1] != self.writes:
            return None
        found = CachedResult(*answer[:-1])
        return None if found.is_error else found

    def show(self, fingerprints: Iterable[str]) -> None:
        """Note that the model sees the results of some calls again."""
        for fingerprint in fingerprints:
            self.hidden.pop(fingerprint, None)

    def learn(
        self,
        iteration: int,
        results: Sequence[tuple[str, str, bool]],
        facts: Learned = Learned(),  # noqa: B008 - it is immutable
    ) -> None:
        """Record the results of an iteration, which count as one step.

        Args:
            iteration: its number.
            results: of each call that ran, in order: fingerprint, content, whether it failed.
            facts: what else is known of these calls.
        """
        has_changed, outdated, writes, has_polled = facts
        known, is_new = self.results, False
        for fingerprint, content, _ in results:
            last = known.get(fingerprint)
            # Every result is checked, since `_is_other` notes the previous one.
            if last is None or (
                last[2] != content and self._is_other(fingerprint, last[2], content)
            ):
                is_new = True
        if is_new or has_polled:
            self.evidence += 1
        if is_new or has_changed:
            self.version += 1
        self.writes += writes
        # Next to others, a tool that is not read-only may have changed something before or after they ran.
        stamp = self.writes - 1 if writes and len(results) > 1 else self.writes
        version, hidden = self.version, self.hidden
        for place, (fingerprint, content, is_error) in enumerate(results):
            last = known.get(fingerprint)
            is_repeated = last is not None and last[2] == content and last[3] == is_error
            if hidden and hidden.pop(fingerprint, None) is not None:
                is_repeated = False  # the model had not seen the earlier one
            known_at = version - 1 if place < outdated else version
            known[fingerprint] = (known_at, iteration, content, is_error, is_repeated, stamp)

    def note_write(self) -> None:
        """Note that a call may have changed something, although it has no result, and others may return more."""
        self.writes += 1
        self.version += 1

    def _is_other(self, fingerprint: str, last: str, content: str) -> bool:
        """Whether a call that returned something else last has never returned this result before."""
        seen = self.before.setdefault(fingerprint, set())
        seen.add(last)
        return content not in seen

    def new_turn(self) -> None:
        """Forget everything: a user message arrived."""
        self.version += 1
        self.evidence += 1
        self.results.clear()
        self.before.clear()
        self.hidden.clear()
