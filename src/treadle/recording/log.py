"""The log of a run: what became of its effects, in the order in which it happened.

It is one flat list. An entry has the path of the steps that asked for the effect, and the number of the effect
among theirs. The steps within a `Parallel` or a `Bounded` are branches: the path of the steps around them, the
number of the effect, and their own place in it. The path of the run itself is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from treadle import labels
from treadle.codec import decode_fields, encode, encode_fields
from treadle.effects import (
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Now,
    Parallel,
    Sleep,
    Steps,
    Wait,
)
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import JSONDict
from treadle.redaction import without_credentials

Path: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[Path, int]
"""The path of some steps, and the number of one of their effects, from 1."""

KINDS: Mapping[type, str] = {
    Call: "call",
    Parallel: "parallel",
    Bounded: "bounded",
    Sleep: "sleep",
    Wait: "wait",
    Now: "now",
    Emit: "emit",
}
"""The kinds of effects, by class."""
STARTED = "started"
"""A call that must not run twice, or an effect that lasts, has started (the outcome is its kind); or a branch has
emitted an event."""
REPORTED = "reported"
"""A call has emitted an event while it ran, which is the outcome of the entry."""
RESUMED = "resumed"
"""Another process has resumed the run."""
RECEIVED = "received"
"""The steps have received the outcome of an early entry, and went on."""
MARKS = frozenset({STARTED, RESUMED, RECEIVED})
"""The kinds of entries that are no outcome."""


@fast_dataclass
class Entry:
    """What became of one effect.

    Args:
        path: the steps that asked for it.
        number: its number among the effects of these steps, from 1.
        kind: a value of `KINDS`, `STARTED`, `REPORTED`, `RESUMED` or `RECEIVED`.
        label: the label of a call.
        key: the key of a call.
        outcome: its outcome; None for the outcome of branches, which the log has itself.
        error: what it raised instead; None if it did not.
        raised_in: the place of the branch that raised the error, which is not in the entry; None for others.
        asked: a digest of what a call asks, see `Digests`.
        at: when it was written, in seconds since the epoch.
        last_seq: the number of the latest event of the run at that time.
        is_early: whether the outcome was written before the steps received it, while others went on. Then a mark
            of the kind `RECEIVED` says when they did; without one, they had not.
    """

    path: Path = ()
    number: int = 0
    kind: str = "call"
    label: str = ""
    key: str = ""
    outcome: Any = None
    error: BaseException | None = None
    raised_in: int | None = None
    asked: str = ""
    at: float = 0.0
    last_seq: int = 0
    is_early: bool = False

    @property
    def place(self) -> Place:
        """Where the effect is."""
        return self.path, self.number

    @property
    def starts_call(self) -> bool:
        """Whether it is the mark of a call that must not run twice."""
        return self.kind == STARTED and (self.outcome == "call" or bool(self.label))

    @property
    def is_cancelled(self) -> bool:
        """Whether its steps were cancelled while they waited for the effect."""
        return isinstance(self.error, Cancelled)

    def as_json(self) -> JSONDict:
        """The entry as JSON data; defaults are left out, except the kind, whose name there is ``effect``.

        Raises:
            NotDataError: its outcome is no data.
        """
        made = encode_fields(self, str(self))
        made |= {"path": list(self.path), "number": self.number, "effect": made.pop("kind", "call")}
        if self.error is not None and self.label == labels.CHAT:
            # It may have the URL and the headers of its request; the error of a tool is in the history.
            made["error"] = without_credentials(made["error"])
        return made

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        """The entry that `as_json` returned; other keys are ignored.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        values = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        values |= {"path": encode(tuple(map(int, data["path"]))), "kind": str(data["effect"])}
        entry: Entry = decode_fields(cls, values)
        error: Any = entry.error
        if error is not None and not isinstance(error, BaseException):
            raise ValueError(f"error: expected an exception, got {type(error).__name__}")
        return entry

    def __str__(self) -> str:
        name = self.label or ("call" if self.starts_call else self.kind)
        return f"{name} {self.key!r}" if self.key else name


def branches_of(effect: Effect) -> list[Steps[Any]]:
    """The steps within an effect."""
    if isinstance(effect, Parallel):
        return list(effect.steps)
    return [effect.steps] if isinstance(effect, Bounded) else []


def settled(log: Iterable[Entry]) -> list[Entry]:
    """The entries of a log without those of an interruption.

    When a process ends, it cancels the branches of its runs from the innermost, and each does its cleanup. This
    is no part of the run, which another process takes up where it was before. It is one if the effect around the
    branch was over as well, such as a `Bounded` whose time was up. An effect has two entries if its steps were
    cancelled while its outcome was written: the cancellation counts if it is a part of the run.
    """
    entries = list(log)
    outcomes = [entry for entry in entries if entry.kind not in _NO_OUTCOMES]
    over = {entry.place for entry in outcomes if not entry.is_cancelled}
    cancelled = {entry.place: entry for entry in outcomes if entry.is_cancelled}
    known: dict[Place, bool] = {}

    def is_part(entry: Entry) -> bool:
        """Whether a cancellation is a part of the run."""
        if not entry.path:
            return False
        *path, number, _ = entry.path
        around = tuple(path), number
        if around not in known:
            cause = cancelled.get(around)
            known[around] = around in over or (cause is not None and is_part(cause))
        return known[around]

    ended: set[Path] = set()
    kept: list[Entry] = []
    for entry in entries:
        if any(entry.path[: len(path)] == path for path in ended):
            continue
        if entry.is_cancelled and not is_part(entry):
            ended.add(entry.path)
            continue
        late = None if entry.kind in _NO_OUTCOMES else cancelled.get(entry.place)
        if late is None or late is entry or not is_part(late):
            kept.append(entry)
    return kept


_NO_OUTCOMES = MARKS | {REPORTED}
