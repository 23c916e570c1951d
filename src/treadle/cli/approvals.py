"""Decisions on calls that wait: those that options give, and those that a person at the terminal makes."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from treadle.cli.exits import UsageError
from treadle.cli.line_editor import LineEditor
from treadle.cli.streams import note
from treadle.errors import did_you_mean
from treadle.messages import is_dict
from treadle.reports.text import one_line
from treadle.results import PendingCall
from treadle.tools import Approval, approve, deny, edit

_MAX_QUESTION = 1_000
"""How much of a question is shown, in characters. The arguments are shown in full."""


def question_lines(call: PendingCall, stream: TextIO | None, start: str = "") -> Iterator[str]:
    """The question about a call, with all its arguments: one line, or on a terminal lines that fit into it.

    A tool, a server or the model wrote it. Each line but the first has a mark before it, so that no part of it
    looks like a prompt or an answer, as it could where a terminal wraps it.

    Args:
        call: the call.
        stream: where the lines will be written.
        start: the start of the first line.
    """
    text = f"{start}{one_line(call.question, _MAX_QUESTION)}: {json.dumps(call.arguments)}"
    width = len(text)
    if stream is not None and stream.isatty():
        width = max(_MIN_WIDTH, _columns(stream)) - 1
        if not text.isascii():
            width //= 2  # a character may have two columns
    yield text[:width]
    for at in range(width, len(text), width - len(_MARK)):
        yield _MARK + text[at : at + width - len(_MARK)]


_MARK = "  | "
_MIN_WIDTH = 20


def _columns(terminal: TextIO) -> int:
    """The columns of a terminal; of one that does not say, those of the variable COLUMNS, or 80."""
    return os.get_terminal_size(terminal.fileno()).columns or shutil.get_terminal_size().columns


def ask(pending: Iterable[PendingCall], editor: LineEditor) -> dict[str, Approval] | None:
    """Ask the person at the terminal about each call; None if one was not decided."""
    decisions: dict[str, Approval] = {}
    for call in pending:
        for line in question_lines(call, sys.stderr):
            note(line)
        is_approved = editor.confirm("Run it?")
        if is_approved is None:
            return None
        decisions[call.id] = approve if is_approved else deny("the user said no")
    return decisions


def decisions_of(args: argparse.Namespace, waiting: Sequence[PendingCall]) -> dict[str, Approval]:
    """The decisions that options give.

    Args:
        args: the arguments.
        waiting: the calls that wait.

    Raises:
        UsageError: a call does not wait, or the arguments of ``--edit`` are no JSON object.
    """
    ids = [call.id for call in waiting]
    decisions = {_id_in("--approve", given, ids): approve for given in args.approve or ()}
    for given in args.deny or ():
        call_id = _id_in("--deny", given, ids)
        decisions[call_id] = deny(given[len(call_id) + 1 :])
    for given in args.edit or ():
        call_id = _id_in("--edit", given, ids)
        decisions[call_id] = _edit(given[len(call_id) + 1 :], call_id)
    return decisions


def _id_in(option: str, given: str, ids: Sequence[str]) -> str:
    """The id at the start of the value of an option, before an equals sign; ids may have such signs, too."""
    found = [one for one in ids if given == one or given.startswith(f"{one}=")]
    if not found:
        hint = did_you_mean(given.partition("=")[0], ids)
        raise UsageError(f"{option}: no call {given.partition('=')[0]!r} waits{hint}")
    return max(found, key=len)


def _edit(text: str, call_id: str) -> Approval:
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--edit: {call_id}: expected a JSON object, {error}") from error
    if not is_dict(arguments):
        raise UsageError(f"--edit: {call_id}: expected a JSON object, got {text!r}")
    return edit(arguments)
