"""The results of a turn: which calls were answered, and whether anything new was learned since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class CachedResult(NamedTuple):
    """The result of a call when it was last made.

    Args:
        version: of what was known then, after all results of its iteration.
        iteration: when that was.
        content: the text of the result.
        is_error: whether it failed; then the call may be tried again.
    """

    version: int
    iteration: int
    content: str
    is_error: bool


class ResultCache:
    """The results of a turn, by fingerprint, and the version of what is known.

    The version rises with every iteration that returns something which was not seen before in this turn, and
    with a user message. A call whose result has the current version would return nothing new.
    """

    def __init__(self) -> None:
        self.version = 0
        # Plain tuples: there is one for each call of a turn, and the garbage collector passes them over.
        self._results: dict[str, tuple[int, int, str, bool]] = {}
        self._before: dict[str, set[str]] = {}

    def fresh(self, fingerprint: str) -> CachedResult | None:
        """The result of a call since which nothing new was learned; None where the call may be made."""
        answer = self._results.get(fingerprint)
        if answer is None or answer[0] != self.version or answer[3]:
            return None
        return CachedResult(*answer)

    def latest(self, fingerprint: str) -> CachedResult | None:
        """The latest result of a call in this turn; None where it was not made."""
        answer = self._results.get(fingerprint)
        return None if answer is None else CachedResult(*answer)

    def learn(
        self,
        iteration: int,
        results: Sequence[tuple[str, str, bool]],
        *,
        has_changed: bool = False,
    ) -> None:
        """Note the results of an iteration, which count as one step.

        Args:
            iteration: its number.
            results: of each call that ran: fingerprint, content, whether it failed.
            has_changed: a call ran that may have changed what others return.
        """
        is_new = has_changed
        for fingerprint, content, _ in results:
            # Every result is looked at: the previous one is noted where it differs.
            if fingerprint not in self._results or self._is_other(fingerprint, content):
                is_new = True
        if is_new:
            self.version += 1
        for fingerprint, content, is_error in results:
            self._results[fingerprint] = (self.version, iteration, content, is_error)

    def _is_other(self, fingerprint: str, content: str) -> bool:
        """Whether a call that was made before never returned this."""
        last = self._results[fingerprint][2]
        if last == content:
            return False
        seen = self._before.setdefault(fingerprint, set())
        seen.add(last)
        return content not in seen

    def new_turn(self) -> None:
        """Forget all: a user message has arrived."""
        self.version += 1
        self._results.clear()
        self._before.clear()

    def as_json(self) -> dict[str, Any]:
        """All of it, as JSON takes it, for a paused run."""
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
