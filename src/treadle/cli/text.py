"""Text of models and tools, made fit to be shown on a terminal."""

from treadle.reports.text import clean, counted, one_line, timed

__all__ = ["clean", "counted", "one_line", "timed"]
