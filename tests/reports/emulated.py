"""A terminal for tests: a screen that does what the escape sequences of a live view say."""

from __future__ import annotations

import re

from rich.cells import cell_len

TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|([\s\S])")


class Terminal:
    """Lines of characters, a cursor that is shown or hidden, and what it did not understand.

    Args:
        width: its columns; a longer line goes on in the next.
        height: its lines; what goes out at the top can no longer be changed.
    """

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self.width, self.height = width, height
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.cursor_is_shown = True
        self.odd: list[str] = []

    def feed(self, text: str) -> Terminal:
        """Take in what was written to it."""
        for found in TOKEN.finditer(text):
            private, numbers, command, char = found.groups()
            if command is not None:
                self._obey(private, numbers, command)
            elif char is None or (ord(char) < 32 and char not in "\r\n"):
                self.odd.append(found[0])
            else:
                self._put(char)
        return self

    @property
    def text(self) -> str:
        """What is to be seen, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self.lines).rstrip("\n")

    def _obey(self, private: str, numbers: str, command: str) -> None:
        if private and numbers == "25" and command in "hl":
            self.cursor_is_shown = command == "h"
        elif command == "A":
            top = max(0, len(self.lines) - self.height)
            self.row = max(top, self.row - int(numbers or 1))
        elif command == "K" and numbers == "2":
            self.lines[self.row] = ""
        elif command != "m":
            self.odd.append(f"{private}{numbers}{command}")

    def _put(self, char: str) -> None:
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._next_line()
        else:
            width = cell_len(char)
            if self.column + width > self.width:
                self._next_line()
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column += 1  # characters, not columns; enough for narrow ones

    def _next_line(self) -> None:
        self.row, self.column = self.row + 1, 0
        if self.row == len(self.lines):
            self.lines.append("")
