"""What a turn has learned: which calls were answered, and whether anything new came since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """What a call brought when it was last made.

    Args:
        version: what was known then, after all results of its iteration.
        iteration: when that was.
        content: what it brought.
        is_error: whether it failed; then it is no answer, and the call may be tried again.
    """

    version: int
    iteration: int
    content: str
    is_error: bool


class ResultCache:
    """The answers of a turn, by fingerprint, and the version of what is known.

    The version rises with every iteration that brings something which was not seen before in this turn, and
    with a user message. A call that was answered at the current version would tell nothing new.
    """

    def __init__(self) -> None:
        self.version = 0
        # Plain tuples: there is one for each call of a turn, and the garbage collector passes them over.
        self._answers: dict[str, tuple[int, int, str, bool]] = {}
        self._before: dict[str, set[str]] = {}

    def known(self, fingerprint: str) -> Answer | None:
        """The answer of a call that was last made at the current version; None where it may be made."""
        answer = self._answers.get(fingerprint)
        if answer is None or answer[0] != self.version or answer[3]:
            return None
        return Answer(*answer)

    def answer(self, fingerprint: str) -> Answer | None:
        """What a call brought when it was last made in this turn; None where it was not."""
        answer = self._answers.get(fingerprint)
        return None if answer is None else Answer(*answer)

    def learn(
        self,
        iteration: int,
        results: Sequence[tuple[str, str, bool]],
        *,
        has_changed: bool = False,
    ) -> None:
        """Take in the results of an iteration, which count as having come all at once.

        Args:
            iteration: its number.
            results: of each call that ran: fingerprint, content, whether it failed.
            has_changed: something was done that may have changed what others bring, whatever it said of it.
        """
        is_new = has_changed
        for fingerprint, content, _ in results:
            # Every one is looked at: what a call brought last is noted where it brings something else.
            if fingerprint not in self._answers or self._is_other(fingerprint, content):
                is_new = True
        if is_new:
            self.version += 1
        for fingerprint, content, is_error in results:
            self._answers[fingerprint] = (self.version, iteration, content, is_error)

    def _is_other(self, fingerprint: str, content: str) -> bool:
        """Whether a call that was made before never brought this."""
        last = self._answers[fingerprint][2]
        if last == content:
            return False
        seen = self._before.setdefault(fingerprint, set())
        seen.add(last)
        return content not in seen

    def new_turn(self) -> None:
        """Forget all: the user has spoken."""
        self.version += 1
        self._answers.clear()
        self._before.clear()

    def as_json(self) -> dict[str, Any]:
        """All of it, for a run that is put aside."""
        return {
            "version": self.version,
            "answers": {key: list(answer) for key, answer in self._answers.items()},
            "before": {key: sorted(seen) for key, seen in self._before.items()},
        }

    def restore(self, told: Mapping[str, Any]) -> None:
        """Go on with what `as_json` said."""
        self.version = told["version"]
        self._answers = {key: tuple(answer) for key, answer in told["answers"].items()}
        self._before = {key: set(seen) for key, seen in told["before"].items()}
