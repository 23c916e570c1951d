"""The live view: runs on a terminal, while they run."""

from treadle.reports.live.view import LiveView, can_show

__all__ = ["LiveView", "can_show"]
