"""What a run receives from outside, checked: the arguments of its signals, and of the update that decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from treadle.errors import OptionError
from treadle.loop.handle import as_user_message
from treadle.messages import JSONDict, describe, is_mapping
from treadle.tools import Approval


def _steer(message: Any) -> JSONDict:
    made = as_user_message(message)
    json.dumps(made, allow_nan=False)  # raises if a converter has made what is no JSON
    return made


_SIGNALS: Mapping[str, tuple[int, str, Callable[..., Any]]] = {
    "steer": (1, "one argument, a text or a user message", _steer),
    "cancel": (0, "no arguments", lambda: None),
}
"""How many arguments each signal has, what they are, and what checks them."""


def check_signal(name: str, given: Sequence[RawValue]) -> Any:
    """Return the argument of a signal, ready for use; None if it has none.

    Args:
        name: the name of the signal.
        given: its arguments, as they were sent.

    Raises:
        OptionError: it is malformed; the text names the signal and what was expected.
    """
    if name not in _SIGNALS:
        raise OptionError(f"signal {name!r}: expected one of {', '.join(_SIGNALS)}")
    count, expected, check = _SIGNALS[name]
    problem = f"got {len(given)}"
    if len(given) == count:
        try:
            converter = workflow.payload_converter()
            return check(*(converter.from_payload(raw.payload) for raw in given))
        except OptionError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - of a converter, or of what it made
            problem = f"{type(error).__name__}: {error}"
    raise OptionError(f"signal {name!r}: expected {expected}: {problem}")


def check_decisions(given: Sequence[Any]) -> dict[str, Approval]:
    """Make the approvals that an update was sent.

    Args:
        given: its arguments.

    Raises:
        OptionError: they are malformed; the text names the place and what was expected.
    """
    if len(given) != 1 or not is_mapping(given[0]):
        found = describe(given[0]) if len(given) == 1 else f"{len(given)} arguments"
        raise OptionError(f"decisions: expected a mapping by id of the call, got {found}")
    return {key: _approval(f"decisions[{key!r}]", one) for key, one in given[0].items()}


def _approval(place: str, given: Any) -> Approval:
    if not is_mapping(given):
        raise OptionError(f"{place}: expected the fields of an Approval, got {describe(given)}")
    for key, value in given.items():
        if key not in _FIELDS:
            raise OptionError(f"{place}: expected {', '.join(_FIELDS)}, got {key!r}")
        if not isinstance(value, _FIELDS[key]):
            names = " or ".join(kind.__name__ for kind in _FIELDS[key])
            raise OptionError(f"{place}.{key}: expected {names}, got {describe(value)}")
    if "runs" not in given:
        raise OptionError(f"{place}.runs: expected bool, got nothing")
    return Approval(**given)


_FIELDS: Mapping[str, tuple[type, ...]] = {
    "runs": (bool,),
    "reason": (str,),
    "arguments": (dict, type(None)),
}
