"""The two loops that are compared, as elements of an AgentDojo pipeline: a plain one, and treadle's."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage, text_content_block_from_string
from replay import Message, Replay
from world import World, tools_of

from treadle import (
    Context,
    Err,
    Event,
    Limits,
    Loop,
    Ok,
    Result,
    ToolCall,
    ToolFinished,
    ToolResult,
    ToolStarted,
    TreadleError,
)
from treadle.recording import Recorder
from treadle.recording.reader import read_lines
from treadle.testing import replay


@dataclass
class Record:
    """What happened in one run of a task.

    Args:
        model: the scripted model of the run.
        world: what was run in the environment.
        results: what became of each call, by its id, where the loop tells.
        overlaps: the names of tools that ran at the same time, two by two.
        iterations: the answers that the model gave.
        answered: whether the run ended with the model's answer.
        ending: how else it ended.
        differs: what is different when the run is replayed from its recording; empty where nothing is.
    """

    model: Replay
    world: World
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    overlaps: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    iterations: int = 0
    answered: bool = False
    ending: str = "it answered"
    differs: str = ""


class ReplayElement(BasePipelineElement):
    """An element that has a scripted model go through a loop.

    Args:
        task: the task whose ground truth is replayed.
        batch: see `Replay`.

    Attributes:
        record: what happened, once it was queried.
    """

    watch = False

    def __init__(self, task: BaseUserTask[Any], *, batch: bool) -> None:
        self.record: Record
        self._task = task
        self._batch = batch

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> tuple[str, FunctionsRuntime, TaskEnvironment, Sequence[ChatMessage], dict[str, Any]]:
        """Run the loop, as AgentDojo asks for it."""
        calls = self._task.ground_truth(env.model_copy(deep=True))
        world = World(runtime, env, watch=self.watch)
        model = Replay(calls, self._task.GROUND_TRUTH_OUTPUT, world.ran, batch=self._batch)
        self.record = Record(model, world)
        made = self.loop(query, runtime, self.record)
        answers = [
            as_agentdojo(message, world) for message in made if message["role"] == "assistant"
        ]
        if not self.record.answered:  # AgentDojo wants an answer, if an empty one
            answers.append(as_agentdojo({"content": ""}, world))
        return query, runtime, env, [*messages, *answers], extra_args or {}

    @abstractmethod
    def loop(self, query: str, runtime: FunctionsRuntime, record: Record) -> list[Message]:
        """Have the model answer the query. Returns the conversation, as OpenAI's messages."""


class PlainLoop(ReplayElement):
    """A bare while loop, which runs all that it is asked for. What it does not pass, none can pass."""

    watch = True

    def loop(self, query: str, runtime: FunctionsRuntime, record: Record) -> list[Message]:  # noqa: ARG002
        """Ask, run, ask again."""
        messages: list[Message] = [{"role": "user", "content": query}]
        while True:
            message = record.model(messages)
            messages.append(message)
            record.iterations += 1
            if not message.get("tool_calls"):
                record.answered = True
                return messages
            for call in message["tool_calls"]:
                function = call["function"]
                arguments = json.loads(function["arguments"])
                content = record.world.run(call["id"], function["name"], arguments)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


class TreadleLoop(ReplayElement):
    """treadle's loop at its defaults; iterations are allowed for a call in each and the answer."""

    def loop(self, query: str, runtime: FunctionsRuntime, record: Record) -> list[Message]:
        """Run it, and note what it tells of each call."""

        def resolve(call: ToolCall) -> Ok | Err:
            text = record.world.run(call.id, call.name, call.input or {})
            return Err(text) if call.id in record.world.failed else Ok(text)

        def note(context: Context) -> None:
            record.results.update(context.tool_results)

        loop = Loop(
            tools=tools_of(runtime),
            resolve_tool=never,  # as in the replay
            max_iterations=max(Limits().max_iterations, len(record.model.keys) + 1),
        )
        file, events = io.StringIO(), list[Event]()
        result = loop.run_sync(
            [{"role": "user", "content": query}],
            record.model,
            resolve_tool=resolve,
            on_iteration=note,
            on_event=[Overlaps(record), Recorder(file), events.append],
        )
        record.differs = replayed(file.getvalue(), loop, result, events)
        record.iterations = result.iterations
        if isinstance(result, Ok):
            record.answered = True
        else:
            record.ending = f"{result.stop_reason}, {result.reason}"
        return result.messages


def never(*_args: Any, **_options: Any) -> Any:
    """Stand for the tools of a replay."""
    raise AssertionError("a replay calls no tool")


def replayed(text: str, loop: Loop[str], result: Result, events: list[Event]) -> str:
    """Replay a run from its recording, without model and tools. Returns what is different."""
    recording = read_lines(text.encode("ascii").splitlines(keepends=True), "recording")
    seen: list[Event] = []
    try:
        again = replay(recording, loop, on_event=seen.append)
    except TreadleError as error:
        return str(error)
    if again != result:
        return "the replay has another result"
    return "" if seen == events else "the replay has other events"


class Overlaps:
    """An observer that notes which tools ran at the same time."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._running: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, ToolStarted):
            pairs = [(name, event.call.name) for name in self._running.values()]
            self._record.overlaps.extend(pairs)
            self._running[event.call.id] = event.call.name
        elif isinstance(event, ToolFinished):
            self._running.pop(event.call.id, None)


def as_agentdojo(message: Message, world: World) -> ChatMessage:
    """An assistant message in AgentDojo's form, with those of its calls that ran.

    AgentDojo takes the calls in the messages for the trace of what was executed.
    """
    calls = [
        FunctionCall(
            function=call["function"]["name"],
            args=json.loads(call["function"]["arguments"]),
            id=call["id"],
        )
        for call in message.get("tool_calls") or ()
        if call["id"] in world.ran
    ]
    content = [text_content_block_from_string(message.get("content") or "")]
    return {"role": "assistant", "content": content, "tool_calls": calls or None}
