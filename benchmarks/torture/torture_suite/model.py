"""The scripted model of a scenario: it records its requests, and refuses after a fixed number of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torture_suite.log import Log, copied
from torture_suite.script import (
    Broken,
    Chunked,
    JSONDict,
    Raw,
    Reply,
    Request,
    says,
    with_ids,
)

if TYPE_CHECKING:
    from torture_suite.protocol import Scenario

MAX_CALLS = 60
"""Requests after which a model refuses: no task of the scenarios takes more than a few."""


class TooManyCalls(Exception):  # noqa: N818 - it is a verdict, and a loop sees it as an error like others
    """There were more requests than any loop with a limit makes."""


class ScenarioOver(Exception):  # noqa: N818 - the same
    """The model was asked after the scenario was over."""


@dataclass
class Asked:
    """One request to the model, copied when it was made, and its outcome.

    Args:
        messages: copies of the messages.
        tools: copies of the tools.
        message: the assistant message it answered; None where it raised or gave something else.
        error: what it raised.
    """

    messages: list[JSONDict]
    tools: list[JSONDict]
    message: JSONDict | None = None
    error: BaseException | None = None


class Model:
    """A model that answers by a script. An adapter converts it to the kind of model of its loop.

    All methods take OpenAI chat dicts and OpenAI tool dicts. They raise what a model's API would raise.

    Attributes:
        scenario: whose model it is.
        log: the record of the scenario's tools.
        asked: the requests so far.
        overrun: whether it was asked more than `MAX_CALLS` times.
    """

    def __init__(self, scenario: Scenario, log: Log) -> None:
        self.scenario = scenario
        self.log = log
        self.asked: list[Asked] = []
        self.overrun = False
        self._lock = threading.Lock()

    def reply(self, messages: list[JSONDict], tools: list[JSONDict] | None = None) -> Any:
        """Answer with an assistant message; the ``arguments`` of its calls are text, malformed or not."""
        completion = self.completion(messages, tools)
        return completion["choices"][0]["message"] if isinstance(completion, dict) else completion  # pyright: ignore[reportUnknownVariableType]

    async def areply(self, messages: list[JSONDict], tools: list[JSONDict] | None = None) -> Any:
        """The same as `reply`, for loops whose models are async."""
        return self.reply(messages, tools)

    def completion(self, messages: list[JSONDict], tools: list[JSONDict] | None = None) -> Any:
        """Answer with a whole chat completion, as a dict: with finish reason, and usage if there is any."""
        index, asked = self._note(messages, tools)
        step = self._step(asked, index, messages, tools or [])
        if isinstance(step, Raw):
            return step.value
        if isinstance(step, Broken):
            raise self._failed(asked, step.error or ConnectionError("the stream broke off"))
        return _completion(Reply(step.message) if isinstance(step, Chunked) else step, index)

    def stream(
        self, messages: list[JSONDict], tools: list[JSONDict] | None = None
    ) -> Iterator[JSONDict]:
        """Answer with OpenAI's chunk dicts, piece by piece."""
        index, asked = self._note(messages, tools)
        step = self._step(asked, index, messages, tools or [])
        if isinstance(step, Raw):
            raise TypeError("a raw value cannot be streamed")
        return self._pieces(asked, step, index)

    async def astream(
        self, messages: list[JSONDict], tools: list[JSONDict] | None = None
    ) -> AsyncIterator[JSONDict]:
        """The same as `stream`, for loops whose models are async."""
        for chunk in self.stream(messages, tools):
            yield chunk

    def _pieces(
        self, asked: Asked, step: Reply | Broken | Chunked, index: int
    ) -> Iterator[JSONDict]:
        if isinstance(step, Chunked):
            completion = _completion(Reply(step.message), index)
            for delta in step.deltas:
                yield _chunk(completion, delta)
            if step.deltas:
                yield _chunk(completion, {}, completion["choices"][0]["finish_reason"])
        elif isinstance(step, Broken):
            whole = list(_chunks(_completion(Reply(step.message), index)))
            yield from whole[: step.pieces]
            if step.error is not None:
                raise self._failed(asked, step.error)
        else:
            yield from _chunks(_completion(step, index))

    def _note(self, messages: list[JSONDict], tools: list[JSONDict] | None) -> tuple[int, Asked]:
        if self.log.released.is_set():
            raise ScenarioOver("the scenario is over")
        with self._lock:
            index = len(self.asked)
            if index >= MAX_CALLS:
                self.overrun = True
                raise TooManyCalls(f"the model was asked more than {MAX_CALLS} times")
            asked = Asked(copied(messages), copied(tools or []))
            self.asked.append(asked)
        return index, asked

    def _step(
        self, asked: Asked, index: int, messages: list[JSONDict], tools: list[JSONDict]
    ) -> Reply | Broken | Chunked | Raw:
        script = self.scenario.script
        step: Any = script
        if not callable(script):
            step = script[index] if index < len(script) else says("done")
        while callable(step):
            step = step(Request(index, messages, tools))
        if isinstance(step, Exception):
            raise self._failed(asked, step)
        if isinstance(step, Broken):
            return Broken(with_ids(copied(step.message), index), step.pieces, step.error)
        if isinstance(step, Raw):
            return step
        if isinstance(step, Chunked):
            asked.message = with_ids(copied(step.message), index)
            return step
        reply = step if isinstance(step, Reply) else Reply(step)
        message = with_ids(copied(reply.message), index)
        asked.message = copied(message)
        return Reply(message, reply.finish_reason, reply.usage)

    @staticmethod
    def _failed(asked: Asked, error: Exception) -> Exception:
        asked.message, asked.error = None, error
        return error


def _completion(reply: Reply, index: int) -> JSONDict:
    message = reply.message
    reason = reply.finish_reason or ("tool_calls" if message.get("tool_calls") else "stop")
    completion: JSONDict = {
        "id": f"chatcmpl-{index}",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
    }
    if reply.usage is not None:
        completion["usage"] = dict(reply.usage)
    return completion


def _chunks(completion: JSONDict) -> Iterator[JSONDict]:
    """A completion in pieces: the role, text word by word, each call's head, its arguments in halves."""
    choice = completion["choices"][0]
    message: JSONDict = choice["message"]
    chunk = functools.partial(_chunk, completion)
    yield chunk({"role": "assistant", "content": ""})
    for word in (message.get("content") or "").split(" "):
        if word:
            yield chunk({"content": f"{word} "})
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        text: str = function["arguments"]
        half = len(text) // 2
        head: JSONDict = {
            "index": index,
            **call,
            "function": {"name": function["name"], "arguments": ""},
        }
        yield chunk({"tool_calls": [head]})
        for part in (text[:half], text[half:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, choice["finish_reason"])
    if completion.get("usage"):
        yield {**chunk({}), "choices": [], "usage": completion["usage"]}


def _chunk(completion: JSONDict, delta: JSONDict, finish_reason: str | None = None) -> JSONDict:
    return {
        "id": completion["id"],
        "object": "chat.completion.chunk",
        "created": 0,
        "model": completion["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
