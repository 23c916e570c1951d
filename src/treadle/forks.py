"""Objects that a forked child renews: a lock that another thread held at the fork is never released there."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_renewals: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()


def renew_after_fork(made: T, renew: Callable[[T], None]) -> None:
    """Renew an object in each child process that is forked, before other code runs there.

    ``renew`` takes the object, makes new locks, and forgets what only the threads of the parent can end.
    """
    _renewals[made] = renew


def _renew_all() -> None:
    for made, renew in list(_renewals.items()):
        renew(made)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
