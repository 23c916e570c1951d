"""Who resumes a paused run: one attempt in one process, as a text that other processes can read."""

from __future__ import annotations

import os
from functools import cache

from treadle.fast_dataclass import fast_dataclass


@fast_dataclass
class Claimant:
    """One attempt to resume a paused run.

    Args:
        host: the name of the machine.
        space: where the process id is valid: the number of the process namespace; empty where there are none.
        pid: the process id.
        start: identifies the process among those that have had this id: its start in clock ticks since the
            start of the machine, or else a random text.
        attempt: a random text.
    """

    host: str
    space: str
    pid: int
    start: str
    attempt: str

    @classmethod
    def here(cls) -> Claimant:
        """A new attempt in this process."""
        pid = os.getpid()
        return cls(_host(), _space(pid), pid, _start_of(pid) or _token(pid), os.urandom(4).hex())

    @classmethod
    def parse(cls, text: str) -> Claimant | None:
        """Read the text of a claimant; None if it is none."""
        parts = text.rsplit("-", 4)
        if len(parts) < 5 or not parts[2].isdecimal():  # noqa: PLR2004 - the fields
            return None
        host, space, pid, start, attempt = parts
        return cls(host, space, int(pid), start, attempt)

    def __str__(self) -> str:
        return f"{self.host}-{self.space}-{self.pid}-{self.start}-{self.attempt}"

    def is_running(self) -> bool | None:
        """Whether its process still runs; None if this process cannot know."""
        pid = os.getpid()
        if (self.host, self.space) != (_host(), _space(pid)):
            return None
        if self.pid == pid:
            return self.start == (_start_of(pid) or _token(pid))
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
    from pathlib import Path  # noqa: PLC0415 - it is slow to import

    try:
        link = Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:
        return ""
    return "".join(filter(str.isdecimal, str(link)))


def _start_of(pid: int) -> str | None:
    """When a process was started; empty if it has ended; None if that is not known. See proc_pid_stat(5)."""
    from pathlib import Path  # noqa: PLC0415 - it is slow to import

    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, *fields = text[text.rindex(b")") + 2 :].split()
    return "" if state in {b"Z", b"X"} else fields[18].decode()


@cache
def _token(pid: int) -> str:
    """A random text of this process; a fork, which has another id, gets another."""
    del pid
    return f"r{os.urandom(4).hex()}"
