"""pydantic-ai: `Agent.run`, its OpenAI chat model, tools made of functions."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from importlib.metadata import version
from typing import Any

from pydantic_ai import Agent, Tool, UsageLimits, capture_run_messages
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from torture_suite import protocol
from torture_suite.protocol import Model, Outcome, Scenario, drive

from adapters import wire


class Adapter:
    """Runs scenarios on pydantic-ai."""

    name = "pydantic-ai"
    version = version("pydantic-ai-slim")
    can = frozenset(
        {
            protocol.STREAMING,
            protocol.GIVEN_HISTORY,
            protocol.CANCELLATION,
            protocol.MAX_ITERATIONS,
            protocol.MAX_TOOL_CALLS,
            protocol.TOOL_TIMEOUT,
        }
    )

    async def run(
        self, scenario: Scenario, model: Model, tools: Sequence[protocol.Tool]
    ) -> Outcome:
        """Run the loop on a scenario."""
        agent = Agent(_model(model), tools=[_tool(tool) for tool in tools])
        *history, last = _history(scenario.prompt)
        prompt = None
        if isinstance(last, ModelRequest) and isinstance(last.parts[-1], UserPromptPart):
            prompt = last.parts[-1].content
        else:
            history.append(last)
        options: dict[str, Any] = {"message_history": history, "usage_limits": _limits(scenario)}
        if scenario.is_streaming:
            options["event_stream_handler"] = _listen
        with capture_run_messages() as messages:
            try:
                result = await drive(model, agent.run(prompt, **options))
            except Exception as error:  # noqa: BLE001 - any of them is an outcome
                return Outcome.of_error(error, await _as_sent(agent, messages))
        return Outcome(answer=result.output, messages=await _as_sent(agent, result.all_messages()))


def _model(model: Model | wire.Recorder) -> OpenAIChatModel:
    provider = OpenAIProvider(openai_client=wire.async_client(model))
    return OpenAIChatModel(wire.MODEL, provider=provider)


def _tool(tool: protocol.Tool) -> Tool[Any]:
    return Tool(
        tool.function,
        takes_ctx=False,
        name=tool.name,
        description=tool.description,
        timeout=tool.timeout,
    )


def _limits(scenario: Scenario) -> UsageLimits | None:
    limits: dict[str, Any] = {}
    if scenario.max_iterations is not None:
        limits["request_limit"] = scenario.max_iterations
    if scenario.max_tool_calls is not None:
        limits["tool_calls_limit"] = scenario.max_tool_calls
    return UsageLimits(**limits) if limits else None


async def _listen(_: object, events: AsyncIterable[object]) -> None:
    async for _event in events:
        pass


def _history(messages: Sequence[dict[str, Any]]) -> list[ModelMessage]:
    names: dict[str, str] = {}
    made: list[ModelMessage] = []
    for message in messages:
        text = message.get("content")
        match message["role"]:
            case "assistant":
                calls = list(message.get("tool_calls") or ())
                names |= {call["id"]: call["function"]["name"] for call in calls}
                parts: list[Any] = [TextPart(text)] if text else []
                parts += [
                    ToolCallPart(c["function"]["name"], c["function"]["arguments"], c["id"])
                    for c in calls
                ]
                made.append(ModelResponse(parts))
            case "tool":
                id_ = message["tool_call_id"]
                made.append(ModelRequest([ToolReturnPart(names.get(id_, "unknown"), text, id_)]))
            case "system":
                made.append(ModelRequest([SystemPromptPart(text or "")]))
            case _:
                made.append(ModelRequest([UserPromptPart(text or "")]))
    return made


async def _as_sent(agent: Agent[Any], messages: list[ModelMessage]) -> list[dict[str, Any]] | None:
    """The messages as they are sent where the caller goes on, or as they are where that is refused."""
    recorder = wire.Recorder()
    model = _model(recorder)
    try:
        await agent.run(wire.GO_ON, message_history=messages, model=model)
    except UserError:
        await model_request(model, [*messages, ModelRequest([UserPromptPart(wire.GO_ON)])])
    return recorder.history
