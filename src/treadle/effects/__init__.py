"""Effects, the drivers that perform them, and middleware around them; usable without pipelines.

The drivers are imported when they are first used: asyncio takes a third of ``import treadle``.
"""

import importlib
from typing import TYPE_CHECKING

# fmt: off
from treadle.effects.cleanup import (
    CLEANUP_SECONDS,
    close_steps,
    is_thrown_here,
    log_suppressed,
    remaining_steps,
    without_frame,
)
from treadle.effects.coroutines import Then, in_context
from treadle.effects.effects import (
    NOW,
    Bounded,
    Call,
    Cancelled,
    Effect,
    Emit,
    Mode,
    Now,
    Parallel,
    Reporter,
    Signal,
    Sleep,
    Steps,
    Stopped,
    Timed,
    TimeLimitReached,
    Wait,
    call_mode,
    generator_mode,
    is_awaitable,
    is_sync_callable,
)
from treadle.effects.failures import CallCancelled, CallExited, failure_of, interruption_of, is_exit
from treadle.effects.middleware import intercept, map_effects, map_nested, with_reporter

if TYPE_CHECKING:
    from treadle.effects.async_driver import drive
    from treadle.effects.background import BackgroundCall
    from treadle.effects.detached_task import Detached, DetachedTask
    from treadle.effects.notifier import Notifier, last_async_value, last_value
    from treadle.effects.sync_driver import Scheduler, drive_sync
    from treadle.effects.worker_threads import in_daemon_thread
else:
    _LAZY = {
        "async_driver": ("drive",),
        "background": ("BackgroundCall",),
        "detached_task": ("Detached", "DetachedTask"),
        "notifier": ("Notifier", "last_async_value", "last_value"),
        "sync_driver": ("Scheduler", "drive_sync"),
        "worker_threads": ("in_daemon_thread",),
    }

    def __getattr__(name: str) -> object:
        for module, names in _LAZY.items():
            if name in names:
                value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
                return globals().setdefault(name, value)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CLEANUP_SECONDS", "NOW", "BackgroundCall", "Bounded", "Call", "CallCancelled", "CallExited", "Cancelled",
    "Detached", "DetachedTask", "Effect", "Emit", "Mode", "Notifier", "Now", "Parallel", "Reporter",
    "Scheduler", "Signal", "Sleep", "Steps", "Stopped", "Then", "TimeLimitReached", "Timed", "Wait",
    "call_mode", "close_steps", "drive", "drive_sync", "failure_of", "generator_mode", "in_context",
    "in_daemon_thread", "intercept", "interruption_of", "is_awaitable", "is_exit", "is_sync_callable",
    "is_thrown_here", "last_async_value", "last_value", "log_suppressed", "map_effects", "map_nested",
    "remaining_steps", "with_reporter", "without_frame",
]
