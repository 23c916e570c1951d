"""treadle, with its default settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torture_suite.protocol import (
    CANCELLATION,
    GIVEN_HISTORY,
    MAX_ITERATIONS,
    MAX_SECONDS,
    MAX_TOOL_CALLS,
    RAW_MODEL,
    STREAMING,
    TOOL_TIMEOUT,
    CancelledByCaller,
    Model,
    Outcome,
    Scenario,
    Tool,
    drive,
)

import treadle

LIMITS = ("max_iterations", "max_tool_calls", "max_seconds")


class Adapter:
    """Runs `treadle.Loop` on a scenario."""

    name = "treadle"
    version = treadle.__version__
    can = frozenset(
        {
            CANCELLATION,
            GIVEN_HISTORY,
            MAX_ITERATIONS,
            MAX_SECONDS,
            MAX_TOOL_CALLS,
            RAW_MODEL,
            STREAMING,
            TOOL_TIMEOUT,
        }
    )

    async def run(self, scenario: Scenario, model: Model, tools: Sequence[Tool]) -> Outcome:
        """Run the loop on a scenario."""

        async def send(messages: list[dict[str, Any]], **opts: Any) -> Any:
            if scenario.is_streaming:
                return model.astream(messages, opts.get("tools"))
            return model.completion(messages, opts.get("tools"))

        handle = treadle.RunHandle()
        limits = {name: getattr(scenario, name) for name in LIMITS}
        options = {name: limit for name, limit in limits.items() if limit is not None}
        run = treadle.Loop.run(
            scenario.prompt, send, tools=[_tool(tool) for tool in tools], handle=handle, **options
        )
        try:
            result = await drive(model, run)
        except CancelledByCaller as error:
            return Outcome.of_error(error, handle.messages)
        return _outcome(result)


def _tool(tool: Tool) -> treadle.Tool:
    return treadle.Tool(
        tool.name,
        tool.description,
        tool.parameters,
        tool.fn,
        timeout=tool.timeout,
        volatile=tool.is_volatile,
    )


def _outcome(result: treadle.Result | treadle.Paused) -> Outcome:
    messages = list(result.messages)
    if isinstance(result, treadle.Ok):
        return Outcome(result.response.content, None, messages)
    reason = result.reason if isinstance(result, treadle.Err) else result
    return Outcome(None, f"{type(reason).__name__}: {reason}", messages)
