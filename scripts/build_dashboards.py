#!/usr/bin/env python3
"""Make the Grafana dashboard of the panels in `treadle.reports`.

``python scripts/build_dashboards.py`` writes it, ``--check`` says whether it is up to date.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, heatmap, prometheus, stat, table
from grafana_foundation_sdk.builders import timeseries as lines
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as c
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models import heatmap as h
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from treadle.reports.dashboards import panels
from treadle.reports.dashboards.panel import ALL_AGENTS, Panel, Query, fill

TARGET = Path(panels.__file__).parent
SOURCE = d.DataSourceRef(type_val="prometheus", uid="${datasource}")
COLUMNS = 24
UNITS = {
    "runs": "short",
    "calls": "short",
    "iterations": "short",
    "breakers": "short",
    "per_minute": "cpm",
    "tokens_per_second": "suffix: tokens/s",
    "seconds": "s",
    "ratio": "percentunit",
    "dollars": "currencyUSD",
}
FORMATS = {
    "stat": PromQueryFormat.TIME_SERIES,
    "timeseries": PromQueryFormat.TIME_SERIES,
    "heatmap": PromQueryFormat.HEATMAP,
    "table": PromQueryFormat.TABLE,
}


def grafana() -> str:
    """The dashboard, as JSON that Grafana imports."""
    board = (
        dashboard.Dashboard("treadle")
        .uid("treadle-loops")
        .description("Runs of the LLM tool loop: counts, stop reasons, duration, usage and cost.")
        .tags(["treadle", "llm"])
        .tooltip(d.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("30s")
        .editable()
        .annotations([])
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(_agents())
    )
    for row, built in _rows():
        board.with_row(row)
        for panel in built:
            board.with_panel(panel)
    text = json.dumps(_plain(board.build()), indent=2, sort_keys=True)
    return f"{text}\n"


def _agents() -> dashboard.QueryVariable:
    """The agents to choose from. All of them is a regular expression, which matches those without a name too."""
    return (
        dashboard.QueryVariable("agent")
        .label("Agent")
        .datasource(SOURCE)
        .query("label_values(gen_ai_invoke_agent_duration_seconds_count, gen_ai_agent_name)")
        .refresh(d.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(d.VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .all_value(ALL_AGENTS)
        .multi(True)
        .current(d.VariableOption(selected=True, text="All", value="$__all"))
    )


def _rows() -> Iterator[tuple[dashboard.Row, Sequence[Any]]]:
    """Each row with its panels: they have places in the grid, and numbers that stay while the order does."""
    number, top = 0, 0
    for title, row in panels.ROWS.items():
        number += 1
        heading = dashboard.Row(title).id(number).grid_pos(d.GridPos(h=1, w=COLUMNS, x=0, y=top))
        top += 1
        built: list[Any] = []
        height = 4 if row[0].kind == "stat" else 8
        for column, width, panel in _places(row):
            if column == 0 and built:
                top += height
            number += 1
            place = d.GridPos(h=height, w=width, x=column, y=top)
            built.append(_panel(panel).id(number).grid_pos(place))
        top += height
        yield heading, built


def _places(row: Sequence[Panel]) -> Iterator[tuple[int, int, Panel]]:
    """Where panels stand: numbers all in one line, graphs three in a line; a last line is filled."""
    many = len(row) if row[0].kind == "stat" else 3
    for start in range(0, len(row), many):
        line = row[start : start + many]
        edges = [COLUMNS * place // len(line) for place in range(len(line) + 1)]
        for panel, left, right in zip(line, edges, edges[1:], strict=False):
            yield left, right - left, panel


def _panel(panel: Panel) -> Any:
    """The panel's builder, of one of four classes that have nothing in common but their methods."""
    built: Any = _BUILDERS[panel.kind](panel)
    built.title(panel.title).description(panel.description).datasource(SOURCE)
    for number, query in enumerate(panel.queries):
        built.with_target(_target(panel, query, "ABCDEFGH"[number]))
    return built


def _target(panel: Panel, query: Query, name: str) -> prometheus.Dataquery:
    expression = fill(query.expression, agent="$agent", window="$__rate_interval", range="$__range")
    target = (
        prometheus.Dataquery()
        .expr(expression)
        .legend_format(query.legend)
        .format(FORMATS[panel.kind])
        .datasource(SOURCE)
        .ref_id(name)
    )
    return target.instant() if panel.kind in {"stat", "table"} else target.range()


def _lines(panel: Panel) -> lines.Panel:
    mode = c.StackingMode.NORMAL if panel.stacked else c.StackingMode.NONE
    return (
        lines.Panel()
        .unit(UNITS[panel.unit])
        .min(0)
        .fill_opacity(25 if panel.stacked else 5)
        .line_width(1)
        .show_points(c.VisibilityMode.AUTO)
        .stacking(common.StackingConfig().mode(mode))
        .legend(
            common.VizLegendOptions()
            .display_mode(c.LegendDisplayMode.LIST)
            .placement(c.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(
            common.VizTooltipOptions().mode(c.TooltipDisplayMode.MULTI).sort(c.SortOrder.DESCENDING)
        )
    )


def _stat(panel: Panel) -> stat.Panel:
    return (
        stat.Panel()
        .unit(UNITS[panel.unit])
        .graph_mode(c.BigValueGraphMode.NONE)
        .color_mode(c.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _heatmap(panel: Panel) -> heatmap.Panel:
    return (
        heatmap.Panel()
        .calculate(False)
        .color(
            heatmap.HeatmapColorOptions()
            .mode(h.HeatmapColorMode.SCHEME)
            .scheme("Oranges")
            .steps(64)
        )
        .y_axis(heatmap.YAxisConfig().unit(UNITS[panel.unit]))
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .show_legend()
        .show_tooltip()
    )


def _table(panel: Panel) -> table.Panel:
    """Without the time, which is the same in each line."""
    hidden = {
        "excludeByName": {"Time": True},
        "indexByName": {},
        "renameByName": {"Value": panel.unit},
    }
    return (
        table.Panel()
        .unit(UNITS[panel.unit])
        .decimals(0)
        .with_transformation(d.DataTransformerConfig(id_val="organize", options=hidden))
        .sort_by([common.TableSortByFieldState().display_name(panel.unit).desc(True)])
    )


_BUILDERS = {"timeseries": _lines, "stat": _stat, "heatmap": _heatmap, "table": _table}


def _plain(board: d.Dashboard) -> dict[str, Any]:
    """The dashboard as JSON has it, without what is not set, and what not all versions of Grafana know.

    The SDK sets it by default; what remains fits the schemas of Grafana 10.1 and of 13.2.
    """
    plain: dict[str, Any] = _without_nulls(json.loads(json.dumps(board, cls=JSONEncoder)))
    del plain["style"]
    for variable in plain["templating"]["list"]:
        for key in ("id", "auto", "auto_count", "auto_min"):
            del variable[key]
    for panel in plain["panels"]:
        for kind, key in (("table", "footer"), ("heatmap", "tooltip")):
            if panel["type"] == kind:
                del panel["options"][key]
    return plain


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file, or check it.

    Returns:
        0, or 1 if the file that is checked is not up to date.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the file is not up to date"
    )
    parser.add_argument(
        "--into", type=Path, default=TARGET, help="the folder (default: that of the package)"
    )
    given = parser.parse_args(arguments)
    file: Path = given.into / "grafana.json"
    if not given.check:
        file.write_text(grafana(), encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != grafana():
        sys.stderr.write("grafana.json is not up to date: run scripts/build_dashboards.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
