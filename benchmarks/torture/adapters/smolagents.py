"""smolagents: `ToolCallingAgent.run`, `OpenAIModel`, tools made of functions.

It is not async: its runs and tools are run in threads. Its models answer by a call of ``final_answer``, as its
system prompt requires; so a text of the scripted model is converted to such a call.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

from smolagents import LogLevel, OpenAIModel, Tool, ToolCallingAgent
from smolagents import tool as make_tool
from smolagents.agents import RunResult
from torture_suite import protocol
from torture_suite.protocol import Model, NotApplicable, Outcome, Scenario, drive

from adapters import wire


class Adapter:
    """Runs scenarios on smolagents."""

    name = "smolagents"
    version = version("smolagents")
    can = frozenset({protocol.STREAMING, protocol.CANCELLATION, protocol.MAX_ITERATIONS})

    async def run(
        self, scenario: Scenario, model: Model, tools: Sequence[protocol.Tool]
    ) -> Outcome:
        """Run the loop on a scenario."""
        *before, last = scenario.prompt
        if any(message["role"] != "system" for message in before) or last["role"] != "user":
            raise NotApplicable("a run starts from a task, not from messages")
        agent = ToolCallingAgent(
            tools=[_tool(tool) for tool in tools],
            model=_model(model),
            instructions="\n".join(message["content"] for message in before) or None,
            verbosity_level=LogLevel.OFF,
            stream_outputs=scenario.is_streaming,
        )
        options: dict[str, Any] = {"return_full_result": True}
        if scenario.max_iterations is not None:
            options["max_steps"] = scenario.max_iterations
        try:
            result = await drive(model, _run(agent, last["content"], options))
        except Exception as error:  # noqa: BLE001 - any of them is an outcome
            return Outcome.of_error(error, _as_openai(agent))
        answer = None if result.output is None else str(result.output)
        error = None if result.state == "success" else f"AgentMaxStepsError: {result.state}"
        return Outcome(answer=answer, error=error, messages=_as_openai(agent))


async def _run(agent: ToolCallingAgent, task: str, options: dict[str, Any]) -> RunResult:
    executor = ThreadPoolExecutor(1)
    run = functools.partial(agent.run, task, **options)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, run)
    except asyncio.CancelledError:
        agent.interrupt()  # its own way to be cancelled: the thread ends before its next step
        raise
    finally:
        executor.shutdown(wait=False)


def _model(model: Model | wire.Recorder) -> OpenAIModel:
    client = wire.http(model, wire_type=_AnsweringWire)
    return OpenAIModel(
        wire.MODEL, api_base=wire.URL, api_key=wire.KEY, client_kwargs={"http_client": client}
    )


class _AnsweringWire(wire.Wire):
    """Makes a call of ``final_answer`` of a text, where there are tools to call."""

    def completion(self, body: dict[str, Any]) -> Any:
        completion = super().completion(body)
        choice = completion["choices"][0]
        if body.get("tools") and _is_answer(choice["message"]):
            choice["finish_reason"] = "tool_calls"
            choice["message"] = _as_call(choice["message"]["content"])
        return completion

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        chunks = super().stream(body)
        return _answering(chunks) if body.get("tools") else chunks


def _is_answer(message: Mapping[str, Any]) -> bool:
    return bool((message.get("content") or "").strip()) and not message.get("tool_calls")


def _as_call(text: str) -> dict[str, Any]:
    function = {"name": "final_answer", "arguments": json.dumps({"answer": text})}
    call = {"id": "call_final", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _answering(chunks: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pieces of text are held back until it is known whether calls come too."""
    held: list[dict[str, Any]] = []
    text = ""
    for chunk in chunks:
        held.append(chunk)
        delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        text += delta.get("content") or ""
        is_last = bool(chunk["choices"] and chunk["choices"][0]["finish_reason"])
        if delta.get("tool_calls"):
            yield from held
            yield from chunks
            return
        if is_last and text.strip():
            head = {**chunk["choices"][0], "delta": {"tool_calls": [_piece(text)]}}
            head["finish_reason"] = "tool_calls"
            yield {**chunk, "choices": [head]}
            yield from chunks
            return
    yield from held


def _piece(text: str) -> dict[str, Any]:
    return {"index": 0, **_as_call(text)["tool_calls"][0]}


def _tool(tool: protocol.Tool) -> Tool:
    if not tool.name.isidentifier():
        raise NotApplicable("the names of tools have to be Python's")
    function: Any = tool.function

    def in_sync(*args: Any, **arguments: Any) -> Any:
        result = function(*args, **arguments)
        return asyncio.run(result) if tool.is_async else result

    for name in ("__name__", "__doc__", "__signature__", "__annotations__"):
        setattr(in_sync, name, getattr(function, name))
    return make_tool(in_sync)


def _as_openai(agent: ToolCallingAgent) -> list[dict[str, Any]] | None:
    """The conversation as smolagents itself would send it."""
    recorder = wire.Recorder()
    _model(recorder).generate(agent.write_memory_to_messages())
    return recorder.messages
