"""Effects, the drivers that perform them, and middleware around them; usable without pipelines."""

from treadle.effects.async_driver import drive
from treadle.effects.background import run_on_background_loop
from treadle.effects.carriers import background_task
from treadle.effects.cleanup import close_steps, log_suppressed
from treadle.effects.coroutines import InContext, Then
from treadle.effects.effects import (
    NOW,
    Bounded,
    Call,
    CallCancelled,
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
    is_awaitable,
)
from treadle.effects.middleware import intercept, map_effects, map_nested, with_reporter
from treadle.effects.sync_driver import SWEEP_AT, Scheduler, SyncDriver, Task, Timers, drive_sync

__all__ = [
    "NOW",
    "SWEEP_AT",
    "Bounded",
    "Call",
    "CallCancelled",
    "Cancelled",
    "Effect",
    "Emit",
    "InContext",
    "Mode",
    "Now",
    "Parallel",
    "Reporter",
    "Scheduler",
    "Signal",
    "Sleep",
    "Steps",
    "Stopped",
    "SyncDriver",
    "Task",
    "Then",
    "TimeLimitReached",
    "Timed",
    "Timers",
    "Wait",
    "background_task",
    "call_mode",
    "close_steps",
    "drive",
    "drive_sync",
    "intercept",
    "is_awaitable",
    "log_suppressed",
    "map_effects",
    "map_nested",
    "run_on_background_loop",
    "with_reporter",
]
