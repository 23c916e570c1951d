"""A custom list of stages: stages of treadle, a plain function, and a generator that yields an effect.

A stage takes the context of an iteration and returns it, or a changed copy. A stage that needs a file, a
clock or a network yields an effect, so that it works under every driver.
"""

from typing import Any

from treadle import Context, Loop, PipelineError, stages, tool
from treadle.effects import Call, Mode, Steps
from treadle.testing import call, calls

written: list[str] = []


def redact(ctx: Context) -> Context:
    """Remove a secret from the results. A plain function is a stage."""
    for call_id, result in ctx.tool_results.items():
        ctx = ctx.edit_result(call_id, result.content.replace("hunter2", "***"))
    return ctx


def audit(ctx: Context) -> Steps[Context]:
    """Log the planned calls. The effect is performed in a thread, since it may block."""
    for planned in ctx.plan.calls:
        yield Call(written.append, f"{planned.name} {planned.arguments}", mode=Mode.THREAD)
    return ctx


@tool
def read_config(path: str) -> str:
    """Read a configuration file."""
    return f"{path}: user=ada password=hunter2"


def model(messages: list[dict[str, Any]]) -> Any:
    """Read a file, then answer."""
    if messages[-1]["role"] == "tool":
        return f"I read: {messages[-1]['content']}"
    return calls(call("read_config", path="app.ini"))


loop = Loop(
    tools=[read_config],
    stages=[
        stages.ask_model(max_retries=1),
        stages.parse_tool_calls,
        stages.validate_calls,
        stages.loop_decision(max_blank_stops=1),
        stages.plan_calls,
        audit,
        stages.dispatch_tools,
        redact,
        stages.inject_results,
        stages.budget_guard,
    ],
)
print(loop.diagram("text"))
print(loop.run_sync("Who is the user?", model).unwrap().content)
print("audit:", written)

try:
    Loop(stages=[stages.parse_tool_calls, stages.inject_results])
except PipelineError as error:
    print("refused:", error)
