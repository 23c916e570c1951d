"""The view of a history: what the model sees of it, and where it may be split."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.context import Context
from treadle.fast_dataclass import light_dataclass
from treadle.messages import SYSTEM_ROLES, History, JSONDict
from treadle.messages.parts import text_part
from treadle.sessions.attachments import attachments_of, distinct
from treadle.sessions.compaction.progress import ListedCall
from treadle.sessions.compaction.strategies import Strategy

HEADING = "[Previous conversation summary]"
"""The start of the message that replaces older messages."""
CALLS_HEADING = "Tool calls so far, the latest with the start of their results:"
STATE = "session.compaction"
"""The name under which the state is kept in the memo, and stored with a session."""
RUN = "compaction"
"""The name under which the memo has the facts of one run."""


@light_dataclass(frozen=True)
class CompactionState:
    """How much of a history the model no longer sees, and what it sees instead.

    Args:
        covered: the number of messages that the summary covers; system messages among them stay.
        shortened: the number of messages after the covered ones to which the strategies are applied.
        kept: the number of messages after the covered ones when the summary was written. The attachments that
            these have are not repeated next to the summary; what follows does not change the message with it,
            so that the provider's cache of the prompt stays valid.
        mark: the start of the first message that is not covered, by which it is found if a stage removed others.
        summary: the text of the summary.
        calls: the latest calls among the covered messages.
        unlisted: the number of earlier calls.
        attachments: the content parts with the attachments of the covered messages, each once.
    """

    covered: int = 0
    shortened: int = 0
    kept: int = 0
    mark: str = ""
    summary: str = ""
    calls: tuple[ListedCall, ...] = ()
    unlisted: int = 0
    attachments: tuple[JSONDict, ...] = ()

    @classmethod
    def of(cls, ctx: Context) -> CompactionState:
        """The state in the memo of a context; nothing is covered if there is none.

        If a stage removed messages from the history, their number is smaller. If it removed the first one that is
        not covered, the state is of no use any more.
        """
        kept: Mapping[str, Any] | None = ctx.memo.get(STATE)
        if kept is None:
            return cls()
        state = cls.from_json(kept)
        covered = _place(ctx.messages, state.covered, state.mark)
        return cls() if covered is None else dataclasses.replace(state, covered=covered)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> CompactionState:
        """The state that `kept_in` has put in a memo; further keys are ignored."""
        names = (spec.name for spec in dataclasses.fields(cls))
        values: dict[str, Any] = {name: kept[name] for name in names if name in kept}
        values["calls"] = tuple(ListedCall(*one) for one in kept.get("calls", ()))
        values["attachments"] = tuple(kept.get("attachments", ()))
        return cls(**values)

    def kept_in(self, ctx: Context) -> Context:
        """The context with this state in its memo, as JSON data."""
        values = {spec.name: getattr(self, spec.name) for spec in dataclasses.fields(self)}
        values["calls"] = [list(one) for one in self.calls]
        values["attachments"] = list(self.attachments)
        return ctx.remember(STATE, values)


def _place(history: History, covered: int, mark: str) -> int | None:
    """The index of the message with a mark, which should be ``covered``; None if there is none."""
    if covered < len(history) and mark_of(history[covered]) == mark:
        return covered
    places = range(min(covered, len(history)) - 1, -1, -1)
    return next((place for place in places if mark_of(history[place]) == mark), None)


def mark_of(message: Mapping[str, Any]) -> str:
    """A short text by which a message of a history is found; two messages seldom have the same."""
    calls: Any = message.get("tool_calls") or [{}]
    content: Any = message.get("content") or ""
    start = content[:MARK] if isinstance(content, str) else [part.get("type") for part in content]
    ids = f"{message.get('tool_call_id', '')}{calls[0].get('id', '')}"
    return f"{message['role']} {ids} {len(content)} {start}"


MARK = 60
"""The number of characters of the content of a message in its mark."""


def view_of(
    history: History,
    state: CompactionState,
    strategies: Sequence[Strategy] = (),
    pinned: Iterable[int] = (),
) -> list[JSONDict]:
    """What the model sees of a history.

    The messages that are shown as they are, are the objects of the history.

    Args:
        history: the history; it is valid.
        state: how much of it is covered.
        strategies: applied, in order, to the messages that ``state.shortened`` counts.
        pinned: the indices of the system messages among the covered ones, see `pinned_in`.
    """
    seen: list[JSONDict] = []
    covered = state.covered
    if covered:
        seen += (history[place] for place in pinned)
        seen.append(summary_message(state, history[covered : covered + state.kept]))
    unchanged = covered + state.shortened
    older: Sequence[JSONDict] = history[covered:unchanged]
    for strategy in strategies if older else ():
        older = strategy(older)
    seen += older
    seen += history[unchanged:]
    return seen


def pinned_in(history: History, start: int, stop: int) -> list[int]:
    """The indices of the system messages in a part of a history."""
    return [
        place for place, one in enumerate(history[start:stop], start) if one["role"] in SYSTEM_ROLES
    ]


def summary_message(state: CompactionState, kept: Sequence[JSONDict]) -> JSONDict:
    """The message that replaces the covered ones, with the attachments that the kept ones do not have."""
    text = f"{HEADING}\n{state.summary}"
    if state.calls:
        lines = list(map(str, state.calls))
        if state.unlisted:
            lines.append(f"({state.unlisted} earlier calls are not listed)")
        text = "\n".join((text, "", CALLS_HEADING, *lines))
    if not state.attachments:
        return {"role": "user", "content": text}
    later = [part for message in kept for part in attachments_of(message)]
    parts = distinct(state.attachments, without=later) if later else state.attachments
    return {"role": "user", "content": [text_part(text), *parts]}


def is_summary(message: Mapping[str, Any]) -> bool:
    """Whether a message is a summary that an earlier compaction wrote."""
    content: Any = message.get("content")
    if isinstance(content, list) and content:
        content = content[0].get("text")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return message["role"] == "user" and isinstance(content, str) and content.startswith(HEADING)


def text_of_summary(message: Mapping[str, Any]) -> str:
    """The text of such a message, without its heading."""
    content: Any = message.get("content")
    text: str = content if isinstance(content, str) else content[0]["text"]
    return text.removeprefix(HEADING).strip()


def split_of(history: Sequence[Mapping[str, Any]], covered: int, keep_recent: int) -> int:
    """Where a history may be split: the index of the first message that stays as it is.

    No call is separated from its results. The first message that stays is one of the assistant if possible, since
    the summary before it is a user message, and some providers refuse two in a row.

    Args:
        history: the history; it is valid.
        covered: the number of messages that are covered already.
        keep_recent: the number of messages at the end that stay.

    Returns:
        The index; ``covered`` if there is nothing to cover.
    """
    at = max(covered, len(history) - keep_recent)
    while at > covered and not _may_begin(history, covered, at):
        at -= 1
    older = (one for one in history[covered:at] if one["role"] not in SYSTEM_ROLES)
    return at if any(not is_summary(one) for one in older) else covered


def _may_begin(history: Sequence[Mapping[str, Any]], covered: int, at: int) -> bool:
    if at == len(history):
        return True
    role = history[at]["role"]
    if role != "user":
        return role == "assistant"
    before = reversed(history[covered:at])
    others = (one["role"] for one in before if one["role"] not in SYSTEM_ROLES)
    return next(others, None) == "user"  # they were in a row before
