"""`treadle dashboard`: a page of the numbers of all runs, for those without Grafana; and what Grafana takes."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.exits import Exit, UsageError
from treadle.cli.text import clean

if TYPE_CHECKING:
    from treadle.reports.numbers.source import Source

MADE_FOR_OTHERS = ("grafana.json", "prometheus-rules.yml")
RANGES = ("15m", "1h", "6h", "24h", "7d", "all")
MOST_PORT = 65535


def add_dashboard(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the command to the parser of all of them.

    Args:
        add_parser: adds the parser of a command, by its name.
    """
    command = add_parser(
        "dashboard",
        help="show the numbers of all runs as a page",
        description="Serve a page of the numbers of all runs, to this machine alone: "
        "from a Prometheus, or from recorded runs.",
        epilog="Exit codes: 0 it is written, 1 the Prometheus has nothing to give, 2 bad usage, 130 Ctrl-C.",
    )
    command.add_argument(
        "records",
        metavar="RUN.jsonl|FOLDER",
        nargs="*",
        type=Path,
        help="records, as treadle run --record makes them, or folders of them",
    )
    command.add_argument(
        "--prometheus", metavar="URL", help="ask this Prometheus, such as http://127.0.0.1:9090"
    )
    command.add_argument("--agent", metavar="NAME", help="show this agent's runs first")
    command.add_argument(
        "--range",
        choices=RANGES,
        help="the time to show first (default: all that is recorded, 1h of a Prometheus)",
    )
    command.add_argument(
        "--port", metavar="N", type=int, help="the port to serve at (default: one that is free)"
    )
    command.add_argument(
        "-o", "--output", metavar="PAGE.html", type=Path, help="write the page to a file instead"
    )
    command.add_argument(
        "--export",
        metavar="FOLDER",
        type=Path,
        help="write the Grafana dashboard and Prometheus' rules there, and do nothing else",
    )
    command.set_defaults(parser=command, command="dashboard")


def dashboard(args: argparse.Namespace) -> Exit:
    """Carry out `treadle dashboard`.

    Args:
        args: what the parser made of the command line.

    Returns:
        The exit code.

    Raises:
        UsageError: it cannot be done as it was asked for.
        KeyboardInterrupt: Ctrl-C, which is how serving ends.
    """
    asked = [bool(args.records), args.prometheus is not None, args.export is not None]
    if sum(asked) != 1:
        raise UsageError("expected one of: records, --prometheus URL, --export FOLDER")
    if args.export is not None:
        return _export(args.export)
    if args.range == "all" and args.prometheus is not None:
        raise UsageError("--range: a Prometheus does not tell since when it has numbers")
    if args.output is not None and args.port is not None:
        raise UsageError("--port: a page that is written to a file is not served")
    source = _source(args)
    first = args.range or ("1h" if args.prometheus is not None else "all")
    if args.output is not None:
        return _write(source, first, args.agent, args.output)
    return _serve(source, first, args.agent, args.port or 0)


def _export(folder: Path) -> Exit:
    data = resources.files("treadle.reports").joinpath("dashboards")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in MADE_FOR_OTHERS:
            (folder / name).write_bytes(data.joinpath(name).read_bytes())
            print(folder / name)
    except OSError as error:
        raise UsageError(f"--export: cannot write to {folder}: {error.strerror}") from error
    return Exit.OK


def _source(args: argparse.Namespace) -> Source:
    if args.prometheus is not None:
        from treadle.reports.numbers.prometheus import PrometheusSource  # noqa: PLC0415 - not for --help

        try:
            return PrometheusSource(args.prometheus)
        except ValueError as error:
            raise UsageError(f"--prometheus: {error}") from error
    from treadle.reports.numbers.records import RecordSource  # noqa: PLC0415 - as above
    from treadle.reports.record.reading import RecordError  # noqa: PLC0415 - as above

    try:
        return RecordSource(args.records)
    except OSError as error:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error
    except RecordError as error:
        raise UsageError(clean(str(error))) from error


def _write(source: Source, first: str, agent: str | None, target: Path) -> Exit:
    from treadle.reports.numbers.source import SourceError  # noqa: PLC0415 - as above
    from treadle.reports.page.static import static_page  # noqa: PLC0415 - as above

    try:
        html = static_page(source, first, agent, time.time())
    except SourceError as error:
        print(f"treadle: {clean(str(error))}", file=sys.stderr)
        return Exit.FAILED
    try:
        target.write_text(html, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"-o: cannot write {target}: {error.strerror}") from error
    print(target)
    return Exit.OK


def _serve(source: Source, first: str, agent: str | None, port: int) -> Exit:
    from treadle.reports.numbers.source import SourceError  # noqa: PLC0415 - as above
    from treadle.reports.page.server import HOST, PageServer  # noqa: PLC0415 - as above

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
            # The page says so as well, and shows the numbers once they are to be had.
            print(f"treadle: {clean(str(error))}", file=sys.stderr)
        print(server.url, flush=True)
        print(f"{source.title}. Ctrl-C ends it.", file=sys.stderr, flush=True)
        server.serve_forever()
    return Exit.OK
