"""A plain loop of one screen, as an example of an adapter: the loop, and all that the suite needs to run it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from torture_suite.protocol import (
    CANCELLATION,
    GIVEN_HISTORY,
    MAX_ITERATIONS,
    Model,
    Outcome,
    Scenario,
    Tool,
    drive,
)

Messages = list[dict[str, Any]]


async def plain_loop(
    messages: Messages,
    ask: Callable[[Messages], Awaitable[dict[str, Any]]],
    tools: Mapping[str, Callable[..., Any]],
    max_iterations: int,
) -> str:
    """Ask the model, run the calls, ask again. Messages are appended to the list in place."""
    for _ in range(max_iterations):
        message = await ask(messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            function = call["function"]
            try:
                result = tools[function["name"]](**json.loads(function["arguments"]))
                text = str(await result if inspect.isawaitable(result) else result)
            except Exception as error:  # noqa: BLE001 - any error is a result for the model
                text = f"Error: {error!r}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    raise RuntimeError(f"no answer after {max_iterations} iterations")


class Adapter:
    """Runs `plain_loop` on a scenario."""

    name, version = "plain loop", "1.0"
    can = frozenset({CANCELLATION, GIVEN_HISTORY, MAX_ITERATIONS})

    async def run(self, scenario: Scenario, model: Model, tools: Sequence[Tool]) -> Outcome:
        """Run the loop on a scenario."""
        messages = list(scenario.prompt)
        offered = [tool.as_openai() for tool in tools]
        functions = {tool.name: tool.fn for tool in tools}

        async def ask(messages: Messages) -> dict[str, Any]:
            return await model.areply(messages, offered)

        run = plain_loop(messages, ask, functions, scenario.max_iterations or 10)
        try:
            answer = await drive(model, run)
        except Exception as error:  # noqa: BLE001 - any error is an outcome
            return Outcome.of_error(error, messages)
        return Outcome(answer, messages=messages)
