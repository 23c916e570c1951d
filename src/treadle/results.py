"""Results: how a run ended, as a value."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from dataclasses import field
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    Self,
    TypeAlias,
    dataclass_transform,
)

from treadle.codec import decode, snake_case
from treadle.errors import TreadleError, portable
from treadle.fast_dataclass import fast_dataclass, light_dataclass
from treadle.messages import JSONDict, Response, Usage, is_of_context, safe_str
from treadle.pauses import check_state
from treadle.run_state import RunState
from treadle.type_vars import OutputT_co


class RunError(TreadleError):
    """Why a run ended without an answer: the base of every `Reason`. `unwrap` raises it.

    A reason that has a field ``cause`` is chained to that exception, so that a traceback shows both.
    """

    stop_reason: ClassVar[str] = "error"
    """The name of the reason in telemetry and in results."""
    is_guard: ClassVar[bool] = False
    """Whether a guard of the run ended it: a limit, the circuit breaker, loop detection."""
    allows_last_answer: ClassVar[bool] = False
    """Whether the model may be asked for a last answer when the run ends for this reason."""

    def __post_init__(self) -> None:
        cause: BaseException | None = getattr(self, "cause", None)
        if cause is not None:
            self.__cause__ = cause

    def __reduce__(self) -> Any:
        made: Any = self
        if not dataclasses.is_dataclass(made):  # a reason of a user
            return super().__reduce__()
        values = {spec.name: getattr(made, spec.name) for spec in dataclasses.fields(made)}
        if isinstance(values.get("cause"), BaseException):
            values["cause"] = portable(values["cause"])
        return functools.partial(type(self), **values), ()

    def __deepcopy__(self, *_: Any) -> Self:
        return self  # it cannot be changed

    __copy__ = __deepcopy__


@dataclass_transform(field_specifiers=(field,))
class _Reason(RunError):
    """The base of the reasons of this module; by default, their ``stop_reason`` is their name in snake case."""

    def __init_subclass__(
        cls, stop_reason: str = "", *, is_guard: bool = False, allows_last_answer: bool = False
    ) -> None:
        if cls.__module__ == __name__:  # a custom subclass inherits the attributes, or sets its own
            cls.stop_reason = stop_reason or snake_case(cls.__name__)
            cls.is_guard, cls.allows_last_answer = is_guard, allows_last_answer
            light_dataclass()(cls)


class MaxIterationsReached(_Reason, is_guard=True, allows_last_answer=True):
    """The model called tools in every iteration. The calls of the last iteration ran; their results are kept.

    ``loop`` is the name of the loop; empty if it has none.
    """

    limit: int
    loop: str = field(default="", compare=False)

    def __str__(self) -> str:
        gave = f"{self.loop} gave " if self.loop else ""
        return f"{gave}no answer within max_iterations={self.limit}"


class BudgetExhausted(_Reason, is_guard=True, allows_last_answer=True):
    """A limit other than ``max_iterations`` was reached; ``kind`` is its name.

    ``loop`` is the name of the loop that has the limit, which may be one around the run; empty if it has none.
    """

    kind: str
    limit: float
    used: float
    loop: str = field(default="", compare=False)

    def __str__(self) -> str:
        limit, used = _format_amount(self.limit), _format_amount(self.used)
        return f"the budget{_of(self.loop)} is spent: {self.kind}={limit}, used {used}"


def _of(loop: str) -> str:
    return f" of {loop}" if loop else ""


def _format_amount(amount: float) -> str:
    """Format an amount; sums of costs have more digits than are significant."""
    return f"{amount:.6g}" if isinstance(amount, float) else safe_str(amount)


class LimitNotMeasurable(_Reason, is_guard=True):
    """A limit of tokens or cost is set, and a response did not report what it used.

    ``kind`` is the name of the limit, ``loop`` that of the loop that has it, ``missing`` is ``usage`` or ``cost``,
    and ``advice`` says what to do.
    """

    kind: str
    missing: str
    advice: str
    loop: str = field(default="", compare=False)

    def __str__(self) -> str:
        what = f"the {self.missing} of a response is not known; {self.advice}"
        return f"{self.kind} cannot be measured{_of(self.loop)}: {what}"


class DeadlineExceeded(_Reason, is_guard=True):
    """The run took longer than ``max_seconds``; calls in flight were cancelled and answered.

    ``loop`` is the name of the loop; empty if it has none.
    """

    seconds: float
    loop: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"the run{_of(self.loop)} took longer than max_seconds={self.seconds:g}"


class CircuitBroken(_Reason, is_guard=True):
    """A tool failed with the same error in several consecutive iterations.

    ``cause`` is the last exception of the tool, if it raised one.
    """

    tool: str
    error: str
    iterations: int
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        times = f"{self.iterations} consecutive iterations"
        return f"tool {self.tool!r} failed with the same error in {times}: {self.error}"


class LoopDetected(_Reason, is_guard=True, allows_last_answer=True):
    """The model made the same calls several times in a row, with the same results.

    ``period`` is the number of iterations that repeat: more than 1 if several alternate. A tool that is polled
    until its result changes is exempt if it is declared with ``volatile=True``.
    """

    calls: tuple[str, ...]
    iterations: int
    signature: str = field(repr=False)
    period: int = 1

    def __str__(self) -> str:
        times, last = f"{self.iterations}", ""
        if self.period > 1:
            times, last = f"{self.iterations} times {self.period}", ", the last"
        made = f"the same calls with the same results in {times} consecutive iterations{last}: "
        hint = " (a tool to be polled needs volatile=True)" if self.signature else ""  # not a text
        return f"{made}{', '.join(self.calls)}{hint}"


class CompactionStalled(_Reason, is_guard=True, allows_last_answer=True):
    """The history became too long again and again, and nothing new was learned in between.

    ``compactions`` is how often it was compacted in the run, ``without_evidence`` how often in a row there was
    no new result of a tool before it became too long again.
    """

    compactions: int
    without_evidence: int

    def __str__(self) -> str:
        return (
            f"the history was compacted {self.compactions} times, the last {self.without_evidence} without a tool "
            "returning anything new; a larger max_tokens, shorter results or a better summary keep what is needed"
        )


class LLMError(_Reason, stop_reason="llm_error"):
    """The model call failed, or did not return a response."""

    message: str
    error_type: str = ""
    attempts: int = 1
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        tries = f" (after {self.attempts} attempts)" if self.attempts > 1 else ""
        kind = f"{self.error_type}: " if self.error_type else ""
        return f"the model failed: {kind}{self.message}{tries}"


class EmptyResponse(_Reason):
    """The model returned too many consecutive responses with neither text nor calls."""

    iteration: int
    attempts: int
    finish_reasons: tuple[str | None, ...]
    provider: str | None = None
    model: str | None = None

    def __str__(self) -> str:
        details = f"; finish reasons: {', '.join(map(str, self.finish_reasons))}"
        details += f"; provider: {self.provider}" if self.provider else ""
        details += f"; model: {self.model}" if self.model else ""
        return f"{self.attempts} consecutive empty responses, the last in iteration {self.iteration}{details}"


class ResponseIncomplete(_Reason):
    """The response is not known to be whole, so it is no answer; its text is in the history.

    Args:
        kind: ``cut`` (a limit of tokens ended it) or ``filtered`` (a filter ended it, or the model refused).
        finish_reason: why the model ended, as the provider names it.
        refusal: the text of a refusal, if the provider reports it separately.
        option: the option of the model that limits the tokens of a response, if it is known and would help.
    """

    kind: Literal["cut", "filtered"]
    finish_reason: str | None
    refusal: str | None = None
    option: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        reason = f"finish reason {self.finish_reason!r}"
        if self.kind == "filtered":
            said = f": {self.refusal}" if self.refusal else ""
            return f"the response was filtered or refused ({reason}){said}"
        advice = "shorten the conversation, such as with compact_history"
        if self.option is not None:
            advice = f"raise {self.option}"
        elif not is_of_context(self.finish_reason or ""):
            advice = "raise the limit of output tokens of the model"
        return f"the response was cut off ({reason}); {advice}; accept_cut=True takes a cut text as the answer"


class OutputMissing(_Reason):
    """The model gave no valid output, although it was asked again.

    Args:
        attempts: how often it answered without a valid output.
        problems: why the last answer is no output.
        cause: the limit at which the last answer was asked for, if one was reached.
    """

    attempts: int
    problems: tuple[str, ...]
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        tries = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"no valid output after {tries}: {'; '.join(self.problems)}"


class StoppedByStage(_Reason):
    """A stage ended the run with ``ctx.stop(text)``."""

    stage: str
    text: str

    def __str__(self) -> str:
        return f"stage {self.stage!r} stopped the run: {self.text}"


class PipelineFailed(_Reason):
    """A stage raised, or returned something invalid; the stages after it did not run."""

    stage: str
    message: str
    error_type: str = ""
    cause: BaseException | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"stage {self.stage!r} raised {self.error_type}: {self.message}"


class InvalidInput(_Reason):
    """The messages are malformed; each problem names the place, what was expected and what was found."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


