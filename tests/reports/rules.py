"""The recording rules and the alerts, read from the file that the package ships."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

from treadle.reports.dashboards import panels

RULES = Path(panels.__file__).with_name("prometheus-rules.yml")
TEXT = RULES.read_text(encoding="utf-8")


def _found(pattern):
    """The named groups of each match. Texts in quotes are JSON, which is YAML as well."""
    for match in re.finditer(pattern, TEXT, re.VERBOSE):
        facts = match.groupdict().items()
        yield SimpleNamespace(
            **{name: json.loads(text) if text[0] == '"' else text for name, text in facts}
        )


RECORDING_RULES = tuple(
    _found(
        r"""[ ]{6}\#\ (?P<meaning>.*)\n
        [ ]{6}-\ record:\ (?P<name>.*)\n
        [ ]{8}expr:\ (?P<expression>.*)\n"""
    )
)
ALERTS = tuple(
    _found(
        r"""[ ]{6}-\ alert:\ (?P<name>.*)\n
        [ ]{8}expr:\ (?P<expression>.*)\n
        [ ]{8}for:\ (?P<lasting>.*)\n
        [ ]{8}labels:\n
        [ ]{10}severity:\ (?P<severity>.*)\n
        [ ]{8}annotations:\n
        [ ]{10}summary:\ (?P<summary>.*)\n
        [ ]{10}description:\ (?P<description>.*)\n
        [ ]{10}runbook:\ (?P<runbook>.*)\n"""
    )
)
