"""`Chat`: a conversation with a model: its session, its model, and its turns."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import Any

from treadle.cli.approvals import ask
from treadle.cli.chat_sessions import BufferedSession
from treadle.cli.chat_view import ChatView
from treadle.cli.interrupts import interrupts_end
from treadle.cli.line_editor import LineEditor
from treadle.cli.parts import close_model, open_model
from treadle.codec import decode
from treadle.context import Context
from treadle.errors import PausedStateError
from treadle.events import CompactionFailed, Event, HistoryCompacted
from treadle.loop import Loop, RunHandle
from treadle.messages import JSONDict
from treadle.pauses import check_state
from treadle.pauses.claims import HOW
from treadle.results import Paused, PendingCall, Result
from treadle.sessions import Session, compact_history
from treadle.tools import Approval, deny

_LEAST_COMPACTED = 6
"""The length of a conversation from which `Chat.compact` summarises it, in messages: the last 4 stay."""
_NOT_DECIDED = "[not decided: /retry asks again, a message continues without the call]"
_MAY_HAVE_RUN = (
    "it was approved before and may have run already, since the program was interrupted; "
    "the user does not want to run it again"
)
_RECENT = 200
"""How many of the latest messages are looked at for earlier inputs of the user."""


class Chat:
    """A conversation.

    Args:
        args: the arguments of the command.
        loop: the loop of the turns.
        session: the session; it need not exist yet.
        view: shows the turns.
        editor: asks the user.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        loop: Loop,
        session: Session,
        view: ChatView,
        editor: LineEditor,
    ) -> None:
        self.view = view
        self.editor = editor
        self._args = args
        self._last: Result | None = None
        self._session = BufferedSession(session, view.note)
        editor.remember(_inputs_of(session))
        self._model: Any = open_model(args)  # which is slow, so the store is read first
        self._loop = loop
        self.loop = self._compacting()

    @property
    def model(self) -> str:
        """The name of the model."""
        return str(self._args.model)

    @property
    def session(self) -> Session:
        """The session; it need not exist yet."""
        return self._session.current

    def switch(self, session: Session) -> None:
        """Continue with another session."""
        self._session.settle()
        self._session = BufferedSession(session, self.view.note)
        self.editor.remember(_inputs_of(session))

    def change_model(self, name: str) -> None:
        """Continue with another model. The server of ``--base-url`` is that of the provider it was given for.

        Raises:
            TreadleError, OSError, ValueError, UsageError: the model cannot be opened; the chat keeps its model.
        """
        given = {**vars(self._args), "model": name}
        if _provider_of(name) != _provider_of(self.model):
            given |= {"base_url": None, "api_key_env": None}
        args = argparse.Namespace(**given)
        model = open_model(args)
        close_model(self._model, self._last)
        self._args, self._model, self._last = args, model, None
        self.loop = self._compacting()

    def compact(self) -> None:
        """Summarise all but the latest messages now.

        Raises:
            PausedStateError: a call waits for approval.
        """
        if self.session.pause() is not None:
            raise PausedStateError("a call waits for approval; /retry asks about it")
        events: list[Event] = []
        stages = [self._compaction(max_messages=_LEAST_COMPACTED), _end, ...]
        loop = self._loop.with_options(stages=stages, session=_Edit(self._session))
        with contextlib.redirect_stdout(sys.stderr), interrupts_end(handle := RunHandle()):
            loop.run_sync([], self._model, handle=handle, on_event=[self.view, events.append])
        if not any(isinstance(event, HistoryCompacted | CompactionFailed) for event in events):
            self.view.note("[nothing to summarise: the last 4 messages always stay as they are]")

    def settle(self) -> None:
        """Store the last turn, if it could not be stored; raises `SessionError` if it still cannot."""
        self._session.settle()

    def close(self) -> None:
        """Close the model."""
        close_model(self._model, self._last)

    def ask(self, content: Any) -> Result:
        """Make a turn with a message of the user. Calls that wait for approval are asked about.

        Args:
            content: the text of the message; or its content parts.
        """
        message = [{"role": "user", "content": content}]
        result = self._run(lambda loop: loop.run_sync(message, self._model))
        return self.decide() or result if isinstance(result, Paused) else result

    def decide(self) -> Result | None:
        """Continue the turn that waits for approval, if the user decides; return its result, or None."""
        self.settle()
        result: Result | None = None
        while (state := self.session.pause()) is not None:
            try:
                decisions = self._decisions(decode(check_state(state, None)["pending"]))
                if decisions is None:
                    return result
                resumed = self._resumed(state, decisions)
                if resumed is None:
                    return result
                result = resumed
            except PausedStateError as error:
                self.view.note(
                    f"[the waiting calls cannot run: {error}; a message continues without them]"
                )
                return result
        return result

    def _compacting(self) -> Loop:
        """The loop of the turns with the current model, which also writes the summaries."""
        if self._args.no_compaction:
            return self._loop
        return self._loop.with_options(stages=[self._compaction(), ...])

    def _compaction(self, **options: Any) -> Any:
        most = self._args.max_context_tokens
        context = getattr(self._model, "n_ctx", None)  # of a local model
        if most is None and context is not None:
            most = context // 2  # the rest is for the answer, and for results of tools
        if most is not None:
            options |= {"max_tokens": most, "max_tokens_with_documents": most}
        return compact_history(self._model, **options)

    def _resumed(self, state: JSONDict, decisions: dict[str, Approval]) -> Result | None:
        """Continue a turn; if a chat was interrupted after a decision, only if the user says so again.

        Raises:
            PausedStateError: another chat continues it, or has done so, or this one cannot note that it does.
        """
        try:
            return self._run(lambda loop: loop.resume_sync(state, decisions, self._model))
        except sqlite3.Error as error:
            raise PausedStateError(f"the file of the claims cannot be used: {error}") from error
        except PausedStateError as error:
            if HOW not in str(error):
                raise
        self.view.note(
            "[a chat was interrupted after this was decided: what was approved may have run]"
        )
        is_approved = any(decision.runs for decision in decisions.values())
        runs_again = self.editor.confirm("Run it all the same?") if is_approved else False
        if runs_again is None:
            self.view.note(_NOT_DECIDED)
            return None
        if not runs_again:
            decisions = {call_id: deny(_MAY_HAVE_RUN) for call_id in decisions}
        return self._run(
            lambda loop: loop.resume_sync(state, decisions, self._model, take_over=True)
        )

    def _decisions(self, calls: list[PendingCall]) -> dict[str, Approval] | None:
        if not self.editor.is_terminal:
            names = ", ".join(call.name for call in calls)
            command = ["treadle", "chat", "--session", self.session.id]
            if self._args.sessions is not None:
                command += ["--sessions", self._args.sessions]
            self.view.note(
                f"[waits for approval of {names}: decide in a terminal, {shlex.join(command)}]"
            )
            return None
        decisions = ask(calls, self.editor)
        if decisions is None:
            self.view.note(_NOT_DECIDED)
        return decisions

    def _run(self, run: Callable[[Loop], Result]) -> Result:
        self.settle()
        handle = RunHandle()
        loop = self.loop.with_options(session=self._session, handle=handle, on_event=self.view)
        self.view.begin()
        # A tool may print; stdout is for the answers.
        with contextlib.redirect_stdout(sys.stderr), interrupts_end(handle):
            result = run(loop)
        self._last = result
        self.view.end(result)
        return result


class _Edit:
    """The session of a run without a turn, which only changes what the model is shown."""

    def __init__(self, session: BufferedSession) -> None:
        self._session = session
        self.load = session.load

    def save(self, loaded: JSONDict, turn: JSONDict) -> None:
        self._session.save(loaded, {**turn, "status": "edit", "error": None})


def _end(ctx: Context) -> Context:
    """A stage that ends the run before the model is asked."""
    return ctx.stop("compacted")


def _inputs_of(session: Session) -> Iterator[str]:
    """The latest texts of the user, the first one first."""
    for message in session.messages(-_RECENT):
        if message["role"] == "user" and isinstance(message.get("content"), str):
            yield message["content"]


def _provider_of(model: str) -> str:
    return model.partition(":")[0]
