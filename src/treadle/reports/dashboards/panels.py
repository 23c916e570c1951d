"""The panels of a dashboard as plain data: what each shows, and the PromQL that asks for it.

All else is made of this one list: the Grafana dashboard, the page of ``treadle dashboard``, the guide's table.

Expressions hold three placeholders, which `fill` replaces:

* ``{agent}``: a regular expression for the agent's name. ``.*`` matches agents without a name as well.
* ``{window}``: a duration, over which a rate at one point of a graph is taken.
* ``{range}``: a duration, the whole time that is shown. Panels of one number or a table use it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from treadle.reports.dashboards import calls, runs
from treadle.reports.dashboards.panel import Kind, Panel, Query, Unit

ROWS: Mapping[str, tuple[Panel, ...]] = {
    "Overview": runs.OVERVIEW,
    "Runs": runs.RUNS_ROW,
    "Iterations": runs.ITERATIONS_ROW,
    "Tools": calls.TOOLS_ROW,
    "Broken": calls.BROKEN_ROW,
    "Model": calls.MODEL_ROW,
    "Cost": calls.COST_ROW,
}
"""The panels under their headings, in the order in which they are shown."""

PANELS: tuple[Panel, ...] = tuple(panel for row in ROWS.values() for panel in row)
"""All panels, in the same order."""

ALL_AGENTS = ".*"
"""For `fill`: every agent, those without a name as well."""


def fill(expression: str, *, agent: str = ALL_AGENTS, window: str = "5m", range: str = "1h") -> str:  # noqa: A002 - the placeholder's name
    """Replace the placeholders of an expression.

    Args:
        expression: of a `Query`.
        agent: a regular expression, as it stands within a PromQL string; see `exactly`.
        window: a PromQL duration, such as ``5m``; at least four times the scrape interval.
        range: a PromQL duration, the whole time that is shown.

    Returns:
        PromQL that Prometheus takes.
    """
    values = {"agent": agent, "window": window, "range": range}
    return re.sub(r"\{(agent|window|range)\}", lambda found: values[found[1]], expression)


def exactly(name: str) -> str:
    """The regular expression that matches one name, as it stands within a PromQL string; for `fill`.

    Args:
        name: an agent's name; empty are the agents without one.
    """
    return json.dumps(re.escape(name), ensure_ascii=False)[1:-1]


__all__ = ["ALL_AGENTS", "PANELS", "ROWS", "Kind", "Panel", "Query", "Unit", "exactly", "fill"]
