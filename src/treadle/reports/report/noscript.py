"""The report without JavaScript: a summary and the start of the transcript."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import islice

from treadle.recording.model import Recording, Run
from treadle.reports.report import explain
from treadle.reports.report.data import content_of
from treadle.reports.text import format_bound

MOST_STEPS = 200
"""Maximum number of transcript parts for each run."""

MOST_CHARACTERS = 2_000
"""Maximum length of one text."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
"""Unicode categories of characters that are invisible or change how others look."""


def visible(text: str) -> str:
    """The text with invisible characters as ``[U+202E]``. Line ends and tabs stay."""
    return "".join(
        f"[U+{ord(one):04X}]" if one not in "\n\t" and unicodedata.category(one) in _HIDDEN else one
        for one in text
    )


def noscript_html(recording: Recording) -> str:
    """The content of the page's ``noscript`` element."""
    lines = ["<p>JavaScript is off, so this is the plain text of the report.</p>"]
    lines += [f"<p>{_shown(problem)}</p>" for problem in recording.problems]
    lines += [line for run in recording.runs for line in _run(run)]
    return "\n".join(['<div class="plain">', *lines, "</div>"])


def _run(run: Run) -> Iterator[str]:
    yield f"<h1>{_shown(run.agent_name or 'Unnamed run')}</h1>"
    yield f'<p class="verdict">{_shown(explain.headline(run))}</p>'
    yield f'<p class="why">{_shown(explain.why(run))}</p>'
    usage = run.usage
    cost = "" if usage.cost is None else f", ${usage.cost:.4f}"
    yield (
        f"<p>{run.total_iterations} iterations, {run.tool_calls_count} tool calls, "
        f"{format_bound(usage)}{usage.input_tokens} + {usage.output_tokens} tokens{cost}</p>"
    )
    steps = _steps(run)
    yield from islice(steps, MOST_STEPS)
    if next(steps, None) is not None:
        yield f"<p>Only the first {MOST_STEPS} parts of the transcript are shown.</p>"


def _steps(run: Run) -> Iterator[str]:
    for iteration in run.iterations:
        for message in [] if iteration.sent is None else iteration.sent.messages:
            yield _folded(str(message.get("role")), content_of(message))
        response = iteration.response or {}
        text = response.get("content") or response.get("refusal")
        if text:
            yield _folded(f"{iteration.number}. model", text)
        for call in iteration.calls:
            title = f"{iteration.number}. call of {call.name}: {call.status}"
            texts = (call.arguments, call.content or "", call.traceback)
            yield _folded(title, "\n\n".join(text for text in texts if text is not None))
    yield from (
        f"<p>{_shown(guard.kind)}: {_shown(explain.explain_guard(guard))}</p>"
        for guard in run.guards
    )


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{_shown(title)}</summary><pre>{_shown(text)}</pre></details>"


def _shown(text: str) -> str:
    cut = text[:MOST_CHARACTERS]
    more = f"\n... {len(text) - len(cut)} more characters" if len(text) > len(cut) else ""
    return escape(visible(cut)) + more
