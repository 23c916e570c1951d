"""A file system of 2 MB, for programs."""

import shutil
import sys
import textwrap

import pytest
from tests.programs import run_program


@pytest.fixture
def on_small_disk(tmp_path):
    """Run shell commands where `disk` in the working folder is a file system of 2 MB."""
    assert shutil.which("unshare"), (
        "there is no unshare on this machine: apt-get install util-linux"
    )
    (tmp_path / "disk").mkdir()

    def run_commands(commands):
        script = f"set -e; mount -t tmpfs -o size=2m tmpfs disk\n{textwrap.dedent(commands)}"
        done = run_program(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", script],
            cwd=tmp_path,
            env={"PYTHONPATH": ":".join(sys.path)},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_commands


def python(code, *arguments):
    """The command that runs a program; it has no single quotes."""
    return f"{sys.executable} -c '{code}' {' '.join(arguments)}"
