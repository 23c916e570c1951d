"""The arguments of the `treadle` command."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, get_args

from treadle.cli.exits import Exit
from treadle.cli.streams import escaped
from treadle.limits import LIMITS, Limits, Unmeasured
from treadle.version import __version__

DEFAULT_SYSTEM = "You are a helpful assistant. Answer from the results of the tools."
"""Short, because the default model is small and long prompts confuse it."""
LIMIT_FLAGS: Mapping[str, tuple[type[int | float], str]] = {
    name: (limit.kind, f"maximum number of {limit.counted}") for name, limit in LIMITS.items()
}
"""The fields of `Limits`, their types, and their help texts."""
RETRIES_FLAG = {"max_retries": (int, "maximum number of retries of a model call")}
MAX_CONTEXT_TOKENS = 40_000
"""The default of `compact_history`; with documents, it is larger."""
FILES = frozenset(
    [
        "diff",
        "export",
        "journal",
        "memories",
        "output",
        "record",
        "recording",
        "report",
        "sessions",
        "store",
    ]
)
"""The arguments that name files as text."""
STATUSES = ("running", "interrupted", "paused", "ok", "error")
"""The statuses of stored runs."""
_COMMON_EXITS = "2 bad usage, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP"
RANGES = ("15m", "1h", "6h", "24h", "7d", "all")


class _Parser(argparse.ArgumentParser):
    """Reports bad usage in one line."""

    def error(self, message: str) -> NoReturn:
        text = escaped(" ".join(message.split()))
        self.exit(Exit.USAGE, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser. The parsed arguments have ``command``, and ``parser``, which reports bad usage."""
    parser = _Parser(prog="treadle", description="Drive the LLM tool loop.")
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    run = commands.add_parser(
        "run",
        help="ask a model, run the tools it calls, print its answer",
        description="Ask a model, run the tools it calls, and print its answer on stdout.",
        epilog=f"Exit codes: 0 success, 1 no answer (stderr says why), {_COMMON_EXITS}.",
    )
    chat = commands.add_parser(
        "chat",
        help="talk to a model in the terminal; conversations are stored",
        description="Talk to a model, which may call tools. Conversations are stored as sessions. "
        "If stdin is not a terminal, each line of it is a question.",
        epilog="Exit codes: 0 success, 1 no answer to a question from stdin (stderr says why), "
        f"{_COMMON_EXITS}.",
    )
    report = commands.add_parser(
        "report",
        help="render a recording as an HTML report",
        description="Render a recording as one self-contained HTML file.",
        epilog="Exit codes: 0 success, 2 the recording is missing or broken, or bad usage.",
    )
    dashboard = commands.add_parser(
        "dashboard",
        help="show a dashboard of many runs",
        description="Serve a dashboard of many runs on this machine, "
        "from recordings or from a Prometheus.",
        epilog=f"Exit codes: 0 success, 1 the Prometheus is not available, {_COMMON_EXITS}.",
    )
    memory_worker = commands.add_parser(
        "memory-worker",
        help="extract facts from stored conversations, as they are stored",
        description="Read what is new in stored conversations, have a model extract facts, and store them. "
        "Several workers may run at the same time. Ctrl-C, SIGTERM and SIGHUP end the worker after the "
        "request that it is waiting for.",
        epilog="Exit codes: 0 success, 1 with --once if a session could not be read (stderr says why), "
        "2 bad usage, 130 Ctrl-C.",
    )
    worker = commands.add_parser(
        "worker",
        help="run the workflows and activities of loops on Temporal",
        description="Run the workflows and the activities of loops on Temporal, until it is stopped. Several "
        "workers may run, on one machine or many. Ctrl-C, SIGTERM and SIGHUP end the worker after the calls that "
        "run have ended, or after 30 seconds. Other workers continue its runs.",
        epilog="Exit codes: 0 stopped, 1 the server is not available, 2 bad usage, 130 Ctrl-C.",
    )
    models = commands.add_parser(
        "models",
        help="list the providers of models, and what is missing for each",
        description="List the providers of models, and what has to be installed or set for each.",
        epilog="Exit codes: 0 success, 2 bad usage.",
    )
    models.add_argument("--json", action="store_true", help="print the list as JSON")
    _add_run(run)
    _add_journal_commands(commands)
    _add_chat(chat)
    _add_memory_worker(memory_worker)
    _add_worker(worker)
    _add_report(report)
    _add_dashboard(dashboard)
    for name, command in commands.choices.items():
        module = "journal" if name in JOURNAL_COMMANDS else name.replace("-", "_")
        command.set_defaults(parser=command, command=name, module=f"{module}_command")
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    add = run.add_argument
    question = (
        "the question; a pipe or a file at stdin is appended to it; - reads all of it from stdin"
    )
    add("prompt", metavar="PROMPT", help=question)
    _add_parts(run)
    _add_output(run)
    _add_limits(run, "limits")
    stored = run.add_argument_group(
        "journal",
        "With one of these, or the variable TREADLE_JOURNAL, the run is stored as it happens.",
    )
    _add_journal(stored)
    stored.add_argument("--run-id", metavar="ID", help="the id of the run (default: a random one)")
    _add_unknown(stored)


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--json", action="store_true", help="print the complete result as JSON")
    add("--quiet", action="store_true", help="do not show progress on stderr")
    recording = "record all events of the run, one JSON line each"
    add("--record", metavar="RUN.jsonl", help=recording)
    page = "write an HTML report of the run, however it ends"
    add("--report", metavar="REPORT.html", help=page)


