"""What clients and tools raise, by name. None of it ends the interpreter."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NoReturn, TypeAlias

from treadle.testing.chaos.dice import CONTROLS, SURROGATE, Dice, Table, always

ErrorMaker: TypeAlias = Callable[[Dice], BaseException]


class ChaosError(Exception):
    """An error with any attributes that the errors of clients have."""

    def __init__(self, text: object = "chaos", **attributes: Any) -> None:
        super().__init__(text)
        vars(self).update(attributes)


def raising(text: str) -> Callable[..., NoReturn]:
    """A method that raises, whatever its arguments."""

    def method(*_arguments: Any, **_named: Any) -> NoReturn:
        raise RuntimeError(text)

    return method


class UnprintableError(ChaosError):
    """An error whose ``str`` raises."""

    __str__ = raising("no text")


class TextlessError(ChaosError):
    """An error whose ``__str__`` returns None."""

    __str__ = always(None)


class GuardedError(ChaosError):
    """An error that raises when another attribute is read."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python reads these to print a traceback
            raise AttributeError(name)
        raise RuntimeError(f"{name} must not be read")


def _response(status: Any, headers: Any) -> SimpleNamespace:
    """As much of an HTTP response as clients attach to their errors."""
    return SimpleNamespace(status_code=status, headers=headers)


def _with_status(status: int) -> ErrorMaker:
    """Make errors as the clients of providers raise them for an HTTP status."""
    forms: tuple[dict[str, Any], ...] = (
        {"status_code": status, "response": _response(status, {})},
        {"status": status, "code": status},
        {"response": _response(status, None), "body": {"error": {"code": status}}},
    )
    return lambda dice: ChaosError(f"Error code: {status}", **dice.choice(forms))


_DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
_RETRY_AFTER: tuple[Any, ...] = ("0", "0.002", "-1", "nan", "soon", "", None, _DATE, [], 0)
"""Values of the header; none of them asks for a long wait."""


def _with_retry_after(dice: Dice) -> ChaosError:
    status, headers = dice.choice((429, 503)), {"retry-after": dice.choice(_RETRY_AFTER)}
    response = _response(status, headers)
    return ChaosError("slow down", status_code=status, response=response, headers=headers)


_ODD_ATTRIBUTES: tuple[Mapping[str, Any], ...] = (
    {"code": {"message": "a dict"}},
    {"code": ["a", "list"], "status": "500"},
    {"status_code": "429", "headers": ["retry-after"]},
    {"status_code": 10**30},
    {"status_code": float("nan"), "code": float("inf")},
    {"status_code": True},
    {"response": object(), "headers": {"retry-after": object()}},
    {"response": _response(None, {"retry-after": "9" * 5_000 + "x"})},
    {"status_code": SimpleNamespace, "code": SimpleNamespace},
)


def _cyclic(_dice: Dice) -> BaseException:
    error = ValueError("outer")
    error.__cause__ = UnprintableError()
    error.__cause__.__cause__ = error
    return error


def _made(kind: Callable[..., BaseException], *arguments: Any, **attributes: Any) -> ErrorMaker:
    return lambda _dice: kind(*arguments, **attributes)


_STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 502, 503, 504, 529)
_TYPES = (
    *(TypeError, ValueError, KeyError, AttributeError, NotImplementedError),
    *(TimeoutError, ConnectionError, BrokenPipeError, OSError, EOFError),
    *(MemoryError, RecursionError, StopIteration, StopAsyncIteration),
)
_UNENCODABLE = CONTROLS + SURROGATE
ERRORS: Table[ErrorMaker] = Table(
    "raises",
    {
        **{f"status {status}": (1, _with_status(status)) for status in _STATUSES},
        "an error with Retry-After": (4, _with_retry_after),
        "an exceeded quota": (1, _made(ChaosError, status=429, code="insufficient_quota")),
        "a context that is too long": (1, _made(ChaosError, code="context_length_exceeded")),
        **{kind.__name__: (1, _made(kind, "chaos")) for kind in _TYPES},
        "CancelledError": (2, _made(asyncio.CancelledError, "chaos")),
        "CancelledError of a future": (1, _made(concurrent.futures.CancelledError, "chaos")),
        "UnicodeDecodeError": (1, _made(UnicodeDecodeError, "utf-8", b"\xff", 0, 1, "chaos")),
        "a group": (1, _made(ExceptionGroup, "chaos", [ValueError("a"), OSError("b")])),
        "an error with empty text": (1, _made(ChaosError, "")),
        "an error with long text": (1, lambda dice: ChaosError("w\n" * dice.randrange(60_000))),
        "an error with control characters": (1, _made(ChaosError, _UNENCODABLE)),
        "an error whose text raises": (2, _made(UnprintableError)),
        "an error whose text is None": (1, _made(TextlessError)),
        "an error with odd attributes": (
            3,
            lambda d: ChaosError("odd", **d.choice(_ODD_ATTRIBUTES)),
        ),
        "an error whose attributes raise": (1, _made(GuardedError)),
        "an error that causes itself": (1, _cyclic),
    },
)
