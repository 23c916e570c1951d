"""A program in a pseudo-terminal, as a person uses it: keys in, a screen out."""

import os
import pty
import select
import signal
import subprocess
import time

SECONDS = 60


class Terminal:
    """A program that believes it talks to a person.

    Args:
        command: the program and its arguments.
        options: those of `subprocess.Popen`.
    """

    def __init__(self, command, **options):
        ours, theirs = pty.openpty()
        self._pty = ours
        self._unread = ""
        self.screen = ""
        # a session of its own, whose terminal this is, so that its Ctrl-C becomes a signal
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            **options,
        )
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(SECONDS)
        os.close(self._pty)

    def press(self, keys):
        """Type keys: ``"\\r"`` is Enter, ``"\\x03"`` is Ctrl-C, ``"\\x04"`` is Ctrl-D."""
        os.write(self._pty, keys.encode())

    def press_until(self, key, text):
        """Press a key, and again while nothing happens, as a person does; see `wait_for`.

        Python's `input` misses a signal that arrives just before it waits for a key.
        """
        self.press(key)
        return self.wait_for(text, again=key)

    def wait_for(self, text, again=""):
        """Read the screen until it has a text; return what came before and with it."""
        end = time.monotonic() + SECONDS
        while text not in self._unread:
            assert time.monotonic() < end, f"{text!r} did not appear:\n{self.screen}"
            if again and not self._is_ready(1):
                self.press(again)
            elif not self._read(end):
                raise AssertionError(f"it ended without {text!r}:\n{self.screen}")
        before, _, self._unread = self._unread.partition(text)
        return before + text

    def wait(self):
        """Read to the end; return the exit code."""
        end = time.monotonic() + SECONDS
        while self._read(end):
            pass
        return self.process.wait(SECONDS)

    def _is_ready(self, seconds):
        return bool(select.select([self._pty], [], [], max(0, seconds))[0])

    def _read(self, end):
        """Read what is there; False at the end of the program."""
        assert self._is_ready(end - time.monotonic()), f"it is silent:\n{self.screen}"
        try:
            data = os.read(self._pty, 4096)
        except OSError:  # how Linux says that nobody has the other end
            return False
        text = data.decode("utf-8", "replace").replace("\r", "")
        self.screen += text
        self._unread += text
        return bool(data)
