"""The commands of a chat: inputs that start with a slash."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treadle.cli.chat import Chat
from treadle.cli.chat_sessions import fresh_name
from treadle.cli.chat_view import used
from treadle.cli.output import transcript
from treadle.cli.streams import escaped, note
from treadle.cli.targets import writing
from treadle.errors import did_you_mean
from treadle.files import replace_file
from treadle.messages import Usage
from treadle.reports.text import format_count, one_line
from treadle.sessions import Session

_SHOWN = 20
"""How many messages /history shows, and how many sessions /sessions."""
_PAGE = 100
"""How many messages are read at a time, to find the last question."""


class CommandError(Exception):
    """A command cannot be executed as it was given. The message is one line."""


class Command(NamedTuple):
    """A command.

    Args:
        run: executes it; takes the chat and the text after the name.
        argument: what this text is; empty if there is none, in brackets if it may be missing.
        help: what the command does.
    """

    run: Callable[[Chat, str], None]
    argument: str
    help: str


def execute(chat: Chat, text: str) -> bool:
    """Execute a command.

    Args:
        chat: the chat.
        text: the input, with the slash.

    Returns:
        Whether the chat continues.

    Raises:
        CommandError: it is unknown, or cannot be executed as it was given.
        TreadleError, UsageError, OSError, ValueError: it failed.
    """
    name, _, argument = text[1:].partition(" ")
    argument = argument.strip()
    if name == "quit":
        return False
    command = COMMANDS.get(name)
    if command is None:
        hint = did_you_mean(f"/{name}", [f"/{known}" for known in COMMANDS])
        raise CommandError(
            f"/{name}: there is no such command{hint} (a message may start with a space)"
        )
    if not argument and command.argument and not command.argument.startswith("["):
        raise CommandError(f"/{name}: expected {command.argument}")
    if argument and not command.argument:
        raise CommandError(f"/{name}: expected nothing after it, got {argument!r}")
    if name != "help":
        chat.settle()
    command.run(chat, argument)
    return True


def completions(chat: Chat, line: str) -> Sequence[str]:
    """The lines that a line with the start of a command may become."""
    if not line.startswith("/"):
        return ()
    name, space, start = line.partition(" ")
    if not space:
        return [f"/{known}" for known in COMMANDS if known.startswith(name[1:])]
    if name != "/switch":
        return ()
    found = chat.session.store.sessions(prefix=start)
    return [f"{name} {one.id}" for one in found if escaped(one.id) == one.id]


def _help(_chat: Chat, _argument: str) -> None:
    usages = {f"/{name} {one.argument}".strip(): one.help for name, one in COMMANDS.items()}
    width = max(map(len, usages))
    for usage, text in usages.items():
        note(f"{usage.ljust(width)}  {text}")
    note(
        "A line that ends with a backslash continues on the next one. Ctrl-C interrupts an answer."
    )


def _new(chat: Chat, argument: str) -> None:
    session = Session(chat.session.store, argument or fresh_name())
    if session.exists:
        raise CommandError(f"there is a session {session.id!r} already: /switch {session.id}")
    _go_to(chat, session)


def _sessions(chat: Chat, _argument: str) -> None:
    found = chat.session.store.sessions(limit=_SHOWN + 1)
    if not found:
        note("no session is stored yet")
    width = max((len(one.id) for one in found), default=0)
    for one in found[:_SHOWN]:
        mark = "*" if one.id == chat.session.id else " "
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.updated_at))
        messages = format_count(one.messages, "message")
        note(f"{mark} {one.id.ljust(width)}  {at}  {messages}")
    if len(found) > _SHOWN:
        note("  ... and older ones")


def _switch(chat: Chat, argument: str) -> None:
    session = Session(chat.session.store, argument)
    if not session.exists:
        known = [one.id for one in chat.session.store.sessions(limit=_SHOWN)]
        raise CommandError(f"there is no session {argument!r}{did_you_mean(argument, known)}")
    _go_to(chat, session)
    chat.decide()


def _history(chat: Chat, argument: str) -> None:
    count = _SHOWN
    if argument:
        if not argument.isdecimal() or int(argument) < 1:
            raise CommandError(f"/history: expected a number of messages, got {argument!r}")
        count = int(argument)
    for line in transcript(chat.session.messages(-count)):
        note(line)


def _undo(chat: Chat, _argument: str) -> None:
    index, content = _last_question(chat.session)
    chat.session.truncate(index)
    text = content if isinstance(content, str) else "a message with attachments"
    chat.view.note(f"[removed: {one_line(text)}]")


def _retry(chat: Chat, _argument: str) -> None:
    if chat.session.pause() is not None:
        chat.decide()
        return
    index, content = _last_question(chat.session)
    chat.session.truncate(index)
    chat.ask(content)


def _last_question(session: Session) -> tuple[int, Any]:
    """The index and the content of the last message of the user."""
    info = session.info()
    for stop in range(0 if info is None else info.messages, 0, -_PAGE):
        start = max(stop - _PAGE, 0)
        messages = session.messages(start, stop)
        for index in reversed(range(len(messages))):
            if messages[index]["role"] == "user":
                return start + index, messages[index]["content"]
    raise CommandError("there is no message of yours in this session")


def _fork(chat: Chat, argument: str) -> None:
    _go_to(chat, chat.session.fork(argument))


def _compact(chat: Chat, _argument: str) -> None:
    chat.compact()


def _export(chat: Chat, argument: str) -> None:
    file = Path(argument).expanduser()
    if file.exists():
        raise CommandError(f"/export: {file} exists")
    text = "".join(chat.session.export())
    with writing("/export", file):
        replace_file(file, text.encode())
    chat.view.note(f"[written to {file}]")


def _model(chat: Chat, argument: str) -> None:
    if argument:
        chat.change_model(argument)
    note(chat.model)


def _tools(chat: Chat, _argument: str) -> None:
    if not chat.loop.tools:
        note("there are no tools")
    for tool in chat.loop.tools.values():
        note(one_line(f"{tool.name}: {tool.description}", 110))


def _usage(chat: Chat, _argument: str) -> None:
    # A turn that continues a paused one is of the same run, and has the usage of both.
    runs = {turn.run_id: turn for turn in chat.session.turns() if turn.run_id}
    usage = Usage()
    for turn in runs.values():
        usage = usage.plus(Usage(**turn.usage))
    turns = [turn for turn in runs.values() if turn.status != "edit"]
    parts = [
        format_count(len(turns), "turn"),
        format_count(sum(turn.iterations for turn in turns), "iteration"),
        format_count(sum(turn.tool_calls_count for turn in turns), "tool call"),
        *used(usage),
    ]
    note(", ".join(parts))


def _delete(chat: Chat, _argument: str) -> None:
    session = chat.session
    if not session.exists:
        raise CommandError("this session is not stored yet")
    if not chat.editor.confirm(f"Delete session {session.id!r}?"):
        raise CommandError("not deleted")
    session.delete()
    _go_to(chat, Session(session.store, fresh_name()))


def _go_to(chat: Chat, session: Session) -> None:
    chat.switch(session)
    greet(chat)


def greet(chat: Chat) -> None:
    """Say which session is continued, and with which model."""
    info = chat.session.info()
    length = "new" if info is None else format_count(info.messages, "message")
    chat.view.note(f"session {chat.session.id} ({length}), model {chat.model}; /help for help")


def _quit(_chat: Chat, _argument: str) -> None:
    """It is handled by `execute`."""


COMMANDS: Mapping[str, Command] = {
    "help": Command(_help, "", "lists the commands"),
    "new": Command(_new, "[NAME]", "starts a new session"),
    "sessions": Command(_sessions, "", "lists the sessions, the one that was used last first"),
    "switch": Command(_switch, "NAME", "continues another session"),
    "history": Command(_history, "[N]", f"shows the last N messages ({_SHOWN})"),
    "undo": Command(_undo, "", "removes your last message and all that followed"),
    "retry": Command(_retry, "", "asks your last message again; or what waits for approval"),
    "fork": Command(_fork, "NAME", "continues in a copy of the session"),
    "compact": Command(_compact, "", "summarises earlier messages for the model now"),
    "export": Command(_export, "FILE", "writes the session to a new file, as JSON lines"),
    "model": Command(_model, "[NAME]", "shows or changes the model"),
    "tools": Command(_tools, "", "lists the tools"),
    "usage": Command(_usage, "", "shows the tokens of the session, and their cost"),
    "delete": Command(_delete, "", "deletes the session"),
    "quit": Command(_quit, "", "leaves; as does Ctrl-D"),
}
