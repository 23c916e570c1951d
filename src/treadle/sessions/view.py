"""What a run sees of a session, and the turn that it adds.

A run sees the *pinned* messages, and all messages of the session from the index *through* on. What is left out is
what `compact_history` has summarized: the pinned messages are the system messages among them, and one with the
summary. The state of compaction is in the memo of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treadle.errors import SessionError
from treadle.messages import SYSTEM_ROLES, JSONDict
from treadle.sessions.attachments import attachments_of, digest_of
from treadle.sessions.compaction.view import (
    RUN,
    STATE,
    CompactionState,
    is_summary,
    summary_message,
    text_of_summary,
)
from treadle.sessions.store import StoredTurn

KEPT = "session."
"""The start of the names of entries of the memo that a session keeps from run to run."""


class Addition(NamedTuple):
    """What a run adds to a session.

    Args:
        turn: its turn.
        attachments: the content parts of attachments that may be new, by digest.
    """

    turn: StoredTurn
    attachments: dict[str, JSONDict]


def through_of(view: JSONDict | None) -> int:
    """The index of the first message that a view shows, apart from the pinned ones."""
    return 0 if view is None else int(view["through"])


def shown(view: JSONDict | None, messages: list[JSONDict], memo: JSONDict) -> JSONDict:
    """What a run sees: all ``messages``, and how many of them are ``pinned``.

    Args:
        view: the view of the latest turn.
        messages: the messages of the session from ``through`` on.
        memo: the memo with which the run starts; it gets the number of covered messages, and the tokens.
    """
    pinned: list[JSONDict] = [] if view is None else list(view["pinned"])
    if STATE in memo:
        state = CompactionState.from_json(memo[STATE])
        if state.summary:
            pinned.append(summary_message(state, messages[: state.kept]))
        memo[STATE] = {**memo[STATE], "covered": len(pinned) if state.summary else 0}
    seen = pinned + messages
    if view is not None and view.get("tokens") is not None:
        has_documents = any(map(attachments_of, seen))
        memo[RUN] = {"tokens": view["tokens"], "upto": len(seen), "documents": has_documents}
    return {"messages": seen, "pinned": len(pinned)}


def digests_of(view: JSONDict | None) -> list[str]:
    """The digests of the attachments of the messages that the summary of a view covers."""
    return [] if view is None else list(view["memo"].get(STATE, {}).get("attachments", ()))


def memo_of(view: JSONDict | None, attachments: Mapping[str, JSONDict]) -> JSONDict:
    """The memo with which a run starts.

    Args:
        view: the view of the latest turn.
        attachments: the attachments of the view, by digest.

    Raises:
        SessionError: an attachment is missing.
    """
    if view is None:
        return {}
    memo: JSONDict = dict(view["memo"])
    if STATE in memo:
        digests = digests_of(view)
        if missing := [digest for digest in digests if digest not in attachments]:
            raise SessionError(f"attachments are missing from the store: {', '.join(missing)}")
        parts = [attachments[digest] for digest in digests]
        memo[STATE] = {**memo[STATE], "attachments": parts}
    return memo


def addition_of(loaded: JSONDict, ended: JSONDict) -> Addition | None:
    """What a run adds to the session that it has loaded; None if nothing changed.

    Args:
        loaded: what `Session.load` returned.
        ended: the history, the memo and the result of the run; see `Session.save`.
    """
    is_paused = ended["status"] == "paused"
    tokens: int | None = None if is_paused else ended.get("tokens")
    # The run that is resumed has the whole history again, and so has to be loaded with all that it saw.
    state = (loaded if is_paused else ended)["memo"].get(STATE)
    before = _left(loaded, loaded["messages"], loaded["memo"].get(STATE))
    left = _left(loaded, ended["messages"], state)
    same = _common(before.messages, left.messages)
    kept = min(same, loaded["pinned"] - _has_summary(loaded))
    view = _view(loaded["through"], left, ended["memo"], kept, tokens)
    is_known = (
        same == len(before.messages) == len(left.messages)
        and not is_paused
        and loaded["pause_id"] is None
        and view == _view(loaded["through"], before, loaded["memo"], kept, tokens)
    )
    if is_known:
        return None
    turn = StoredTurn(
        start=loaded["through"] + same - kept,
        messages=left.messages[same:],
        status=ended["status"],
        stop_reason=ended["stop_reason"],
        created_at=ended["at"],
        run_id=ended["run_id"],
        iterations=ended["iterations"],
        tool_calls_count=ended["tool_calls_count"],
        usage=ended["usage"],
        error=ended["error"],
        view=view,
        pause=ended["pause"],
    )
    return Addition(turn, _new_attachments(loaded, turn.messages, ended["memo"]))


def _common(first: Sequence[JSONDict], second: Sequence[JSONDict]) -> int:
    """The number of messages at the start that two histories have in common."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


