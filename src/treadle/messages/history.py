"""The history: append-only, so that the cost of an iteration does not depend on its length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from treadle.messages.message import ORIGIN, JSONDict, ReadOnlyDict, copy_json, read_only
from treadle.messages.parts import as_text_results, has_parts


class _Log:
    """The data that all histories of a run share. The copies are for the model, which may change them."""

    def __init__(self) -> None:
        self.messages: list[JSONDict] = []
        self.copies: list[JSONDict] = []
        self.has_parts = self.has_origins = False
        self.call_ids: set[str] = set()
        self.suffixes: dict[str, int] = {}
        self.views: dict[int, ReadOnlyDict] = {}

    def view(self, index: int) -> ReadOnlyDict:
        """The read-only view of a message, made when it is first read."""
        view = self.views.get(index)
        if view is None:
            view = self.views[index] = read_only(self.messages[index])
        return view

    def extend(
        self, messages: Sequence[JSONDict], copies: Iterable[JSONDict] | None = None
    ) -> None:
        if copies is None:
            copies = map(copy_json, messages)
            self.has_parts = self.has_parts or any(map(has_parts, messages))
            self.has_origins = self.has_origins or any(ORIGIN in message for message in messages)
        self.copies.extend(copies)
        self.messages.extend(messages)
        for message in messages:
            for call in message.get("tool_calls") or ():
                self.call_ids.add(call.get("id", ""))


class History(Sequence[JSONDict]):
    """An immutable sequence of read-only messages; histories of one run share them."""

    __slots__ = ("_length", "_log")

    def __init__(self, messages: Sequence[JSONDict] = ()) -> None:
        self._log = _Log()
        if messages:
            self._log.extend(messages)
        self._length = len(messages)

    def append(self, *messages: JSONDict) -> History:
        """Make a history with these messages at the end, which are not copied; this one is not changed."""
        return self.extended(messages)

    def extended(
        self, messages: Sequence[JSONDict], copies: Iterable[JSONDict] | None = None
    ) -> History:
        """Like `append`, with copies to hand out if the caller has them, and no tool message has content parts."""
        longer, log = object.__new__(History), self._log
        if len(log.messages) != self._length:  # another history continues from here: branch off
            log = _Log()
            log.extend(self.raw())
        log.extend(messages, copies)
        longer._log, longer._length = log, self._length + len(messages)
        return longer

    @property
    def ends_with_assistant(self) -> bool:
        """Whether the last message is an assistant message."""
        return self._length > 0 and self._log.messages[self._length - 1]["role"] == "assistant"

    @property
    def has_origins(self) -> bool:
        """Whether a message may have the key of `for_sdk`."""
        return self._log.has_origins

    def for_model(self, takes_parts: bool = True) -> list[JSONDict]:
        """A new list of the copies, for a model that may take no content parts in tool messages."""
        copies = self._log.copies[: self._length]
        return as_text_results(copies) if self._log.has_parts and not takes_parts else copies

    def to_list(self) -> list[JSONDict]:
        """A list of new copies of all messages."""
        return [copy_json(message) for message in self.raw()]

    def unused_id(self, wanted: str, taken: dict[str, int]) -> str:
        """An id that no call has, with a number if need be; ``taken`` has further ids with their last numbers."""
        log, unique = self._log, wanted
        if unique in taken or unique in log.call_ids:
            number = log.suffixes.get(wanted, 1)
            while f"{wanted}_{number + 1}" in log.call_ids:
                number += 1
            log.suffixes[wanted] = number  # kept, since thousands of calls may have the same id
            number = max(number, taken.get(wanted, 1))
            while unique in taken or unique in log.call_ids:
                number += 1
                unique = f"{wanted}_{number}"
            taken[wanted] = number
        return unique

    def has_call(self, call_id: str) -> bool:
        """Whether a call has this id, here or in a history that shares messages with this one."""
        return call_id in self._log.call_ids

    def raw(self) -> list[JSONDict]:
        """A new list of the messages themselves, not of read-only views; for the loop, and for results."""
        return self._log.messages[: self._length]

    @overload
    def __getitem__(self, index: int) -> JSONDict: ...
    @overload
    def __getitem__(self, index: slice) -> list[JSONDict]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._log.view(place) for place in range(*index.indices(self._length))]
        if -self._length <= index < self._length:
            return self._log.view(index if index >= 0 else index + self._length)
        raise IndexError(f"index {index} is out of range: the history has {self._length} messages")

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[JSONDict]:
        return map(self._log.view, range(self._length))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.raw() == other.raw()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which is mutable underneath

    def __repr__(self) -> str:
        return f"History({self._length} messages)"
