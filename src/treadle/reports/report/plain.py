"""The report for who has no JavaScript: a summary, and the beginning of the transcript."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import islice

from treadle.reports.record.model import Call, Iteration, Record, Run
from treadle.reports.report import words
from treadle.reports.report.data import content_of

MOST_STEPS = 200
"""Parts of the transcript of one run."""

MOST_CHARACTERS = 2_000
"""Of one text in it."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp", "Co"})
"""Categories of characters that would not be seen, or that make others look like what they are not."""


def visible(text: str) -> str:
    """The text with characters that would not be seen as ``[U+202E]``; line ends and tabs stay."""
    return "".join(
        f"[U+{ord(one):04X}]" if one not in "\n\t" and unicodedata.category(one) in _HIDDEN else one
        for one in text
    )


def plain_page(record: Record) -> str:
    """Make it, as HTML.

    Args:
        record: the runs.
    """
    lines = ['<div class="plain">']
    lines.append(
        "<p>This report is read best with JavaScript. Without it, here is the plain text.</p>"
    )
    lines += [f"<p>{_shown(problem)}</p>" for problem in record.problems]
    for run in record.runs:
        lines += _run(run)
    return "\n".join([*lines, "</div>"])


def _run(run: Run) -> Iterator[str]:
    yield f"<h1>{_shown(run.agent_name or 'A run without a name')}</h1>"
    yield f'<p class="verdict">{_shown(words.headline(run))}</p>'
    yield f'<p class="why">{_shown(words.why(run))}</p>'
    usage = run.usage
    least = "at least " if usage.is_lower_bound else ""
    cost = "" if usage.cost is None else f", ${usage.cost:.4f}"
    yield (
        f"<p>{run.total_iterations} iterations, {run.tool_calls_count} tool calls, "
        f"{least}{usage.input_tokens} + {usage.output_tokens} tokens{cost}</p>"
    )
    steps = _steps(run)
    yield from islice(steps, MOST_STEPS)
    if next(steps, None) is not None:
        yield f"<p>The transcript goes on; these are its first {MOST_STEPS} parts.</p>"


def _steps(run: Run) -> Iterator[str]:
    for iteration in run.iterations:
        for message in [] if iteration.sent is None else iteration.sent.messages:
            yield _folded(str(message.get("role")), content_of(message))
        yield from _answer(iteration)
    yield from (
        f"<p>{_shown(guard.kind)}: {_shown(words.of_guard(guard))}</p>" for guard in run.guards
    )


def _answer(iteration: Iteration) -> Iterator[str]:
    response = iteration.response
    if response is not None and (response["content"] or response["refusal"]):
        yield _folded(f"{iteration.number}. model", response["content"] or response["refusal"])
    for call in iteration.calls:
        yield _folded(f"{iteration.number}. call of {call.name}: {call.status}", _told(call))


def _told(call: Call) -> str:
    return f"{call.arguments}\n\n{call.content or ''}"


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{_shown(title)}</summary><pre>{_shown(text)}</pre></details>"


def _shown(text: str) -> str:
    cut = text[:MOST_CHARACTERS]
    more = f"\n... {len(text) - len(cut)} more characters" if len(text) > len(cut) else ""
    return escape(visible(cut)) + more
