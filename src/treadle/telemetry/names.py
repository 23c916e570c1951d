"""Every name that goes to OpenTelemetry, in one place, since the conventions are still in development.

Source: OpenTelemetry's semantic conventions for generative AI systems (spans, agent spans, metrics), as they
stood in November 2026. Names that start with ``treadle.`` are ours.
"""

SCOPE = "treadle"

INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
EXECUTE_TOOL = "execute_tool"

OPERATION_NAME = "gen_ai.operation.name"
AGENT_NAME = "gen_ai.agent.name"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
ERROR_TYPE = "error.type"

RUN_ID = "treadle.run.id"
ITERATION = "treadle.iteration"
STOP_REASON = "treadle.stop_reason"
TOTAL_ITERATIONS = "treadle.total_iterations"
TOOL_CALLS_COUNT = "treadle.tool_calls_count"

COMPLETE = "treadle.loop.complete"
RETRY = "treadle.model.retry"
RETRY_ATTEMPT = "treadle.model.retry.attempt"

ITERATIONS_METRIC = "treadle.invoke_agent.iterations"
ITERATIONS_UNIT = "{iteration}"
ITERATIONS_BUCKETS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100, 200, 500)
"""Finer where runs usually end: ten iterations is the default limit."""
