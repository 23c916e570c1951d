"""Asking the model: one logical call, with its retries, streamed or not."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from treadle.loop.assembler import Assembler
from treadle.loop.backend import Backend, Exchange
from treadle.loop.retry import BASE_DELAY, delay_before_retry, is_retryable
from treadle.pipeline import Call, Emit, Sleep, Steps
from treadle.types import History, JSONDict, LLMError, ModelRetried, Response, TextDelta

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
    """

    backend: Backend
    tools: list[JSONDict]
    max_retries: int = 3
    retry_delay: float = BASE_DELAY
    watched: bool = False

    def ask(self, history: History, guidance: str | None, iteration: int) -> Steps[Response]:
        """Ask for one response.

        Args:
            history: the conversation.
            guidance: what to tell the model in this request only; None is nothing.
            iteration: the number of the iteration.

        Raises:
            LLMError: it failed, and another try would not help or is not left.
        """
        attempt = 1
        while True:
            try:
                return (yield from self._attempt(history, guidance, iteration))
            except Exception as error:
                if attempt > self.max_retries or not is_retryable(error):
                    kind = type(error).__name__
                    raise LLMError(str(error), kind, attempt, error) from error
                delay = yield from delay_before_retry(error, attempt, self.retry_delay)
                if self.watched:
                    yield Emit(
                        ModelRetried(
                            iteration=iteration,
                            attempt=attempt,
                            error=str(error),
                            error_type=type(error).__name__,
                            delay=delay,
                        )
                    )
                yield Sleep(delay)
            attempt += 1

    def _attempt(self, history: History, guidance: str | None, iteration: int) -> Steps[Response]:
        messages = history.for_model()
        if guidance is not None:
            _add_guidance(messages, guidance)
        exchange = self.backend.exchange(messages, self.tools)
        key = str(iteration)
        response: Response | None = yield Call(
            exchange.open, mode=self.backend.mode, label="chat", key=key
        )
        if response is not None:
            return response
        try:
            return (yield from self._read(exchange, iteration, key))
        except GeneratorExit:
            raise
        except BaseException:
            try:
                yield Call(exchange.close, mode=exchange.chunk_mode, label="close", key=key)
            except Exception:  # the answer is given up already; that is what has to be told
                log.debug("closing a broken stream failed", exc_info=True)
            raise

    def _read(self, exchange: Exchange, iteration: int, key: str) -> Steps[Response]:
        assembler = Assembler()
        while True:
            chunk = yield Call(
                exchange.next_chunk, mode=exchange.chunk_mode, label="chunk", key=key
            )
            if chunk is None:
                return assembler.response()
            assembler.add(chunk)
            if chunk.text and self.watched:
                yield Emit(TextDelta(iteration=iteration, text=chunk.text))


def _add_guidance(messages: list[JSONDict], guidance: str) -> None:
    """Tell the model something at the end of a request; two user messages never follow each other."""
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": f"{last['content']}\n\n{guidance}"}
    else:
        messages.append({"role": "user", "content": guidance})
