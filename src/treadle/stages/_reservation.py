"""The reservation of a request: what it may use counts against the limits of outer runs before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.context import Context, Request
from treadle.effects import Steps
from treadle.messages import History, JSONDict, Response, estimate_tokens
from treadle.model import ModelClient
from treadle.reservations import Reservation, Reservations

_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The options that limit a response, by the names of OpenAI and of other providers."""


class Reserved:
    """The reservation of a request with all runs around it; `release` has to follow."""

    def __init__(self, ctx: Context, model: ModelClient, request: Request) -> None:
        info = model.model_info()
        options = {**info.request, **request.options}
        name: Any = options.get("model", info.model)
        name = name if isinstance(name, str) else None
        limits = (options.get(option) for option in _MAX_TOKENS)
        most = next((limit for limit in limits if isinstance(limit, int)), None)
        self._wanted = Reservation(name, ctx.state.agent_name, _prompt_of(ctx, request), most)
        self._own = ctx.run.budget
        self._held: list[Reservations] = []

    def hold(self) -> Steps[None]:
        """Wait until the request fits within the limits of these runs; one may be reached meanwhile."""
        # A run asks for one response at a time, so its requests compete with those of other subagents only.
        for budget in self._own.chain()[1:]:
            if budget.reservations is not None:
                yield from budget.reservations.hold(self._wanted, budget.admits)
                self._held.append(budget.reservations)

    def measured(self, response: Response) -> None:
        """Learn from the response what later requests may use."""
        usage = response.usage
        if usage is not None and not (usage.is_lower_bound or response.is_cached):
            self._own.measured(self._wanted, usage)

    def release(self) -> None:
        """End the reservation: the response is counted, or the last attempt has failed."""
        for one in self._held:
            one.release(self._wanted)


def _prompt_of(ctx: Context, request: Request) -> int:
    """The estimated tokens of a prompt. Of a history that has grown, only the new messages are read."""
    messages, tools, ledger = request.messages, request.tools, ctx.run.ledger
    raw: Sequence[JSONDict] = messages.raw() if isinstance(messages, History) else messages
    known, of_tools, tokens = ledger.estimated_prompt
    count = len(known)
    has_grown = 0 < count <= len(raw) and raw[0] is known[0] and raw[count - 1] is known[-1]
    if of_tools != tools or not has_grown:
        count, tokens = 0, estimate_tokens((), [ctx.tools[name].as_openai() for name in tools])
    tokens += estimate_tokens(raw[count:])
    ledger.estimated_prompt = raw, tools, tokens
    return tokens + estimate_tokens((), (), (request.instructions or "", ctx.guidance or ""))
