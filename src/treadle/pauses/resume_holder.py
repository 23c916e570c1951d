"""An attempt to resume a paused run, in one process, as a text that other processes can read."""

from __future__ import annotations

import os
from functools import cache

from treadle.fast_dataclass import fast_dataclass


@fast_dataclass
class ResumeHolder:
    """One attempt to resume a paused run; also the holder of a lease."""

    host: str
    space: str
    """Where the process id is valid: the number of the process namespace; empty where there are none."""
    pid: int
    start: str
    """Identifies the process among those that have had this id: its start in clock ticks, or a random text."""
    attempt: str

    @classmethod
    def here(cls) -> ResumeHolder:
        """A new attempt in this process."""
        pid = os.getpid()
        return cls(_host(), _space(pid), pid, _start_of(pid) or _token(pid), os.urandom(4).hex())

    @classmethod
    def parse(cls, text: str) -> ResumeHolder | None:
        """Read the text of a holder; None if it is none."""
        parts = text.rsplit("-", 4)
        if len(parts) < 5 or not parts[2].isdecimal():  # noqa: PLR2004 - the fields
            return None
        host, space, pid, start, attempt = parts
        return cls(host, space, int(pid), start, attempt)

    def __str__(self) -> str:
        return f"{self.host}-{self.space}-{self.pid}-{self.start}-{self.attempt}"

    def is_running(self) -> bool | None:
        """Whether its process still runs; None if this process cannot know."""
        here = ResumeHolder.here()
        if (self.host, self.space) != (here.host, here.space):
            return None
        if self.pid == here.pid:
            return self.start == here.start
        if os.name != "posix":  # a signal would end the process there
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):  # it belongs to another user
            pass
        start = _start_of(self.pid)
        return start is None or start == self.start


@cache
def _host() -> str:
    import platform  # noqa: PLC0415 - it is slow to import

    name = platform.node()[:64] or "unknown"
    return "".join(sign if sign.isascii() and sign.isalnum() else "_" for sign in name)


@cache
def _space(pid: int) -> str:
    """The number of the process namespace, on Linux."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - pathlib is slow to import
    except OSError:
        return ""
    return "".join(filter(str.isdecimal, link))


def _start_of(pid: int) -> str | None:
    """When a process was started; empty if it has ended; None if that is not known. See proc_pid_stat(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            text = file.read()
    except OSError:
        return None
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return "" if state in {b"Z", b"X"} else fields[18].decode()


@cache
def _token(_pid: int) -> str:
    """A random text of this process; a fork, which has another id, gets another."""
    return f"r{os.urandom(4).hex()}"
