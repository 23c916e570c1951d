"""`treadle dashboard`: serves the dashboard page, or exports the files for Grafana and Prometheus."""

from __future__ import annotations

import argparse
import time
from importlib import resources
from pathlib import Path

from treadle.cli.exits import Exit, UsageError
from treadle.cli.output import warn
from treadle.cli.streams import note, show
from treadle.cli.targets import writing
from treadle.files import PUBLIC, replace_file
from treadle.reports import RecordingError
from treadle.reports.dashboard_page.page import static_page
from treadle.reports.dashboard_page.server import HOST, PageServer
from treadle.reports.sources.prometheus import PrometheusSource
from treadle.reports.sources.recordings import RecordingSource
from treadle.reports.sources.source import Source, SourceError

EXPORTED_FILES = ("grafana.json", "prometheus-rules.yml")
MOST_PORT = 65535


def dashboard(args: argparse.Namespace) -> Exit:
    """Execute `treadle dashboard`.

    Raises:
        UsageError: the arguments are invalid, or a file cannot be read or written.
        OutputError: stdout cannot be written.
        KeyboardInterrupt: Ctrl-C, which ends the server.
    """
    asked = [bool(args.recordings), args.prometheus is not None, args.export is not None]
    if sum(asked) != 1:
        raise UsageError("expected one of: recordings, --prometheus URL, --export FOLDER")
    if args.export is not None:
        return _export(args.export)
    if args.range == "all" and args.prometheus is not None:
        raise UsageError("--range: all is only supported for recordings")
    if args.output is not None and args.port is not None:
        raise UsageError("--port: not supported with -o")
    source = _source(args)
    first = args.range or ("1h" if args.prometheus is not None else "all")
    if args.output is not None:
        return _write(source, first, args.agent, args.output)
    return _serve(source, first, args.agent, args.port or 0)


def _export(folder: Path) -> Exit:
    data = resources.files("treadle.reports").joinpath("dashboards")
    with writing("--export", f"to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in EXPORTED_FILES:
            replace_file(folder / name, data.joinpath(name).read_bytes(), PUBLIC)
    for name in EXPORTED_FILES:
        show(str(folder / name))
    return Exit.OK


def _source(args: argparse.Namespace) -> Source:
    if args.prometheus is not None:
        try:
            return PrometheusSource(args.prometheus)
        except ValueError as error:
            raise UsageError(f"--prometheus: {error}") from error
    try:
        return RecordingSource(args.recordings)
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error
    except RecordingError as error:
        raise UsageError(str(error)) from error


def _write(source: Source, first: str, agent: str | None, target: Path) -> Exit:
    try:
        html = static_page(source, first, agent, time.time())
    except SourceError as error:
        warn(str(error))
        return Exit.FAILED
    with writing("-o", target):
        replace_file(target, html.encode())
    show(str(target))
    return Exit.OK


def _serve(source: Source, first: str, agent: str | None, port: int) -> Exit:
    if not 0 <= port <= MOST_PORT:
        raise UsageError(f"--port: expected a number from 0 to {MOST_PORT}, got {port}")
    try:
        server = PageServer(source, port=port, range_key=first, agent=agent)
    except OSError as error:
        raise UsageError(f"--port: cannot listen on {HOST}:{port}: {error.strerror}") from error
    with server:
        try:
            source.refresh()
        except SourceError as error:
            warn(str(error))  # the page shows this error as well, and retries
        show(server.url)
        note(f"{source.title}. Press Ctrl-C to stop.")
        server.serve_forever()
    return Exit.OK
