"""The history: append-only, so that the cost of an iteration does not depend on its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from treadle.messages.message import JSONDict, copy_json


class _Log:
    """What all histories of one run share: each message twice, and the ids of all calls.

    ``record`` is private. ``handed_out`` holds copies for the model's backend, so that a backend that changes
    them cannot change the record.
    """

    __slots__ = ("call_ids", "handed_out", "numbers", "record")

    def __init__(self) -> None:
        self.record: list[JSONDict] = []
        self.handed_out: list[JSONDict] = []
        self.call_ids: set[str] = set()
        self.numbers: dict[str, int] = {}

    def extend(
        self, messages: Sequence[JSONDict], copies: Iterable[JSONDict] | None = None
    ) -> None:
        self.handed_out.extend(map(copy_json, messages) if copies is None else copies)
        self.record.extend(messages)
        for message in messages:
            for call in message.get("tool_calls") or ():
                self._note(call.get("id", ""))

    def _note(self, call_id: str) -> None:
        self.call_ids.add(call_id)
        base, _, number = call_id.rpartition("_")
        if base and number.isdecimal() and len(number) < _MOST_DIGITS:
            self.numbers[base] = max(self.numbers.get(base, 1), int(number))


_MOST_DIGITS = 10
"""Numbers of more digits are not those that `History.unused_id` appends."""


class History(Sequence[JSONDict]):
    """An immutable sequence of messages; a longer one shares the messages of the one before."""

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Sequence[JSONDict] = ()) -> None:
        self._log = _Log()
        self._log.extend(messages)
        self._length = len(messages)

    def append(self, *messages: JSONDict) -> History:
        """Make a history with these messages at the end; this one is not changed.

        Args:
            *messages: are not copied: the caller must not change them afterwards.
        """
        return self.grown(messages)

    def grown(
        self, messages: Sequence[JSONDict], copies: Iterable[JSONDict] | None = None
    ) -> History:
        """As `append`, for callers that have copies of the messages already.

        Args:
            messages: are not copied: the caller must not change them afterwards.
            copies: a copy of each message, to hand out; None makes them.
        """
        longer = object.__new__(History)
        if len(self._log.record) == self._length:
            longer._log = self._log
        else:  # somebody has gone on from here already: branch off
            longer._log = _Log()
            longer._log.extend(self._log.record[: self._length])
        longer._log.extend(messages, copies)
        longer._length = self._length + len(messages)
        return longer

    @property
    def ends_with_assistant(self) -> bool:
        """Whether the last message is an assistant message."""
        return self._length > 0 and self._log.record[self._length - 1]["role"] == "assistant"

    def for_model(self) -> list[JSONDict]:
        """A new list of copies, for a backend. Every call returns the same copies."""
        copies = self._log.handed_out
        return copies.copy() if len(copies) == self._length else copies[: self._length]

    def to_list(self) -> list[JSONDict]:
        """A list of new copies of all messages."""
        return [copy_json(message) for message in self]

    def unused_id(self, wanted: str, taken: dict[str, int]) -> str:
        """An id that no call has: the wanted one, or that with a number.

        Args:
            wanted: the id.
            taken: further ids in use, each with the last number that was appended to it; it is updated.
        """
        log, unique = self._log, wanted
        if unique in taken or unique in log.call_ids:
            # Thousands of calls may have come under one id: go on from what the history has, and from these.
            number = max(log.numbers.get(wanted, 1), taken.get(wanted, 1))
            while unique in taken or unique in log.call_ids:
                number += 1
                unique = f"{wanted}_{number}"
            taken[wanted] = number
        return unique

    def has_call(self, call_id: str) -> bool:
        """Whether a call has this id, here or in a history that shares messages with this one."""
        return call_id in self._log.call_ids

    @overload
    def __getitem__(self, index: int) -> JSONDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JSONDict]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._log.record[: self._length][index]
        if -self._length <= index < self._length:
            return self._log.record[index if index >= 0 else index + self._length]
        raise IndexError(f"there are {self._length} messages, and none at {index}")

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[JSONDict]:
        return iter(self._log.record[: self._length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, which is mutable underneath

    def __repr__(self) -> str:
        return f"History({self._length} messages)"
