"""One request of a run: it begins an iteration, counts against the budget, and is told to whoever listens."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.loop.foreign import is_cost
from treadle.pipeline import NOW, Emit, Steps
from treadle.types import (
    IterationStarted,
    LLMError,
    ModelFailed,
    ModelResponded,
    Reason,
    Response,
    RunNode,
)

if TYPE_CHECKING:
    from treadle.loop.iteration import Iterations

log = logging.getLogger("treadle.loop")


def request(
    turn: Iterations, guidance: str | None, *, uses_tools: bool = True
) -> Steps[Response | Reason]:
    """Ask the model for one response, which begins an iteration; or return why there is none.

    Args:
        turn: the run.
        guidance: what to tell the model in this request only.
        uses_tools: whether it may call tools.
    """
    context, plant = turn.context, turn.plant
    turn.budget.take_iteration()
    turn.iteration = iteration = turn.iteration + 1
    # It starts when the last one ended; but what watchers took since then is not the model's time.
    started = (yield NOW) if context.watched else turn.clock
    node = turn.state.new_node(at=started)
    node.start(started)
    if plant.tell_budget:
        left = f"Left for this task: {turn.budget.remaining(started)}."
        guidance = left if guidance is None else f"{guidance}\n\n{left}"
    if context.watched:
        yield Emit(
            IterationStarted(
                iteration=iteration, at=started, messages=context.messages, guidance=guidance
            )
        )
    try:
        response: Response = yield from plant.asker.ask(
            context.messages, guidance, iteration, uses_tools=uses_tools
        )
    except LLMError as error:
        return (yield from _model_failed(turn, node, error))
    if plant.price is not None:
        response = _priced(response, plant.price)
    usage = response.usage
    turn.state.record_usage(usage)
    turn.budget.record_usage(usage)
    node.usage = usage
    if context.watched:
        now = yield NOW
        yield Emit(
            ModelResponded(iteration=iteration, response=response, at=now, duration=now - started)
        )
    return response


def _priced(response: Response, price: Callable[[Response], float | None]) -> Response:
    usage = response.usage
    if usage is None or usage.cost is not None:
        return response
    try:
        cost = price(response)
        cost = None if cost is None else float(cost)
    except Exception:  # somebody else's function; the run has its answer
        log.warning("price= failed; the cost of this response is unknown", exc_info=True)
        return response
    if cost is not None and not is_cost(cost):
        log.warning("price= gave %r, which is no cost in US dollars; it is unknown", cost)
        return response
    return dataclasses.replace(response, usage=dataclasses.replace(usage, cost=cost))


def _model_failed(turn: Iterations, node: RunNode, error: LLMError) -> Steps[Reason]:
    ended = yield NOW
    node.fail(error, ended)
    turn.state.record_usage(None)
    turn.budget.record_usage(None)
    turn.context = turn.context.replace(usage=turn.budget.usage)
    if turn.context.watched:
        yield Emit(
            ModelFailed(
                iteration=turn.iteration,
                error=error.message,
                error_type=error.error_type,
                at=ended,
            )
        )
    return error
