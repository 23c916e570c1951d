"""The tables of docs/providers.md are true: each cell of them is what its adapter does; see `support`."""

import re
from pathlib import Path

import pytest
from tests.wire.providers import PROVIDERS
from tests.wire.support import OFFLINE, ON_WIRE, Probe

from treadle.providers import providers

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"


def table_of(heading):
    """The rows of the table below a heading, each as a dict by the columns."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    columns, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(columns, row, strict=True)) for row in rows]


FEATURES = {row.pop("feature"): row for row in table_of("What is supported")}
CELLS = [
    pytest.param(feature, name, marks=[pytest.mark.wire] if feature in ON_WIRE else [])
    for feature in (*OFFLINE, *ON_WIRE)
    for name in PROVIDERS
]


@pytest.fixture
def observe(request):
    """What an adapter does, as a mark. The wire server starts only if it is needed."""

    def observe(feature, name):
        if feature in OFFLINE:
            return OFFLINE[feature](name)
        wire, relay = map(request.getfixturevalue, ("wire", "relay"))
        return ON_WIRE[feature](Probe(name, wire, relay))

    return observe


@pytest.mark.parametrize(("feature", "name"), CELLS)
# The wire server has a finish reason that Gemini has not, and the SDK warns of it.
@pytest.mark.filterwarnings("ignore:FUNCTION_CALL is not a valid FinishReason:UserWarning")
def test_a_provider_supports_a_feature_as_the_page_says(observe, feature, name):
    assert FEATURES[feature][name] == observe(feature, name)


def test_every_row_and_every_column_is_checked():
    assert sorted(FEATURES) == sorted((*OFFLINE, *ON_WIRE))
    for feature, row in FEATURES.items():
        assert list(row) == list(PROVIDERS), feature
    assert providers().keys() - {"local"} == PROVIDERS.keys()


def test_every_mark_is_explained_and_is_used():
    explained = {row["mark"].strip("`") for row in table_of("What the marks mean")}
    assert {mark for row in FEATURES.values() for mark in row.values()} == explained


def codes(cell):
    """The texts in a cell that are code."""
    return tuple(re.findall(r"`([^`]+)`", cell))


LISTED = {codes(row["models"])[0].partition(":")[0]: row for row in table_of("The providers")}


def test_every_provider_is_listed():
    assert list(LISTED) == list(providers())


@pytest.mark.parametrize("name", LISTED)
def test_a_provider_is_listed_as_it_registers_itself(name):
    row, provider = LISTED[name], providers()[name]
    assert codes(row["models"]) == provider.model_forms
    assert codes(row["other names"]) == provider.aliases
    assert codes(row["starts of names"]) == provider.prefixes
    assert codes(row["extra"]) == (provider.extra,)
    assert codes(row["key"]) == provider.key_variables
    assert ("optional" in row["key"]) is (provider.key_variables != () and not provider.needs_key)
    assert codes(row["base URL"]) == tuple(filter(None, [provider.url_variable]))
    assert row["embeddings"] == ("no" if provider.open_embedder is None else "yes")
