"""The results that a journal has stored, without the loop that made them."""

from __future__ import annotations

import dataclasses
from typing import Any

from treadle.messages import JSONDict
from treadle.recording.data import from_data
from treadle.results import Ok, Result


def stored_result(outcome: JSONDict) -> Result:
    """The result in the outcome of a part of a run; a typed output is plain data.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    data: JSONDict = dict(outcome["result"])
    typed: Any = data.pop("typed_output", None)
    result: Result = from_data(data)
    if typed is not None and isinstance(result, Ok):
        return dataclasses.replace(result, output=typed)
    return result
