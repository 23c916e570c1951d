"""`ChaosLLM`: what a misbehaving model does with a request."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from treadle.errors import OptionError
from treadle.messages import JSONDict, copy_json, is_dict, is_list, is_mapping
from treadle.testing.chaos.calls import CALL_NAMES, CALLS, CallsMaker, Memory, Offer
from treadle.testing.chaos.dice import Dice, Table
from treadle.testing.chaos.errors import ERRORS
from treadle.testing.chaos.replies import Reply
from treadle.testing.chaos.responses import (
    FORMS,
    GARBAGE,
    REPORT_NAMES,
    STREAM_FAULTS,
    TEXTS,
    assistant,
)
from treadle.tools import toolset

# What it does.

Action: TypeAlias = Callable[[Dice, Memory], Reply | JSONDict]
"""Decides what it does: a reply, or a message, which is given in any form."""


def _calling(make: CallsMaker) -> Action:
    def message(dice: Dice, memory: Memory) -> JSONDict:
        calls = make(dice, memory)
        return assistant(dice.choice((None, None, None, "", "Let me see.")), tool_calls=calls)

    return message


def _hangs(dice: Dice, _memory: Memory) -> Reply:
    return Reply("late", pause=math.inf if dice.is_endless else 0.005)


_ACTIONS: Table[Action] = Table(
    "does",
    {
        **{name: (weight, _calling(make)) for name, (weight, make) in CALLS.items()},
        "a text": (7, lambda dice, _m: dice.pick(TEXTS)(dice)),
        "nothing": (4, lambda dice, _m: assistant(dice.choice((None, "", " \n")))),
        "garbage": (3, lambda dice, _m: Reply(dice.pick(GARBAGE)(dice))),
        "raises": (6, lambda dice, _m: Reply(error=dice.pick(ERRORS)(dice))),
        "hangs": (1.5, _hangs),
    },
)
_MOODS: Table[str | None] = Table(
    "mood",
    {
        "chaotic": (60, None),
        "diligent": (12, "does: good calls"),
        "always the same call": (6, "does: the same call as before"),
        "always two calls in turn": (5, "does: two calls in turn"),
        "always bad calls": (5, "does: bad calls"),
        "always nothing": (4, "does: nothing"),
        "always raising": (4, "does: raises"),
        "always garbage": (2, "does: garbage"),
        "always a text": (2, "does: a text"),
    },
)
"""What it does in every request; None chooses an action for each."""
_ANSWERS = "after its turns: answers"
_MOODLESS = 0.08
"""The share of requests without the mood, so that a diligent model answers at some time."""
_MUTATING = 0.12
"""The share of requests in which it changes its arguments."""

# How it changes the messages and options of a request, which are not its own.

Mutation: TypeAlias = Callable[[Dice, list[JSONDict], dict[str, Any]], object]


def _message(dice: Dice, messages: list[JSONDict]) -> JSONDict:
    return dice.choice(messages) if messages else {}


def _empty_parts(dice: Dice, messages: list[JSONDict]) -> None:
    for value in list(_message(dice, messages).values()):
        _empty(value)


def _empty(value: Any) -> None:
    """Clear a container, and all containers in it."""
    if is_dict(value) or is_list(value):
        for part in list(value.values() if is_dict(value) else value):
            _empty(part)
        value.clear()


def _spoil_calls(messages: list[JSONDict]) -> None:
    for message in messages:
        for call in message.get("tool_calls") or ():
            function = call.get("function", {})
            function.pop("name", None)
            call.update(id="spoilt", function={**function, "arguments": "{"})
            function.clear()


def _spoil_tools(opts: dict[str, Any]) -> None:
    tools: Any = opts.get("tools")
    for offered in filter(is_dict, tools if is_list(tools) else ()):
        offered.get("function", {}).update(name="spoilt", parameters=None)


MUTATIONS: Table[Mutation] = Table(
    "mutates",
    {
        "by adding a message": (2, lambda _d, messages, _o: messages.append({"role": "user"})),
        "by removing a message": (1, lambda _d, messages, _o: messages and messages.pop()),
        "by removing all messages": (1, lambda _d, messages, _o: messages.clear()),
        "by reversing the messages": (1, lambda _d, messages, _o: messages.reverse()),
        "a content": (2, lambda d, messages, _o: _message(d, messages).update(content=5)),
        "a role": (1, lambda d, messages, _o: _message(d, messages).update(role="wizard")),
        "a message by clearing it": (1, lambda d, messages, _o: _message(d, messages).clear()),
        "the parts of a message": (1, lambda d, messages, _o: _empty_parts(d, messages)),
        "the calls": (1, lambda _d, messages, _o: _spoil_calls(messages)),
        "the options by removing all": (1, lambda _d, _m, opts: opts.clear()),
        "the options by adding some": (1, lambda _d, _m, opts: opts.update(stream=5, tools="none")),
        "the options at every level": (1, lambda _d, _m, opts: _empty(opts)),
        "the tools": (1, lambda _d, _m, opts: _spoil_tools(opts)),
    },
)

# The model.

_LEAST = 10


class ChaosLLM:
    """A model that does everything that models and their clients do wrong, and sometimes behaves well.

    What it does depends on its seed and on the number of the request, hardly on what it is sent: a seed that
    shows a fault shows it again. It never ends the interpreter, and waits at most milliseconds unless ``hangs``.

    Args:
        seed: any number.
        tools: what it calls, in any form that a loop accepts; None uses what the first request offers.
        turns: requests after which it only answers; None is no limit.
        is_async: whether it is an async callable, as most clients are.
        hangs: where it hangs, it waits forever instead of some milliseconds, and it streams without end. The
            run needs a time limit. A model that is not async blocks its thread until `release` is called.
        longest: greatest length of a text, in characters; at least 10.
        most_calls: greatest number of calls in one response; at least 10.

    Attributes:
        sent: the number of requests so far.
        behaviours: the names of what it did, in order; ``request N`` starts each request.

    Raises:
        OptionError: ``longest`` or ``most_calls`` is too small.
        ToolDefinitionError: a tool is not valid.
    """

    BEHAVIOURS = (
        *(*_MOODS, *_ACTIONS, *FORMS, *STREAM_FAULTS, *TEXTS, *CALL_NAMES),
        *(*GARBAGE, *ERRORS, *MUTATIONS, *REPORT_NAMES, _ANSWERS),
    )
    """The names of everything that it may do."""

    def __init__(
        self,
        seed: int,
        tools: Iterable[Any] | None = None,
        *,
        turns: int | None = None,
        is_async: bool = False,
        hangs: bool = False,
        longest: int = 60_000,
        most_calls: int = 2_000,
    ) -> None:
        if longest < _LEAST or most_calls < _LEAST:
            raise OptionError(f"longest and most_calls: expected at least {_LEAST}")
        self.seed = seed
        self.sent = 0
        self.behaviours: list[str] = []
        offers = [(name, tool.input_schema) for name, tool in toolset(tools).items()]
        self._shown_tools = None if tools is None else _shown(tools, offers)
        self._turns = turns
        self._is_async = is_async
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._hangs, self._longest = hangs, longest
        self._memory = Memory(offers, most_calls)
        dice = Dice(f"{seed}")
        self._mood = dice.pick(_MOODS)
        self.behaviours += dice.names

    def __call__(self, messages: list[JSONDict], opts: dict[str, Any] | None = None) -> Any:
        """Reply to a request; if the model is async, what it returns must be awaited."""
        reply = self._reply(messages, {} if opts is None else opts)
        return reply.play_async() if self._is_async else reply.play(self._released)

    def release(self) -> None:
        """End all waits in threads with a TimeoutError, and all later ones."""
        self._released.set()

    def _reply(self, messages: list[JSONDict], opts: dict[str, Any]) -> Reply:
        with self._lock:
            self.sent += 1
            self._memory.request = self.sent
            if self._shown_tools is None and self.sent == 1:
                self._memory.offers = _offered(opts)
            seed = f"{self.seed}/{self.sent}"
            dice = Dice(seed, longest=self._longest, is_endless=self._hangs)
            reply = self._chosen(dice)
            if dice.chance(_MUTATING):
                dice.pick(MUTATIONS)(dice, messages, opts)
            self.behaviours += [f"request {self.sent}", *dice.names]
            return reply

    def _chosen(self, dice: Dice) -> Reply:
        if self._turns is not None and self.sent > self._turns:
            dice.note(_ANSWERS)
            return Reply(assistant("Done."))
        mood = None if dice.chance(_MOODLESS) else self._mood
        action = dice.pick(_ACTIONS) if mood is None else _ACTIONS[mood]
        made = action(dice, self._memory)
        return made if isinstance(made, Reply) else dice.pick(FORMS)(dice, made)

    def __repr__(self) -> str:
        options = [
            repr(self.seed),
            *([] if self._shown_tools is None else [self._shown_tools]),
            *([] if self._turns is None else [f"turns={self._turns}"]),
            f"is_async={self._is_async}, hangs={self._hangs}",
            f"longest={self._longest}, most_calls={self._memory.most_calls}",
        ]
        return f"ChaosLLM({', '.join(options)})"


def _shown(tools: Iterable[Any], offers: Iterable[Offer]) -> str:
    """Tools for `repr`: by name, as their own text can fill a page."""
    is_chaos = type(tools).__module__.startswith("treadle.testing")
    return repr(tools) if is_chaos else f"[{', '.join(name for name, _ in offers)}]"


def _offered(opts: Mapping[str, Any]) -> list[Offer]:
    """The tools that a request offers."""
    tools: Any = opts.get("tools")
    offered = [tool for tool in tools if is_mapping(tool)] if is_list(tools) else []
    functions = filter(is_mapping, (tool.get("function") for tool in offered))
    return [(function["name"], copy_json(dict(function["parameters"]))) for function in functions]
