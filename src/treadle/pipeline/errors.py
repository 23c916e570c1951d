"""The exceptions of a pipeline: those of its construction and those of its execution."""

from __future__ import annotations

from typing import Any

from treadle.errors import TreadleError, safe_str


class PipelineError(TreadleError, ValueError):
    """The definition of a pipeline is invalid. The message names the component and the fault."""


class StageError(TreadleError, RuntimeError):
    """A stage raised an exception; no later stage ran.

    Args:
        stage: the name of the stage.
        item: the item that entered the stage.
        cause: the exception that the stage raised.
        trace: the names of the stages that the item entered, ending with this one.
    """

    def __init__(self, stage: str, item: Any, cause: Exception, trace: tuple[str, ...]) -> None:
        super().__init__(f"stage {stage!r} raised {type(cause).__name__}: {safe_str(cause)}")
        self.stage = stage
        self.item = item
        self.cause = cause
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by these arguments; the default would pass the message as the stage."""
        return type(self), (self.stage, self.item, self.cause, self.trace)
