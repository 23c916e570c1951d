"""langchain: `create_agent`, `ChatOpenAI`, tools made of functions.

The agent has a checkpointer in memory, so that the messages before an error are available: that is
langchain's way to keep a conversation, and it does not change the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from torture_suite import protocol
from torture_suite.protocol import Model, Outcome, Scenario, drive

from adapters import wire

CONFIG: Any = {"configurable": {"thread_id": "1"}}


class Adapter:
    """Runs scenarios on langchain."""

    name = "langchain"
    version = version("langchain")
    can = frozenset(
        {
            protocol.STREAMING,
            protocol.GIVEN_HISTORY,
            protocol.CANCELLATION,
            protocol.MAX_ITERATIONS,
            protocol.MAX_TOOL_CALLS,
        }
    )

    async def run(
        self, scenario: Scenario, model: Model, tools: Sequence[protocol.Tool]
    ) -> Outcome:
        """Run the loop on a scenario."""
        made = [_tool(tool) for tool in tools]
        agent: Any = create_agent(
            _model(model), tools=made, middleware=_limits(scenario), checkpointer=InMemorySaver()
        )
        given = {"messages": list(scenario.prompt)}
        try:
            await drive(model, _run(agent, given, scenario.is_streaming))
        except Exception as error:  # noqa: BLE001 - any of them is an outcome
            return Outcome.of_error(error, await _as_sent(_messages(agent), made))
        messages = _messages(agent)
        answer = messages[-1].text or messages[-1].additional_kwargs.get("refusal")
        return Outcome(answer=answer, messages=await _as_sent(messages, made))


async def _run(agent: Any, given: dict[str, Any], stream: bool) -> None:
    if not stream:
        await agent.ainvoke(given, CONFIG)
        return
    async for _ in agent.astream(given, CONFIG, stream_mode="messages"):
        pass


def _messages(agent: Any) -> list[Any]:
    return agent.get_state(CONFIG).values.get("messages", [])


def _model(model: Model | wire.Recorder) -> ChatOpenAI:
    return ChatOpenAI(
        model=wire.MODEL,
        api_key=wire.KEY,
        base_url=wire.URL,
        http_client=wire.http(model),
        http_async_client=wire.async_http(model),
    )


def _tool(tool: protocol.Tool) -> StructuredTool:
    function = {"coroutine" if tool.is_async else "func": tool.function}
    return StructuredTool.from_function(name=tool.name, description=tool.description, **function)


def _limits(scenario: Scenario) -> list[Any]:
    limits: list[Any] = []
    if scenario.max_iterations is not None:
        limits.append(ModelCallLimitMiddleware(run_limit=scenario.max_iterations))
    if scenario.max_tool_calls is not None:
        limits.append(ToolCallLimitMiddleware(run_limit=scenario.max_tool_calls))
    return limits


async def _as_sent(messages: list[Any], tools: list[Any]) -> list[dict[str, Any]] | None:
    """The messages as they are sent where the caller goes on."""
    recorder = wire.Recorder()
    agent: Any = create_agent(_model(recorder), tools=tools)
    user = {"role": "user", "content": wire.GO_ON}
    await agent.ainvoke({"messages": [*messages, user]})
    return recorder.history
