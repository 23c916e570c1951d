"""openai-agents: `Runner.run`, its chat completions model, tools made of functions."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from agents import (
    Agent,
    AgentsException,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    Session,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.exceptions import UserError
from torture_suite import protocol
from torture_suite.protocol import Model, NotApplicable, Outcome, Scenario, drive

from adapters import wire

set_tracing_disabled(disabled=True)  # else it would be sent away


class Adapter:
    """Runs scenarios on openai-agents."""

    name = "openai-agents"
    version = version("openai-agents")
    can = frozenset(
        {
            protocol.STREAMING,
            protocol.GIVEN_HISTORY,
            protocol.CANCELLATION,
            protocol.MAX_ITERATIONS,
            protocol.TOOL_TIMEOUT,
        }
    )

    async def run(
        self, scenario: Scenario, model: Model, tools: Sequence[protocol.Tool]
    ) -> Outcome:
        """Run the loop on a scenario."""
        agent: Agent[Any] = Agent(
            name="Agent", model=_model(model), tools=[_tool(tool) for tool in tools]
        )
        given = _items(scenario.prompt)
        # In memory, and only where a run may well end without an answer: it slows large batches down.
        session = SQLiteSession("session") if scenario.answer is None else None
        options: dict[str, Any] = {
            "run_config": RunConfig(tracing_disabled=True),
            "session": session,
        }
        if scenario.max_iterations is not None:
            options["max_turns"] = scenario.max_iterations
        try:
            result = await drive(model, _run(agent, given, options, scenario.is_streaming))
        except Exception as error:  # noqa: BLE001 - any of them is an outcome
            return Outcome.of_error(error, await _after(agent, session, error))
        output = result.final_output
        answer = None if output is None else str(output)
        return Outcome(answer=answer, messages=await _as_sent(agent, result.to_input_list()))


async def _run(agent: Agent[Any], given: list[Any], options: dict[str, Any], stream: bool) -> Any:
    if not stream:
        return await Runner.run(agent, given, **options)
    result = Runner.run_streamed(agent, given, **options)
    async for _ in result.stream_events():
        pass
    return result


def _model(model: Model | wire.Recorder) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel(wire.MODEL, wire.async_client(model))


def _tool(tool: protocol.Tool) -> FunctionTool:
    if tool.timeout is not None and not tool.is_async:
        raise NotApplicable("only async tools can have a time limit")
    options: dict[str, Any] = {
        "name_override": tool.name,
        "description_override": tool.description,
        "timeout": tool.timeout,
    }
    try:
        return function_tool(tool.function, **options)
    except UserError:  # a parameter is a free object, which strict schemas do not know
        return function_tool(tool.function, strict_mode=False, **options)


def _items(messages: Sequence[dict[str, Any]]) -> list[Any]:
    """OpenAI's messages as items of its Responses API, which is what runs start from."""
    items: list[Any] = []
    for message in messages:
        if message["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": message["content"],
                }
            )
            continue
        if message.get("content"):
            items.append({"role": message["role"], "content": message["content"]})
        items += [
            {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
            }
            for call in message.get("tool_calls") or ()
        ]
    return items


async def _after(
    agent: Agent[Any], session: Session | None, error: Exception
) -> list[dict[str, Any]] | None:
    """The conversation as far as the exception carries it, or else as far as the session has it."""
    items: list[Any] = []
    if isinstance(error, AgentsException) and error.run_data is not None:
        given = error.run_data.input
        items = [{"role": "user", "content": given}] if isinstance(given, str) else [*given]
        items += [item.to_input_item() for item in error.run_data.new_items]
    elif session is not None:
        items = await session.get_items()
    return await _as_sent(agent, items) if items else None


async def _as_sent(agent: Agent[Any], items: list[Any]) -> list[dict[str, Any]] | None:
    """The messages as they are sent where the caller goes on."""
    recorder = wire.Recorder()
    went_on = agent.clone(model=_model(recorder))
    await Runner.run(went_on, [*items, {"role": "user", "content": wire.GO_ON}])
    return recorder.history
