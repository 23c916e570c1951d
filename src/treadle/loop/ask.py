"""Asking the model: one logical call, with its retries, streamed or not."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from treadle.loop.assembler import Assembler
from treadle.loop.backend import Backend, Exchange
from treadle.loop.retry import BASE_DELAY, delay_before_retry, is_retryable
from treadle.pipeline import NOW, Call, Emit, Mode, Sleep, Steps
from treadle.types import (
    History,
    JSONDict,
    LLMError,
    ModelRetried,
    Response,
    StreamStarted,
    TextDelta,
    labels,
    text_of,
)

CHUNKS_AT_ONCE = 32
"""Pieces of a stream that are read before others have their turn."""

log = logging.getLogger("treadle.loop")


@dataclass(frozen=True, slots=True)
class Asker:
    """What stays the same from one request of a run to the next.

    Args:
        backend: the model.
        tools: the tools, in OpenAI's form.
        max_retries: tries after the first.
        retry_delay: seconds before the second try.
        watched: whether anybody listens.
        is_bounded: whether there is a bound at which a request is given up.
    """

    backend: Backend
    tools: list[JSONDict]
    max_retries: int = 3
    retry_delay: float = BASE_DELAY
    watched: bool = False
    is_bounded: bool = False

    def ask(
        self,
        history: History,
        guidance: str | None,
        iteration: int,
        *,
        uses_tools: bool = True,
    ) -> Steps[Response]:
        """Ask for one response.

        Args:
            history: the conversation.
            guidance: what to tell the model in this request only; None is nothing.
            iteration: the number of the iteration.
            uses_tools: whether the model may call tools in this request.

        Raises:
            LLMError: it failed, and another try would not help or is not left.
        """
        attempt = 1
        key = str(iteration)
        mode = self.backend.mode
        is_async = mode is _ASYNC
        if self.is_bounded and is_async:
            # Whoever has set a bound must not wait for a request that ignores it. The pieces of a stream are
            # awaited here all the same: a generator may not be resumed in one task after another.
            mode = Mode.DETACHED
        while True:
            try:
                messages = history.for_model()
                if guidance is not None:
                    _add_guidance(messages, guidance)
                exchange = self.backend.exchange(messages, self.tools, uses_tools=uses_tools)
                response: Response | None = yield Call(
                    exchange.open_async if is_async else exchange.open,
                    mode=mode,
                    label=labels.CHAT,
                    key=key,
                )
                if response is None:
                    response = yield from self._streamed(exchange, iteration, key)
            except Exception as error:
                if attempt > self.max_retries or not is_retryable(error):
                    kind = type(error).__name__
                    raise LLMError(text_of(error), kind, attempt, error) from error
                yield from self._wait(error, attempt, iteration)
            else:
                return response
            attempt += 1

    def _wait(self, error: Exception, attempt: int, iteration: int) -> Steps[None]:
        """Wait before the next try, and tell of it."""
        delay = yield from delay_before_retry(error, attempt, self.retry_delay)
        now = yield NOW
        yield Emit(
            ModelRetried(
                iteration=iteration,
                attempt=attempt,
                error=text_of(error),
                error_type=type(error).__name__,
                delay=delay,
                at=now,
            )
        )
        yield Sleep(delay)

    def _streamed(self, exchange: Exchange, iteration: int, key: str) -> Steps[Response]:
        """Read an answer that comes in pieces; one that breaks off is closed."""
        try:
            return (yield from self._read(exchange, iteration, key))
        except GeneratorExit:
            raise
        except BaseException:
            try:
                yield Call(exchange.close, mode=exchange.chunk_mode, label=labels.CLOSE, key=key)
            except Exception:  # the answer is given up already; that is what has to be told
                log.debug("closing a broken stream failed", exc_info=True)
            raise

    def _read(self, exchange: Exchange, iteration: int, key: str) -> Steps[Response]:
        assembler, count = Assembler(), 0
        while True:
            count += 1
            if count % CHUNKS_AT_ONCE == 0:
                # A stream that has its pieces ready never waits, and a time limit needs somebody to wait.
                yield Sleep(0)
            chunk = yield Call(
                exchange.next_chunk, mode=exchange.chunk_mode, label=labels.CHUNK, key=key
            )
            if chunk is None:
                return assembler.response()
            if count == 1 and self.watched:
                now = yield NOW
                yield Emit(StreamStarted(iteration=iteration, at=now))
            assembler.add(chunk)
            if chunk.text and self.watched:
                yield Emit(TextDelta(iteration=iteration, text=chunk.text))


_ASYNC = Mode.ASYNC  # members are looked up slowly


def _add_guidance(messages: list[JSONDict], guidance: str) -> None:
    """Tell the model something at the end of a request; two user messages never follow each other."""
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": f"{last['content']}\n\n{guidance}"}
    else:
        messages.append({"role": "user", "content": guidance})
