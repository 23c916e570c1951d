"""`treadle chat`: a conversation in the terminal, stored as a session."""

from __future__ import annotations

import argparse
import contextlib
import functools
import sys

from treadle.cli.arguments import given_options
from treadle.cli.chat import Chat
from treadle.cli.chat_commands import CommandError, completions, execute, greet
from treadle.cli.chat_sessions import claims_of, fresh_name, open_sessions
from treadle.cli.chat_view import ChatView
from treadle.cli.exits import Exit, OutputError, UsageError
from treadle.cli.interrupts import InterruptedTwiceError, closed_in_order, received
from treadle.cli.line_editor import LineEditor
from treadle.cli.output import warn
from treadle.cli.parts import tools_of, usage_errors
from treadle.cli.streams import note
from treadle.errors import SessionError, TreadleError
from treadle.loop import Loop
from treadle.pauses import Pauses
from treadle.results import Ok
from treadle.sessions import Session


def chat(args: argparse.Namespace) -> Exit:
    """Execute `treadle chat`.

    Raises:
        UsageError: the model, the tools, the sessions or a limit are invalid.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: it was interrupted twice, or before it started.
    """
    if sys.stdout is None:
        raise OutputError("cannot write the answers: stdout is closed")
    with closed_in_order() as stack:
        talk = _prepared(args, stack)
        stack.callback(talk.close)
        code = _terminal(talk) if talk.editor.is_terminal else _pipe(talk)
        try:
            talk.settle()
        except SessionError as error:
            warn(f"the last turn is not stored: {error}")
            return Exit.FAILED
    return code


def _prepared(args: argparse.Namespace, stack: contextlib.ExitStack) -> Chat:
    with usage_errors():
        session = _session(args)
        tools = tools_of(args, stack)
        loop = Loop(
            name="treadle chat",
            tools=tools,
            instructions=args.system or None,
            pauses=Pauses(claims=claims_of(session.store)),
            **given_options(args),
        )
        view = ChatView(sys.stdout)
        editor = LineEditor()
        talk = Chat(args, loop, session, view, editor)
    editor.complete_with(functools.partial(completions, talk))
    return talk


def _session(args: argparse.Namespace) -> Session:
    store = open_sessions(args.sessions)
    latest = store.sessions(limit=1)  # in any case: a store that cannot be read is bad usage
    if args.continues and latest:
        return store.session(latest[0].id)
    return store.session(fresh_name() if args.session is None else args.session)


def _terminal(talk: Chat) -> Exit:
    greet(talk)
    goes_on = _handled(talk, "/retry") if talk.session.pause() is not None else True
    while goes_on and not received:
        try:
            text = talk.editor.read()
        except KeyboardInterrupt:
            note("")
            continue
        except EOFError:
            note("")
            break
        if text.strip():
            talk.editor.add(text)
            goes_on = _handled(talk, text)
    return Exit.INTERRUPTED if received else Exit.OK


def _handled(talk: Chat, text: str) -> bool:
    """Handle an input; what goes wrong is shown. Return whether the chat continues."""
    try:
        if text.startswith("/"):
            return execute(talk, text)
        talk.ask(text.strip())
    except (InterruptedTwiceError, BrokenPipeError):
        raise
    except KeyboardInterrupt:  # during a command, or just after the end of an answer
        note("")
    except (CommandError, UsageError, TreadleError, OSError, ValueError) as error:
        talk.view.note(f"[{error}]")
    return True


def _pipe(talk: Chat) -> Exit:
    """Ask each line of stdin. There are no commands: the text may come from anywhere."""
    code = Exit.OK
    try:
        if talk.session.pause() is not None:
            talk.decide()  # which reports that no one can be asked
            return Exit.FAILED
        while True:
            text = talk.editor.read().strip()
            result = talk.ask(text) if text else None
            if result is not None and not isinstance(result, Ok):
                code = Exit.FAILED
                if result.stop_reason == "cancelled":
                    return Exit.INTERRUPTED
                if result.stop_reason == "paused":
                    return code
    except EOFError:
        return code
    except TreadleError as error:
        warn(str(error))
        return Exit.FAILED
