"""Everything that a client or a tool may raise, by name."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from treadle.testing._chaos_arguments import CONTROLS, LONE
from treadle.testing._chaos_dice import Dice, Table

Maker: TypeAlias = Callable[[Dice], BaseException]


class ChaosError(Exception):
    """What chaos raises of its own; it may carry whatever the errors of clients carry."""

    def __init__(self, text: object = "chaos", **attributes: Any) -> None:
        super().__init__(text)
        for name, value in attributes.items():
            setattr(self, name, value)


class UnspeakableError(ChaosError):
    """An error whose text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class WordlessError(ChaosError):
    """An error whose text is no text."""

    def __str__(self) -> str:
        wrong: Any = None
        return wrong


class GuardedError(ChaosError):
    """An error whose every other attribute raises when it is looked at."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself looks for these, to show a traceback
            raise AttributeError(name)
        raise RuntimeError(f"{name} is not to be looked at")


class _Answer:
    """As much of an HTTP response as clients put on their errors."""

    def __init__(self, status: Any, headers: Any) -> None:
        self.status_code = status
        self.headers = headers


def with_status(status: int) -> Maker:
    """Make errors as the clients of providers raise them for an HTTP status."""

    def make(dice: Dice) -> ChaosError:
        kind = dice.randrange(3)
        text = f"Error code: {status}"
        if kind == 0:
            return ChaosError(text, status_code=status, response=_Answer(status, {}))
        if kind == 1:
            return ChaosError(text, status=status, code=status)
        return ChaosError(text, response=_Answer(status, None), body={"error": {"code": status}})

    return make


RETRY_AFTER: tuple[Any, ...] = (
    "0",
    "0.002",
    "-1",
    "nan",
    "soon",
    "",
    None,
    "Wed, 21 Oct 2015 07:28:00 GMT",
    [],
    0,
)
"""What servers say in this header, but for what would take long."""


def _asking_to_wait(dice: Dice) -> ChaosError:
    status, headers = dice.choice((429, 503)), {"retry-after": dice.choice(RETRY_AFTER)}
    answer = _Answer(status, headers)
    return ChaosError("slow down", status_code=status, response=answer, headers=headers)


def _odd(dice: Dice) -> ChaosError:
    odd: tuple[Mapping[str, Any], ...] = (
        {"code": {"message": "a dict"}},
        {"code": ["a", "list"], "status": "500"},
        {"status_code": "429", "headers": ["retry-after"]},
        {"status_code": 10**30},
        {"status_code": float("nan"), "code": float("inf")},
        {"status_code": True},
        {"response": object(), "headers": {"retry-after": object()}},
        {"response": _Answer(None, {"retry-after": "9" * 5_000 + "x"})},
        {"status_code": _Answer, "code": _Answer},
    )
    return ChaosError("odd", **dice.choice(odd))


def _of_type(kind: Callable[[str], BaseException]) -> Maker:
    return lambda _dice: kind("chaos")


def _in_a_chain(_dice: Dice) -> BaseException:
    error = ValueError("outer")
    error.__cause__ = UnspeakableError()
    error.__cause__.__cause__ = error
    return error


_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 529)
ERRORS: Table[Maker] = Table(
    "raises",
    {
        **{f"status {status}": (1, with_status(status)) for status in _STATUSES},
        "a wish to be left alone": (4, _asking_to_wait),
        "a quota that is spent": (1, lambda _d: ChaosError(status=429, code="insufficient_quota")),
        "a context that is too long": (1, lambda _d: ChaosError(code="context_length_exceeded")),
        **{
            kind.__name__: (1, _of_type(kind))
            for kind in (
                *(TypeError, ValueError, KeyError, AttributeError, NotImplementedError),
                *(TimeoutError, ConnectionError, BrokenPipeError, OSError, EOFError),
                *(MemoryError, RecursionError, StopIteration, StopAsyncIteration),
            )
        },
        "CancelledError": (2, _of_type(asyncio.CancelledError)),
        "CancelledError of a future": (1, _of_type(concurrent.futures.CancelledError)),
        "UnicodeDecodeError": (1, lambda _d: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "chaos")),
        "several at once": (1, lambda _d: ExceptionGroup("chaos", [ValueError("a"), OSError("b")])),
        "an error without words": (1, lambda _d: ChaosError("")),
        "an error of many words": (1, lambda dice: ChaosError("w\n" * dice.randrange(60_000))),
        "an error of control characters": (1, lambda _d: ChaosError(CONTROLS + LONE)),
        "an error whose text raises": (2, lambda _d: UnspeakableError()),
        "an error whose text is none": (1, lambda _d: WordlessError()),
        "an error with odd attributes": (3, _odd),
        "an error whose attributes raise": (1, lambda _d: GuardedError()),
        "an error that causes itself": (1, _in_a_chain),
    },
)
"""What is raised; nothing of it ends the interpreter."""
