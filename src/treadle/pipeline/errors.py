"""What can go wrong with a pipeline: when it is built, and when it runs."""

from __future__ import annotations

from typing import Any


class PipelineError(ValueError):
    """A pipeline that cannot work, told when it is built; it names the stage and what it lacks."""


class StageError(RuntimeError):
    """A stage raised; nothing after it ran.

    Args:
        stage: the name of the stage.
        item: the item as it was when it entered the stage.
        cause: what the stage raised.
        trace: the names of the stages that the item had entered so far, this one last.
    """

    def __init__(self, stage: str, item: Any, cause: Exception, trace: tuple[str, ...]) -> None:
        super().__init__(f"stage {stage!r} raised {type(cause).__name__}: {_text_of(cause)}")
        self.stage = stage
        self.item = item
        self.cause = cause
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        """Take it apart for pickle and copy, which would else give the text to the constructor."""
        return type(self), (self.stage, self.item, self.cause, self.trace)


def _text_of(cause: Exception) -> str:
    try:
        return str(cause)
    except Exception:  # noqa: BLE001 - somebody else's; the stage's failure is what has to be told
        return "(it cannot be shown)"


class NotOneItemError(LookupError):
    """`run` was asked for the one item that came out, and there was none, or there were several."""
