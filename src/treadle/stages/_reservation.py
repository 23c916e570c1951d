"""The reservation of a request: what it may use counts against the limits of outer runs before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.context import Context, Request
from treadle.effects import Steps
from treadle.messages import History, JSONDict, estimate_tokens
from treadle.reservations import Reservation, Reservations

_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The options that limit a response, by the names of OpenAI and of other providers."""


def reserving(ctx: Context, asking: Steps[Context]) -> Steps[Context]:
    """Ask the model when its request fits within the limits of all runs around it, with the others under way.

    A run asks for one response at a time, so that its requests compete with those of other subagents only. A
    request is held until the response is counted, or the last attempt has failed.

    Args:
        ctx: the context.
        asking: the steps that ask, not started. They check the limits, which may be reached meanwhile.
    """
    own = ctx.run.budget
    wanted = _reservation(ctx)
    held: list[Reservations] = []
    try:
        for budget in own.chain():
            if budget.reservations is not None and budget is not own:
                yield from budget.reservations.hold(wanted, budget.admits)
                held.append(budget.reservations)
        made = yield from asking
    finally:
        for one in held:
            one.release(wanted)
    response, usage = made.response, made.response.usage
    is_known = usage is not None and not (usage.is_lower_bound or response.is_cached)
    if usage is not None and is_known and made.decision is None:
        own.measured(wanted, usage)
    return made


def _reservation(ctx: Context) -> Reservation:
    request, model = ctx.request, ctx.run.model
    info = None if model is None else model.model_info()
    options = {**({} if info is None else info.request), **request.options}
    name: Any = options.get("model", None if info is None else info.model)
    limits = (options.get(option) for option in _MAX_TOKENS)
    most = next((limit for limit in limits if isinstance(limit, int)), None)
    prompt = _prompt_of(ctx, request)
    name = name if isinstance(name, str) else None
    return Reservation(name, ctx.state.agent_name, prompt, most)


def _prompt_of(ctx: Context, request: Request) -> int:
    """The estimated tokens of a prompt. Of a history that has grown, only the new messages are read."""
    run = ctx.run
    messages, tools = request.messages, request.tools
    raw: Sequence[JSONDict] = messages.raw() if isinstance(messages, History) else messages
    known, of_tools, tokens = run.estimated
    if of_tools != tools or not _continues(raw, known):
        payloads = [ctx.tools[name].as_openai() for name in tools]
        known, tokens = (), estimate_tokens((), payloads)
    tokens += estimate_tokens(raw[len(known) :])
    run.estimated = raw, tools, tokens
    return tokens + estimate_tokens((), (), (request.instructions or "", ctx.guidance or ""))


def _continues(raw: Sequence[JSONDict], known: Sequence[JSONDict]) -> bool:
    """Whether messages begin with those that were estimated before, by the first and the last of these."""
    count = len(known)
    return 0 < count <= len(raw) and raw[0] is known[0] and raw[count - 1] is known[-1]
