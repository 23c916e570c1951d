"""The verdicts of one or several loops: totals by column, and a grid of all scenarios."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

from torture_suite.protocol import COLUMNS, Column


@dataclass(frozen=True)
class Verdict:
    """The verdict on a loop in one scenario.

    Args:
        scenario: its name.
        problems: by column, for those that apply, what is wrong; an empty list is a pass.
        not_applicable: why it was not run; None where it was.
        seconds: how long it took.
    """

    scenario: str
    problems: Mapping[Column, list[str]] = field(default_factory=dict[Column, list[str]])
    not_applicable: str | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it was run and nothing is wrong."""
        return self.not_applicable is None and not any(self.problems.values())

    @property
    def cells(self) -> str:
        """One character a column: ``+`` pass, ``X`` not, ``-`` does not apply."""
        marks = (
            "-" if c not in self.problems else "X" if self.problems[c] else "+" for c in COLUMNS
        )
        return "n/a" if self.not_applicable is not None else "".join(marks)

    def __str__(self) -> str:
        wrong = [f"{COLUMNS[c]}: {text}" for c, texts in self.problems.items() for text in texts]
        said = self.not_applicable or "; ".join(wrong)
        return f"{self.scenario}: {self.cells} {said}".rstrip()


@dataclass(frozen=True)
class Row:
    """The verdicts on one loop.

    Args:
        name: the loop.
        version: its version.
        verdicts: one for each scenario.
    """

    name: str
    version: str
    verdicts: tuple[Verdict, ...]

    def count(self, column: Column) -> tuple[int, int]:
        """In how many scenarios it passed a column, and of how many where it applies."""
        judged = [v.problems[column] for v in self.verdicts if column in v.problems]
        return sum(not problems for problems in judged), len(judged)

    @property
    def passed(self) -> int:
        """The scenarios in which nothing is wrong."""
        return sum(verdict.passed for verdict in self.verdicts)

    @property
    def total(self) -> str:
        """The scenarios that it passed, of those that apply to it."""
        return f"{self.passed}/{len(self.verdicts) - self.not_applicable}"

    @property
    def not_applicable(self) -> int:
        """The scenarios that were not run."""
        return sum(verdict.not_applicable is not None for verdict in self.verdicts)


@dataclass(frozen=True)
class Table:
    """Some loops side by side.

    Args:
        rows: one for each loop.
    """

    rows: tuple[Row, ...] = ()

    def __add__(self, other: Table) -> Table:
        return Table(self.rows + other.rows)

    def markdown(self) -> str:
        """A line for each loop: what it passed in all and by column, of the scenarios that apply to it."""
        heads = ["loop", "version", "passed", *COLUMNS.values(), "not applicable"]
        lines = [_line(heads), _line(["---", "---", *["---:"] * (len(heads) - 2)])]
        for row in self.rows:
            counts = ["{}/{}".format(*row.count(column)) for column in COLUMNS]
            left_out = str(row.not_applicable)
            lines.append(_line([row.name, row.version, row.total, *counts, left_out]))
        return "\n".join(lines)

    def grid(self) -> str:
        """A line for each scenario: for each loop ``ok``, ``n/a``, or the columns that failed."""
        lines = [
            _line(["scenario", *(row.name for row in self.rows)]),
            _line(["---"] * (len(self.rows) + 1)),
        ]
        found = [{verdict.scenario: verdict for verdict in row.verdicts} for row in self.rows]
        names = {name: None for verdicts in found for name in verdicts}
        lines += [
            _line([name, *(_cell(verdicts.get(name)) for verdicts in found)]) for name in names
        ]
        return "\n".join(lines)

    def failures(self) -> Iterator[str]:
        """A line for each scenario that a loop did not pass: the loop, the scenario, what is wrong."""
        for row in self.rows:
            for verdict in row.verdicts:
                if not verdict.passed and verdict.not_applicable is None:
                    yield f"{row.name}: {verdict}"

    def as_json(self) -> str:
        """All of it as JSON."""
        return json.dumps(asdict(self), indent=1)


def _cell(verdict: Verdict | None) -> str:
    if verdict is None or verdict.not_applicable is not None:
        return "n/a"
    return ", ".join(column for column in COLUMNS if verdict.problems.get(column)) or "ok"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
