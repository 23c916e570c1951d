"""The file that is made of the panels is up to date, and Grafana can lay the dashboard out."""

import importlib.util
import json
from itertools import combinations
from pathlib import Path

import pytest

from treadle.reports.dashboards import panels
from treadle.reports.dashboards.panel import fill
from treadle.reports.dashboards.panels import PANELS, ROWS

REPOSITORY = Path(__file__).parents[2]
DASHBOARDS = Path(panels.__file__).parent


def builder():
    """The script, as a module."""
    path = REPOSITORY / "scripts" / "build_dashboards.py"
    spec = importlib.util.spec_from_file_location("build_dashboards", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def board():
    return json.loads((DASHBOARDS / "grafana.json").read_text(encoding="utf-8"))


def shown(board):
    """The panels of a dashboard that are not headings."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def test_the_file_is_up_to_date(capsys):
    assert builder().main(["--check"]) == 0, capsys.readouterr().err


def test_a_file_that_is_not_up_to_date_is_found(tmp_path, capsys):
    script = builder()
    assert script.main(["--into", str(tmp_path)]) == 0
    assert script.main(["--into", str(tmp_path), "--check"]) == 0
    for spoil in (lambda file: file.write_text("{}"), lambda file: file.unlink()):
        spoil(tmp_path / "grafana.json")
        assert script.main(["--into", str(tmp_path), "--check"]) == 1
        assert "grafana.json is not up to date" in capsys.readouterr().err


def test_the_dashboard_has_every_panel_under_its_heading(board):
    titles = [panel["title"] for panel in board["panels"]]
    assert titles == [
        title for row, group in ROWS.items() for title in (row, *(p.title for p in group))
    ]
    kinds = [panel["type"] for panel in shown(board)]
    assert kinds == [panel.kind for panel in PANELS]
    assert [panel["description"] for panel in shown(board)] == [
        panel.description for panel in PANELS
    ]


def test_panels_have_numbers_of_their_own(board):
    numbers = [panel["id"] for panel in board["panels"]]
    assert sorted(set(numbers)) == sorted(numbers)


def test_no_two_panels_overlap_and_none_is_outside_the_grid(board):
    places = [panel["gridPos"] for panel in board["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["w"] > 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations(places, 2):
        is_beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        is_below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert is_beside or is_below


def test_every_line_of_the_grid_is_full(board):
    lines = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        lines[place["y"]] = lines.get(place["y"], 0) + place["w"]
    assert set(lines.values()) == {24}


def test_what_the_dashboard_asks_is_what_the_panels_ask(board):
    """With Grafana's variables in the placeholders."""
    for panel, made in zip(PANELS, shown(board), strict=True):
        asked = [(target["expr"], target["legendFormat"]) for target in made["targets"]]
        assert asked == [
            (
                fill(q.expression, agent="$agent", window="$__rate_interval", range="$__range"),
                q.legend,
            )
            for q in panel.queries
        ]
        names = [target["refId"] for target in made["targets"]]
        assert len(set(names)) == len(names)
        is_at_once = panel.kind in {"stat", "table"}
        assert {target["instant"] for target in made["targets"]} == {is_at_once}


def test_the_data_source_is_chosen_in_the_dashboard(board):
    """Nothing names the Prometheus of one installation."""
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["agent"]["datasource"] == chosen
    for panel in shown(board):
        assert panel["datasource"] == chosen
        assert all(target["datasource"] == chosen for target in panel["targets"])


def test_all_agents_are_shown_at_first_and_unnamed_ones_too(board):
    [agent] = [variable for variable in board["templating"]["list"] if variable["name"] == "agent"]
    assert agent["includeAll"]
    assert agent["allValue"] == ".*"
    assert agent["current"]["value"] == "$__all"
