"""The exact form of exceptions.

An exception is restored as its class if that is imported and can be rebuilt with the same text, else as a
`RecordedError` whose class has the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from treadle.codec import NotDataError, decode, encode, imported, name_of
from treadle.messages import JSONDict, safe_str
from treadle.model import is_retryable
from treadle.model.retry import retry_after, status_of
from treadle.tracebacks import leaves_of

_MAX_CHAINED = 16
"""How many chained exceptions are written; a longer chain is cut."""
_MAX_LEAVES = 1_000
"""How many exceptions of a group are written."""


class RecordedError(Exception):
    """The base of the classes that stand in for exceptions of a recording whose own class is not here.

    Its subclass has the name of that class.

    Attributes:
        retryable: whether another attempt might have succeeded.
        status_code: the HTTP status that the exception carried; None if there was none.
        headers: the header ``retry-after``, if there was one.
    """

    retryable = False
    status_code: int | None = None
    headers: Mapping[str, str] = {}


def error_as_data(error: BaseException, place: str, chained: int = 0) -> JSONDict:
    """What is stored of an exception: its class, its text, and how a request that failed with it is retried."""
    data: JSONDict = {"class": name_of(type(error)), "text": safe_str(error)}
    if isinstance(error, BaseExceptionGroup):
        # Flat, since groups may be nested more deeply than JSON, and one may be in several.
        group = cast("BaseExceptionGroup[BaseException]", error)
        leaves = leaves_of(group)[:_MAX_LEAVES]
        data["message"] = safe_str(group.message)
        data["exceptions"] = [error_as_data(one, place, _MAX_CHAINED) for one in leaves]
    else:
        data["args"] = _args_of(error, place)
        data["attributes"] = _attributes(error, place)
        if isinstance(error, Exception) and is_retryable(error):
            data["retryable"] = True
        status, delay = status_of(error), retry_after(error)
        if status is not None:
            data["status"] = status
        if delay is not None:
            data["retry_after"] = delay
    if error.__cause__ is not None and chained < _MAX_CHAINED:
        data["cause"] = error_as_data(error.__cause__, place, chained + 1)
    return data


def _args_of(error: BaseException, place: str) -> list[Any] | None:
    """The arguments of an exception; None if they are no data. Exceptions may have each other as arguments."""
    if any(isinstance(value, (BaseException, list, tuple)) for value in error.args):
        return None
    try:
        return [encode(value, place) for value in error.args]
    except NotDataError:
        return None


def _attributes(error: BaseException, place: str) -> JSONDict:
    made: JSONDict = {}
    for name, value in getattr(error, "__dict__", {}).items():
        if name != "__notes__" and not isinstance(value, BaseException):
            try:
                made[name] = encode(value, place)
            except NotDataError:
                continue
    return made


def error_from_data(data: JSONDict) -> BaseException:
    """The exception of which `error_as_data` has stored something."""
    if "exceptions" in data:
        error: BaseException = _restored_group(data)
    else:
        error = _rebuilt(data) or _stand_in(data)
    cause = data.get("cause")
    if cause is not None:
        error.__cause__ = error_from_data(cause)
    return error


def _restored_group(data: JSONDict) -> BaseException:
    """A group of the same name; its class may take other arguments."""
    module, _, name = str(data["class"]).partition(":")
    leaves = list(map(error_from_data, data["exceptions"]))
    base: Any = BaseExceptionGroup
    if all(isinstance(one, Exception) for one in leaves):
        base = ExceptionGroup
    if (module, name) != (base.__module__, base.__qualname__):
        base = type(name.rpartition(".")[2], (base,), {"__module__": module})
    return cast("BaseException", base(data["message"], leaves))


def _rebuilt(data: JSONDict) -> BaseException | None:
    """The exception as its own class; None if it would not be the same."""
    found = imported(str(data["class"]))
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        return None
    kind: Any = found
    try:
        if data["args"] is None:
            return None
        args = [decode(value) for value in data["args"]]
        made: BaseException = kind.__new__(kind, *args)
        made.args = tuple(args)
        for key, value in data["attributes"].items():
            setattr(made, key, decode(value))
        is_same = (
            str(made) == data["text"]
            and (isinstance(made, Exception) and is_retryable(made)) == data.get("retryable", False)
            and retry_after(made) == data.get("retry_after")
        )
    except Exception:  # noqa: BLE001 - a user-supplied class
        return None
    return made if is_same else None


def _stand_in(data: JSONDict) -> BaseException:
    module, _, name = str(data["class"]).partition(":")
    kind = type(
        name.rpartition(".")[2] or "RecordedError", (RecordedError,), {"__module__": module}
    )
    made = kind(data["text"])
    made.retryable = bool(data.get("retryable", False))
    made.status_code = data.get("status")
    if data.get("retry_after") is not None:
        made.headers = {"retry-after": str(data["retry_after"])}
    return made
