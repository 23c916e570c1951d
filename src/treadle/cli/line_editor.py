"""`LineEditor`: the inputs of a person at a terminal, or of a pipe."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from treadle.cli.streams import escaped, note

PROMPT = "> "
MORE = ". "
"""The prompt of the further lines of an input."""

Complete = Callable[[str], Sequence[str]]
"""Takes a line so far, and returns the whole lines that it may become."""


class LineEditor:
    """Reads inputs. At a terminal, `readline` edits the line, keeps earlier inputs and completes.

    An input has several lines if a line ends with a backslash, or if it was pasted: GNU readline reads a paste as
    one input.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        """Whether there is a person who can be asked."""
        self._complete: Complete = lambda _line: ()
        self._found: Sequence[str] = ()
        self._readline: Any = None
        reconfigure = getattr(sys.stdin, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # text that is not in the encoding of the terminal
        if self.is_terminal:
            with contextlib.suppress(ImportError):  # Windows does not have it
                self._readline = importlib.import_module("readline")
                self._set_up()

    def complete_with(self, complete: Complete) -> None:
        """Complete a line with a function when Tab is pressed."""
        self._complete = complete

    def read(self) -> str:
        """Read the next input, without the line end.

        Raises:
            EOFError: the end of the input, or Ctrl-D.
            KeyboardInterrupt: Ctrl-C, which discards the input.
        """
        lines = [self._line(PROMPT)]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(MORE))
        return "\n".join(lines)

    def confirm(self, question: str) -> bool | None:
        """Ask a question that is answered with y or n; None if it was not answered: Ctrl-C or Ctrl-D."""
        _drop_typed_ahead()
        while True:
            try:
                answer = self._line(f"{escaped(question)} [y/n] ").strip().lower()
            except (EOFError, KeyboardInterrupt):
                note("")
                return None
            if answer in {"y", "yes", "n", "no"}:
                return answer.startswith("y")

    def remember(self, inputs: Iterable[str]) -> None:
        """Replace the earlier inputs, which the arrow keys show."""
        if self._readline is not None:
            self._readline.clear_history()
            for text in inputs:
                self.add(text)

    def add(self, text: str) -> None:
        """Add an earlier input."""
        if self._readline is not None:
            self._readline.add_history(escaped(text))

    def _line(self, prompt: str) -> str:
        if sys.stdin is None:
            raise EOFError
        if self.is_terminal and sys.stdout is not None and sys.stdout.isatty():
            return input(prompt)
        if self.is_terminal:  # stdout is a file, which gets the answers only
            sys.stderr.write(prompt)
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _set_up(self) -> None:
        readline = self._readline
        readline.set_auto_history(False)
        readline.set_completer_delims("")  # a completion replaces the whole line
        readline.set_completer(self._completion)
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def _completion(self, line: str, state: int) -> str | None:
        """The completion of a number, from 0, as `readline` asks for them."""
        if state == 0:
            self._found = ()
            with contextlib.suppress(Exception):  # such as a store that cannot be read
                self._found = self._complete(line)
        return self._found[state] if state < len(self._found) else None


def _drop_typed_ahead() -> None:
    """Forget what was typed before a question appeared: it answers something else."""
    with contextlib.suppress(ImportError, OSError):
        termios = importlib.import_module("termios")
        with contextlib.suppress(termios.error):
            termios.tcflush(sys.stdin, termios.TCIFLUSH)
