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
    "CallDeferred",
    "CallRefused",
    "CallSuppressed",
    "CallsPlanned",
    "Chunk",
    "CircuitBreaker",
    "CircuitBroken",
    "Completion",
    "Context",
    "DeadlineExceeded",
    "Decision",
    "EmptyResponse",
    "Err",
    "Event",
    "EventStream",
    "FirstChunk",
    "HistoryRepaired",
    "InvalidInput",
    "InvalidMessagesError",
    "IterationFinished",
    "IterationStarted",
    "LLMError",
    "LimitReached",
    "Limits",
    "Locks",
    "Loop",
    "LoopDetected",
    "LoopOptions",
    "MaxIterationsReached",
    "Message",
    "MissingExtraError",
    "ModelFailed",
    "ModelRequested",
    "ModelResponded",
    "ModelRetried",
    "NotRunReason",
    "Ok",
    "OptionError",
    "Paused",
    "PausedStateError",
    "PendingCall",
    "Pipeline",
    "PipelineError",
    "PipelineFailed",
    "Plan",
    "PlanReason",
    "Reason",
    "Recipe",
    "Remaining",
    "RepeatWarned",
    "Request",
    "Response",
    "Result",
    "RunCancelled",
    "RunFinished",
    "RunHandle",
    "RunNode",
    "RunNodeStatus",
    "RunPausedError",
    "RunStarted",
    "RunState",
    "StageError",
    "Step",
    "StoppedByStage",
    "SubagentEvent",
    "TextDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "ToolFinished",
    "ToolResult",
    "ToolRetried",
    "ToolStarted",
    "TreadleError",
    "Usage",
    "UserMessageAdded",
    "approve",
    "default_stages",
    "deny",
    "edit",
    "presets",
    "stage",
    "tool",
]

IMPORTED = """
import sys
before = set(sys.modules)
import treadle
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(tops - sys.stdlib_module_names - {"treadle"}))
"""
MAY_BE_IMPORTED = {"anyio", "sniffio", "typing_extensions"}
"""As in `docs/architecture.md`. anyio imports the other two, depending on the version of Python."""


def test_the_public_names_are_these():
    assert treadle.__all__ == NAMES
    assert all(hasattr(treadle, name) for name in NAMES)


def test_importing_it_imports_no_third_party_package_but_anyio():
    """No SDK of a provider, no rich, and pydantic, jsonschema and OpenTelemetry only when they are used."""
    command = [sys.executable, "-c", IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "anyio" in done.stdout.split()
    assert set(done.stdout.split()) <= MAY_BE_IMPORTED


def test_it_has_a_version():
    assert treadle.__version__.count(".") == 2
