"""Views of runs: recordings, the HTML report, dashboards and the live view."""

from treadle.recording import Recorder, RecordingError, read_recording
from treadle.reports.live import LiveView
from treadle.reports.report import render_report

__all__ = ["LiveView", "Recorder", "RecordingError", "read_recording", "render_report"]
