"""Changing what a backend is handed: none of it is its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from treadle.messages import JSONDict, is_dict, is_list
from treadle.testing._chaos_dice import Dice, Table

Mutation: TypeAlias = Callable[[Dice, list[JSONDict], dict[str, Any]], object]


def _message(dice: Dice, messages: list[JSONDict]) -> JSONDict:
    return dice.choice(messages) if messages else {}


def _clear_parts(dice: Dice, messages: list[JSONDict]) -> None:
    for value in list(_message(dice, messages).values()):
        _emptied(value)


def _emptied(value: Any) -> None:
    """Empty what is within, and then the thing itself."""
    if is_dict(value) or is_list(value):
        for part in list(value.values() if is_dict(value) else value):
            _emptied(part)
        value.clear()


def _spoil_calls(_dice: Dice, messages: list[JSONDict]) -> None:
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            function.pop("name", None)
            call.update(id="spoilt", function={**function, "arguments": "{"})
            function.clear()


def _spoil_tools(_dice: Dice, opts: dict[str, Any]) -> None:
    tools: Any = opts.get("tools")
    for offered in filter(is_dict, tools if is_list(tools) else ()):
        offered.get("function", {}).update(name="spoilt", parameters=None)


MUTATIONS: Table[Mutation] = Table(
    "mutates",
    {
        "by adding a message": (2, lambda _d, messages, _o: messages.append({"role": "user"})),
        "by removing a message": (1, lambda _d, messages, _o: messages and messages.pop()),
        "by removing all messages": (1, lambda _d, messages, _o: messages.clear()),
        "by turning the messages round": (1, lambda _d, messages, _o: messages.reverse()),
        "a content": (2, lambda d, messages, _o: _message(d, messages).update(content=5)),
        "a role": (1, lambda d, messages, _o: _message(d, messages).update(role="wizard")),
        "a message by emptying it": (1, lambda d, messages, _o: _message(d, messages).clear()),
        "the parts of a message": (1, lambda d, messages, _o: _clear_parts(d, messages)),
        "the calls": (1, lambda d, messages, _o: _spoil_calls(d, messages)),
        "the options by removing all": (1, lambda _d, _m, opts: opts.clear()),
        "the options by adding one": (1, lambda _d, _m, opts: opts.update(stream=5, tools="none")),
        "the options all the way down": (1, lambda _d, _m, opts: _emptied(opts)),
        "the tools": (1, lambda d, _m, opts: _spoil_tools(d, opts)),
    },
)
"""What is done to the messages and the options of a request."""
