"""The run report: recorded runs as one HTML file."""

from treadle.reports.report.render import render_report

__all__ = ["render_report"]
