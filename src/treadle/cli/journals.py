"""The journal of the command: its file, and the options that a run stores, so that its id continues it."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from treadle.cli.arguments import LIMIT_FLAGS, RETRIES_FLAG
from treadle.cli.exits import UsageError
from treadle.cli.user_files import make_folder, place_of
from treadle.durable import SQLiteJournal
from treadle.messages import JSONDict
from treadle.recording.journaled import Journal
from treadle.recording.journaled_run import JournaledRun
from treadle.redaction import REDACTED, is_credential, redacted

VARIABLE = "TREADLE_JOURNAL"
"""The environment variable that has the file of the journal."""
OPTIONS = (
    "model",
    "base_url",
    "api_key_env",
    "tools",
    "mcp",
    *LIMIT_FLAGS,
    *RETRIES_FLAG,
    "unmeasured",
    "on_unknown",
)
"""The options from which a run is made again."""
_COMMAND = "command"
"""The key of the options in what a run starts from."""


def is_journaled(args: argparse.Namespace) -> bool:
    """Whether `treadle run` stores its run: an option or the variable says so."""
    return bool(args.journal or args.run_id or os.environ.get(VARIABLE))


def open_journal(args: argparse.Namespace, *, create: bool = False) -> SQLiteJournal:
    """The journal that the arguments, or the environment, name.

    Args:
        args: the arguments.
        create: whether it may be created.

    Raises:
        UsageError: the named file is missing, or the folder of the default one cannot be created.
    """
    file = Path(place_of(args.journal, VARIABLE, "journal.db")).expanduser().absolute()
    if args.journal is None and create:
        make_folder(file, "--journal")
    elif args.journal is not None and not create and not file.exists():
        raise UsageError(f"--journal: there is no file {args.journal}")
    return SQLiteJournal(file)


class CommandJournal(Journal):
    """A journal that also stores the options of the command with a new run.

    Args:
        journal: the journal.
        args: the arguments.
    """

    def __init__(self, journal: Journal, args: argparse.Namespace) -> None:
        self._journal = journal
        self._options = _stored(args)

    def open(self, run_id: str, start: JSONDict | None) -> JournaledRun:
        """See `Journal.open`."""
        return self._journal.open(run_id, start and {**start, _COMMAND: self._options})


def _stored(args: argparse.Namespace) -> JSONDict:
    """The options as data, without credentials that can be recognized, and the current folder."""
    given = {name: getattr(args, name) for name in OPTIONS}
    made = {name: _safe(value) for name, value in given.items() if value is not None}
    return {**made, "folder": os.getcwd()}  # noqa: PTH109 - a text is stored


def _safe(value: Any) -> Any:
    if isinstance(value, list):
        return [_safe(one) for one in value]  # pyright: ignore[reportUnknownVariableType]
    return _without_credentials(value) if isinstance(value, str) else value


def _without_credentials(text: str) -> str:
    """A URL or a command; an option or a variable of a command may have a credential."""
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    safe = [*_safe_words(words)]
    return redacted(text if safe == words else shlex.join(safe))


def _safe_words(words: Iterable[str]) -> Iterable[str]:
    is_next = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_named = is_credential(name.lstrip("-"))
        if is_next and not word.startswith("-"):
            yield REDACTED
        else:
            yield f"{name}={REDACTED}" if equals and is_named else word
        is_next = word.startswith("-") and is_named and not equals


def options_of_run(journal: SQLiteJournal, run_id: str) -> JSONDict | None:
    """The options that were stored with a run; None if it is not one of `treadle run`.

    Raises:
        JournalError: there is no such run, or it cannot be read.
    """
    found: JSONDict | None = journal.part(run_id, 1).start.get(_COMMAND)
    return found


def with_stored(args: argparse.Namespace, stored: JSONDict) -> argparse.Namespace:
    """Take the stored options where none are given. The server and the key are those of the model.

    Raises:
        UsageError: one of them had a credential, which is not stored.
    """
    stored = dict(stored)
    if args.model is not None and args.model != stored.get("model"):
        for name in ("base_url", "api_key_env"):
            stored.pop(name, None)
    merged = argparse.Namespace(**vars(args))
    for name in OPTIONS:
        if getattr(args, name) is not None or name not in stored:
            continue
        if REDACTED in str(stored[name]):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{option}: it was started with a credential in it, which is not stored: give {option} again"
            )
        setattr(merged, name, stored[name])
    return merged


def quoted_resume(run_id: str, args: argparse.Namespace, start: JSONDict | None, *more: str) -> str:
    """The command that resumes a run, as a person may enter it in a shell.

    Args:
        run_id: the run.
        args: the arguments of this command; the other one uses the same journal.
        start: what the run started from; None if ``args`` have started or resumed it.
        *more: further arguments.
    """
    loop = getattr(args, "loop", None)
    if (
        start is not None and _COMMAND not in start
    ):  # of another program, whose loop only the user knows
        loop = "MODULE:NAME"
    named: dict[str, str | None] = {"--loop": loop, "--journal": args.journal}
    options = [word for name, value in named.items() if value is not None for word in (name, value)]
    return shlex.join(["treadle", "resume", run_id, *more, *options])
