"""The default tools of `treadle run`. They read one folder and change nothing.

The model reads these docstrings and errors, so they are short and exact, and advise what to try next. Output is
limited, sorted and plain, with one name per line, which small models read best.
"""

import difflib
import os
import zoneinfo
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import islice
from pathlib import PurePosixPath
from typing import Final

from treadle.cli.calculator import calculate
from treadle.cli.safe_open import is_hidden, open_child, open_inside, printable, quoted

MAX_NAMES: Final = 200  # names in one listing
MAX_HITS: Final = 50  # lines in one search
MAX_LINE: Final = 2_000  # characters of one line that read_file shows
MAX_EXCERPT: Final = 200  # characters of one line that search_text shows
MAX_OUTPUT: Final = 20_000  # characters of one read_file
MAX_FILE: Final = 10_000_000  # bytes of a file that read_file looks at, from its start
MAX_SEARCHED_FILE: Final = 1_000_000  # bytes; larger files are data, not text to search
MIN_COST: Final = 10_000  # bytes of search for which any file or folder counts at least
MAX_DEPTH: Final = 100  # folders below the searched one; each holds a file descriptor
MAX_QUERY: Final = 200  # characters to search for
SNIFFED: Final = 8_000  # bytes in which a NUL means binary, as in git

# Besides hidden ones (.git, .venv, .tox), and any folder that holds a pyvenv.cfg.
SKIPPED_FOLDERS: Final = frozenset({"node_modules", "venv", "__pycache__", "CVS"})


@dataclass(frozen=True)
class Workspace:
    """The tools on files, confined to one folder by `safe_open`.

    Args:
        root: The folder. A relative one follows the current directory of each call.
        max_searched: Bytes that one search reads at most. Even an empty file or folder counts as
            10 000, so that the default is also at most 10 000 of them.
    """

    root: str | os.PathLike[str] = "."
    max_searched: int = 100_000_000

    def list_files(self, folder: str = ".") -> str:
        """List the files and folders in a folder, one name per line; folders end with a slash.

        Args:
            folder: Path of the folder, relative to the working folder.
        """
        with open_inside(self.root, folder, wants_folder=True) as (fd, where):
            with os.scandir(fd) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            shown = [entry for entry in entries if not is_hidden(entry.name)]
            lines = [self._listed(entry, where) for entry in shown[:MAX_NAMES]]
        if hidden := len(entries) - len(shown):
            lines.append(f"({hidden} hidden, not shown)")
        if len(shown) > MAX_NAMES:
            lines.append(f"({len(shown) - MAX_NAMES} more, not shown)")
        return "\n".join(lines) or "(empty folder)"

    def read_file(self, path: str, first_line: int = 1, max_lines: int = 200) -> str:
        """Read a text file, or some lines of it.

        Args:
            path: Path of the file, relative to the working folder.
            first_line: Number of the first line to read; the file starts at line 1.
            max_lines: How many lines to read at most.
        """
        if first_line < 1 or max_lines < 1:
            raise ValueError("first_line and max_lines must be at least 1")
        with open_inside(self.root, path, wants_folder=False) as (fd, _):
            content = _text(fd, MAX_FILE)
            cut = os.fstat(fd).st_size > MAX_FILE
        if content is None:
            raise ValueError(f"{quoted(path)} is a binary file, not text")
        lines = _lines(content)
        if not lines:
            return "(empty file)"
        total = f"{len(lines)}{' or more' if cut else ''}"
        if first_line > len(lines):
            raise ValueError(f"first_line is after the end: {quoted(path)} has {total} lines")
        page = _page(lines[first_line - 1 :][:max_lines])
        last = first_line - 1 + len(page)
        if last < len(lines):
            page.append(f"(lines {first_line}-{last} of {total}; go on with first_line={last + 1})")
        elif cut:
            page.append(f"(the file is larger than {MAX_FILE} bytes; the rest cannot be read)")
        return "\n".join(page)

    def search_text(self, text: str, folder: str = ".") -> str:
        """Find the lines that contain a text, ignoring case, in all files of a folder and below.

        Args:
            text: The exact words to find; not a pattern.
            folder: Path of the folder, relative to the working folder.

        Returns:
            Each line found as "path:line: text".
        """
        needle = "".join(_lines(text)[:1]).lower()
        if not needle.strip() or len(_lines(text)) > 1 or len(text) > MAX_QUERY:
            raise ValueError(f"text must be one line of 1 to {MAX_QUERY} characters, not blank")
        hits: list[str] = []
        notes: list[str] = []
        left, skipped = self.max_searched, 0
        with open_inside(self.root, folder, wants_folder=True) as (fd, where):
            for place, content in _searchable(fd):
                left -= max(len(content or ""), MIN_COST)
                if left < 0:
                    notes.append("(too many files: search stopped; name a smaller folder)")
                    break
                skipped += content is None
                found = _hits(needle, content or "", printable(str(where / place)))
                hits.extend(islice(found, MAX_HITS + 1 - len(hits)))
                if len(hits) > MAX_HITS:
                    hits[MAX_HITS:] = ["(more found, not shown; search for a longer text)"]
                    break
        if skipped:
            notes.append(f"({skipped} not searched: links, special, unreadable or very large)")
        return "\n".join([*(hits or [f"no line contains {quoted(text)}"]), *notes])

    def _listed(self, entry: os.DirEntry[str], where: PurePosixPath) -> str:
        name = printable(entry.name)
        if entry.is_dir(follow_symlinks=False):
            return f"{name}/"
        if entry.is_file(follow_symlinks=False):
            return name
        if entry.is_symlink():
            # Opening it answers all at once: whether it stays inside, and what it leads to.
            for wants_folder, mark in ((True, "/"), (False, "")):
                try:
                    with open_inside(self.root, str(where / entry.name), wants_folder=wants_folder):
                        return name + mark
                except (OSError, ValueError):
                    continue
        return f"{name} (cannot be read)"


