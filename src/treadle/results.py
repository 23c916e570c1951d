"""Results: how a run ended, as a value."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeAlias

from treadle.messages import JSONDict, Response, Usage, text_of
from treadle.run_state import RunState


class Reason(Exception):  # noqa: N818 - a reason to end, which is an error only to those who unwrap
    """Why a run ended without an answer."""

    stop_reason: ClassVar[str] = "error"
    """The reason's name in telemetry and in results."""

    def __reduce__(self) -> Any:
        specs = _specs_of(self)
        if specs is None:
            return super().__reduce__()
        facts = {spec.name: getattr(self, spec.name) for spec in specs}
        return functools.partial(type(self), **facts), ()

    def __hash__(self) -> int:
        """Equal where equal: of the facts that count for equality."""
        specs = _specs_of(self)
        if specs is None:
            return super().__hash__()
        return hash((type(self), *(getattr(self, spec.name) for spec in specs if spec.compare)))


def _specs_of(reason: Any) -> tuple[dataclasses.Field[Any], ...] | None:
    """The fields of a reason; None of a user's own, which may be made as plain exceptions are."""
    return dataclasses.fields(reason) if dataclasses.is_dataclass(reason) else None


@dataclass(eq=True)
class MaxIterationsReached(Reason):
    """The model called tools in every iteration that it had. The last ones ran; their results are kept."""

    limit: int
    stop_reason: ClassVar[str] = "max_iterations_reached"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"no answer within max_iterations={self.limit}"


@dataclass(eq=True)
class BudgetExhausted(Reason):
    """Another budget than iterations was spent; ``kind`` is the name of the limit."""

    kind: str
    limit: float
    used: float
    stop_reason: ClassVar[str] = "budget_exhausted"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"the budget is spent: {self.kind}={_shown(self.limit)}, used {_shown(self.used)}"


def _shown(amount: float) -> str:
    """An amount as a person writes it: sums of costs have digits that mean nothing."""
    return f"{amount:.6g}" if isinstance(amount, float) else text_of(amount)


@dataclass(eq=True)
class DeadlineExceeded(Reason):
    """The run took longer than ``max_seconds``; what was under way was cancelled and answered."""

    seconds: float
    stop_reason: ClassVar[str] = "deadline_exceeded"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"the run took longer than max_seconds={self.seconds:g}"


@dataclass(eq=True)
class CircuitBroken(Reason):
    """The same tool failed with the same error in several iterations in a row."""

    tool: str
    error: str
    iterations: int
    stop_reason: ClassVar[str] = "circuit_broken"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"tool {self.tool!r} failed alike in {self.iterations} iterations in a row: {self.error}"


@dataclass(eq=True)
class LoopDetected(Reason):
    """The model went the same round several times in a row, and learned nothing new by it.

    A round is one iteration with its calls (or its text), or several that take turns: ``period``.
    """

    calls: tuple[str, ...]
    iterations: int
    signature: str = field(repr=False)
    period: int = 1
    stop_reason: ClassVar[str] = "loop_detected"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        made = ", ".join(self.calls)
        if self.period > 1:
            return (
                f"the same {self.period} iterations {self.iterations} times in a row, "
                f"with nothing new, the last: {made}"
            )
        return f"the same calls in {self.iterations} iterations in a row, with nothing new: {made}"


@dataclass(eq=True)
class LLMError(Reason):
    """The model could not be asked, or gave what no answer can be made of."""

    message: str
    error_type: str = ""
    attempts: int = 1
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    stop_reason: ClassVar[str] = "llm_error"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        tries = f" (after {self.attempts} attempts)" if self.attempts > 1 else ""
        kind = f"{self.error_type}: " if self.error_type else ""
        return f"the model failed: {kind}{self.message}{tries}"


@dataclass(eq=True)
class EmptyResponse(Reason):
    """The model said nothing and called nothing, and again so when it was asked again."""

    iteration: int
    attempts: int
    finish_reasons: tuple[str | None, ...]
    provider: str | None = None
    model: str | None = None
    stop_reason: ClassVar[str] = "empty_response"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        reasons = ", ".join(str(reason) for reason in self.finish_reasons)
        told = f"; finish reasons: {reasons}"
        told += f"; provider: {self.provider}" if self.provider else ""
        told += f"; model: {self.model}" if self.model else ""
        return (
            f"{self.attempts} blank answers in a row, the last in iteration {self.iteration}{told}"
        )


