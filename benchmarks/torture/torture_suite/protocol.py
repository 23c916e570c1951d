"""What a loop needs for the suite: an adapter, and what the adapter is given.

An adapter has a ``name``, a ``version``, a set ``can`` of what its loop supports, and ``run``. It converts
`Model` and `Tool` to the model and tools of its loop, runs the loop on ``scenario.prompt``, and returns the
`Outcome`. The loop has its default settings, except for what a scenario sets (``max_iterations``, a tool's
``timeout``).

    class MyLoop:
        name, version, can = "my-loop", "1.0", frozenset({GIVEN_HISTORY})

        async def run(self, scenario, model, tools):
            agent = Agent(model=my_model(model), tools=[my_tool(tool) for tool in tools])
            try:
                result = await drive(model, agent.run(scenario.prompt))
            except Exception as error:
                return Outcome.of_error(error, messages=agent.messages)
            return Outcome(answer=result.text, messages=result.messages)

Nothing here imports more than the standard library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from torture_suite.log import Log, ToolRun
from torture_suite.model import MAX_CALLS, Model, ScenarioOver, TooManyCalls
from torture_suite.script import JSONDict, Script
from torture_suite.tools import Tool, ToolSpec

if TYPE_CHECKING:
    from torture_suite.evidence import Evidence

T = TypeVar("T")

Column: TypeAlias = Literal["ended", "limits", "history", "lost", "reported"]
COLUMNS: Mapping[Column, str] = {
    "ended": "ended",
    "limits": "within limits",
    "history": "history valid",
    "lost": "nothing lost",
    "reported": "reported to the model",
}
"""The columns of the table, and their headings.

* ended: it returned or raised an ordinary exception, in time, with a bounded number of requests.
* limits: no more requests and tool runs than were asked for or are allowed, none of them out of bounds.
* history: every request, and the messages at the end, are accepted by providers.
* lost: what was asked for was done; each result reached the model, or, after an error, the caller.
* reported: after each faulty answer an error was reported to the model, and the faulty call did not run.
"""

STREAMING = "streaming"
"""The model streams (``model.stream`` or ``astream``), and it may break off."""
RAW_MODEL = "raw model"
"""The loop takes the model as a bare callable, whose answer may be anything at all."""
GIVEN_HISTORY = "given history"
"""A run can start from messages that hold calls and their answers, as the caller gives them."""
CANCELLATION = "cancellation"
"""A run can be cancelled from outside; `drive` does it."""
MAX_ITERATIONS = "max iterations"
"""The number of model calls can be limited, to ``scenario.max_iterations``."""
MAX_TOOL_CALLS = "max tool calls"
"""The number of tool calls can be limited, to ``scenario.max_tool_calls``."""
MAX_SECONDS = "max seconds"
"""The time of a run can be limited, to ``scenario.max_seconds``."""
TOOL_TIMEOUT = "tool timeout"
"""The time of one tool call can be limited, to ``tool.timeout``."""


@dataclass(frozen=True)
class Fault:
    """A faulty answer of the model, which must be reported to it.

    Args:
        words: at least one of them must be in what is sent next; case is ignored. None stands for any word
            that reports an error.
        index: the request whose answer it is, from 0.
        repaired: by tool, the arguments of a run that is a correct repair of the call, so that nothing
            needs to be reported.
    """

    words: tuple[str, ...] | None = None
    index: int = 0
    repaired: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])


@dataclass(frozen=True)
class Scenario:
    """One complaint about loops, as a test that can be run.

    Args:
        name: a short name, of letters, digits and hyphens.
        complaint: what went wrong for a user, in one sentence.
        source: ``owner/repository#number``, or a few words if it is not one thread.
        script: what the model does; see `torture_suite.script`.
        tools: the tools.
        prompt: the messages the run starts from.
        needs: what a loop must be able to do for it to be applicable.
        max_iterations: the limit on model calls to set; None keeps the default of the loop.
        max_tool_calls: the same for tool calls.
        max_seconds: the same for the time of the run.
        seconds: how long the run may take.
        faults: the faulty answers that must be reported to the model.
        may_stop: whether ending with an error is as good as reporting the fault, or doing what was asked.
        runs: by tool, how often it must run successfully at least.
        at_most: by tool, how often it may run at most; runs that repair a fault are not counted. Other tools
            may run as often as they are called.
        most_model_calls: how often the model may be asked.
        most_at_once: how many tools may run at the same time.
        longest_request: how many characters a request's messages may have.
        answer: text that the final answer must contain; None requires no answer.
        is_strict: whether the strictest provider must accept the requests.
        checks: by column, a function that yields further problems.
    """

    name: str
    complaint: str
    source: str
    script: Script
    tools: Sequence[ToolSpec] = ()
    prompt: Sequence[JSONDict] = field(default_factory=lambda: PROMPT)
    needs: AbstractSet[str] = frozenset()
    max_iterations: int | None = None
    max_tool_calls: int | None = None
    max_seconds: float | None = None
    seconds: float = 10
    faults: Sequence[Fault] = ()
    may_stop: bool = False
    runs: Mapping[str, int] = field(default_factory=dict[str, int])
    at_most: Mapping[str, int] = field(default_factory=dict[str, int])
    most_model_calls: int = MAX_CALLS
    most_at_once: int | None = None
    longest_request: int | None = None
    answer: str | None = None
    is_strict: bool = False
    checks: Mapping[Column, Check] = field(default_factory=dict["Column", "Check"])

    @property
    def is_streaming(self) -> bool:
        """Whether the model streams."""
        return STREAMING in self.needs

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that apply to it; they are the same for every loop."""
        loses = bool(self.runs) or self.answer is not None
        applies = {"lost": loses, "reported": bool(self.faults)}
        return tuple(
            column for column in COLUMNS if applies.get(column, True) or column in self.checks
        )


