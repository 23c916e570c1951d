"""What a chaotic model does with a request: the acts that there are, and the moods that choose among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from treadle.messages import JSONDict
from treadle.testing._chaos_answers import ANSWERS, GARBAGE, REPORT_NAMES, said
from treadle.testing._chaos_calls import (
    CALL_TABLES,
    Mind,
    bad_call,
    good_call,
    mixed_call,
    same_calls,
    some_calls,
    thousands,
)
from treadle.testing._chaos_dice import Dice, Table, names_of
from treadle.testing._chaos_errors import ERRORS
from treadle.testing._chaos_forms import FORMS, Turn
from treadle.testing._chaos_mutations import MUTATIONS
from treadle.testing._chaos_streams import FAULTS

Act: TypeAlias = Callable[[Dice, Mind], Turn]


def _formed(dice: Dice, mind: Mind, message: JSONDict) -> Turn:
    return dice.pick(FORMS)(dice, message, mind.endless)


def _calling(dice: Dice, mind: Mind, calls: list[JSONDict]) -> Turn:
    content = dice.choice((None, None, None, "", "Let me see."))
    return _formed(dice, mind, said(content, tool_calls=calls))


def _good_calls(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, some_calls(dice, mind, good_call))


def _bad_calls(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, some_calls(dice, mind, bad_call))


def _mixed_calls(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, some_calls(dice, mind, mixed_call))


def _thousands(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, thousands(dice, mind))


def _repeats(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, same_calls(dice, mind, 1))


def _alternates(dice: Dice, mind: Mind) -> Turn:
    return _calling(dice, mind, same_calls(dice, mind, 2))


def _twins(dice: Dice, mind: Mind) -> Turn:
    """The same call several times in one answer."""
    call = good_call(dice, mind)
    duplicates = [{**call, "id": f"{call['id']}_{place}"} for place in range(dice.randint(2, 5))]
    return _calling(dice, mind, duplicates)


def _answers(dice: Dice, mind: Mind) -> Turn:
    return _formed(dice, mind, dice.pick(ANSWERS)(dice, mind.longest))


def _blanks(dice: Dice, mind: Mind) -> Turn:
    return _formed(dice, mind, said(dice.choice((None, "", " \n"))))


def _garbage(dice: Dice, _mind: Mind) -> Turn:
    return Turn(dice.pick(GARBAGE)(dice))


def _raises(dice: Dice, _mind: Mind) -> Turn:
    return Turn(error=dice.pick(ERRORS)(dice))


def _hangs(_dice: Dice, mind: Mind) -> Turn:
    return Turn("late", pause=math.inf if mind.endless else 0.005)


def plain(_dice: Dice, _mind: Mind) -> Turn:
    """An answer with nothing wrong in it."""
    return Turn(said("Done."))


ACTS: Table[Act] = Table(
    "does",
    {
        "good calls": (34, _good_calls),
        "bad calls": (16, _bad_calls),
        "good and bad calls": (12, _mixed_calls),
        "thousands of calls": (0.15, _thousands),
        "the same call as before": (5, _repeats),
        "one call and another in turn": (2, _alternates),
        "the same call several times at once": (3, _twins),
        "a text": (7, _answers),
        "nothing": (4, _blanks),
        "garbage": (3, _garbage),
        "raises": (6, _raises),
        "hangs": (1.5, _hangs),
    },
)

MOODS: Table[Act | None] = Table(
    "mood",
    {
        "chaotic": (60, None),
        "diligent": (12, _good_calls),
        "always the same call": (6, _repeats),
        "always two calls in turn": (5, _alternates),
        "always bad calls": (5, _bad_calls),
        "always nothing": (4, _blanks),
        "always raising": (4, _raises),
        "always garbage": (2, _garbage),
        "always a text": (2, _answers),
    },
)
"""What a model does throughout; None is all acts by chance."""

TIRED = "tired: answers"
CALM = 0.08
"""The share of requests in which a model drops its mood, so that a diligent one comes to an answer."""

BEHAVIOURS: tuple[str, ...] = (
    *names_of((MOODS, ACTS, FORMS, FAULTS, ANSWERS, *CALL_TABLES, GARBAGE, ERRORS, MUTATIONS)),
    *REPORT_NAMES,
    TIRED,
)
"""The names of all that it may do."""
