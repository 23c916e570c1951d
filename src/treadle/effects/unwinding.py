"""Whether suspended steps perform their cleanup, since an interruption was raised within them."""

from __future__ import annotations

import gc
from types import BuiltinMethodType, GeneratorType
from typing import Any

from treadle.effects.effects import Cancelled, Steps, failure_of


def interruption_of(steps: Steps[Any]) -> BaseException | None:
    """The interruption that suspended steps handle; None if there is none.

    A KeyboardInterrupt, or the SystemExit of a signal handler, may be raised at any instruction of the steps. The
    steps around it may have a ``finally`` that yields effects, which look like any others. Only the generator that
    is suspended there knows the exception, and only the garbage collector can ask it. No interruption are an
    `Exception`, a cancellation, and ``sys.exit()``.

    Args:
        steps: a generator that is suspended at a ``yield``, and the generators that it delegates to or wraps.
    """
    waiting: list[Any] = [steps]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for held in gc.get_referents(one):
            kind = type(held)
            if kind is GeneratorType or kind is BuiltinMethodType:  # the latter is its ``send``
                waiting.append(held)
            elif isinstance(held, BaseException) and not isinstance(held, (Exception, Cancelled)):
                trace = held.__traceback__  # it begins where the exception was caught
                is_handled = trace is not None and trace.tb_frame is getattr(one, "gi_frame", None)
                if is_handled and failure_of(held) is None:
                    return held
    return None
