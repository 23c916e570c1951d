"""What is made of runs for people to look at: records, reports, dashboards, the live view."""

from treadle.reports.live import LiveView
from treadle.reports.record import Recorder, RecordError, read_record
from treadle.reports.report import render_report

__all__ = ["LiveView", "RecordError", "Recorder", "read_record", "render_report"]