def _add_journal(parser: Any) -> None:
    parser.add_argument(
        "--journal",
        metavar="FILE",
        help="the SQLite file of the runs "
        "(default: the variable TREADLE_JOURNAL, else a private file of the user)",
    )


def _add_unknown(parser: Any) -> None:
    parser.add_argument(
        "--on-unknown",
        choices=("tell", "ask"),
        help="a call that may have run when the run was interrupted: "
        "tell the model, or ask you (default: tell)",
    )


JOURNAL_COMMANDS: Mapping[str, str] = {
    "decide": "approve or deny calls that wait; the run goes on when it is resumed",
    "steer": "send a message to a run, also while another process drives it",
    "cancel": "end a run, also while another process drives it",
    "delete": "delete a run from the journal",
}
"""The commands that change a run in a journal, and their help texts."""
_JOURNAL_EXITS = (
    "Exit codes: 0 success, 1 %s (stderr says why), 2 bad usage, such as an unknown run."
)


def _add_journal_commands(commands: Any) -> None:
    runs = commands.add_parser(
        "runs",
        help="list the runs of a journal",
        description="List the runs of a journal, the newest first.",
        epilog="Exit codes: 0 success, 2 bad usage, such as a file that is no journal.",
    )
    _add_journal(runs)
    runs.add_argument("--status", choices=STATUSES, help="only the runs with this status")
    runs.add_argument("--limit", metavar="N", type=int, help="at most N runs")
    runs.add_argument("--json", action="store_true", help="print the list as JSON")
    show = commands.add_parser(
        "show",
        help="show a run of a journal: what happened, and what waits",
        description="Show what a journal has of a run. Another process may drive it meanwhile.",
        epilog="Exit codes: 0 success, 2 bad usage, such as an unknown run.",
    )
    _add_id(show)
    form = show.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print everything as JSON")
    form.add_argument(
        "--export",
        metavar="RUN.jsonl",
        help="write the run as a recording instead, which treadle report renders",
    )
    _add_resume(commands)
    for name, text in JOURNAL_COMMANDS.items():
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_JOURNAL_EXITS % "it is too late, or another process drives the run",
        )
        _add_id(command)
        if name == "decide":
            _add_decisions(command)
        elif name == "steer":
            command.add_argument("text", metavar="TEXT", help="the message; - reads it from stdin")


