"""The table: loops in rows, columns of what they keep; and a grid of every scenario."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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
        """The loops in rows: how many scenarios each passed, by column and in all."""
        heads = ["loop", *COLUMNS.values(), "not applicable", "passed"]
        lines = [_line(heads), _line(["---", *(["---:"] * (len(heads) - 1))])]
        for row in self.rows:
            counts = ["{}/{}".format(*row.count(column)) for column in COLUMNS]
            passed = f"{row.passed}/{len(row.verdicts) - row.not_applicable}"
            name = f"{row.name} {row.version}".strip()
            lines.append(_line([name, *counts, str(row.not_applicable), passed]))
        return "\n".join(lines)

    def grid(self) -> str:
        """Every scenario in a row, every loop in a column, a character for each column of the table."""
        heads = ["scenario", *(row.name for row in self.rows)]
        lines = [_line(heads), _line(["---"] * len(heads))]
        found = [{verdict.scenario: verdict.cells for verdict in row.verdicts} for row in self.rows]
        names = {name: None for cells in found for name in cells}
        lines += [
            _line([name, *(f"`{cells.get(name, 'n/a')}`" for cells in found)]) for name in names
        ]
        return "\n".join(lines)

    def failures(self) -> Iterator[str]:
        """A line for each verdict that is no pass: the loop, the scenario, what is wrong."""
        for row in self.rows:
            for verdict in row.verdicts:
                if not verdict.passed and verdict.not_applicable is None:
                    yield f"{row.name}: {verdict}"

    def as_json(self) -> str:
        """All of it as JSON, which `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Table:
        """Read what `as_json` wrote."""
        rows: list[dict[str, Any]] = json.loads(text)["rows"]
        return cls(
            tuple(
                Row(row["name"], row["version"], tuple(Verdict(**v) for v in row["verdicts"]))
                for row in rows
            )
        )


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
