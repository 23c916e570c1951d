"""A run as a turn of a stored session: it continues the session, and is stored when it ends."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from treadle import labels
from treadle.effects import NOW, Call, Steps, call_mode
from treadle.errors import PausedStateError, SessionError
from treadle.loop.pause import PausedRun
from treadle.loop.session import RunSession
from treadle.messages import (
    SYSTEM_ROLES,
    JSONDict,
    estimate_tokens,
    safe_str,
    to_message,
    validate_messages,
)
from treadle.results import Err, InvalidInput, Ok, Paused, Result

if TYPE_CHECKING:
    from treadle.loop.run import Run

R = TypeVar("R")
log = logging.getLogger("treadle.loop")


def continue_session(session: RunSession, run: Run, steps: Steps[Result]) -> Steps[Result]:
    """Perform a run as a turn of a session.

    Args:
        session: the session.
        run: the run. It gets the messages of the session before its own.
        steps: its steps.

    Raises:
        SessionError: the session cannot be read, and nothing ran; or the turn could not be stored, and the error
            has the result.
        PausedStateError: a pause is resumed that is not the last turn of the session.
    """
    loaded: JSONDict = yield _calling(session, session.load, (), labels.LOAD_SESSION)
    given = run.given
    _continue(run, loaded)
    steps = _stored(session, run, loaded, steps)
    # The pause is over when the turn is stored: else the session still has it, and it can be taken over.
    return (yield from given.claimed(steps) if isinstance(given, PausedRun) else steps)


def _stored(session: RunSession, run: Run, loaded: JSONDict, steps: Steps[Result]) -> Steps[Result]:
    """Perform a run, and store its turn."""
    try:
        result = yield from steps
    except GeneratorExit:
        raise
    except BaseException:
        if run.result is not None and not run.is_resumable:  # the run was cancelled
            try:
                yield from _save(session, run, loaded, run.result)
            except SessionError:
                log.exception("the turn of a cancelled run could not be stored")
        raise
    yield from _save(session, run, loaded, result)
    return result


def _continue(run: Run, loaded: JSONDict) -> None:
    given = run.given
    if isinstance(given, PausedRun):
        if given.state["pause_id"] != loaded["pause_id"]:
            raise PausedStateError("the last turn of the session is not the pause that is resumed")
        return
    run.given = _joined(loaded["messages"], given)
    run.context = run.context.evolve(memo=loaded["memo"])


def _joined(before: list[JSONDict], given: Any) -> Any:
    """The messages of a session with those of the caller at the end; what is not valid is returned unchanged."""
    if given in ([], ()) and before:  # continue from where it ended
        return before
    try:
        messages, repairs = validate_messages(given)
    except ValueError:  # the run ends with `InvalidInput`, and names the problem
        return given
    if repairs:  # the run repairs them again, and reports it
        messages = list(map(to_message, given))
    known = [message for message in before if message["role"] in SYSTEM_ROLES]
    return [*before, *(message for message in messages if message not in known)]


def _save(session: RunSession, run: Run, loaded: JSONDict, result: Result) -> Steps[None]:
    """Store the turn of a result; the error of a turn that is not stored has the result."""
    if isinstance(result, Err) and isinstance(result.reason, InvalidInput):
        return  # nothing was added
    memo, at = dict(run.context.memo), (yield NOW)
    turn = {**_turn_of(result), "memo": memo, "tokens": _tokens_of(run, result), "at": at}
    try:
        yield _calling(session, session.save, (loaded, turn), labels.SAVE_SESSION)
    except SessionError as error:
        error.result = result
        raise
    except Exception as error:
        failed = SessionError(f"the turn could not be stored: {safe_str(error)}")
        failed.result = result
        raise failed from error


_STATUS: Mapping[type, str] = {Ok: "ok", Err: "error", Paused: "paused"}


def _turn_of(result: Result) -> JSONDict:
    return {
        "messages": result.messages,
        "status": _STATUS[type(result)],
        "stop_reason": result.stop_reason,
        "run_id": result.run.run_id,
        "iterations": result.iterations,
        "tool_calls_count": result.tool_calls_count,
        "usage": dataclasses.asdict(result.usage),
        "error": safe_str(result.reason) if isinstance(result, Err) else None,
        "pause": result.state if isinstance(result, Paused) else None,
    }


def _tokens_of(run: Run, result: Result) -> int | None:
    """The tokens that the provider counted in the last request and its response, and an estimate of the results.

    Returns:
        The number; None if the provider did not count them.
    """
    last, messages = run.run.injected, result.messages
    usage = None if last is None else last.usage
    roles = [message["role"] for message in reversed(messages)]
    if usage is None or not usage.is_measured or "assistant" not in roles:
        return None
    since = messages[len(messages) - roles.index("assistant") :]
    return usage.input_tokens + usage.output_tokens + estimate_tokens(since)


def _calling(session: RunSession, fn: Any, args: tuple[Any, ...], label: str) -> Call:
    return Call(fn, *args, mode=call_mode(fn), label=label, key=str(getattr(session, "id", "")))
