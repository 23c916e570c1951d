"""The result of a run as data, and back."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.json_data import to_json_line
from treadle.messages import JSONDict
from treadle.recording.data import from_data, to_data
from treadle.results import Ok, Result

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


def result_as_data(result: Result) -> JSONDict:
    """Write a result; its messages are those of its run state."""
    data: JSONDict = {"result": to_data(dataclasses.replace(result, messages=[], output=None))}
    if isinstance(result, Ok):
        data["output"] = json.loads(to_json_line(result.output))
    return data


def result_from_data(data: Mapping[str, Any], loop: Loop[Any] | None) -> Result:
    """Restore a result.

    Args:
        data: what `result_as_data` returned.
        loop: makes the output an object of its type again; None leaves it as JSON data.
    """
    result: Any = from_data(data["result"])
    changes: dict[str, Any] = {"messages": result.run.messages}
    if isinstance(result, Ok):
        output = data["output"]
        if loop is not None and loop.output is not None:
            value, problems = loop.output.check(output)
            output = output if problems else value
        changes["output"] = output
    return dataclasses.replace(result, **changes)
