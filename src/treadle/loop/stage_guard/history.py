"""The history after a custom stage: it is valid, and contains the iteration once."""

from __future__ import annotations

from typing import Any

from treadle.context import Context
from treadle.loop.stage_guard.fields import changed
from treadle.messages import History, JSONDict, is_dict, to_message, validate_messages
from treadle.stages import assistant_message, inject


def with_history(stage: str, before: Context, after: Context) -> Context:
    """Make a valid history that contains this iteration once if it is injected, else not at all."""
    if not changed("messages", before, after):
        return after
    if _is_only_injected(before, after):
        return after
    given = [to_message(message) for message in after.messages]
    if after.is_injected:
        edited, note = _with_exchange(given, list(after.result_messages), before)
    else:
        edited, note, after = _before_injection(given, before, after)
    # The ids of calls that are not in the history yet are reserved for them.
    taken = () if after.is_injected else [call.id for call in after.tool_calls]
    history, repairs = validate_messages(edited, taken)
    after.run.note_repairs((*note, *repairs), stage)
    return after.evolve(messages=History(history))


def _is_only_injected(before: Context, after: Context) -> bool:
    """Whether the only change of a history is that of `inject_results`."""
    messages: Any = after.messages  # a stage may have returned a list
    if before.is_injected or not after.is_injected or not isinstance(messages, History):
        return False
    return messages.raw() == [*before.messages.raw(), *after.result_messages]


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
    given: list[Any], exchange: list[JSONDict], before: Context
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


def _has_answer(given: list[Any], answer: JSONDict, before: Context) -> bool:
    """Whether a text answer is in an edited history, either unchanged or rewritten by the stage."""
    if any(message == answer for message in given):
        return True
    spoken = [m for m in given if is_dict(m) and m.get("role") == "assistant"]
    if not spoken:
        return False
    return not any(message == spoken[-1] for message in before.messages.raw())


def _before_injection(
    given: list[Any], before: Context, after: Context
) -> tuple[list[Any], tuple[str, ...], Context]:
    """An edited history without this iteration, or with all of it if the stage added it."""
    if not after.is_asked:
        return given, (), after
    ids = [call.id for call in after.tool_calls]
    own = assistant_message(after)
    if not ids:
        is_added = len(given) > 0 and given[-1] == own and not _ends_so(before, own)
        if is_added and not after.response.is_blank:
            return given, (), after.evolve(result_messages=(own,))
        return given, (), after
    wanted = set(ids)
    if not any(_belongs(message, wanted) for message in given):
        return given, (), after
    if all(call_id in after.tool_results for call_id in ids):
        exchange = inject(after.evolve(messages=History())).result_messages
        edited, _ = _with_exchange(given, list(exchange), before)
        return edited, (), after.evolve(result_messages=exchange)
    # Calls that have not run yet: their messages follow with their results.
    rest = [message for message in given if not _belongs(message, wanted)]
    return rest, ("messages of calls that have not run were left out",), after


def _ends_so(ctx: Context, message: JSONDict) -> bool:
    messages = ctx.messages.raw()
    return bool(messages) and messages[-1] == message
