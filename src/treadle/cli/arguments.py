"""The arguments of the `treadle` command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, NoReturn

from treadle import __version__
from treadle.cli.dashboard_command import add_dashboard
from treadle.cli.exits import Exit
from treadle.providers import KNOWN_MODELS

DEFAULT_SYSTEM = "You are a helpful assistant. Answer from the results of the tools."
"""Short: the model by default is a small one, which long prompts only confuse."""


class _Parser(argparse.ArgumentParser):
    """Tells of bad usage in one line."""

    def error(self, message: str) -> NoReturn:
        told = " ".join(message.split())
        self.exit(Exit.USAGE, f"{self.prog}: error: {told} (see {self.prog} --help)\n")


LIMIT_FLAGS: Mapping[str, tuple[type[int | float], str]] = {
    "max_iterations": (int, "model calls"),
    "max_tool_calls": (int, "tool calls that run"),
    "max_parallel_calls": (int, "tool calls that run at the same time"),
    "max_input_tokens": (int, "tokens of all prompts"),
    "max_output_tokens": (int, "tokens of all answers"),
    "max_total_tokens": (int, "tokens of both"),
    "max_cost": (float, "US dollars, where the model's server reports a cost"),
    "max_seconds": (float, "wall time in seconds"),
}
"""The members of `Limits`, their types, and what each counts."""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser; what it parses has ``parser``, the one to report bad usage with."""
    parser = _Parser(prog="treadle", description="Drive the LLM tool loop.")
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="ask a model, run the tools it calls, print its answer",
        description="Ask a model, run the tools it calls, and print its answer on stdout.",
        epilog="Exit codes: 0 an answer, 1 none (stderr says why), 2 bad usage, 130 Ctrl-C.",
    )
    _add_run(run)
    run.set_defaults(parser=run, command="run")
    report = commands.add_parser(
        "report",
        help="make a page of recorded runs",
        description="Make one HTML file of recorded runs, which asks nobody for anything.",
        epilog="Exit codes: 0 it is made, 2 there is no such record, it is broken, or bad usage.",
    )
    _add_report(report)
    report.set_defaults(parser=report, command="report")
    add_dashboard(commands.add_parser)
    return parser


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "record", metavar="RUN.jsonl", help="a record, as treadle run --record makes it"
    )
    report.add_argument(
        "-o",
        "--output",
        metavar="REPORT.html",
        help="where to; - is stdout (default: beside the record, with .html)",
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads it from stdin")
    run.add_argument(
        "--model",
        metavar="MODEL",
        default="local",
        help=f"one of {', '.join(KNOWN_MODELS)} (default: local)",
    )
    run.add_argument(
        "--base-url",
        metavar="URL",
        help="the server of an openai: model; without it OpenAI's own, with OPENAI_API_KEY",
    )
    run.add_argument(
        "--tools",
        metavar="MODULE:NAME[,NAME...]",
        action="append",
        help="tools of a module, which may be in the current folder; can be given again "
        "(default: tools that read the current folder, tell the time and calculate)",
    )
    run.add_argument("--system", metavar="TEXT", default=DEFAULT_SYSTEM, help="the system prompt")
    run.add_argument("--json", action="store_true", help="print the whole result as JSON")
    run.add_argument("--quiet", action="store_true", help="show no progress on stderr")
    run.add_argument(
        "--record", metavar="RUN.jsonl", help="write down all that happens, one JSON line each"
    )
    run.add_argument(
        "--report", metavar="REPORT.html", help="make a page of the run, however it ends"
    )
    limits = run.add_argument_group("limits")
    for name, (kind, counts) in LIMIT_FLAGS.items():
        limits.add_argument(
            f"--{name.replace('_', '-')}", metavar="N", type=kind, help=f"at most so much: {counts}"
        )
    limits.add_argument(
        "--max-retries", metavar="N", type=int, help="tries to ask the model after the first"
    )


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The limits that were given, as options of `Loop`; the others stay at its defaults."""
    values = {name: getattr(args, name) for name in (*LIMIT_FLAGS, "max_retries")}
    return {name: value for name, value in values.items() if value is not None}