class _Left(NamedTuple):
    """What a run leaves, apart from the message with the summary that it has loaded.

    Args:
        messages: its history without that message, which is not part of the session.
        covered: the number of these messages that its summary covers; system messages among them stay.
        state: the state of compaction; None if there is none any more.
    """

    messages: list[JSONDict]
    covered: int
    state: JSONDict | None


def _left(loaded: JSONDict, history: list[JSONDict], state: JSONDict | None) -> _Left:
    """What a run leaves.

    Args:
        loaded: what it has loaded.
        history: its history.
        state: the state of compaction in its memo. A run without `compact_history` has the one that was loaded,
            regardless of what its stages did to the history.
    """
    covered = 0 if state is None else int(state["covered"])
    if not _has_summary(loaded):
        return _Left(history, covered, state)
    known: JSONDict = loaded["memo"][STATE]
    place = _place_of_summary(loaded, history)
    if place is None:  # a stage removed it
        return _Left(history, 0, None) if state == known else _Left(history, covered, state)
    others = history[:place] + history[place + 1 :]
    if covered > place and state != known:  # a new summary covers it
        return _Left(others, covered - 1, state)
    return _Left(others, place, _with_text_of(known, loaded, history[place]))


def _has_summary(loaded: JSONDict) -> bool:
    """Whether the last one of the pinned messages is a summary."""
    return bool(loaded["memo"].get(STATE, {}).get("covered"))


def _place_of_summary(loaded: JSONDict, history: Sequence[JSONDict]) -> int | None:
    """Where a history has the summary that was loaded, also if a stage changed its text; None if nowhere."""
    summary: JSONDict = loaded["messages"][loaded["pinned"] - 1]
    if summary in history:
        return history.index(summary)
    known: list[JSONDict] = loaded["messages"][loaded["pinned"] :]
    places = (place for place, one in enumerate(history) if is_summary(one) and one not in known)
    return next(places, None)


def _with_text_of(state: JSONDict, loaded: JSONDict, summary: JSONDict) -> JSONDict:
    """A state that was loaded, with the text of the message that a run left of its summary."""
    if summary == loaded["messages"][loaded["pinned"] - 1]:
        return state
    return {**state, "summary": text_of_summary(summary), "calls": [], "unlisted": 0}


def _view(
    through: int, left: _Left, memo: JSONDict, kept: int, tokens: int | None
) -> JSONDict | None:
    """The view after a run.

    Args:
        through: that of the view before it.
        left: what it leaves.
        memo: its memo.
        kept: the number of pinned system messages at the start that are as they were. A changed one, and all
            after it, are stored as messages of the run, since the earlier ones are stored and stay.
        tokens: the tokens that the messages have, as the model saw them; None if that is not known.
    """
    memo = {name: value for name, value in memo.items() if name.startswith(KEPT)}
    memo.pop(STATE, None)
    if left.state is not None:
        state: JSONDict = {name: left.state[name] for name in left.state if name != "covered"}
        state["attachments"] = [digest_of(part) for part in state.get("attachments", ())]
        memo[STATE] = state
    covered = max(left.covered, kept)
    through += covered - kept
    pinned = [one for one in left.messages[:covered] if one["role"] in SYSTEM_ROLES]
    if not memo and not through and tokens is None:
        return None
    return {"through": through, "pinned": pinned, "memo": memo, "tokens": tokens}


def _new_attachments(
    loaded: JSONDict, messages: Sequence[JSONDict], memo: JSONDict
) -> dict[str, JSONDict]:
    known = {digest_of(part) for part in _covered_parts(loaded["memo"])}
    parts = itertools.chain.from_iterable(map(attachments_of, messages))
    found: dict[str, Any] = {}
    for part in itertools.chain(parts, _covered_parts(memo)):
        found.setdefault(digest_of(part), part)
    return {digest: part for digest, part in found.items() if digest not in known}


def _covered_parts(memo: JSONDict) -> list[JSONDict]:
    return list(memo.get(STATE, {}).get("attachments", ()))
