"""Programs that tests run to their end."""

import subprocess


def run_program(command, *, timeout=250, check=False, **options):
    """Run a program, and capture what it writes as text; a time limit ends one that hangs."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=check, **options
    )
