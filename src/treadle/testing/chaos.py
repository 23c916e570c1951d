"""A model that misbehaves in every way a model or its client can, the same way for the same seed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.errors import OptionError
from treadle.messages import JSONDict, copy_json, is_list, is_mapping
from treadle.testing._chaos_acts import ACTS, BEHAVIOURS, CALM, MOODS, TIRED, plain
from treadle.testing._chaos_calls import Mind, Offer
from treadle.testing._chaos_dice import Dice
from treadle.testing._chaos_forms import Turn
from treadle.testing._chaos_mutations import MUTATIONS
from treadle.testing._chaos_play import Player
from treadle.tools import toolset

_MUTATING = 0.12
"""The share of requests in which it changes what it was handed."""


class ChaosLLM:
    """A backend that does whatever a model or its client may do wrong, and now and then what is right.

    What it does depends on its seed and on the number of the request, hardly on what it is sent, so that a
    seed which shows a fault shows it again. It never ends the interpreter and never waits long, but where
    it is asked to.

    Args:
        seed: any number; each is another story.
        tools: what it may call, in any form that a loop takes; None is what the first request offers.
        turns: requests after which it does nothing but answer; None is never.
        is_async: be an async callable, as most clients are.
        hangs: where it hangs, wait for ever, not for some milliseconds, and stream without end: the run
            needs a time limit. One that is not async blocks its thread until `let_go` is called.
        longest: characters that a text of it has at most.
        most_calls: calls that it makes at most in one answer.

    Attributes:
        sent: the number of requests so far.
        behaviours: the names of what it did, in order; each request begins with one that starts with
            ``request``.

    Raises:
        OptionError: ``longest`` or ``most_calls`` is too small to do anything with.
        ToolDefinitionError: a broken tool.
    """

    BEHAVIOURS = BEHAVIOURS

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
        self._shown = None if tools is None else _told(tools, offers)
        self._turns = turns
        self._is_async = is_async
        self._hangs = hangs
        self._lock = threading.Lock()
        self._player = Player()
        self._mind = Mind(offers, longest, most_calls, endless=hangs)
        dice = Dice(f"{seed}")
        self._mood = dice.pick(MOODS)
        self.behaviours += dice.told

    def __call__(self, messages: list[JSONDict], opts: dict[str, Any] | None = None) -> Any:
        """Misbehave once more; what it returns has to be awaited where it is async."""
        turn = self._turn(messages, {} if opts is None else opts)
        return self._player.play_async(turn) if self._is_async else self._player.play(turn)

    def let_go(self) -> None:
        """End whatever hangs in a thread; it raises there. Nothing hangs in a thread from here on."""
        self._player.let_go()

    def _turn(self, messages: list[JSONDict], opts: dict[str, Any]) -> Turn:
        with self._lock:
            self.sent += 1
            self._mind.request = self.sent
            if self._shown is None and self.sent == 1:
                self._mind.offers = _offered(opts)
            dice = Dice(f"{self.seed}/{self.sent}")
            turn = self._acted(dice)
            if dice.chance(_MUTATING):
                dice.pick(MUTATIONS)(dice, messages, opts)
            self.behaviours += [f"request {self.sent}", *dice.told]
            return turn

    def _acted(self, dice: Dice) -> Turn:
        if self._turns is not None and self.sent > self._turns:
            dice.tell(TIRED)
            return plain(dice, self._mind)
        if self._mood is None or dice.chance(CALM):
            return dice.pick(ACTS)(dice, self._mind)
        return self._mood(dice, self._mind)

    def __repr__(self) -> str:
        facts = [
            repr(self.seed),
            *([] if self._shown is None else [self._shown]),
            *([] if self._turns is None else [f"turns={self._turns}"]),
            f"is_async={self._is_async}",
            f"hangs={self._hangs}",
            f"longest={self._mind.longest}",
            f"most_calls={self._mind.most_calls}",
        ]
        return f"ChaosLLM({', '.join(facts)})"


_LEAST = 10


def _told(tools: Iterable[Any], offers: Iterable[Offer]) -> str:
    """Tools by name, where their own text would fill a page."""
    is_own = type(tools).__module__.startswith("treadle.testing")
    return repr(tools) if is_own else f"[{', '.join(name for name, _ in offers)}]"


def _offered(opts: Mapping[str, Any]) -> list[Offer]:
    """The tools of a request."""
    tools: Any = opts.get("tools")
    functions = (
        [tool.get("function") for tool in tools if is_mapping(tool)] if is_list(tools) else []
    )
    return [
        (function["name"], copy_json(dict(function["parameters"])))
        for function in functions
        if is_mapping(function)
    ]
