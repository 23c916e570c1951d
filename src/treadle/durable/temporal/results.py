"""The result of a workflow as the result of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle.recording.journaled import result_from_data
from treadle.results import Result

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


def result_of(outcome: Mapping[str, Any], loop: Loop[Any] | None) -> Result:
    """Restore a result; its messages are in its run state.

    Args:
        outcome: what the workflow returned.
        loop: makes a typed output an object of its type again; None leaves it as JSON data.

    Raises:
        JournalError: the loop does not accept the output any more.
    """
    result = result_from_data(outcome["result"], loop)
    return dataclasses.replace(result, messages=result.run.messages)
