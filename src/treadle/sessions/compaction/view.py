"""The view of a history: what the model sees of it, and where it may be split."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.context import Context
from treadle.fast_dataclass import light_dataclass
from treadle.messages import History, JSONDict, text_part
from treadle.sessions.attachments import attachments_of, distinct
from treadle.sessions.compaction.strategies import Strategy

HEADING = "[Previous conversation summary]"
"""The start of the message that stands for older messages. It is RunaxAI's."""
CALLS_HEADING = "Tool calls so far, each with the start of its result:"
STATE = "session.compaction"
"""The name under which the state is kept in the memo, and stored with a session."""
RUN = "compaction"
"""The name under which the memo has the facts of one run."""
SYSTEM_ROLES = ("system", "developer")
"""The roles of the messages that always stay."""


@light_dataclass(frozen=True)
class CompactionState:
    """How much of a history the model no longer sees, and what it sees instead.

    Args:
        covered: the number of messages that the summary covers; system messages among them stay.
        shortened: the number of messages after the covered ones to which the strategies are applied.
        mark: the start of the first message that is not covered, by which it is found if a stage removed others.
        summary: the text of the summary.
        calls: the calls among the covered messages, each as its fingerprint and one line of text.
        attachments: the content parts with the attachments of the covered messages, each once.
    """

    covered: int = 0
    shortened: int = 0
    mark: str = ""
    summary: str = ""
    calls: tuple[tuple[str, str], ...] = ()
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
        covered = _place(ctx.messages, kept["covered"], kept["mark"])
        if covered is None:
            return cls()
        return cls(
            covered,
            kept.get("shortened", 0),
            kept["mark"],
            kept.get("summary", ""),
            tuple((print_, line) for print_, line in kept.get("calls", ())),
            tuple(kept.get("attachments", ())),
        )

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
    """A short text that hardly another message of a history has."""
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
    max_calls: int = 0,
) -> list[JSONDict]:
    """What the model sees of a history.

    The messages that are shown as they are, are the objects of the history.

    Args:
        history: the history; it is valid.
        state: how much of it is covered.
        strategies: applied, in order, to the messages that ``state.shortened`` counts.
        max_calls: the length of the list of covered calls, in characters.
    """
    seen: list[JSONDict] = []
    if state.covered:
        seen += (one for one in history[: state.covered] if one["role"] in SYSTEM_ROLES)
        seen.append(_block(state, history[state.covered :], max_calls))
    unchanged = state.covered + state.shortened
    older: Sequence[JSONDict] = history[state.covered : unchanged]
    for strategy in strategies if older else ():
        older = strategy(older)
    seen += older
    seen += history[unchanged:]
    return seen


def _block(state: CompactionState, after: Sequence[JSONDict], max_calls: int) -> JSONDict:
    """The message that stands for the covered ones, with the attachments that no later message has."""
    text = f"{HEADING}\n{state.summary}"
    calls = _listed([line for _, line in state.calls], max_calls)
    if calls:
        text = f"{text}\n\n{CALLS_HEADING}\n{calls}"
    later = [part for message in after for part in attachments_of(message)]
    parts = list(distinct(state.attachments, without=later)) if state.attachments else []
    return {"role": "user", "content": [text_part(text), *parts] if parts else text}


def _listed(lines: Sequence[str], limit: int) -> str:
    """The latest of the lines that fit into a number of characters, and how many are left out."""
    shown: list[str] = []
    for line in reversed(lines):
        limit -= len(line) + 1
        if limit < 0:
            break
        shown.append(line)
    left_out = len(lines) - len(shown)
    if left_out and shown:
        shown.append(f"({left_out} earlier calls are not listed)")
    return "\n".join(reversed(shown))


def is_summary(message: Mapping[str, Any]) -> bool:
    """Whether a message is a summary that an earlier compaction wrote."""
    content = message.get("content")
    if isinstance(content, list) and content:
        content = content[0].get("text")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return isinstance(content, str) and content.startswith(HEADING)


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
    before = (one["role"] for one in reversed(history[covered:at]))
    return (
        next((role for role in before if role not in SYSTEM_ROLES), None) == "user"
    )  # they were in a row before
