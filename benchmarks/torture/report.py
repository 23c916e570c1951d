"""The verdicts of several loops as Markdown."""

from __future__ import annotations

from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]
"""A loop: ``name``, ``version``, ``verdicts``; see `torture_suite.table`."""

COLUMNS = {
    "ended": "ended",
    "limits": "within limits",
    "history": "history valid",
    "lost": "nothing lost",
    "reported": "reported to the model",
}


def passed(row: Row) -> str:
    """How many scenarios a loop passed, of those that apply to it."""
    applicable = [verdict for verdict in row["verdicts"] if verdict["not_applicable"] is None]
    return f"{sum(not _failed(verdict) for verdict in applicable)}/{len(applicable)}"


def table(rows: list[Row]) -> str:
    """A line for each loop, with what it passed in all and by column."""
    lines = [_line(["loop", "version", "passed", *COLUMNS.values(), "not applicable"])]
    lines.append(_line(["---", "---", *["---:"] * (len(COLUMNS) + 2)]))
    for row in rows:
        left_out = sum(verdict["not_applicable"] is not None for verdict in row["verdicts"])
        counts = [_count(row, column) for column in COLUMNS]
        lines.append(_line([row["name"], row["version"], passed(row), *counts, str(left_out)]))
    return "\n".join(lines)


def grid(rows: list[Row]) -> str:
    """A line for each scenario: for each loop ``ok``, ``n/a``, or the columns that failed."""
    found = [{verdict["scenario"]: verdict for verdict in row["verdicts"]} for row in rows]
    lines = [_line(["scenario", *(row["name"] for row in rows)]), _line(["---"] * (len(rows) + 1))]
    names = {name: None for verdicts in found for name in verdicts}
    lines += [_line([name, *(_cell(verdicts.get(name)) for verdicts in found)]) for name in names]
    return "\n".join(lines)


def details(rows: list[Row]) -> str:
    """A line for each failed column of each scenario and loop, with what is wrong."""
    return "\n".join(
        f"- {row['name']}, {verdict['scenario']}, {COLUMNS[column]}: {'; '.join(problems)}"
        for row in rows
        for verdict in row["verdicts"]
        for column, problems in verdict["problems"].items()
        if problems
    )


def _failed(verdict: dict[str, Any]) -> list[str]:
    return [column for column, problems in verdict["problems"].items() if problems]


def _count(row: Row, column: str) -> str:
    judged = [v["problems"][column] for v in row["verdicts"] if column in v["problems"]]
    return f"{sum(not problems for problems in judged)}/{len(judged)}"


def _cell(verdict: dict[str, Any] | None) -> str:
    if verdict is None or verdict["not_applicable"] is not None:
        return "n/a"
    return ", ".join(_failed(verdict)) or "ok"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
