"""`render_report`: recorded runs as one HTML file, which asks nobody for anything.

What models, tools and users wrote is data in the page, never markup; see `treadle.reports.sealed`. The page's
policy lets no request be made, and no text be made markup by a script. Where there is no JavaScript, a summary
and the beginning of the transcript are shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from html import escape
from importlib.resources import files

from treadle.reports.plain_json import one_line
from treadle.reports.record.model import Record, Run
from treadle.reports.record.reading import read_record
from treadle.reports.report.data import report_data
from treadle.reports.report.plain import plain_page, visible
from treadle.reports.report.words import headline
from treadle.reports.sealed import filled, inert, policy, program

_SCRIPTS = (
    "text.js",
    "rows.js",
    "list.js",
    "timeline.js",
    "report.js",
)


def render_report(runs: str | os.PathLike[str] | Record | Iterable[Run]) -> str:
    """Render recorded runs as a page.

    Args:
        runs: the path of a record, what `read_record` made of one, or runs of it.

    Returns:
        The whole of an HTML file, in ASCII.

    Raises:
        RecordError: there is no record at the path, or a broken one.
        OSError: it cannot be read.
    """
    record = _record_of(runs)
    style = _part("report.css")
    script = program(map(_part, _SCRIPTS))
    parts = {
        "policy": policy(style, script),
        "title": escape(_title(record)),
        "style": style,
        "script": script,
        "data": inert(one_line(report_data(record))),
        "plain": plain_page(record),
    }
    page = filled(_part("report.html"), parts)
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def _record_of(runs: str | os.PathLike[str] | Record | Iterable[Run]) -> Record:
    if isinstance(runs, Record):
        return runs
    if isinstance(runs, (str, os.PathLike)):
        return read_record(runs)
    return Record(list(runs))


def _title(record: Record) -> str:
    if len(record.runs) != 1:
        return f"treadle: {len(record.runs)} runs"
    run = record.runs[0]
    return visible(f"{run.agent_name or 'run'}: {headline(run)}"[:200])


def _part(name: str) -> str:
    """A file of the page; the hash of what is in it has to be that of what the browser sees: ASCII."""
    text = files("treadle.reports.report").joinpath(name).read_text(encoding="utf-8")
    if name.endswith(".js"):
        return "".join(one if one.isascii() else _escaped(one) for one in text)
    return text


def _escaped(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"
