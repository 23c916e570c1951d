"""A model that follows a script, and fails if the run does not."""

from __future__ import annotations

import inspect
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from treadle.messages import JSONDict, copy_json


class ScriptError(AssertionError):
    """The run made more requests than the script has steps, or fewer."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request, copied when it was made.

    Args:
        messages: the messages.
        opts: the options of the request.
    """

    messages: list[JSONDict]
    opts: dict[str, Any] = field(repr=False)  # a header may hold a secret


_ids = itertools.count(1)


def call(name: str, /, call_id: str | None = None, **arguments: Any) -> JSONDict:
    """Make a call for an assistant message.

    Args:
        name: the tool's name.
        call_id: its id; None generates one that is unique in this process.
        **arguments: its arguments.
    """
    return {
        "id": call_id or f"scripted_{next(_ids)}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def calls(*made: JSONDict, text: str | None = None) -> JSONDict:
    """Make an assistant message of calls, with or without text.

    Args:
        *made: calls, as `call` makes them.
        text: the text of the message.
    """
    return {"role": "assistant", "content": text, "tool_calls": list(made)}


class ScriptedLLM:
    """A model that answers by a script and records its requests.

    As a context manager it calls `check` at the end.

    Args:
        *script: the answers in order: anything that a model may return; an exception, which is raised; a
            function, sync or async, which takes the messages and returns the answer; or a list or tuple
            of chunks, which is streamed.
        is_async: whether it is an async callable, as most clients are.

    Attributes:
        sent: the requests so far.
    """

    def __init__(self, *script: Any, is_async: bool = False) -> None:
        self._script = list(script)
        self._is_async = is_async
        self.sent: list[SentRequest] = []

    @property
    def left(self) -> int:
        """The number of steps not used yet; negative if the run made more requests than that."""
        return len(self._script) - len(self.sent)

    def __call__(self, messages: list[JSONDict], **opts: Any) -> Any:
        """Answer with the next step; if the model is async, what it returns must be awaited."""
        step = self._next(messages, opts)
        return self._later(step, messages) if self._is_async else _answer(step, messages)

    def _next(self, messages: list[JSONDict], opts: Mapping[str, Any]) -> Any:
        place = len(self.sent)
        self.sent.append(SentRequest(copy_json(messages), dict(opts)))
        if place >= len(self._script):
            last = messages[-1] if messages else None
            raise ScriptError(
                f"the script has {len(self._script)} steps, and the run asked for one more, "
                f"after {last!r:.200}"
            )
        return self._script[place]

    async def _later(self, step: Any, messages: list[JSONDict]) -> Any:
        answer = _answer(step, messages)
        if inspect.isawaitable(answer):
            answer = await answer
        is_stream = isinstance(answer, Iterator)
        return _streamed(answer) if is_stream else answer  # pyright: ignore[reportUnknownArgumentType]

    def check(self) -> None:
        """Assert that the run used exactly the steps of the script.

        A run returns an ``Err`` for what its model raises, so an extra request is reported here again.

        Raises:
            ScriptError: steps were not used, or there were more requests than steps.
        """
        if self.left < 0:
            raise ScriptError(
                f"the script has {len(self._script)} steps, and the run asked {len(self.sent)} times"
            )
        if self.left > 0:
            raise ScriptError(
                f"the run ended after {len(self.sent)} of {len(self._script)} steps; "
                f"next would have been {self._script[len(self.sent)]!r:.200}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            self.check()


def _answer(step: Any, messages: list[JSONDict]) -> Any:
    if isinstance(step, BaseException):
        raise step
    is_stream = isinstance(step, (list, tuple))
    if is_stream:
        return iter(step)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if callable(step):
        maker: Callable[[list[JSONDict]], Any] = step
        return maker(messages)
    return copy_json(step)


async def _streamed(chunks: Iterable[Any]) -> AsyncIterator[Any]:
    for chunk in chunks:
        yield chunk
