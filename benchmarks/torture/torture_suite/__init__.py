"""The torture suite: one scenario for each complaint that users have made about agent loops.

Write an `Adapter` for a loop, and ``print(run_suite(adapter).markdown())``. Importing the package needs only the
standard library; judging a history uses `treadle.testing.history_problems`.
"""

from torture_suite.catalogue import SCENARIOS
from torture_suite.protocol import (
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
from torture_suite.suite import run_scenario, run_suite
from torture_suite.table import Row, Table, Verdict

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
    "Verdict",
    "drive",
    "run_scenario",
    "run_suite",
]
