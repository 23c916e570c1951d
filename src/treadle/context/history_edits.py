"""The history, rewritten by a stage: it is valid, and contains the exchange of the iteration once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.context.calls import IterationT, provides
from treadle.context.iteration import Iteration
from treadle.errors import OptionError
from treadle.messages import History, JSONDict, describe
from treadle.messages.repair import checked_messages, validate_messages


def with_messages(ctx: IterationT, given: Any) -> IterationT:
    """The context with another history: repaired where it is broken; the current exchange stays whole."""
    if not isinstance(given, (History, list, tuple)):
        raise OptionError(
            f"replace: messages: expected a history or a list of messages, got {describe(given)}"
        )
    messages: list[Any] = checked_messages(given) if len(given) else []  # pyright: ignore[reportUnknownArgumentType]
    note: tuple[str, ...] = ()
    made = ctx.result_messages
    if made:
        edited = _with_exchange(messages, made, ctx)
        if edited != messages:
            is_text = not call_ids(made[0])
            what = "answer of this iteration was" if is_text else "messages of this iteration were"
            messages, note = edited, (f"the {what} restored",)
    elif ctx.is_asked:
        made = _exchange_in(messages, ctx)
        if made and ctx.tool_calls and not provides(ctx, "result_messages"):
            raise OptionError(
                "replace: messages: the calls of this iteration are not in the history yet; inject_results "
                "appends them, or a stage that replaces it"
            )
    # The ids of calls that are not in the history yet are reserved for them.
    taken = () if made else [call.id for call in ctx.tool_calls]
    history, repairs = validate_messages(messages, taken)
    ctx = ctx.noted(ctx.stage, (*note, *repairs)) if note or repairs else ctx
    return ctx.evolve(messages=History(history), result_messages=made)


def _exchange_in(given: list[JSONDict], ctx: Iteration) -> tuple[JSONDict, ...]:
    """The messages of the iteration that a stage appended itself; empty if there are none."""
    ids = {call.id for call in ctx.tool_calls}
    if ids:
        return tuple(message for message in given if _belongs(message, ids))
    if not given or ctx.response.is_blank or given[-1]["role"] != "assistant":
        return ()
    last, is_old = given[-1], ctx.messages.raw()[-1:] == given[-1:]
    return (last,) if last.get("content") == ctx.response.content and not is_old else ()


def call_ids(message: JSONDict) -> list[str]:
    """The ids of the calls of an assistant message."""
    calls = message.get("tool_calls") if message["role"] == "assistant" else None
    return [call["id"] for call in calls or ()]


def _belongs(message: JSONDict, ids: set[str]) -> bool:
    """Whether a message requests or answers one of the given calls."""
    return message.get("tool_call_id") in ids or not ids.isdisjoint(call_ids(message))


def _with_exchange(
    given: list[JSONDict], exchange: Sequence[JSONDict], before: Iteration
) -> list[JSONDict]:
    """An edited history that has the messages of this iteration exactly once, where the edit has them."""
    ids = set(call_ids(exchange[0]))
    if not ids:  # an answer, unchanged or rewritten by the stage
        spoken = [message for message in given if message["role"] == "assistant"]
        is_rewritten = bool(spoken) and spoken[-1] not in before.messages.raw()
        return given if exchange[0] in given or is_rewritten else [*given, exchange[0]]
    rest = [message for message in given if not _belongs(message, ids)]
    made = (index for index, one in enumerate(given) if not ids.isdisjoint(call_ids(one)))
    first = next(made, None)
    position = sum(not _belongs(message, ids) for message in given[:first])
    assistant = exchange[0] if first is None else _with_names(given[first], exchange[0])
    answered = (message for message in reversed(given) if message["role"] == "tool")
    answers = {message["tool_call_id"]: message for message in answered}
    results = [answers.get(message["tool_call_id"], message) for message in exchange[1:]]
    return [*rest[:position], assistant, *results, *rest[position:]]


def _with_names(edited: JSONDict, made: JSONDict) -> JSONDict:
    """An edited assistant message with the calls of this iteration, whose arguments it may have rewritten."""
    rewritten = {call["id"]: call for call in edited["tool_calls"]}
    kept: list[JSONDict] = []
    for call in made["tool_calls"]:
        own, function = rewritten.get(call["id"], call), call["function"]
        function = {**function, **own.get("function", {}), "name": function["name"]}
        kept.append({**own, "type": call["type"], "function": function})
    return {**edited, "tool_calls": kept}
