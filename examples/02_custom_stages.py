"""A stage list of one's own: stages of treadle, a bare function, and a generator that asks for an effect.

A stage takes the context of an iteration and returns it, or a changed copy. What needs the world (a
file, a clock, a network) is yielded as an effect, so that the stage works under every driver.
"""

import dataclasses
from typing import Any

from treadle import Context, Loop, PipelineError, stages, tool
from treadle.effects import Call, Mode, Steps
from treadle.testing import call, calls

written: list[str] = []


def redact(ctx: Context) -> Context:
    """Keep a secret out of what the model is told. A plain function is pure."""
    results = {
        call_id: dataclasses.replace(result, content=result.content.replace("hunter2", "***"))
        for call_id, result in ctx.tool_results.items()
    }
    return ctx.replace(tool_results=results)


def audit(ctx: Context) -> Steps[Context]:
    """Write down what is about to run. The effect is performed in a thread, since it may block."""
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
print(loop.run_sync([{"role": "user", "content": "Who is the user?"}], model).unwrap().content)
print("audit:", written)

try:
    Loop(stages=[stages.parse_tool_calls, stages.inject_results])
except PipelineError as error:
    print("refused:", error)
