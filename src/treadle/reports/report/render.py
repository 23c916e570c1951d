"""`render_report`: recorded runs as one self-contained HTML file.

Text of models, tools and users is data in the page, never markup; see `treadle.reports.html_page`. The page's
Content-Security-Policy forbids all requests, and forbids scripts to make markup of text. Without JavaScript the
page shows a summary and the start of the transcript.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from treadle.messages import JSONDict
from treadle.recording.divergence import diff as find_diff
from treadle.recording.model import Recording, Run
from treadle.recording.reader import read_recording
from treadle.reports.html_page import make_html
from treadle.reports.report.comparison import comparison_data
from treadle.reports.report.data import report_data
from treadle.reports.report.explain import headline
from treadle.reports.report.noscript import noscript_html, visible

_SCRIPTS = ("text.js", "rows.js", "list.js", "timeline.js", "report.js")


Recorded: TypeAlias = str | os.PathLike[str] | Recording | Iterable[Run]
"""The path of a recording, what `read_recording` returned, or runs of it."""


def render_report(
    runs: Recorded, *, diff: Recorded | None = None, names: tuple[str, str] = ("a", "b")
) -> str:
    """Render recorded runs as a page.

    Args:
        runs: the path of a recording, what `read_recording` returned, or runs of it.
        diff: another recording to compare it with: the page has the runs of both, and their first difference.
        names: what the two are called in the page.

    Returns:
        The content of an HTML file, in ASCII.

    Raises:
        RecordingError: the file is not a recording, or is broken.
        OSError: the file cannot be read.
    """
    recording = _recording_of(runs)
    compared: JSONDict = {}
    if diff is not None:
        other = _recording_of(diff)
        counts = len(recording.runs), len(other.runs)
        compared["diff"] = comparison_data(find_diff(recording, other), names, counts)
        problems = [*recording.problems, *other.problems]
        recording = Recording([*recording.runs, *other.runs], problems)
    page = make_html(
        "treadle.reports.report",
        "report.html",
        ("report.css",),
        _SCRIPTS,
        report_data(recording) | compared,
        title=escape(_title(recording)),
        plain=noscript_html(recording),
    )
    return page.html.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _recording_of(runs: Recorded) -> Recording:
    if isinstance(runs, Recording):
        return runs
    if isinstance(runs, (str, os.PathLike)):
        return read_recording(runs, log=False)
    return Recording(list(runs))


def _title(recording: Recording) -> str:
    if len(recording.runs) != 1:
        return f"treadle: {len(recording.runs)} runs"
    run = recording.runs[0]
    return visible(f"{run.agent_name or 'run'}: {headline(run)}"[:200])
