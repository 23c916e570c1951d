"""The live view: active runs on a terminal."""

from treadle.reports.live.view import LiveView, can_show

__all__ = ["LiveView", "can_show"]