def _add_resume(commands: Any) -> None:
    resume = commands.add_parser(
        "resume",
        help="continue a run of a journal that was interrupted, or that waits",
        description="Continue a run of a journal in this process, in the folder and with the options "
        "with which it was started; those that are given replace them. A terminal asks about calls that wait.",
        epilog="Exit codes: 0 success, 1 no answer, or another process drives the run (stderr says why), "
        "2 bad usage, such as an unknown run, 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.",
    )
    _add_id(resume)
    _add_decisions(resume)
    add = resume.add_argument
    add("--steer", metavar="TEXT", action="append", help="a message for the model; repeatable")
    add(
        "--loop",
        metavar="MODULE:NAME",
        help="the loop of a run of another program, in a module that may be in the current folder",
    )
    _add_output(resume)
    _add_unknown(resume)
    _add_model(resume)
    _add_tools(resume)
    _add_limits(resume, "limits")
    resume.set_defaults(model=None)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="the id of the run")
    _add_journal(parser)


def _add_decisions(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--approve", metavar="CALL", action="append", help="run a call that waits; repeatable")
    add(
        "--deny",
        metavar="CALL[=REASON]",
        action="append",
        help="do not run a call that waits, and tell the model why; repeatable",
    )
    add(
        "--edit",
        metavar="CALL=JSON",
        action="append",
        help="run a call that waits with other arguments, a JSON object; repeatable",
    )


def _add_chat(chat: argparse.ArgumentParser) -> None:
    which = chat.add_mutually_exclusive_group()
    which.add_argument(
        "--session",
        metavar="NAME",
        help="continue this session, or create it (default: a new one, named by date and time)",
    )
    which.add_argument(
        "-c",
        "--continue",
        dest="continues",
        action="store_true",
        help="continue the session that was used last",
    )
    chat.add_argument(
        "--sessions",
        metavar="FILE|URL",
        help="where sessions are stored: an SQLite file, or a Redis such as redis://localhost "
        "(default: the variable TREADLE_SESSIONS, else a private file of the user)",
    )
    _add_parts(chat)
    context = chat.add_mutually_exclusive_group()
    context.add_argument(
        "--max-context-tokens",
        metavar="N",
        type=int,
        help="the length of a request from which earlier messages are summarised "
        f"(default: {MAX_CONTEXT_TOKENS:,}; more with documents)",
    )
    whole = "always send the whole conversation"
    context.add_argument("--no-compaction", action="store_true", help=whole)
    _add_limits(chat, "limits of each turn")


def _add_worker(worker: argparse.ArgumentParser) -> None:
    add = worker.add_argument
    loops = (
        "a Loop, a list of them, or a dict of them by name; a loop has the name of its option name="
    )
    add("loops", metavar="MODULE:NAME", nargs="+", help=loops)
    address = "the address of the server (default: %(default)s)"
    add("--address", metavar="HOST:PORT", default="localhost:7233", help=address)
    add("--namespace", metavar="NAME", default="default", help="(default: %(default)s)")
    queue = "the queue from which it takes work (default: %(default)s)"
    add("--task-queue", metavar="NAME", default="treadle", help=queue)
    add(
        "--store",
        metavar="FILE|URL",
        help="where conversations and large values are: an SQLite file, for the workers of one machine, or a "
        "Redis such as redis://localhost (default: in the histories of the workflows)",
    )
    most = "maximum number of calls of models and tools at the same time (default: 100)"
    add("--max-activities", metavar="N", type=int, help=most)


def _add_memory_worker(worker: argparse.ArgumentParser) -> None:
    add = worker.add_argument
    add(
        "--sessions",
        metavar="FILE|URL",
        help="where sessions are stored: an SQLite file, or a Redis such as redis://localhost "
        "(default: that of treadle chat)",
    )
    add(
        "--memories",
        metavar="FILE|URL",
        required=True,
        help="where facts are stored: another SQLite file, or a Redis, also that of the sessions",
    )
    _add_model(worker)
    add(
        "--scope-separator",
        metavar="TEXT",
        help="share facts among the sessions whose names are equal up to this text: with /, those of "
        "ann/1 and ann/2 (default: share none)",
    )
    add("--once", action="store_true", help="read what is new, print what was done, and exit")
    poll = "seconds between two looks at the sessions (default: %(default)g)"
    add("--poll", metavar="S", type=float, default=5.0, help=poll)
    add(
        "--max-tokens",
        metavar="N",
        type=int,
        default=4_000,
        help="maximum number of estimated tokens of messages in a request (default: %(default)d)",
    )
    add(
        "--lease-seconds",
        metavar="S",
        type=float,
        default=60.0,
        help="seconds after which others continue with the session of a killed worker (default: %(default)g)",
    )


def _add_parts(parser: argparse.ArgumentParser) -> None:
    """Add the model and the tools; see `treadle.cli.parts`."""
    _add_model(parser)
    _add_tools(parser)
    parser.add_argument(
        "--system", metavar="TEXT", default=DEFAULT_SYSTEM, help="the system prompt"
    )


def _add_tools(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--tools",
        metavar="MODULE:NAME[,NAME...]",
        action="append",
        help="tools of a module, which may be in the current folder; repeatable "
        "(default: tools that read the current folder, return the time and calculate)",
    )
    add(
        "--mcp",
        metavar="COMMAND|URL",
        action="append",
        help="tools of an MCP server, which the command starts, or which is at the URL; repeatable "
        "(it replaces the default tools)",
    )


def _add_model(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    models = "such as anthropic:claude-sonnet-5-5; treadle models lists the forms (default: local)"
    add("--model", metavar="MODEL", default="local", help=models)
    add(
        "--base-url",
        metavar="URL",
        help="the server of the model (default: that of the provider, with the key in its variable)",
    )
    add(
        "--api-key-env",
        metavar="NAME",
        help="the environment variable that has the key for the server of --base-url "
        "(default: no key)",
    )


def _add_limits(parser: argparse.ArgumentParser, title: str) -> None:
    limits = parser.add_argument_group(title)
    for name, (kind, text) in {**LIMIT_FLAGS, **RETRIES_FLAG}.items():
        limits.add_argument(f"--{name.replace('_', '-')}", metavar="N", type=kind, help=text)
    limits.add_argument(
        "--if-unmeasured",
        dest="unmeasured",
        choices=get_args(Unmeasured),
        help="if the server does not report what a limit needs: stop, count estimated tokens, "
        "or ignore the limit (default: stop)",
    )


def _add_report(report: argparse.ArgumentParser) -> None:
    recording = "a recording, as written by treadle run --record"
    report.add_argument("recording", metavar="RUN.jsonl", help=recording)
    target = "the output file; - for stdout (default: the name of the recording with .html)"
    other = (
        "another recording to compare it with: the report shows both, and their first difference"
    )
    report.add_argument("--diff", metavar="OTHER.jsonl", help=other)
    report.add_argument("-o", "--output", metavar="REPORT.html", help=target)


def _add_dashboard(dashboard: argparse.ArgumentParser) -> None:
    add = dashboard.add_argument
    add(
        "recordings",
        metavar="RUN.jsonl|FOLDER",
        nargs="*",
        type=Path,
        help="recordings, as written by treadle run --record, or folders of them",
    )
    prometheus = "query this Prometheus, such as http://127.0.0.1:9090"
    add("--prometheus", metavar="URL", help=prometheus)
    add("--agent", metavar="NAME", help="show the runs of this agent initially")
    add(
        "--range",
        choices=RANGES,
        help="the time range to show initially (default: all for recordings, 1h for a Prometheus)",
    )
    add("--port", metavar="N", type=int, help="the port to serve at (default: any free port)")
    page = "write the page to a file instead"
    add("-o", "--output", metavar="PAGE.html", type=Path, help=page)
    add(
        "--export",
        metavar="FOLDER",
        type=Path,
        help="write the Grafana dashboard and the Prometheus rules to this folder, and exit",
    )


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The limits that were given, as options of `Loop`; raises `OptionError`. The others keep their defaults."""
    limits, retries = (
        {name: value for name in names if (value := getattr(args, name)) is not None}
        for names in ((*LIMIT_FLAGS, "unmeasured"), RETRIES_FLAG)
    )
    return {"limits": Limits(**limits), **retries}