class RunCancelled(_Reason, stop_reason="cancelled"):
    """The run was ended through its handle."""

    def __str__(self) -> str:
        return "the run was cancelled"


Reason: TypeAlias = (
    MaxIterationsReached
    | BudgetExhausted
    | LimitNotMeasurable
    | DeadlineExceeded
    | CircuitBroken
    | LoopDetected
    | CompactionStalled
    | LLMError
    | EmptyResponse
    | ResponseIncomplete
    | OutputMissing
    | StoppedByStage
    | PipelineFailed
    | InvalidInput
    | RunCancelled
)
"""Why a run ended without an answer. All are `RunError`."""


@fast_dataclass
class PendingCall:
    """A call that waits for approval.

    Args:
        id: the key of its decision in `Loop.resume`: the id of the call, ``@``, and a random text of the pause
            that asks, so that the decision approves nothing else. For a call of a subagent, the id starts with
            those of the calls that led to it, separated by slashes. In `Context.pause`, the id without a pause.
        name: the tool's name.
        arguments: the validated arguments.
        question: the question to ask the person who decides.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    question: str

    @property
    def call_id(self) -> str:
        """The id without the pause: that of the call in the history, or the one that a stage gave."""
        return self.id.rpartition("@")[0] or self.id


@fast_dataclass
class Ok(Generic[OutputT_co]):
    """The model answered. A tool or a resolver may return one too: ``Ok(value)``.

    Args:
        response: the answer; from a tool, its value.
        messages: the whole history, including the answer. They are not copied; ``run.messages`` copies them.
        output: the text of the answer; with the option ``output``, a value of that type. If a terminal tool ended
            the run, its arguments, as a pydantic model if the tool was made from one. If a stage ended it with
            ``ctx.done(output)``, that output. From a tool, it has no meaning.
        usage: the tokens of all model calls.
        iterations: the number of model calls.
        tool_calls_count: the number of tool calls that ran.
        stop_reason: ``answered``; ``output`` if there is an output; or ``finished``: a limit was reached and the
            model was asked for a last answer.
        run: the state of the run.
        limit: the limit that was reached, if ``stop_reason`` is ``finished``.
    """

    response: Response
    messages: list[JSONDict] = field(default_factory=list[JSONDict])
    output: OutputT_co = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # from a tool
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "answered"
    run: RunState = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # from a tool
    limit: Reason | None = None

    if TYPE_CHECKING:  # a tool returns any value as the response

        def __init__(
            self, response: Any, messages: list[JSONDict] = ..., output: OutputT_co = ..., **_: Any
        ) -> None: ...

    @property
    def has_data(self) -> bool:
        """Whether the output is more than the text of the answer."""
        return not (isinstance(self.output, str) and self.output == self.response.text)

    def unwrap(self) -> Response:
        """Return the answer."""
        return self.response


@fast_dataclass
class Err:
    """The run ended without an answer. A tool or a resolver may return one too: ``Err("text")``.

    Args:
        reason: why; from a tool, the text for the model.
        messages: the whole history; it is valid, so that a run can continue from it.
        output: always None; all results have the field.
        usage: the tokens of all model calls.
        iterations: the number of model calls.
        tool_calls_count: the number of tool calls that ran.
        stop_reason: the name of the reason.
        run: the state of the run.
    """

    reason: Reason
    messages: list[JSONDict] = field(default_factory=list[JSONDict])
    output: None = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "error"
    run: RunState = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # from a tool

    if TYPE_CHECKING:  # a tool returns any value as the reason

        def __init__(self, reason: Any, messages: list[JSONDict] = ..., **_: Any) -> None: ...

    def unwrap(self) -> NoReturn:
        """Raise the reason.

        Raises:
            RunError: why the run ended; its cause is chained.
            TreadleError: the result of a tool or a resolver, with its text.
        """
        reason: Any = self.reason
        raise reason if isinstance(reason, RunError) else TreadleError(safe_str(reason))


class RunPausedError(TreadleError, RuntimeError):
    """`unwrap` was called on the result of a paused run."""


@fast_dataclass
class Paused:
    """The run waits for approval. It is neither an answer nor an error; `Loop.resume` continues it.

    Args:
        pending: the calls that wait, in order.
        messages: the whole history; it is valid: calls that have not run are answered as waiting.
        state: what `Loop.resume` needs, as JSON data.
        output: always None; all results have the field.
        usage: the tokens of all model calls so far.
        iterations: the number of model calls so far.
        tool_calls_count: the number of tool calls that ran so far.
        stop_reason: ``paused``.
        run: the state of the run.
    """

    pending: tuple[PendingCall, ...]
    messages: list[JSONDict] = field(default_factory=list[JSONDict])
    state: JSONDict = field(default_factory=dict[str, Any], repr=False)
    output: None = None
    usage: Usage = field(default_factory=Usage)
    iterations: int = 0
    tool_calls_count: int = 0
    stop_reason: str = "paused"
    run: RunState = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # from a tool

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pause to a file that only its owner can read; `Loop.resume` takes the path.

        The pause is written to a temporary file, synced and renamed, so that the file never has a part of a pause.
        An earlier saved pause is replaced.

        Args:
            path: the file.

        Raises:
            PausedStateError: the file is something else, or the saved pause is being resumed.
            OSError: it cannot be written. An earlier file is as it was.
        """
        from treadle.pauses.saved import save_state  # noqa: PLC0415 - it imports pathlib

        save_state(path, self.state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], pause_secret: str | bytes | None = None) -> Paused:
        """Read a saved pause, to show its pending calls to the person who decides. It can still be resumed.

        Args:
            path: the file.
            pause_secret: the secret of the loop that saved it.

        Returns:
            The pause; its ``messages`` end before the response whose calls wait.

        Raises:
            PausedStateError: there is no such file, it is being resumed, is not a saved pause, or was changed.
        """
        from treadle.pauses.saved import load_state  # noqa: PLC0415 - it imports pathlib

        state = load_state(path)
        checked = check_state(state, pause_secret)
        context = checked["context"]  # not decoded: it may have values of classes that are not here
        return cls(
            tuple(decode(checked["pending"])),
            decode(context["messages"]).to_list(),
            state,
            usage=decode(checked["budget"]).usage,
            iterations=context.get("iteration", 1),
            tool_calls_count=checked["calls_run"],
            run=decode(checked["state"]),
        )

    def unwrap(self) -> NoReturn:
        """Raise `RunPausedError`: there is no answer yet."""
        waiting = ", ".join(f"{call.name} ({call.id})" for call in self.pending)
        raise RunPausedError(f"the run is paused and waits for approval of {waiting}")


Result: TypeAlias = Ok[OutputT_co] | Err | Paused
"""What a run returns: ``Result[Invoice]`` with ``output=Invoice``, ``Result[str]`` without ``output=``."""
