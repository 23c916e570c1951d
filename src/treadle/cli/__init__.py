"""The `treadle` command."""

from treadle.cli.main import main

__all__ = ["main"]
