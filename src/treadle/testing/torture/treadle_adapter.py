"""treadle itself, put through the suite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from treadle.testing.torture.protocol import (
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

if TYPE_CHECKING:
    import treadle
    from treadle.results import Paused, Result


class TreadleLoop:
    """The adapter of `treadle.Loop`, with its default settings."""

    name = "treadle"
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

    @property
    def version(self) -> str:
        """The version of treadle."""
        import treadle  # noqa: PLC0415 - it is not light

        return treadle.__version__

    async def run(self, scenario: Scenario, model: Model, tools: Sequence[Tool]) -> Outcome:
        """Run the loop on a scenario."""
        import treadle  # noqa: PLC0415 - the same

        async def send(messages: list[dict[str, Any]], **opts: Any) -> Any:
            if scenario.is_streaming:
                return model.astream(messages, opts.get("tools"))
            return model.completion(messages, opts.get("tools"))

        handle = treadle.RunHandle()
        options: treadle.LoopOptions = {
            "handle": handle,
            "tools": [_tool(tool) for tool in tools],
        }
        if scenario.max_iterations is not None:
            options["max_iterations"] = scenario.max_iterations
        if scenario.max_tool_calls is not None:
            options["max_tool_calls"] = scenario.max_tool_calls
        if scenario.max_seconds is not None:
            options["max_seconds"] = scenario.max_seconds
        try:
            result = await drive(model, treadle.Loop.run(scenario.prompt, send, **options))
        except CancelledByCaller as error:
            return Outcome.of_error(error, handle.messages)
        return _outcome(result)


def _tool(tool: Tool) -> treadle.Tool:
    import treadle  # noqa: PLC0415 - the same

    return treadle.Tool(
        tool.name,
        tool.description,
        tool.parameters,
        tool.fn,
        timeout=tool.timeout,
        volatile=tool.is_volatile,
    )


def _outcome(result: Result | Paused) -> Outcome:
    from treadle.results import Err, Ok  # noqa: PLC0415 - the same

    messages = list(result.messages)
    if isinstance(result, Ok):
        return Outcome(result.response.content, None, messages)
    reason = result.reason if isinstance(result, Err) else result
    return Outcome(None, f"{type(reason).__name__}: {reason}", messages)
