"""A torture suite for loops: one scenario for each complaint that people have made about them.

Write an `Adapter` for a loop, and ``print(run_suite(adapter).markdown())``. Nothing here but the adapter of
treadle itself needs more than the standard library.
"""

from treadle.testing.torture.catalogue import SCENARIOS
from treadle.testing.torture.protocol import (
    CANCELLATION,
    COLUMNS,
    GIVEN_HISTORY,
    MAX_ITERATIONS,
    MAX_SECONDS,
    MAX_TOOL_CALLS,
    RAW_MODEL,
    STREAMING,
    TOOL_TIMEOUT,
    Adapter,
    CancelledByCaller,
    Column,
    Fault,
    Log,
    Model,
    NotApplicable,
    Outcome,
    Scenario,
    ScenarioOver,
    Tool,
    ToolRun,
    ToolSpec,
    TooManyCalls,
    drive,
)
from treadle.testing.torture.suite import run_scenario, run_suite
from treadle.testing.torture.table import Row, Table, Verdict
from treadle.testing.torture.treadle_adapter import TreadleLoop

__all__ = [
    "CANCELLATION",
    "COLUMNS",
    "GIVEN_HISTORY",
    "MAX_ITERATIONS",
    "MAX_SECONDS",
    "MAX_TOOL_CALLS",
    "RAW_MODEL",
    "SCENARIOS",
    "STREAMING",
    "TOOL_TIMEOUT",
    "Adapter",
    "CancelledByCaller",
    "Column",
    "Fault",
    "Log",
    "Model",
    "NotApplicable",
    "Outcome",
    "Row",
    "Scenario",
    "ScenarioOver",
    "Table",
    "TooManyCalls",
    "Tool",
    "ToolRun",
    "ToolSpec",
    "TreadleLoop",
    "Verdict",
    "drive",
    "run_scenario",
    "run_suite",
]
