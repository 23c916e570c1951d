"""Opens files and folders below a root folder: nothing outside it, and nothing hidden.

Hidden is what has a dot at the start of its name, and what is in such a folder: `.env` and `.git` hold secrets.

No path leads outside, even if another process replaces files by links in the meantime. A path is resolved
first, so that links inside the folder work, and checked. The resolved path is then opened one component at a
time, each relative to the descriptor of the previous one and never through a link (`O_NOFOLLOW`), so a link
that appears after the check makes it fail. The alternative, to open the file and then query its path, would
need /proc, and could open a device.

POSIX only, because it needs `dir_fd`. The model reads the errors: they name the path relative to the folder and
advise what to do instead.
"""

import difflib
import os
import stat
import unicodedata
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import Final

from treadle.files import real_path

MAX_PATH: Final = 4096  # characters, as PATH_MAX of Linux
MAX_QUOTED: Final = 200  # characters of a model's text in an error
MAX_COMPARED: Final = 1000  # names compared to suggest a similar one


@contextmanager
def open_inside(
    root: str | os.PathLike[str], path: str, *, wants_folder: bool
) -> Generator[tuple[int, PurePosixPath]]:
    """Open the file or folder at `path`; return its descriptor, and its real path below the root."""
    relative = _checked(path)
    with ExitStack() as stack:
        try:
            fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(f"the working folder cannot be opened: {error.strerror}") from None
        stack.callback(os.close, fd)
        base = real_path(root)
        try:
            real = PurePosixPath(real_path(PurePosixPath(base, relative)))
        except OSError as error:
            raise OSError(f"{quoted(path)} cannot be opened: {error.strerror}") from None
        if not real.is_relative_to(base):
            raise PermissionError(f"{quoted(path)} leads outside the working folder")
        where = real.relative_to(base)
        if _is_hidden(where):
            raise PermissionError(f"{quoted(path)} leads to a hidden file or folder, {_NOT_READ}")
        for count, part in enumerate(where.parts, start=1):
            last = count == len(where.parts)
            place = PurePosixPath(*where.parts[:count])
            fd = open_child(fd, part, place, wants_folder=wants_folder or not last)
            stack.callback(os.close, fd)
        if not where.parts and not wants_folder:
            raise IsADirectoryError(f"{quoted(path)} is a folder; use list_files")
        yield fd, where


def _checked(path: str) -> str:
    """Normalize the path as text, if it can be below a folder.

    `..` is resolved as text, before links are followed, so a path cannot reveal what exists outside.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"{quoted(path)} is not a valid path") from None
    if "\0" in path or len(path) > MAX_PATH:
        raise ValueError(f"{quoted(path)} is not a valid path")
    relative = os.path.normpath(path)
    if relative == ".." or relative.startswith(("/", "../")):
        raise PermissionError(
            f"{quoted(path)} is outside the working folder; give a path relative to it,"
            " such as 'docs/a.md' ('.' is the folder itself)",
        )
    if _is_hidden(PurePosixPath(relative)):  # whether it exists or not
        raise PermissionError(f"{quoted(path)} is hidden, {_NOT_READ}")
    return relative


_NOT_READ: Final = "which cannot be read; list_files shows what can"


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is hidden."""
    return name.startswith(".")


def _is_hidden(place: PurePosixPath) -> bool:
    return any(map(is_hidden, place.parts))


def open_child(fd: int, name: str, place: PurePosixPath, *, wants_folder: bool) -> int:
    """Open a folder or regular file in the folder `fd`; never through a link, never blocking."""
    right = stat.S_ISDIR if wants_folder else stat.S_ISREG
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        # The check comes first, because opening a device may have an effect.
        mode = os.lstat(name, dir_fd=fd).st_mode
        if right(mode):
            child = os.open(name, flags, dir_fd=fd)
            mode = os.fstat(child).st_mode
            if right(mode):
                return child
            os.close(child)
    except FileNotFoundError:
        raise FileNotFoundError(_missing(fd, name, place, wants_folder=wants_folder)) from None
    except OSError as error:
        raise OSError(f"{quoted(str(place))} cannot be opened: {error.strerror}") from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{quoted(str(place))} is a folder; use list_files")
    if stat.S_ISREG(mode):
        raise NotADirectoryError(f"{quoted(str(place))} is a file, not a folder; use read_file")
    raise OSError(f"{quoted(str(place))} is neither a file nor a folder; it cannot be read")


def _missing(fd: int, name: str, place: PurePosixPath, *, wants_folder: bool) -> str:
    folder = quoted(str(place.parent))
    shown = sorted(one for one in os.listdir(fd) if not is_hidden(one))
    close = difflib.get_close_matches(name, shown[:MAX_COMPARED], n=1)
    advice = (
        f"did you mean {quoted(str(place.with_name(close[0])))}?"
        if close
        else f"list_files with folder={folder} shows what there is"
    )
    return f"no such {'folder' if wants_folder else 'file'} {quoted(str(place))}; {advice}"


def printable(name: str) -> str:
    r"""The name on one line of valid text: control characters and stray bytes as `\x1b`."""
    # Control, surrogate (a byte that is not UTF-8), line and paragraph separator.
    odd = {"Cc", "Cs", "Zl", "Zp"}
    escaped = (
        c.encode("unicode_escape").decode() if unicodedata.category(c) in odd else c for c in name
    )
    return "".join(escaped)


def quoted(text: str) -> str:
    """Text of the model for an error: on one line, in quotes, truncated."""
    return f"'{printable(text[:MAX_QUOTED])}{'...' if len(text) > MAX_QUOTED else ''}'"
