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
"""Short, because the default model is small and long prompts confuse it."""


class _Parser(argparse.ArgumentParser):
    """Reports bad usage in one line."""

    def error(self, message: str) -> NoReturn:
        text = " ".join(message.split())
        self.exit(Exit.USAGE, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


LIMIT_FLAGS: Mapping[str, tuple[type[int | float], str]] = {
    "max_iterations": (int, "maximum number of model calls"),
    "max_tool_calls": (int, "maximum number of tool calls"),
    "max_parallel_calls": (int, "maximum number of tool calls that run in parallel"),
    "max_input_tokens": (int, "maximum number of tokens of all prompts"),
    "max_output_tokens": (int, "maximum number of tokens of all responses"),
    "max_total_tokens": (int, "maximum number of tokens of prompts and responses"),
    "max_cost": (float, "maximum cost in US dollars, if the model's server reports costs"),
    "max_seconds": (float, "maximum wall time in seconds"),
}
"""The fields of `Limits`, their types, and their help texts."""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser. The parsed arguments have ``parser``, which reports bad usage."""
    parser = _Parser(prog="treadle", description="Drive the LLM tool loop.")
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="ask a model, run the tools it calls, print its answer",
        description="Ask a model, run the tools it calls, and print its answer on stdout.",
        epilog="Exit codes: 0 success, 1 no answer (stderr says why), 2 bad usage, 130 Ctrl-C.",
    )
    _add_run(run)
    run.set_defaults(parser=run, command="run")
    report = commands.add_parser(
        "report",
        help="render a recording as an HTML report",
        description="Render a recording as one self-contained HTML file.",
        epilog="Exit codes: 0 success, 2 the recording is missing or broken, or bad usage.",
    )
    _add_report(report)
    report.set_defaults(parser=report, command="report")
    add_dashboard(commands.add_parser)
    return parser


def _add_report(report: argparse.ArgumentParser) -> None:
    report.add_argument(
        "recording", metavar="RUN.jsonl", help="a recording, as written by treadle run --record"
    )
    report.add_argument(
        "-o",
        "--output",
        metavar="REPORT.html",
        help="the output file; - for stdout (default: the name of the recording with .html)",
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("prompt", metavar="PROMPT", help="the question; - reads it from stdin")
    run.add_argument(
        "--model",
        metavar="MODEL",
        default="local",
        help=f"one of {', '.join(KNOWN_MODELS)} (default: local)",
    )
    run.add_argument(
        "--base-url",
        metavar="URL",
        help="the server of an openai: model (default: OpenAI, with the key OPENAI_API_KEY)",
    )
    run.add_argument(
        "--tools",
        metavar="MODULE:NAME[,NAME...]",
        action="append",
        help="tools of a module, which may be in the current folder; repeatable "
        "(default: tools that read the current folder, return the time and calculate)",
    )
    run.add_argument("--system", metavar="TEXT", default=DEFAULT_SYSTEM, help="the system prompt")
    run.add_argument("--json", action="store_true", help="print the complete result as JSON")
    run.add_argument("--quiet", action="store_true", help="do not show progress on stderr")
    run.add_argument(
        "--record", metavar="RUN.jsonl", help="record all events of the run, one JSON line each"
    )
    run.add_argument(
        "--report", metavar="REPORT.html", help="write an HTML report of the run, however it ends"
    )
    limits = run.add_argument_group("limits")
    for name, (kind, text) in LIMIT_FLAGS.items():
        limits.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=kind, help=text)
    limits.add_argument(
        "--max-retries", metavar="N", type=int, help="maximum number of retries of a model call"
    )


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The limits that were given, as options of `Loop`. The others keep their defaults."""
    values = {name: getattr(args, name) for name in (*LIMIT_FLAGS, "max_retries")}
    return {name: value for name, value in values.items() if value is not None}