@dataclass(eq=True)
class PipelineFailed(Reason):
    """A stage raised; nothing after it ran."""

    stage: str
    message: str
    error_type: str = ""
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    stop_reason: ClassVar[str] = "pipeline_failed"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"stage {self.stage!r} raised {self.error_type}: {self.message}"


@dataclass(eq=True)
class StoppedByStage(Reason):
    """A custom stage ended the run with ``ctx.stop("text")``."""

    stage: str
    text: str
    stop_reason: ClassVar[str] = "stopped_by_stage"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return f"stage {self.stage!r} stopped the run: {self.text}"


@dataclass(eq=True)
class InvalidInput(Reason):
    """The messages are malformed; each problem says where, what was expected and what was found."""

    problems: tuple[str, ...]
    stop_reason: ClassVar[str] = "invalid_input"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return "; ".join(self.problems)


@dataclass(eq=True)
class RunCancelled(Reason):
    """Somebody ended the run through its handle."""

    stop_reason: ClassVar[str] = "cancelled"
    __hash__ = Reason.__hash__

    def __str__(self) -> str:
        return "the run was cancelled"


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for a person.

    Args:
        id: names it in `Loop.resume`. That of a call within a child loop has the ids of the calls around
            it before it, with slashes between.
        name: the tool's name.
        arguments: its checked arguments.
        question: in what words to ask.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    question: str


def _no_messages() -> list[JSONDict]:
    return []


@dataclass(frozen=True, slots=True)
class Ok:
    """The model answered. A tool or a resolver may return one as well: ``Ok(value)``.

    Args:
        response: the answer; from a tool, its value.
        messages: the whole conversation, the answer in it. They are the record itself, which
            ``run.messages`` copies.
        output: the validated arguments of the terminal tool that ended the run; a pydantic model where the
            tool was made of one. None where plain text ended it.
        usage: the tokens of all model calls.
        iterations: the model calls that were made.
        tool_calls_count: the tool calls that ran.
        stop_reason: ``answered``, ``output``, or ``finished``: a limit was reached, and the model was asked
            for a last answer.
        run: the record of the run.
        limit: the limit that was reached, where the run was finished.
    """

    response: Any
    messages: list[JSONDict] = field(default_factory=_no_messages)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "answered"
    run: RunState | None = field(default=None, compare=False, repr=False)
    limit: Reason | None = None

    def unwrap(self) -> Response:
        """The answer."""
        response: Response = self.response  # a run's Ok holds one
        return response


@dataclass(frozen=True, slots=True)
class Err:
    """The run ended without an answer. A tool or a resolver may return one as well: ``Err("text")``.

    Args:
        reason: why; from a tool, the text for the model.
        messages: everything done so far, valid, ready to go on from.
        output: always None; it is here so that both results can be read alike.
        usage: the tokens of all model calls.
        iterations: the model calls that were made.
        tool_calls_count: the tool calls that ran.
        stop_reason: the reason in one word.
        run: the record of the run.
    """

    reason: Any
    messages: list[JSONDict] = field(default_factory=_no_messages)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "error"
    run: RunState | None = field(default=None, compare=False, repr=False)

    def unwrap(self) -> NoReturn:
        """Raise the reason."""
        if isinstance(self.reason, Reason):
            raise self.reason
        raise RuntimeError(str(self.reason))


class RunPausedError(RuntimeError):
    """`unwrap` was asked for the answer of a run that waits for somebody."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The run waits for a person. It is neither an answer nor an error; `Loop.resume` goes on from it.

    Args:
        pending: the calls that wait, in order.
        messages: everything done so far, valid; calls that have not run are answered as waiting.
        state: all that is needed to go on, as JSON takes it: put it wherever you like.
        output: always None; it is here so that all results can be read alike.
        usage: the tokens of all model calls so far.
        iterations: the model calls that were made so far.
        tool_calls_count: the tool calls that ran so far.
        stop_reason: ``paused``.
        run: the record of the run.
    """

    pending: tuple[PendingCall, ...]
    messages: list[JSONDict] = field(default_factory=_no_messages)
    state: JSONDict = field(default_factory=dict[str, Any], repr=False)
    output: Any = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "paused"
    run: RunState | None = field(default=None, compare=False, repr=False)

    def unwrap(self) -> NoReturn:
        """Raise: there is no answer yet."""
        waiting = ", ".join(f"{call.name} ({call.id})" for call in self.pending)
        raise RunPausedError(f"the run is paused and waits for approval of {waiting}")


Result: TypeAlias = Ok | Err | Paused
