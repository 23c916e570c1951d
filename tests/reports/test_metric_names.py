"""The names of metrics are the same wherever they stand: at the endpoint, in the code, in the guide, in panels."""

import re
from pathlib import Path

import pytest

from treadle.reports.dashboards.panels import PANELS
from treadle.telemetry import names
from treadle.telemetry.instruments import Instruments

pytestmark = pytest.mark.prometheus

GUIDE = Path(__file__).parents[2] / "docs" / "guide-dashboards.md"


class Meter:
    """Notes what instruments are made: their names as Prometheus has them, and their kinds."""

    def __init__(self):
        self.made = {}
        self.names = set()

    def _note(self, kind, name, unit, is_total=False):
        suffix = ("_seconds" if unit == "s" else "") + ("_total" if is_total else "")
        self.names.add(name)
        self.made[name.replace(".", "_") + suffix] = kind

    def create_histogram(self, name, unit="", *_, **__):
        self._note("histogram", name, unit)

    def create_counter(self, name, unit="", *_, **__):
        self._note("counter", name, unit, is_total=True)

    def create_up_down_counter(self, name, unit="", *_, **__):
        self._note("gauge", name, unit)


@pytest.fixture
def page(fed_prometheus):
    """The page of metrics, as Prometheus reads it."""
    return fed_prometheus.prometheus.text(f"http://{fed_prometheus.endpoint.address}/metrics")


@pytest.fixture
def meter():
    made = Meter()
    Instruments(made)
    return made


class TestNames:
    """What is exported, what the code has names for and what the guide lists are the same."""

    def exported(self, page):
        types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.MULTILINE))
        return {
            name: kind
            for name, kind in types.items()
            if name != "target_info" and not name.endswith("_created")
        }

    def listed(self):
        """The guide's table: name in Prometheus, with kind and labels."""
        rows = re.findall(
            r"^\| `([\w.]+)` \| `(\w+)` \| (\w+) \| ([^|]*) \|",
            GUIDE.read_text("utf-8"),
            re.MULTILINE,
        )
        return {row[1]: row for row in rows}

    def test_what_is_exported_is_what_has_a_name(self, page, meter):
        """And the script brings about all of it."""
        assert self.exported(page) == meter.made
        assert meter.names <= {value for value in vars(names).values() if isinstance(value, str)}

    def test_what_is_exported_is_what_the_guide_lists(self, page, meter):
        listed = self.listed()
        assert self.exported(page) == {name: row[2] for name, row in listed.items()}
        assert {row[0] for row in listed.values()} == meter.names

    def test_the_labels_are_those_that_the_guide_lists(self, page):
        exported = {}
        for name, labels in re.findall(r"^(\w+)\{([^}]*)\}", page, re.MULTILINE):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            exported.setdefault(base, set()).update(re.findall(r"(\w+)=\"", labels))
        for name, row in self.listed().items():
            ours = {label for label in exported[name] if not label.startswith("otel_scope_")} - {
                "le"
            }
            assert ours == set(re.findall(r"\w+", row[3]))

    def test_every_metric_is_in_a_panel(self, page):
        questions = " ".join(str(query.expression) for panel in PANELS for query in panel.queries)
        assert [name for name in self.exported(page) if name not in questions] == []
