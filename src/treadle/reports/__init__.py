"""What is made of runs for people to look at. Each module says what it is for."""

from treadle.reports.live import LiveView

__all__ = ["LiveView"]
