"""Objects that a forked child renews: a lock that another thread held at the fork is never released there."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object with locks, or with what threads have noted in it."""

    def after_fork(self) -> None:
        """Make new locks, and forget the threads of the parent. Called in a child, before any other code."""
        ...


_renewable: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(made: Renewable) -> None:
    """Call ``made.after_fork()`` in each child process that is forked, as long as the object is in use."""
    _renewable.add(made)


def _renew_all() -> None:
    for made in list(_renewable):
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
