"""The public names of the package, and what importing it costs."""

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

IMPORT = """
import sys, time
started = time.perf_counter()
import treadle
seconds = time.perf_counter() - started
heavy = "openai", "anthropic", "xllamacpp", "rich", "opentelemetry.sdk", "pydantic", "jsonschema"
print([name for name in heavy if name in sys.modules])
print(f"{seconds * 1000:.0f} ms")
"""


def test_the_public_names_are_these():
    assert treadle.__all__ == NAMES
    assert all(hasattr(treadle, name) for name in NAMES)


def test_importing_it_imports_nothing_heavy():
    """No provider, no SDK of telemetry, and what tools need only with the first tool."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
    )
    heavy, seconds = done.stdout.splitlines()
    print(f"import treadle took {seconds}")  # noqa: T201
    assert heavy == "[]"


def test_it_has_a_version():
    assert treadle.__version__.count(".") == 2