Check: TypeAlias = "Callable[[Evidence], Iterable[str]]"
PROMPT: Sequence[JSONDict] = ({"role": "user", "content": "Please do the task."},)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run, as its caller sees it.

    Args:
        answer: the final text, if any.
        error: the error that the run returned or raised: its type and text; None if it succeeded.
        messages: the conversation as the caller has it at the end, as OpenAI chat dicts, after an error
            too; None if the loop does not return them.
        raised: the exception, if one was raised.
    """

    answer: str | None = None
    error: str | None = None
    messages: list[JSONDict] | None = None
    raised: BaseException | None = None

    @classmethod
    def of_error(cls, error: BaseException, messages: list[JSONDict] | None = None) -> Outcome:
        """The outcome of a run that raised; pass the messages if there is a documented way to get them."""
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001 - the text of an exception may raise
            text = type(error).__name__
        return cls(None, text, messages, error)


class NotApplicable(Exception):  # noqa: N818 - it is an answer
    """Raised by an adapter whose loop does not support what a scenario tests."""


class CancelledByCaller(Exception):  # noqa: N818 - what was asked for has happened
    """Raised by `drive` after it has cancelled the run for the scenario."""


class Adapter(Protocol):
    """A loop, as the suite sees it.

    Attributes:
        name: its name in the table.
        version: the version of its library.
        can: what it supports, of `STREAMING`, `RAW_MODEL` and the others; other scenarios are not applicable.
    """

    name: str
    version: str
    can: AbstractSet[str]

    async def run(self, scenario: Scenario, model: Model, tools: Sequence[Tool]) -> Outcome:
        """Run the loop on a scenario, on asyncio.

        One adapter runs all scenarios, one after another, each in a separate thread with its own event loop.

        Raises:
            NotApplicable: the loop does not support what the scenario tests.
        """
        ...


async def drive(model: Model, run: Awaitable[T]) -> T:
    """Await a run of the loop, and cancel it where the scenario says so.

    Args:
        model: the scenario's model.
        run: the run, such as ``agent.run(...)``.

    Raises:
        CancelledByCaller: it was cancelled, and it ended.
    """
    if CANCELLATION not in model.scenario.needs:
        return await run
    task = asyncio.ensure_future(run)
    is_cancelled = False
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_TICK)
            if model.log.cancel.is_set() and not is_cancelled:
                is_cancelled = task.cancel()
    finally:
        if not task.done():  # the scenario's time is over
            task.cancel()
            with suppress(BaseException):
                await task
        elif not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it later
    if task.cancelled():
        raise CancelledByCaller("the run was cancelled by its caller")
    return task.result()


_TICK = 0.005
"""Seconds between two looks at the signal, which may come from a thread."""

__all__ = [
    "CANCELLATION",
    "COLUMNS",
    "GIVEN_HISTORY",
    "MAX_CALLS",
    "MAX_ITERATIONS",
    "MAX_SECONDS",
    "MAX_TOOL_CALLS",
    "PROMPT",
    "RAW_MODEL",
    "STREAMING",
    "TOOL_TIMEOUT",
    "Adapter",
    "CancelledByCaller",
    "Column",
    "Fault",
    "Log",
    "Model",
    "NotApplicable",
    "Outcome",
    "Scenario",
    "ScenarioOver",
    "TooManyCalls",
    "Tool",
    "ToolRun",
    "ToolSpec",
    "drive",
]
