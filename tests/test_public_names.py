"""The public names of the package, and what importing it imports."""

import subprocess
import sys

import treadle

NAMES = [
    "Approval",
    "BreakerChanged",
    "BreakerState",
    "Budget",
    "BudgetExhausted",
    "CallNotRun",
    "CallsPlanned",
    "Chunk",
    "CircuitBreaker",
    "CircuitBroken",
    "ClaimStore",
    "CompactionFailed",
    "CompactionStalled",
    "Context",
    "DeadlineExceeded",
    "Decision",
    "EmptyResponse",
    "Err",
    "Event",
    "EventBase",
    "EventStream",
    "FirstChunk",
    "HistoryCompacted",
    "HistoryRepaired",
    "InvalidInput",
    "InvalidMessagesError",
    "IterationFinished",
    "IterationStarted",
    "JSONFormatError",
    "LLMError",
    "LimitNotMeasurable",
    "LimitReached",
    "Limits",
    "Locks",
    "Loop",
    "LoopDetected",
    "LoopOptions",
    "MaxIterationsReached",
    "Message",
    "MissingExtraError",
    "ModelCall",
    "ModelCallStatus",
    "ModelFailed",
    "ModelRequested",
    "ModelResponded",
    "ModelRetried",
    "NotRun",
    "Ok",
    "OptionError",
    "Output",
    "OutputMissing",
    "PartialOutput",
    "Paused",
    "PausedStateError",
    "Pauses",
    "PendingCall",
    "Pipeline",
    "PipelineError",
    "PipelineFailed",
    "Plan",
    "PlanReason",
    "Reason",
    "ReasoningDelta",
    "Recipe",
    "RecipeStep",
    "Remaining",
    "RepeatWarned",
    "Request",
    "Response",
    "ResponseIncomplete",
    "Result",
    "Retry",
    "RunCancelled",
    "RunError",
    "RunFinished",
    "RunHandle",
    "RunNode",
    "RunNodeStatus",
    "RunPausedError",
    "RunStarted",
    "RunState",
    "RunSummary",
    "SQLiteClaims",
    "SessionConflictError",
    "SessionError",
    "StageError",
    "StoppedByStage",
    "SubagentEvent",
    "Telemetry",
    "TextDelta",
    "Timing",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolContext",
    "ToolDefinitionError",
    "ToolFinished",
    "ToolLike",
    "ToolProgress",
    "ToolResult",
    "ToolRetried",
    "ToolSearch",
    "ToolStarted",
    "TreadleError",
    "Usage",
    "UserMessageAdded",
    "approve",
    "default_stages",
    "deny",
    "edit",
    "event_from_json",
    "presets",
    "stage",
    "tool",
]

LATE = {"asyncio", "difflib", "hashlib", "hmac", "random", "pathlib", "secrets", "sqlite3"}
"""Modules of the standard library that take long to import."""

IMPORTED = """
import sys
before = set(sys.modules)
import treadle
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_the_public_names_are_these():
    assert treadle.__all__ == NAMES
    assert all(hasattr(treadle, name) for name in NAMES)


def test_importing_it_imports_no_third_party_package_and_no_slow_module():
    """They are imported when they are first used: asyncio and anyio by the first run."""
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert imported - sys.stdlib_module_names == {"treadle"}
    assert not imported & LATE


def test_it_has_a_version():
    assert treadle.__version__.count(".") == 2
