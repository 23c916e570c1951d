"""A run as a turn of a stored session: what it continues, and what is stored when it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from treadle import labels
from treadle.context import Context
from treadle.effects import NOW, Call, Steps, call_mode
from treadle.errors import SessionError
from treadle.messages import SYSTEM_ROLES, JSONDict, Response, estimate_tokens, safe_str, to_message
from treadle.messages.parts import join_messages
from treadle.messages.repair import validate_messages
from treadle.results import Err, InvalidInput, Ok, Paused, Result


class RunSession(Protocol):
    """What a run needs of a session; `treadle.sessions.Session` is one. Each method may be sync or async.

    What they take and return is JSON data, so that a journal can record it.
    """

    def load(self) -> JSONDict | Awaitable[JSONDict]:
        """What a run continues: ``messages``, ``memo`` for its stages, ``pause_id`` if the last turn paused."""
        ...

    def save(self, loaded: JSONDict, turn: JSONDict) -> Awaitable[None] | None:
        """Store a turn that has ended, in one atomic step.

        Args:
            loaded: what `load` returned when it began.
            turn: the whole ``messages`` and ``memo`` of the run, ``status``, ``stop_reason``, ``run_id``,
                ``iterations``, ``tool_calls_count``, ``usage``, ``error``, ``pause``, ``at``; and ``tokens``,
                those that the messages, as the model saw them, have at the end, or None.

        Raises:
            SessionError: it is not stored; a `SessionConflictError` if the session was changed meanwhile.
        """
        ...


def joined(before: list[JSONDict], given: Any) -> Any:
    """The messages of a session, then those of the caller; messages that are not valid are returned unchanged."""
    if given in ([], ()) and before:  # continue from where it ended
        return before
    try:
        messages, repairs = validate_messages(given)
    except ValueError:  # the run ends with `InvalidInput`, and names the problem
        return given
    if repairs:  # the run repairs them again, and reports it
        messages = list(map(to_message, given))
    known = [message for message in before if message["role"] in SYSTEM_ROLES]
    new = [message for message in messages if message not in known]
    if before and new and before[-1]["role"] == new[0]["role"] == "user":
        # The turn before had no answer; some providers refuse two user messages in a row.
        return [*before[:-1], join_messages(before[-1], new[0]), *new[1:]]
    return [*before, *new]


def save_turn(
    session: RunSession, loaded: JSONDict, result: Result, context: Context
) -> Steps[None]:
    """Store a run as a turn of a session; the `SessionError` of a turn that is not stored has the result."""
    if isinstance(result, Err) and isinstance(result.reason, InvalidInput):
        return  # nothing was added
    turn: JSONDict = {
        "messages": result.messages,
        "memo": dict(context.memo),
        "status": {Ok: "ok", Err: "error", Paused: "paused"}[type(result)],
        "stop_reason": result.stop_reason,
        "run_id": result.run.run_id,
        "iterations": result.iterations,
        "tool_calls_count": result.tool_calls_count,
        "usage": dataclasses.asdict(result.usage),
        "error": safe_str(result.reason) if isinstance(result, Err) else None,
        "pause": result.state if isinstance(result, Paused) else None,
        "tokens": _tokens_of(context.run.ledger.last_response, result),
        "at": (yield NOW),
    }
    try:
        yield session_call(session, session.save, labels.SAVE_SESSION, loaded, turn)
    except SessionError as error:
        error.result = result
        raise
    except Exception as error:
        raise _not_stored(error, result) from error


def _not_stored(error: Exception, result: Result) -> SessionError:
    failed = SessionError(f"the turn could not be stored: {safe_str(error)}")
    failed.result = result
    return failed


def _tokens_of(last: Response | None, result: Result) -> int | None:
    """The tokens of the last exchange, and an estimate of its results; None if the provider counted none."""
    messages = result.messages
    usage = None if last is None else last.usage
    roles = [message["role"] for message in reversed(messages)]
    if usage is None or not usage.is_measured or "assistant" not in roles:
        return None
    since = messages[len(messages) - roles.index("assistant") :]
    return usage.input_tokens + usage.output_tokens + estimate_tokens(since)


def session_call(session: RunSession, fn: Callable[..., Any], label: str, *args: Any) -> Call:
    """The effect that calls a method of a session."""
    return Call(fn, *args, mode=call_mode(fn), label=label, key=str(getattr(session, "id", "")))
