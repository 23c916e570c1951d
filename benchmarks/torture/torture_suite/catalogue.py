"""All scenarios, by name."""

from __future__ import annotations

from collections.abc import Mapping

from torture_suite import (
    scenarios_arguments,
    scenarios_batches,
    scenarios_cancel,
    scenarios_endless,
    scenarios_failures,
    scenarios_histories,
    scenarios_names,
    scenarios_replies,
    scenarios_results,
    scenarios_schema,
    scenarios_streams,
)
from torture_suite.protocol import Scenario
from torture_suite.toolbox import by_name

SCENARIOS: Mapping[str, Scenario] = by_name(
    [
        *scenarios_arguments.SCENARIOS,
        *scenarios_schema.SCENARIOS,
        *scenarios_names.SCENARIOS,
        *scenarios_batches.SCENARIOS,
        *scenarios_endless.SCENARIOS,
        *scenarios_replies.SCENARIOS,
        *scenarios_results.SCENARIOS,
        *scenarios_failures.SCENARIOS,
        *scenarios_streams.SCENARIOS,
        *scenarios_histories.SCENARIOS,
        *scenarios_cancel.SCENARIOS,
    ]
)
