"""What clients and tools raise, by name. None of it ends the interpreter."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from treadle.testing.chaos.arguments import CONTROL_CHARACTERS, LONE_SURROGATE
from treadle.testing.chaos.dice import Dice, Table

ErrorMaker: TypeAlias = Callable[[Dice], BaseException]


class ChaosError(Exception):
    """An error with any attributes that the errors of clients have."""

    def __init__(self, text: object = "chaos", **attributes: Any) -> None:
        super().__init__(text)
        for name, value in attributes.items():
            setattr(self, name, value)


class UnprintableError(ChaosError):
    """An error whose ``str`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class TextlessError(ChaosError):
    """An error whose ``__str__`` returns None."""

    def __str__(self) -> str:
        wrong: Any = None
        return wrong


class GuardedError(ChaosError):
    """An error that raises when another attribute is read."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python reads these to print a traceback
            raise AttributeError(name)
        raise RuntimeError(f"{name} must not be read")


class _HTTPResponse:
    """As much of an HTTP response as clients attach to their errors."""

    def __init__(self, status: Any, headers: Any) -> None:
        self.status_code = status
        self.headers = headers


def _with_status(status: int) -> ErrorMaker:
    """Make errors as the clients of providers raise them for an HTTP status."""

    def make(dice: Dice) -> ChaosError:
        kind = dice.randrange(3)
        text = f"Error code: {status}"
        if kind == 0:
            return ChaosError(text, status_code=status, response=_HTTPResponse(status, {}))
        if kind == 1:
            return ChaosError(text, status=status, code=status)
        body = {"error": {"code": status}}
        return ChaosError(text, response=_HTTPResponse(status, None), body=body)

    return make


_DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
_RETRY_AFTER: tuple[Any, ...] = ("0", "0.002", "-1", "nan", "soon", "", None, _DATE, [], 0)
"""Values of the header; none of them asks for a long wait."""


def _with_retry_after(dice: Dice) -> ChaosError:
    status, headers = dice.choice((429, 503)), {"retry-after": dice.choice(_RETRY_AFTER)}
    response = _HTTPResponse(status, headers)
    return ChaosError("slow down", status_code=status, response=response, headers=headers)


_ODD_ATTRIBUTES: tuple[Mapping[str, Any], ...] = (
    {"code": {"message": "a dict"}},
    {"code": ["a", "list"], "status": "500"},
    {"status_code": "429", "headers": ["retry-after"]},
    {"status_code": 10**30},
    {"status_code": float("nan"), "code": float("inf")},
    {"status_code": True},
    {"response": object(), "headers": {"retry-after": object()}},
    {"response": _HTTPResponse(None, {"retry-after": "9" * 5_000 + "x"})},
    {"status_code": _HTTPResponse, "code": _HTTPResponse},
)


def _of_type(kind: Callable[[str], BaseException]) -> ErrorMaker:
    return lambda _dice: kind("chaos")


def _cyclic(_dice: Dice) -> BaseException:
    error = ValueError("outer")
    error.__cause__ = UnprintableError()
    error.__cause__.__cause__ = error
    return error


_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 529)
_TYPES = (
    *(TypeError, ValueError, KeyError, AttributeError, NotImplementedError),
    *(TimeoutError, ConnectionError, BrokenPipeError, OSError, EOFError),
    *(MemoryError, RecursionError, StopIteration, StopAsyncIteration),
)
ERRORS: Table[ErrorMaker] = Table(
    "raises",
    {
        **{f"status {status}": (1, _with_status(status)) for status in _STATUSES},
        "an error with Retry-After": (4, _with_retry_after),
        "an exceeded quota": (1, lambda _d: ChaosError(status=429, code="insufficient_quota")),
        "a context that is too long": (1, lambda _d: ChaosError(code="context_length_exceeded")),
        **{kind.__name__: (1, _of_type(kind)) for kind in _TYPES},
        "CancelledError": (2, _of_type(asyncio.CancelledError)),
        "CancelledError of a future": (1, _of_type(concurrent.futures.CancelledError)),
        "UnicodeDecodeError": (1, lambda _d: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "chaos")),
        "a group": (1, lambda _d: ExceptionGroup("chaos", [ValueError("a"), OSError("b")])),
        "an error with empty text": (1, lambda _d: ChaosError("")),
        "an error with long text": (1, lambda dice: ChaosError("w\n" * dice.randrange(60_000))),
        "an error with control characters": (
            1,
            lambda _d: ChaosError(CONTROL_CHARACTERS + LONE_SURROGATE),
        ),
        "an error whose text raises": (2, lambda _d: UnprintableError()),
        "an error whose text is None": (1, lambda _d: TextlessError()),
        "an error with odd attributes": (
            3,
            lambda dice: ChaosError("odd", **dice.choice(_ODD_ATTRIBUTES)),
        ),
        "an error whose attributes raise": (1, lambda _d: GuardedError()),
        "an error that causes itself": (1, _cyclic),
    },
)
