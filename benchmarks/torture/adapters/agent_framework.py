"""agent-framework: `Agent.run`, its chat completions client, tools made of functions.

The messages before an error are not available by default. Its option to store the history after each model
call was tried: it keeps calls without their results, and does not pass more scenarios.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from agent_framework import Agent, Content, FunctionTool, Message
from agent_framework import tool as make_tool
from agent_framework.openai import OpenAIChatCompletionClient
from torture_suite import protocol
from torture_suite.protocol import Model, Outcome, Scenario, drive

from adapters import wire


class Adapter:
    """Runs scenarios on agent-framework."""

    name = "agent-framework"
    version = version("agent-framework-core")
    can = frozenset(
        {
            protocol.STREAMING,
            protocol.GIVEN_HISTORY,
            protocol.CANCELLATION,
            protocol.MAX_ITERATIONS,
            protocol.MAX_TOOL_CALLS,
            protocol.MAX_SECONDS,
        }
    )

    async def run(
        self, scenario: Scenario, model: Model, tools: Sequence[protocol.Tool]
    ) -> Outcome:
        """Run the loop on a scenario."""
        made = [_tool(tool) for tool in tools]
        agent = Agent(_client(model, _limits(scenario)), tools=made)
        given = _given(scenario.prompt)
        try:
            response = await drive(model, _run(agent, given, scenario.is_streaming))
        except Exception as error:  # noqa: BLE001 - any of them is an outcome
            return Outcome.of_error(error)
        messages = await _as_sent(made, [*given, *response.messages])
        return Outcome(answer=response.text, messages=messages)


async def _run(agent: Agent[Any], given: list[Message], stream: bool) -> Any:
    if not stream:
        return await agent.run(given)
    streamed = agent.run(given, stream=True)
    async for _ in streamed:
        pass
    return await streamed.get_final_response()


def _client(
    model: Model | wire.Recorder, limits: dict[str, Any] | None = None
) -> OpenAIChatCompletionClient[Any]:
    return OpenAIChatCompletionClient(
        wire.MODEL,
        async_client=wire.async_client(model),
        function_invocation_configuration=limits,
    )


def _limits(scenario: Scenario) -> dict[str, Any] | None:
    limits = {
        "max_iterations": scenario.max_iterations,
        "max_function_calls": scenario.max_tool_calls,
        "max_duration_seconds": scenario.max_seconds,
    }
    return {name: limit for name, limit in limits.items() if limit is not None} or None


def _tool(tool: protocol.Tool) -> FunctionTool:
    return make_tool(tool.function, name=tool.name, description=tool.description)


def _given(messages: Sequence[dict[str, Any]]) -> list[Message]:
    made: list[Message] = []
    for message in messages:
        text = message.get("content")
        if message["role"] == "tool":
            contents = [Content.from_function_result(message["tool_call_id"], result=text)]
        else:
            contents = [Content.from_text(text)] if text else []
            contents += [
                Content.from_function_call(
                    call["id"], call["function"]["name"], arguments=call["function"]["arguments"]
                )
                for call in message.get("tool_calls") or ()
            ]
        made.append(Message(message["role"], contents))
    return made


async def _as_sent(
    tools: list[FunctionTool], messages: list[Message]
) -> list[dict[str, Any]] | None:
    """The messages as they are sent where the caller goes on."""
    recorder = wire.Recorder()
    agent = Agent(_client(recorder), tools=tools)
    await agent.run([*messages, Message("user", [wire.GO_ON])])
    return recorder.history
