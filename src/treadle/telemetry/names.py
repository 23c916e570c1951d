"""Every name that is sent to OpenTelemetry, in one table: the conventions are still in development.

Source: https://github.com/open-telemetry/semantic-conventions-genai, docs/gen-ai (gen-ai-agent-spans.md,
gen-ai-spans.md, gen-ai-metrics.md), in development, read on 2026-11-22. The metrics of model calls keep
their names from version 1.41 of the conventions (``gen_ai.client.operation.duration`` and
``gen_ai.client.token.usage``), which backends and dashboards use; the main branch plans to rename them.
Names that start with ``treadle.`` are defined here.
"""

SCOPE = "treadle"
"""The name of the instrumentation scope of all spans, metrics and log records, and of the package."""
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"
"""The schema of the version of the conventions in use; a few of the names below are newer than it."""

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that turns content on: ``true``, ``span_only`` or ``span_and_event``."""

# Operations

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

# Attributes of the conventions

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - a name
TOOL_NAME = "gen_ai.tool.name"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"

REQUEST_OPTIONS = {
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "n": "gen_ai.request.choice.count",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "reasoning_effort": "gen_ai.request.reasoning.level",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "stream": "gen_ai.request.stream",
    "temperature": "gen_ai.request.temperature",
    "top_k": "gen_ai.request.top_k",
    "top_p": "gen_ai.request.top_p",
}
"""The attributes of request options, by OpenAI's names for the options."""

# Attributes with content, set only if content is captured; their values are JSON text

SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT = "gen_ai.tool.call.result"

# The event of a span for an exception, and its attributes; set only if content is captured

EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

# Attributes of treadle

RUN_ID = "treadle.run.id"
RESUMED = "treadle.run.resumed"
ITERATION = "treadle.iteration"
STAGES = "treadle.stages"
STOP_REASON = "treadle.stop_reason"
TOTAL_ITERATIONS = "treadle.total_iterations"
TOOL_CALLS_COUNT = "treadle.tool_calls_count"
ATTEMPT = "treadle.attempt"
DELAY = "treadle.delay"
NEXT_MODEL = "treadle.next_model"
REASON = "treadle.reason"
COUNT = "treadle.count"
TOKENS_BEFORE = "treadle.tokens_before"
TOKENS_AFTER = "treadle.tokens_after"
IS_SUMMARIZED = "treadle.is_summarized"
GIVES_UP = "treadle.gives_up"
BREAKER_STATE = "treadle.circuit_breaker.state"
LINK = "treadle.link"

# Span events of treadle

COMPLETE = "treadle.loop.complete"
"""The completion event, which is a log record as well."""
MODEL_RETRY = "treadle.model.retry"
TOOL_RETRY = "treadle.tool.retry"
ITERATION_END = "treadle.iteration.end"
HISTORY_REPAIRED = "treadle.history.repaired"
USER_MESSAGE_ADDED = "treadle.user_message_added"
CALL_NOT_RUN = "treadle.tool_call.not_run"
REPEAT_WARNED = "treadle.tool_call.repeat_warned"
BREAKER_CHANGED = "treadle.circuit_breaker.transition"
HISTORY_COMPACTED = "treadle.history.compacted"
COMPACTION_FAILED = "treadle.history.compaction_failed"
LIMIT_REACHED = "treadle.limit.reached"

# Values

FUNCTION = "function"
OTHER = "_OTHER"
"""The conventions' fallback for a value outside a small set."""
ABANDONED = "abandoned"
"""The stop reason of a run whose generator was closed before the run ended."""

# Metrics of the conventions, and the bucket boundaries where the conventions recommend them

OPERATION_DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK_DURATION = "gen_ai.client.operation.time_to_first_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - a name
AGENT_DURATION = "gen_ai.invoke_agent.duration"
AGENT_INFERENCE_CALLS = "gen_ai.invoke_agent.inference_calls"
AGENT_TOOL_CALLS = "gen_ai.invoke_agent.tool_calls"
TOOL_DURATION = "gen_ai.execute_tool.duration"

SECONDS_BUCKETS = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
FIRST_CHUNK_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
AGENT_SECONDS_BUCKETS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
TOKENS_BUCKETS = (
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
)  # fmt: skip
COUNT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128)

# Metrics of treadle

ITERATIONS_METRIC = "treadle.invoke_agent.iterations"
ITERATIONS_BUCKETS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500)
"""Finer at the start, where most runs end: the default limit is ten iterations."""
ACTIVE_RUNS = "treadle.invoke_agent.active"
CALLS_NOT_RUN = "treadle.tool_calls.not_run"
COMPACTIONS = "treadle.compactions"
BREAKER_TRANSITIONS = "treadle.circuit_breaker.transitions"
USAGE_COST = "treadle.usage.cost"
MODEL_RETRIES = "treadle.model.retries"
