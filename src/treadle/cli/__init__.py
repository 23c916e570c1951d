"""The `treadle` command: `treadle run PROMPT` drives the loop from a shell."""

from treadle.cli.main import main

__all__ = ["main"]
