"""What a run sees of a session, and the turn that it adds.

A run sees the *pinned* messages, and all messages of the session from the index *through* on. What is left out is
what `compact_history` has summarized: the pinned messages are the system messages among them, and one with the
summary. The state of compaction comes back in the memo of the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from treadle.errors import SessionError
from treadle.messages import SYSTEM_ROLES, JSONDict
from treadle.sessions.attachments import attachments_of, digest_of
from treadle.sessions.compaction.view import RUN, STATE, CompactionState, summary_message
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
        state = CompactionState.from_json({**memo[STATE], "covered": 0})
        if through_of(view):
            pinned.append(summary_message(state, messages[: state.kept]))
        memo[STATE] = {**memo[STATE], "covered": len(pinned)}
    seen = pinned + messages
    if view is not None and view.get("tokens") is not None:
        memo[RUN] = {"tokens": view["tokens"], "upto": len(seen)}
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
    seen: list[JSONDict] = loaded["messages"]
    history: list[JSONDict] = ended["messages"]
    same = _common(seen, history)
    kept = min(same, loaded["pinned"])
    tokens: int | None = ended.get("tokens")
    view = _view(loaded, history, ended["memo"], kept, tokens)
    is_known = (
        same == len(seen) == len(history)
        and ended["status"] != "paused"
        and loaded["pause_id"] is None
        and view == _view(loaded, seen, loaded["memo"], kept, tokens)
    )
    if is_known:
        return None
    turn = StoredTurn(
        start=loaded["through"] + same - kept,
        messages=history[same:],
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


def _view(
    loaded: JSONDict,
    history: Sequence[JSONDict],
    memo: JSONDict,
    kept: int,
    tokens: int | None,
) -> JSONDict | None:
    """The view after a run.

    Args:
        loaded: what the run has loaded.
        history: the history at its end.
        memo: its memo.
        kept: the number of pinned messages at the start of the history that are as they were. A changed one, and
            all after it, are stored as messages of the run, since the earlier ones are stored and stay.
        tokens: the tokens that the messages have, as the model saw them; None if that is not known.
    """
    memo = {name: value for name, value in memo.items() if name.startswith(KEPT)}
    through: int = loaded["through"]
    known: list[JSONDict] = loaded["messages"][: loaded["pinned"]]
    pinned = [one for one in known if one["role"] in SYSTEM_ROLES]
    if STATE in memo:
        state: JSONDict = dict(memo[STATE])
        covered: int = state.pop("covered")
        state["attachments"] = [digest_of(part) for part in state.get("attachments", ())]
        memo[STATE] = state
        through += max(covered - kept, 0)
        pinned = [one for one in history[:covered] if one["role"] in SYSTEM_ROLES]
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
