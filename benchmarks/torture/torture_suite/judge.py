"""The verdict: for each column a list of problems; an empty list is a pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torture_suite.evidence import Evidence, whole_text
from torture_suite.log import ToolRun
from torture_suite.protocol import Column, Fault
from torture_suite.tolerance import problems_of_history

MOST_TOLD = 3
"""Problems that are listed for one column; more would add nothing."""


def judge(evidence: Evidence) -> dict[Column, list[str]]:
    """Judge a run.

    Returns:
        By column, for those that apply, what is wrong; an empty list is a pass.
    """
    found: dict[Column, list[str]] = {}
    for column in evidence.scenario.columns:
        problems = list(_JUDGES[column](evidence))
        if column in evidence.scenario.checks:
            problems += evidence.scenario.checks[column](evidence)
        found[column] = problems[:MOST_TOLD]
    return found


def _ended(evidence: Evidence) -> Iterator[str]:
    """It returned, or raised an ordinary exception, in time, with a bounded number of requests."""
    if evidence.escaped is not None:
        yield f"it let {type(evidence.escaped).__name__} through"
    elif evidence.outcome is None:
        yield f"it was still running after {evidence.seconds:.0f} s"
    if evidence.model.overrun:
        yield f"it asked the model more than {len(evidence.asked)} times"


def _limits(evidence: Evidence) -> Iterator[str]:
    """No more requests and runs than were asked for, or are allowed."""
    scenario = evidence.scenario
    asked = len(evidence.asked)
    if evidence.model.overrun or asked > scenario.most_model_calls:
        over = " and more" if evidence.model.overrun else ""
        yield f"{asked}{over} requests, where {scenario.most_model_calls} are the most"
    runs = evidence.runs
    if scenario.max_tool_calls is not None and len(runs) > scenario.max_tool_calls:
        yield f"{len(runs)} tool calls ran, where the limit is {scenario.max_tool_calls}"
    odd = [run for run in runs if not _is_repaired(evidence, run)]
    called = evidence.called()
    for tool in {run.tool: None for run in odd}:
        count = sum(run.tool == tool and run.succeeded for run in odd)
        if count > called[tool]:
            yield f"{tool!r} ran {count} times, and was called {called[tool]} times"
    if not scenario.faults:
        yield from _too_often(evidence)
    most_at_once = max((run.overlap for run in runs), default=0)
    if scenario.most_at_once is not None and most_at_once > scenario.most_at_once:
        yield f"{most_at_once} tools ran at once, where {scenario.most_at_once} are the most"
    if scenario.longest_request is not None:
        longest = max((len(whole_text(one.messages)) for one in evidence.asked), default=0)
        if longest > scenario.longest_request:
            yield f"a request of {longest:,} characters"


def _too_often(evidence: Evidence) -> Iterator[str]:
    for tool, most in evidence.scenario.at_most.items():
        runs = [run for run in evidence.log.of(tool) if not _is_repaired(evidence, run)]
        if len(runs) > most:
            shown = ", ".join(_short(run.given) for run in runs[:MOST_TOLD])
            yield f"{tool!r} ran {len(runs)} times, at most {most} are right: {shown}"


def _history(evidence: Evidence) -> Iterator[str]:
    """Every request, and the messages at the end, are a history that providers accept."""
    if evidence.error is not None and not evidence.asked:
        return  # it refused to begin: what is kept is what the caller gave
    for where, messages in evidence.histories():
        for problem in problems_of_history(messages, is_strict=evidence.scenario.is_strict):
            yield f"{where}: {problem}"
            break


def _lost(evidence: Evidence) -> Iterator[str]:
    """What was asked for was done, and what was done is known to the model, or to the caller."""
    scenario = evidence.scenario
    has_stopped = scenario.may_stop and evidence.error is not None
    for tool, least in scenario.runs.items():
        count = sum(run.succeeded for run in evidence.log.of(tool))
        if count < least and not has_stopped:
            yield f"{tool!r} ran {count} times, and should have run {least} times"
    known = whole_text(evidence.kept)
    where = "the caller has no messages that hold it"
    if evidence.error is None:
        known += "".join(whole_text(asked.messages) for asked in evidence.asked)
        where = "neither the model nor the caller got its result"
    for run in evidence.runs:
        if run.succeeded and run.is_marked and run.mark not in known:
            yield f"{run.tool!r} ran ({run.mark}), and {where}"
    answer = evidence.outcome.answer if evidence.outcome is not None else None
    is_there = scenario.answer is None or scenario.answer in (answer or "")
    if not is_there and not has_stopped:
        instead = evidence.error or _short(answer)
        yield f"the answer {scenario.answer!r} did not come through: {instead:.120}"


def _reported(evidence: Evidence) -> Iterator[str]:
    """After each fault the next request reports it, and the faulty call does not run."""
    if evidence.scenario.faults:
        yield from _too_often(evidence)
    for fault in evidence.scenario.faults:
        if _is_mended(evidence, fault):
            continue
        news = evidence.news_after(fault.index)
        is_asked_again = fault.index + 1 < len(evidence.asked)
        if not news and not is_asked_again:
            if evidence.scenario.may_stop and evidence.error is not None:
                continue
            ended = "it ended as if nothing had happened" if evidence.outcome else "it did not end"
            yield f"nothing was reported to the model: {evidence.error or ended:.120}"
        elif not _says(news or "", ERROR_WORDS if fault.words is None else fault.words):
            yield f"nothing useful was reported to the model: {(news or '').strip()[:120]!r}"


ERROR_WORDS = (
    "error",
    "invalid",
    "fail",
    "not found",
    "unknown",
    "unable",
    "cannot",
    "could not",
    "missing",
    "required",
    "expected",
    "must",
    "not valid",
    "no such",
    "not exist",
    "no tool",
    "malformed",
    "exception",
    "not run",
)
"""Each error contains one of these words, in any case."""


def _says(news: str, words: tuple[str, ...]) -> bool:
    text = news.lower()
    return not words or any(word.lower() in text for word in words)


def _is_mended(evidence: Evidence, fault: Fault) -> bool:
    """Whether a faulty call was repaired correctly, and ran."""
    repaired = fault.repaired.items()
    return bool(repaired) and all(
        any(_is_given(run, arguments) for run in evidence.log.of(tool))
        for tool, arguments in repaired
    )


def _is_repaired(evidence: Evidence, run: ToolRun) -> bool:
    repaired = (fault.repaired.get(run.tool) for fault in evidence.scenario.faults)
    return any(arguments is not None and _is_given(run, arguments) for arguments in repaired)


def _is_given(run: ToolRun, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool got these arguments; missing ones may have their defaults."""
    given = {
        key: run.given[key] for key in run.given if key in arguments or run.given[key] is not None
    }
    return given == arguments


def _short(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - arguments may be anything by now
        text = type(value).__name__
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


_SHORT = 80
_JUDGES: Mapping[Column, Callable[[Evidence], Iterator[str]]] = {
    "ended": _ended,
    "limits": _limits,
    "history": _history,
    "lost": _lost,
    "reported": _reported,
}