def current_time(timezone: str = "UTC") -> str:
    """Return the current date, time and day of the week.

    Args:
        timezone: An IANA time zone name, such as "Europe/Paris".
    """
    name = "UTC" if timezone.upper() == "UTC" else timezone
    now = datetime.now(_zone(name))
    return f"{now.isoformat(timespec='seconds')} ({now:%A}, {name})"


def read_only_tools(root: str | os.PathLike[str] = ".") -> list[Callable[..., object]]:
    """The default tools of `treadle run`, on the files below `root`."""
    files = Workspace(root)
    return [files.list_files, files.read_file, files.search_text, current_time, calculate]


def _zone(name: str) -> tzinfo:
    if name == "UTC":  # known even if the system has no database of zones
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        # A KeyError if unknown, a ValueError for a path; with the tzdata package, an OSError for
        # a folder of zones.
        raise ValueError(_unknown_zone(name)) from None


def _unknown_zone(name: str) -> str:
    """The error, with the most similar zone: often only the city was given."""
    zones = sorted(zoneinfo.available_timezones())
    if not zones:
        return f"unknown time zone {quoted(name)}; this system knows only 'UTC'"
    by_word = {zone.rpartition("/")[2].lower(): zone for zone in zones}
    by_word |= {zone.lower(): zone for zone in zones}
    words = difflib.get_close_matches(name[:MAX_QUERY].lower(), by_word, n=1)
    advice = f"did you mean {by_word[words[0]]!r}?" if words else "give one such as 'Europe/Paris'"
    return f"unknown time zone {quoted(name)}; {advice}"


def _searchable(fd: int) -> Iterator[tuple[PurePosixPath, str | None]]:
    """The files below a folder with their text, in order, and each folder, for what it costs.

    The text is empty for what has none, None for what could not be searched. Links are not
    followed: what they lead to inside the root is found at its own place, and loops end.
    """
    failed: list[OSError] = []
    for here, folders, files, at in os.fwalk(".", dir_fd=fd, onerror=failed.append):
        place = PurePosixPath(here)
        too_deep = len(place.parts) > MAX_DEPTH
        yield place, None if too_deep else ""
        if too_deep or (place.parts and "pyvenv.cfg" in files):
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if not is_hidden(name) and name not in SKIPPED_FOLDERS
        )
        for name in sorted(files):
            if not is_hidden(name):
                yield place / name, _searched(at, name)
    for _ in failed:
        yield PurePosixPath(), None


def _searched(folder: int, name: str) -> str | None:
    try:
        fd = open_child(folder, name, PurePosixPath(name), wants_folder=False)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_size > MAX_SEARCHED_FILE:
            return None
        return _text(fd, MAX_SEARCHED_FILE) or ""
    finally:
        os.close(fd)


def _hits(needle: str, content: str, path: str) -> Iterator[str]:
    if needle not in content.lower():  # most files end here
        return
    for number, line in enumerate(_lines(content), start=1):
        at = line.lower().find(needle)
        if at >= 0:
            start = max(0, min(at - MAX_EXCERPT // 4, len(line) - MAX_EXCERPT))
            yield f"{path}:{number}: {line[start : start + MAX_EXCERPT].strip()}"


def _text(fd: int, limit: int) -> str | None:
    """Up to `limit` bytes of an open file as text, None if it is binary."""
    with open(fd, "rb", closefd=False) as file:
        head = file.read(SNIFFED)
        if b"\0" in head:
            return None
        return (head + file.read(limit - SNIFFED)).decode("utf-8-sig", errors="replace")


def _lines(content: str) -> list[str]:
    # Not splitlines, which also splits at form feeds and others that editors do not count.
    lines = content.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _page(lines: list[str]) -> list[str]:
    """The lines that fit into one output, and at least the first."""
    page: list[str] = []
    room = MAX_OUTPUT
    for line in lines:
        cut = f"... (line cut, {len(line)} characters)" if len(line) > MAX_LINE else ""
        page.append(line[:MAX_LINE] + cut)
        room -= len(page[-1]) + 1
        if room < 0:
            return page[:-1]
    return page
