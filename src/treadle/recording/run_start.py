"""What a run starts from, as data; and a run that starts from it again, to be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.codec import NotDataError, decode, encode
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.handle import RunHandle
from treadle.loop.pause import PausedRun
from treadle.loop.run import Run
from treadle.messages import JSONDict, safe_str, to_message
from treadle.pauses import ProcessClaims, digest_of
from treadle.recording.configuration_of import configuration_of
from treadle.run_state import RunState


def start_of(loop: BuiltLoop, run: Run) -> JSONDict:
    """What a run starts from, as JSON data: with it, its log and its loop, it can be replayed.

    Args:
        loop: its loop.
        run: it has not started.

    Returns:
        ``run_id``, ``name``; ``messages``, or ``paused`` and what belongs to it; ``state``, if the run continues
        in one; ``session``, the id of its session, or None; the facts about its model and its listeners that it
        depends on; and the ``configuration`` of the loop. If any of it is no data, ``problem`` says so.
    """
    services, state, session = run.services, run.state, run.session
    start: JSONDict = {
        "run_id": state.run_id,
        "name": state.agent_name,
        "has_handle": run.handle is not None,
        "has_listeners": services.has_listeners,
        "streams_to_user": services.streams_to_user,
        "session": None if session is None else str(getattr(session, "id", "")),
        "configuration": {},
    }
    try:
        start["model"] = model = _model_of(run)
        start["configuration"] = configuration_of(loop, RecordedModel(model))
        if isinstance(run.given, PausedRun):
            return start | paused_as_data(run.given)
        start["messages"] = messages_as_data(run.given)
        if state.nodes or state.history:
            start["state"] = encode(state, "state")
    except Exception as error:  # noqa: BLE001 - objects of the caller may raise anything
        known = isinstance(error, NotDataError)
        start["problem"] = str(error) if known else f"{type(error).__name__}: {safe_str(error)}"
    return start


def messages_as_data(given: Any) -> Any:
    """The messages of a caller as JSON data; raises `NotDataError` if they are none."""
    # SDK objects become dicts, as in a run.
    is_many = isinstance(given, (list, tuple))
    plain = type(given)(map(to_message, given)) if is_many else given  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return encode(plain, "messages")


def _model_of(run: Run) -> JSONDict:
    model = run.services.model
    if model is None:
        return {}
    name, provider, request = model.model_info()
    return {
        "model": name,
        "provider": provider,
        "request": encode(request, "the options of the model"),
        "takes_parts": model.takes_parts,
    }


def restarted(loop: BuiltLoop, start: Mapping[str, Any]) -> Run:
    """A run that starts from the same as a recorded one. Its steps are for a replay.

    Args:
        loop: the loop of the recorded run.
        start: what `start_of` returned.

    Raises:
        PausedStateError, OptionError: the loop cannot resume the paused run.
        JSONFormatError: it is not what `start_of` returned.
    """
    if "session" in start:
        session = None if start["session"] is None else _RecordedSession(start["session"])
        given_loop: Any = loop
        loop = given_loop.with_options(session=session)
    if "paused" in start:
        given: Any = paused_of(loop, start)
        state = given.run_state
    else:
        given = decode(start["messages"])
        state = decode(start["state"]) if "state" in start else None
        state = state or RunState(start["name"], start["run_id"])
    handle = RunHandle() if start.get("has_handle", True) else None
    model = RecordedModel(start.get("model", {}))
    return Run(
        loop, given, model, state,
        handle=handle, has_listeners=start.get("has_listeners", True),
        streams_to_user=start["streams_to_user"],
    )  # fmt: skip


def paused_as_data(paused: PausedRun) -> JSONDict:
    """The state of a paused run, the decisions and the claims as JSON data, for `paused_of`."""
    return {
        "paused": dict(paused.signed),
        "decisions": {key: encode(one) for key, one in paused.given.items()},
        "claims": len(paused.claims),
        "take_over": paused.take_over,
        "is_saved": paused.file is not None,
    }


def paused_of(loop: BuiltLoop, start: Mapping[str, Any]) -> PausedRun:
    """The paused run of a recording, from what `paused_as_data` returned: its pause is not claimed again."""
    decisions = decode(start["decisions"])
    # A recording leaves credentials out, so its digest is another one.
    state = {key: value for key, value in start["paused"].items() if key != "digest"}
    state["digest"] = digest_of(state, loop.settings.pauses.secret)
    made = PausedRun(loop, state, decisions, None, take_over=start.get("take_over", False))
    recorded: Any = _RecordedClaims()
    made.claims = [recorded] * start.get("claims", 0)
    made.file = recorded if start.get("is_saved") else None
    return made


class _RecordedClaims(ProcessClaims):
    """Stands for the claims of a recorded run, which has claimed its pause already."""

    def keep(self, claimant: str, state: Mapping[str, Any]) -> None:
        """Do nothing."""


class RecordedModel:
    """Stands for the model of a recorded run, with what was known about it. It answers nothing.

    Args:
        facts: what `start_of` has of it.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.model = facts.get("model")
        self.provider = facts.get("provider")
        self.opts = facts.get("request", {})
        self.accepts_tool_result_parts = facts.get("takes_parts", False)

    def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Is not called."""
        raise NotImplementedError


class _RecordedSession:
    """Stands for the session of a recorded run; nothing is stored in it."""

    def __init__(self, session_id: str) -> None:
        self.id = session_id

    def load(self) -> JSONDict:
        """Is not called: the log has the outcome."""
        raise NotImplementedError

    def save(self, loaded: JSONDict, turn: JSONDict) -> None:
        """Do nothing."""
