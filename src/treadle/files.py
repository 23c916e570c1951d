"""Files of pages, recordings and paused runs: private, and replaced as a whole.

Such a file has everything that models, tools and users wrote, so only its owner can read a new file.
It is written next to its target and renamed, so a full disk or a crash leaves the earlier file as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""The permissions of a new file. The umask may take away some of them."""
PUBLIC = 0o644
"""The permissions of a file without data of runs, which services of other users read."""
_APPEND = os.O_APPEND | getattr(os, "O_BINARY", 0)
"""The flags of a file that is written at its end, also while other processes append to it."""
_NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
_DESCRIPTORS = ("/dev/fd/", "/dev/std", "/proc/self/fd/")
"""Names of open files: they are written to, also where they lead to a regular file."""


def replace_file(
    path: str | os.PathLike[str], content: bytes, mode: int = PRIVATE, *, durable: bool = False
) -> None:
    """Replace a file, or the target of a link, or write to a pipe; if ``durable``, return when the disk has it.

    Raises:
        OSError: it cannot be written. The earlier file is as it was.
    """
    special = open_special(Path(path))
    if special is None:
        create_file(Path(path), content, mode, durable=durable).close()
    else:
        with special:
            write_all(special, content)


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise the OSError with which `replace_file` would fail. Nothing is changed."""
    special = open_special(Path(path))
    if special is None:
        temporary, _, fd = _temporary(Path(path), PRIVATE)
        os.close(fd)
        temporary.unlink()
    else:
        special.close()


def create_file(
    path: Path, content: bytes, mode: int = PRIVATE, *, durable: bool = False
) -> IO[bytes]:
    """Replace a regular file as `replace_file` does; return it open, to append to it."""
    temporary, target, fd = _temporary(path, mode)
    file = os.fdopen(fd, "r+b", buffering=0)
    try:
        write_all(file, content)
        if durable:
            os.fsync(fd)
        temporary.replace(target)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(target.parent)
    return file


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk. Windows and some file systems cannot do this on request."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def open_to_append(path: Path) -> IO[bytes]:
    """Open a regular file to read it and to append to it. A missing file is created."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _APPEND, PRIVATE), "r+b", buffering=0)


def open_special(path: Path) -> IO[bytes] | None:
    """Open a pipe, a terminal or another device to write to it; None for any other path."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    is_open = str(path).startswith(_DESCRIPTORS)
    if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and not is_open):
        return None
    fd = os.open(path, os.O_WRONLY | _APPEND | _NO_WAIT)
    if _NO_WAIT:
        os.set_blocking(fd, True)
    return os.fdopen(fd, "wb", buffering=0)


def write_all(file: IO[bytes], content: bytes) -> None:
    """Write everything to an unbuffered file. Nearly always it is one write, which others cannot interrupt."""
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def real_path(path: str | os.PathLike[str]) -> str:
    """A path without links, which need not exist."""
    try:
        return os.path.realpath(path)
    except RecursionError:  # Python before 3.13 follows links recursively
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path)) from None


def _temporary(path: Path, mode: int) -> tuple[Path, Path, int]:
    """A new file, the one that a path leads to, in whose folder it is, and the descriptor of the new file."""
    target = Path(real_path(path))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # Hidden, with another ending: a dashboard that watches the folder does not read it.
    new = target.with_name(f".{target.name[:100]}.{os.urandom(6).hex()}.tmp")
    try:
        return new, target, os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | _APPEND, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
