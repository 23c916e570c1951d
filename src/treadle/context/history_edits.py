"""The history, rewritten by a stage: it is valid, and contains the exchange of the iteration once."""

from __future__ import annotations

from typing import Any

from treadle.context.calls import IterationT
from treadle.context.iteration import Iteration
from treadle.errors import OptionError
from treadle.messages import History, JSONDict, describe, is_dict, to_message, validate_messages


def with_messages(ctx: IterationT, given: Any, *, injects: bool) -> IterationT:
    """The context with another history: repaired where it is broken; the current exchange stays whole.

    Args:
        ctx: the context.
        given: a history, or a list of messages.
        injects: whether the stage appends the exchange of the iteration.

    Raises:
        OptionError: it is no list, or has calls of this iteration, which `inject_results` appends.
        InvalidMessagesError: malformed messages.
    """
    if not isinstance(given, (History, list, tuple)):
        raise OptionError(
            f"replace: messages: expected a history or a list of messages, got {describe(given)}"
        )
    edited: list[Any] = [to_message(message) for message in given]  # pyright: ignore[reportUnknownVariableType]
    note: tuple[str, ...] = ()
    made: tuple[JSONDict, ...] = ctx.result_messages
    if made:
        edited, note = _with_exchange(edited, list(made), ctx)
    elif ctx.is_asked:
        made = _exchange_in(edited, ctx)
        if made and ctx.tool_calls and not injects:
            raise OptionError(
                "replace: messages: the calls of this iteration are not in the history yet; inject_results "
                "appends them, or a stage that replaces it"
            )
    # The ids of calls that are not in the history yet are reserved for them.
    taken = () if made else [call.id for call in ctx.tool_calls]
    history, repairs = validate_messages(edited, taken)
    ctx.run.ledger.note_repairs((*note, *repairs), ctx.stage)
    return ctx.evolve(messages=History(history), result_messages=made)


def _exchange_in(given: list[Any], ctx: Iteration) -> tuple[JSONDict, ...]:
    """The messages of the iteration that a stage appended itself; empty if there are none."""
    ids = {call.id for call in ctx.tool_calls}
    if ids:
        return tuple(message for message in given if _belongs(message, ids))
    last: Any = given[-1] if given else None
    is_answer = is_dict(last) and last.get("role") == "assistant" and not ctx.response.is_blank
    is_new = is_answer and last.get("content") == ctx.response.content
    messages = ctx.messages.raw()
    return (last,) if is_new and not (messages and messages[-1] == last) else ()


def call_ids(message: Any) -> list[str]:
    """The ids of the calls of an assistant message, which may be malformed."""
    calls: Any = message.get("tool_calls") if is_dict(message) else None
    return [call.get("id", "") for call in calls or () if is_dict(call)]


def _belongs(message: Any, ids: set[str]) -> bool:
    """Whether a message requests or answers one of the given calls."""
    if not is_dict(message):
        return False
    return message.get("tool_call_id") in ids or not ids.isdisjoint(call_ids(message))


def _with_exchange(
    given: list[Any], exchange: list[JSONDict], before: Iteration
) -> tuple[list[Any], tuple[str, ...]]:
    """An edited history that has the messages of this iteration exactly once.

    Args:
        given: the history that a stage made.
        exchange: the assistant message of this iteration and its results.
        before: the context before the edit.
    """
    ids = call_ids(exchange[0])
    if not ids:
        if _has_answer(given, exchange[0], before):
            return given, ()
        return [*given, exchange[0]], ("the answer of this iteration was restored",)
    wanted = set(ids)
    rest = [message for message in given if not _belongs(message, wanted)]
    first = next(
        (
            place
            for place, message in enumerate(given)
            if wanted & set(call_ids(message)) and message.get("role") == "assistant"
        ),
        None,
    )
    position, assistant = len(rest), exchange[0]
    if first is not None:
        position = sum(not _belongs(message, wanted) for message in given[:first])
        assistant = _with_names(given[first], exchange[0])
    answers: dict[str, JSONDict] = {
        message["tool_call_id"]: message
        for message in reversed(given)
        if is_dict(message)
        and message.get("role") == "tool"
        and message.get("tool_call_id") in wanted
    }
    results = [answers.get(message["tool_call_id"], message) for message in exchange[1:]]
    edited = [*rest[:position], assistant, *results, *rest[position:]]
    if edited == given:
        return given, ()
    return edited, ("the messages of this iteration were restored",)


def _with_names(edited: JSONDict, made: JSONDict) -> JSONDict:
    """An edited assistant message with the calls of this iteration, whose arguments it may have rewritten."""
    calls: list[JSONDict] = made["tool_calls"]
    rewritten = {call["id"]: call for call in edited["tool_calls"]}
    kept: list[JSONDict] = []
    for call in calls:
        own = rewritten.get(call["id"], call)
        function: JSONDict = {**own["function"]} if is_dict(own.get("function")) else {}
        function.setdefault("arguments", call["function"]["arguments"])
        function["name"] = call["function"]["name"]
        kept.append({**own, "type": call["type"], "function": function})
    return {**edited, "tool_calls": kept}


def _has_answer(given: list[Any], answer: JSONDict, before: Iteration) -> bool:
    """Whether a text answer is in an edited history, either unchanged or rewritten by the stage."""
    if any(message == answer for message in given):
        return True
    spoken = [m for m in given if is_dict(m) and m.get("role") == "assistant"]
    if not spoken:
        return False
    return not any(message == spoken[-1] for message in before.messages.raw())
