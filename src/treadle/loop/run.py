"""A run, made ready: its steps, and who is told of its events."""

from __future__ import annotations

import dataclasses
import functools
import logging
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from treadle import labels
from treadle.context import Context, Decision
from treadle.effects import NOW, Bounded, Call, Emit, Mode, Sleep, Steps, Stopped, TimeLimitReached
from treadle.errors import OptionError, did_you_mean
from treadle.events import (
    Event,
    FirstChunk,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    LimitReached,
    ModelFailed,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    TextDelta,
    UserMessageAdded,
)
from treadle.limits import Budget, Limits
from treadle.loop.handle import EventStream, RunHandle
from treadle.loop.logs import RunLog, is_logged
from treadle.loop.loop_detection import LoopDetector
from treadle.loop.observers import Observer, Observers, for_run, of_completion, of_iterations
from treadle.loop.options import OF_DEFAULT_STAGES, Settings
from treadle.loop.pause import PausedStateError, Resumption, put_aside
from treadle.messages import (
    History,
    JSONDict,
    Response,
    StreamAccumulator,
    ToolResult,
    describe,
    is_cost,
    is_mapping,
    join_messages,
    problems_of,
    repair_history,
    safe_str,
    to_message,
)
from treadle.model import (
    BASE_DELAY,
    LLMSendFn,
    ModelClient,
    ModelRequest,
    delay_before_retry,
    is_retryable,
)
from treadle.pipeline import NotOneItemError, Pipeline, Progress, StageError
from treadle.results import (
    BudgetExhausted,
    CircuitBroken,
    DeadlineExceeded,
    Err,
    InvalidInput,
    LLMError,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    Paused,
    PipelineFailed,
    Reason,
    Result,
    RunCancelled,
)
from treadle.run_state import RunNode, RunState
from treadle.stages import (
    GIVEN,
    ToolRunner,
    default_stages,
    inject,
    loop_decision,
    parse_tool_calls,
    validate_calls,
)
from treadle.telemetry import active_telemetry
from treadle.tools import (
    CircuitBreaker,
    Locks,
    Plan,
    Resolver,
    Tool,
    as_tool,
    terminal_copy,
    toolset,
)

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


@dataclass(frozen=True, slots=True)
class Intake:
    """What came of a caller's messages.

    Args:
        messages: a valid history of our own; empty where they were refused.
        repairs: what had to be repaired.
        refusal: why they were refused; None where they were not.
    """

    messages: Sequence[JSONDict] = ()
    repairs: tuple[str, ...] = ()
    refusal: InvalidInput | None = None


def validate_messages(given: Any) -> Intake:
    """Check and repair what a caller gave; it is left as it is.

    Args:
        given: a list of message dicts, or whatever else came in its place.
    """
    is_list = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if not is_list:
        return _invalid(f"messages: expected a list of message dicts, got {describe(given)}")
    try:
        messages = [to_message(message) for message in given]  # pyright: ignore[reportUnknownVariableType]
    except RecursionError:
        return _invalid("messages: expected JSON, got a message that is nested without end")
    problems = tuple(problems_of(messages))
    if problems:
        return _invalid(*problems)
    mended, repairs = repair_history(messages)
    if not mended:
        return _invalid("messages: expected at least one message that is not empty")
    return Intake(mended, repairs)


def _invalid(*problems: str) -> Intake:
    return Intake(refusal=InvalidInput(problems))


@dataclass(frozen=True, slots=True)
class Plant:
    """What a run works with, made ready before it starts.

    Args:
        pipeline: the stages.
        asker: asks the model.
        tools: what the model may call, by name.
        resolver: runs the calls of tools without a function.
        limits: how much the run may take.
        loop_threshold: rounds alike that end the run; None is any number.
        finishes: whether the model is asked for a last answer at a limit.
        show_budget: whether the model is told what is left.
        cost_of: works out what a response cost; None where nobody does.
        has_listeners: whether anybody listens.
        handle: who may end or steer the run; None is nobody.
        locks: who holds which key; None makes a table.
        breaker: is asked before calls are made; None is nobody.
        pause_secret: signs the state of a paused run; None does not.
        around: the run that this one is a call of; None where it is none.
    """

    pipeline: Pipeline[Context]
    asker: Asker
    tools: dict[str, Tool]
    resolver: Resolver | None
    limits: Limits
    loop_threshold: int | None
    finishes: bool = False
    show_budget: bool = False
    cost_of: Callable[[Response], float | None] | None = None
    has_listeners: bool = False
    handle: RunHandle | None = None
    locks: Locks | None = None
    breaker: CircuitBreaker | None = None
    pause_secret: bytes | None = None
    around: ParentRun | None = None


@dataclass(frozen=True, slots=True)
class ParentRun:
    """What a run has of the run that it is a call of.

    Args:
        budget: is drawn on too.
        locks: the table of that run.
        held: the keys that are held around this run, each with the name under which it is held.
        is_bounded: whether that run has a bound at which calls are given up.
    """

    budget: Budget
    locks: Locks
    held: Mapping[str, str]
    is_bounded: bool


_is_decided = operator.attrgetter("decision")
"""What has a context leave the stages. It is asked after each of them, and this takes no frame of Python."""


def pipeline_of(settings: Settings) -> Pipeline[Context]:
    """The stages of a loop as a pipeline; raises `PipelineError` where they cannot work together."""
    if settings.stages is None:
        return _default_pipeline(**{name: getattr(settings, name) for name in OF_DEFAULT_STAGES})
    return _pipeline(settings.stages)


@functools.lru_cache(maxsize=64)
def _default_pipeline(**options: Any) -> Pipeline[Context]:
    """The pipeline of the default stages; runs that are configured alike share one."""
    return _pipeline(default_stages(**options))


def _pipeline(stages: Any) -> Pipeline[Context]:
    if isinstance(stages, Pipeline):
        stages = stages.components
    return Pipeline(list(stages), until=_is_decided, item=Context, given=GIVEN)


def tools_of(settings: Settings) -> dict[str, Tool]:
    """The tools of a loop by name, the terminal one among them; raises what a broken tool raises."""
    tools = toolset(settings.tools)
    output = settings.output
    if output is None:
        return tools
    if isinstance(output, str):
        if output not in tools:
            raise OptionError(f"output: there is no tool {output!r}{did_you_mean(output, tools)}")
        return {**tools, output: terminal_copy(tools[output])}
    if is_mapping(output) and output.get("type") == "object":
        output = Tool("final_answer", "Give the final answer.", output)
    made = terminal_copy(as_tool(output, "output"))
    return {**tools, made.name: made}


log = logging.getLogger("treadle.loop")


def request(
    turn: Iterations, guidance: str | None, *, uses_tools: bool = True
) -> Steps[Response | Reason]:
    """Ask the model for one response, which begins an iteration; or return why there is none.

    Args:
        turn: the run.
        guidance: what to tell the model in this request only.
        uses_tools: whether it may call tools.
    """
    context, plant = turn.context, turn.plant
    turn.budget.count_iteration()
    turn.iteration = iteration = turn.iteration + 1
    # It starts when the last one ended; but what watchers took since then is not the model's time.
    started = (yield NOW) if context.has_listeners else turn.clock
    node = turn.state.new_node(at=started)
    node.start(started)
    if plant.show_budget:
        left = f"Left for this task: {turn.budget.remaining(started)}."
        guidance = left if guidance is None else f"{guidance}\n\n{left}"
    if context.has_listeners:
        yield Emit(
            IterationStarted(
                iteration=iteration, at=started, messages=context.messages, guidance=guidance
            )
        )
    try:
        response: Response = yield from plant.asker.ask(
            context.messages, guidance, iteration, uses_tools=uses_tools
        )
    except LLMError as error:
        return (yield from _model_failed(turn, node, error))
    if plant.cost_of is not None:
        response = _priced(response, plant.cost_of)
    usage = response.usage
    turn.state.record_usage(usage)
    turn.budget.record_usage(usage)
    node.usage = usage
    if context.has_listeners:
        now = yield NOW
        yield Emit(
            ModelResponded(iteration=iteration, response=response, at=now, duration=now - started)
        )
    return response


def _priced(response: Response, cost_of: Callable[[Response], float | None]) -> Response:
    usage = response.usage
    if usage is None or usage.cost is not None:
        return response
    try:
        cost = cost_of(response)
        cost = None if cost is None else float(cost)
    except Exception:  # somebody else's function; the run has its answer
        log.warning("cost_of= failed; the cost of this response is unknown", exc_info=True)
        return response
    if cost is not None and not is_cost(cost):
        log.warning("cost_of= gave %r, which is no cost in US dollars; it is unknown", cost)
        return response
    return dataclasses.replace(response, usage=dataclasses.replace(usage, cost=cost))


def _model_failed(turn: Iterations, node: RunNode, error: LLMError) -> Steps[Reason]:
    ended = yield NOW
    node.fail(error, ended)
    turn.state.record_usage(None)
    turn.budget.record_usage(None)
    turn.context = turn.context.replace(usage=turn.budget.usage)
    if turn.context.has_listeners:
        yield Emit(
            ModelFailed(
                iteration=turn.iteration,
                error=error.message,
                error_type=error.error_type,
                at=ended,
            )
        )
    return error


CHUNKS_AT_ONCE = 32
"""Pieces of a stream that are read before others have their turn."""


@dataclass(frozen=True, slots=True)
class Asker:
    """What stays the same from one request of a run to the next.

    Args:
        backend: the model.
        tools: the tools, in OpenAI's form.
        max_retries: tries after the first.
        retry_delay: seconds before the second try.
        has_listeners: whether anybody listens.
        is_bounded: whether there is a bound at which a request is given up.
    """

    backend: ModelClient
    tools: list[JSONDict]
    max_retries: int = 3
    retry_delay: float = BASE_DELAY
    has_listeners: bool = False
    is_bounded: bool = False

    def ask(
        self,
        history: History,
        guidance: str | None,
        iteration: int,
        *,
        uses_tools: bool = True,
    ) -> Steps[Response]:
        """Ask for one response.

        Args:
            history: the conversation.
            guidance: what to tell the model in this request only; None is nothing.
            iteration: the number of the iteration.
            uses_tools: whether the model may call tools in this request.

        Raises:
            LLMError: it failed, and another try would not help or is not left.
        """
        attempt = 1
        key = str(iteration)
        mode = self.backend.mode
        is_async = mode is _ASYNC
        if self.is_bounded and is_async:
            # Whoever has set a bound must not wait for a request that ignores it. The pieces of a stream are
            # awaited here all the same: a generator may not be resumed in one task after another.
            mode = Mode.DETACHED
        while True:
            try:
                messages = history.for_model()
                if guidance is not None:
                    _add_guidance(messages, guidance)
                exchange = self.backend.exchange(messages, self.tools, uses_tools=uses_tools)
                response: Response | None = yield Call(
                    exchange.open_async if is_async else exchange.open,
                    mode=mode,
                    label=labels.CHAT,
                    key=key,
                )
                if response is None:
                    response = yield from self._streamed(exchange, iteration, key)
            except Exception as error:
                if attempt > self.max_retries or not is_retryable(error):
                    kind = type(error).__name__
                    raise LLMError(safe_str(error), kind, attempt, error) from error
                yield from self._wait(error, attempt, iteration)
            else:
                return response
            attempt += 1

    def _wait(self, error: Exception, attempt: int, iteration: int) -> Steps[None]:
        """Wait before the next try, and tell of it."""
        delay = yield from delay_before_retry(error, attempt, self.retry_delay)
        now = yield NOW
        yield Emit(
            ModelRetried(
                iteration=iteration,
                attempt=attempt,
                error=safe_str(error),
                error_type=type(error).__name__,
                delay=delay,
                at=now,
            )
        )
        yield Sleep(delay)

    def _streamed(self, exchange: ModelRequest, iteration: int, key: str) -> Steps[Response]:
        """Read an answer that comes in pieces; one that breaks off is closed."""
        try:
            return (yield from self._read(exchange, iteration, key))
        except GeneratorExit:
            raise
        except BaseException:
            try:
                yield Call(exchange.close, mode=exchange.chunk_mode, label=labels.CLOSE, key=key)
            except Exception:  # the answer is given up already; that is what has to be told
                log.debug("closing a broken stream failed", exc_info=True)
            raise

    def _read(self, exchange: ModelRequest, iteration: int, key: str) -> Steps[Response]:
        assembler, count = StreamAccumulator(), 0
        while True:
            count += 1
            if count % CHUNKS_AT_ONCE == 0:
                # A stream that has its pieces ready never waits, and a time limit needs somebody to wait.
                yield Sleep(0)
            chunk = yield Call(
                exchange.next_chunk, mode=exchange.chunk_mode, label=labels.CHUNK, key=key
            )
            if chunk is None:
                return assembler.response()
            if count == 1 and self.has_listeners:
                now = yield NOW
                yield Emit(FirstChunk(iteration=iteration, at=now))
            assembler.add(chunk)
            if chunk.text and self.has_listeners:
                yield Emit(TextDelta(iteration=iteration, text=chunk.text))


_ASYNC = Mode.ASYNC  # members are looked up slowly


def _add_guidance(messages: list[JSONDict], guidance: str) -> None:
    """Tell the model something at the end of a request; two user messages never follow each other."""
    last = messages[-1] if messages else {}
    if last.get("role") == "user" and isinstance(last.get("content"), str):
        messages[-1] = {**last, "content": f"{last['content']}\n\n{guidance}"}
    else:
        messages.append({"role": "user", "content": guidance})


def end_record(state: RunState, reason: Reason | None, ended: float) -> None:
    """Close the record of a run.

    Args:
        state: the record; its last iteration may still be open.
        reason: why the run ended; None for an answer.
        ended: when, in seconds since the epoch.
    """
    node = state.current_node
    is_late = isinstance(reason, DeadlineExceeded)
    if node is not None and node.is_running:
        if is_late:
            node.timeout(ended)
        else:
            node.fail(reason, ended)
    for call in node.tool_calls if node is not None and reason is not None else ():
        # One that waits for a person, and will wait no more.
        if call.run is not None and call.run.is_running:
            end_record(call.run, reason, ended)
        if call.is_running:
            call.fail(reason, ended)
    if reason is None:
        state.succeed()
    elif is_late:
        state.timeout()
    else:
        state.fail(reason)


def make_result(turn: Iterations, reason: Reason | None, limit: Reason | None = None) -> Ok | Err:
    """Make the result of a run.

    Args:
        turn: the run, as it was left.
        reason: why the run ended; None for an answer.
        limit: the limit that was reached before the answer was asked for; None where none was.
    """
    context = turn.context
    facts: dict[str, Any] = {
        "messages": list(context.messages),
        "usage": turn.budget.usage,
        "iterations": turn.iteration,
        "tool_calls_count": context.tool_calls_count,
        "run": context.state,
    }
    if reason is not None:
        return Err(reason, stop_reason=reason.stop_reason, **facts)
    # An answer with calls is that of a terminal tool: whatever else is called lets the run go on.
    stop_reason = "output" if context.tool_calls else "answered"
    if limit is not None:
        stop_reason = "finished"
    return Ok(
        context.response, output=context.output, stop_reason=stop_reason, limit=limit, **facts
    )


class Iterations:
    """The iterations of one run, and how it stands between them.

    Args:
        plant: what it works with.
        state: the record of the run.
    """

    def __init__(self, plant: Plant, state: RunState) -> None:
        around = plant.around
        is_bounded = plant.limits.max_seconds is not None
        self.plant = plant
        self.state = state
        self.runner = ToolRunner(
            plant.handle is not None,
            is_bounded=is_bounded or (around is not None and around.is_bounded),
            locks=plant.locks or (None if around is None else around.locks),
            # What is held around it says nothing of another table than that.
            held=_NOTHING if around is None or plant.locks is not None else around.held,
            breaker=plant.breaker,
        )
        self.budget = Budget(plant.limits, None if around is None else around.budget)
        self.detector = LoopDetector(plant.loop_threshold)
        self.iteration = 0
        self.clock = 0.0
        self.elapsed_before = 0.0
        self.count_before = 0
        self.unheard: tuple[JSONDict, ...] = ()
        self.pauses = 0
        self.context = Context(
            messages=History(),
            tools=plant.tools,
            response=_NO_RESPONSE,
            limits=plant.limits,
            state=state,
            runner=self.runner,
            resolve_tool=plant.resolver,
            iteration=0,
            has_listeners=plant.has_listeners,
            budget=self.budget,
        )
        self._trace: Progress | None = None

    def start(self, at: float) -> None:
        """Begin at some time, in seconds since the epoch."""
        self.budget.started_at = at
        self.context = self.context.replace(started_at=at)

    def resume(self, resumption: Resumption, at: float) -> None:
        """Stand as the run stood when it was put aside; its clock goes on from there."""
        resumption.restore(self)
        self.start(at - self.elapsed_before)
        # From now on it is in the trace, as any iteration that is under way.
        trace = self._trace = Progress(stages=list(self.context.trace))
        trace.item = self.context.replace(decision=None, waiting=(), trace=trace.stages)

    def keep(self, context: Context) -> None:
        """Make a context the latest one: from here on the run is as it says."""
        self.context = context
        self._trace = None
        self.state.history = context.messages

    def ask(self) -> Steps[Reason | None]:
        """Begin an iteration, up to the model's answer; return why there is none."""
        if self.plant.handle is not None or self.unheard:
            yield from self.is_steered()
        context, budget = self.context, self.budget
        if budget.parent is not None or self.plant.handle is not None or not self.iteration:
            # Since it was looked at, others may have taken the last of it, or an answer was not the end.
            reason = budget.exhausted()
            if reason is not None:
                self.context = context.stop(reason)
                return reason
        response = yield from request(self, context.guidance)
        if isinstance(response, Reason):
            return response
        # Until it is kept, an iteration is in the trace: an interruption finds it there.
        trace = self._trace = Progress()
        trace.item = self.begun(response, trace)
        return None

    def step(self, *, goes_on: bool = False) -> Steps[Reason | None]:
        """Take the iteration through the stages, and end it.

        Args:
            goes_on: enter at the stage that put the run aside.

        Returns:
            Why the run ends; None where the context says.
        """
        trace = self._trace
        if trace is None:
            raise AssertionError("unreachable: an iteration was begun, or is gone on with")
        start = trace.stages.pop() if goes_on else None
        reason: Reason | None = None
        try:
            stepped = yield from self.plant.pipeline.steps(trace.item, trace, start=start)
        except StageError as error:
            self.settle("Not run: the run failed first.")
            cause = error.cause
            reason = PipelineFailed(error.stage, safe_str(cause), type(cause).__name__, cause)
        except NotOneItemError as error:
            self.settle("Not run: the run failed first.")
            reason = PipelineFailed(trace.stages[-1], str(error), type(error).__name__, error)
        else:
            if stepped.decision is Decision.PAUSE:
                self.context = stepped
                return None  # it goes on later
            self.keep(self._injected(stepped))
        return (yield from self._close(reason))

    def is_steered(self) -> Steps[bool]:
        """Take in what the user said meanwhile; return whether there was anything."""
        handle, is_over = self.plant.handle, self.context.decision is not None
        given, self.unheard = self.unheard, ()
        if handle is not None:
            key = str(self.iteration + 1)
            given += yield Call(handle.take, is_over and not given, label=labels.STEER, key=key)
        if not given:
            return False
        self.hear(given)
        self.context = self.context.replace(decision=None, output=None, guidance=None)
        if self.context.has_listeners:
            yield Emit(UserMessageAdded(iteration=self.iteration + 1, messages=given))
        return True

    def hear_the_rest(self) -> Steps[None]:
        """Put in the history what the user has said to the end of the run, and hear no more."""
        said, self.unheard = self.unheard, ()
        if self.plant.handle is not None:
            said += yield Call(self.plant.handle.close, label=labels.STEER, key="end")
        self.hear(said)

    def hear(self, said: tuple[JSONDict, ...]) -> None:
        """Put user messages in the history; with them a new turn begins."""
        if not said:
            return
        self.runner.new_turn()
        self.detector.new_turn()
        message = functools.reduce(join_messages, said)
        messages = self.context.messages
        if messages and messages[-1]["role"] == "user":  # two in a row are not for every provider
            messages, message = History(messages[:-1]), join_messages(messages[-1], message)
        self.keep(self.context.replace(messages=messages.append(message)))

    def begun(self, response: Response, trace: Progress) -> Context:
        """The context as it enters the stages: the response in it, nothing left of the last iteration."""
        self.count_before = self.context.tool_calls_count
        return self.context.replace(
            response=response,
            iteration=self.iteration,
            trace=trace.stages,
            usage=self.budget.usage,
            tool_calls=(),
            plan=_NO_PLAN,
            tool_results={},
            validation_errors={},
            result_messages=(),
            guidance=None,
            approvals=_NOTHING,
            children=_NOTHING,
        )

    def _close(self, reason: Reason | None) -> Steps[Reason | None]:
        """End an iteration: look for endless loops, note how it went, tell."""
        context, node = self.context, self.state.nodes[-1]
        repeated = self.detector.look(context, node)
        if reason is None and context.decision is Decision.STOP:
            reason = context.error
        if reason is None and context.decision is None:
            if _has_nothing_to_ask(context):
                self.context = context = context.done()
                repeated = None
            reason = repeated
            if reason is None and context.decision is None:
                # What budget_guard says in its words, for stage lists that do without it.
                reason = self.budget.exhausted()
        if reason is not None and context.decision is None:
            self.context = context = context.stop(reason)
        self.clock = ended = yield NOW
        if reason is None or isinstance(reason, MaxIterationsReached):
            node.succeed(at=ended)
        else:
            node.fail(reason, ended)
        if context.has_listeners:
            yield Emit(IterationFinished(iteration=context.iteration, context=context, at=ended))
        return reason

    def close(self, context: Context) -> Steps[None]:
        """End an iteration that went through no stages.

        Args:
            context: has its messages.
        """
        self.keep(context)
        self.clock = ended = yield NOW
        self.state.nodes[-1].succeed(at=ended)
        if context.has_listeners:
            yield Emit(IterationFinished(iteration=context.iteration, context=context, at=ended))

    def _injected(self, context: Context, unanswered: str = "Not run.") -> Context:
        """The context with its iteration in the history, whichever stages have seen to it or not."""
        if context.messages is not self.context.messages:
            return context
        if context.response.tool_calls and not context.tool_calls:
            context = parse_tool_calls(context)
        return inject(context, unanswered)

    def settle(self, unanswered: str) -> None:
        """Put an interrupted iteration in the history: its calls, the results there are, and why not more.

        Args:
            unanswered: what the model is told of calls without a result.
        """
        trace = self._trace
        if trace is None:  # between iterations: all there is was kept
            return
        context: Context = trace.item
        results = {**self.runner.results, **context.tool_results}
        self.runner.running.clear()
        node = self.state.current_node
        ran = 0 if node is None else sum(call.started_at is not None for call in node.tool_calls)
        count = max(context.tool_calls_count, self.count_before + ran)
        context = context.replace(tool_results=results, tool_calls_count=count)
        try:
            context = self._injected(context, unanswered)
        except Exception:  # a stage has left what no message can be made of
            log.exception("an interrupted iteration could not be put in the history")
            context = self.context
        self.keep(context.replace(trace=tuple(trace.stages)))


def _has_nothing_to_ask(context: Context) -> bool:
    """Whether a text is the last word, and no stage has anything to add: then it is the answer."""
    is_text = not context.tool_calls and not context.response.is_blank
    return is_text and context.guidance is None and context.messages.ends_with_assistant


_NO_PLAN = Plan()
_NO_RESPONSE = Response()
_NOTHING: dict[str, Any] = {}


GUIDANCE = (
    "The budget for this task is spent ({reason}). Do not call any more tools. "
    "Give your final answer now, with what you have{how}."
)
NOT_RUN = "Not run: the budget for this task is spent. Give your final answer with what you have."
NO_ANSWER = "I could not finish this within the limits I was given ({reason})."


def finish(turn: Iterations, plant: Plant, reason: Reason) -> Steps[Reason | None]:
    """Ask for a last answer; the guidance for it does not stay in the history.

    The model is asked once with its tools on offer. If it calls some it is asked once more, with tools
    disabled. If there is no text then either, a plain sentence is the answer.

    Args:
        turn: the run.
        plant: what it works with.
        reason: the limit that was reached.

    Returns:
        Why there is no answer; None where there is one.
    """
    terminal = [tool.name for tool in plant.tools.values() if tool.terminal]
    how = f", by a call of {' or '.join(terminal)}" if terminal else ""
    guidance = GUIDANCE.format(reason=reason, how=how)
    for uses_tools in (True, False):
        parent = turn.budget.parent
        spent = None if parent is None else parent.exhausted()
        if spent is not None:  # what is a parent's is not ours to overdraw
            return spent
        yield from turn.is_steered()
        response = yield from request(turn, guidance, uses_tools=uses_tools)
        if isinstance(response, Reason):
            return response
        is_last = not uses_tools
        if not response.tool_calls or is_last:
            yield from turn.close(_answered(turn, response, reason))
            return None
        context = _refused(turn, response)
        yield from turn.close(context)
        if context.decision is Decision.DONE:
            return None
    raise AssertionError("unreachable: the last request is answered one way or another")


def _refused(turn: Iterations, response: Response) -> Context:
    """The calls in the history, each with the answer that it is too late for it.

    But a valid call of a terminal tool is the answer that was asked for.
    """
    begun = turn.begun(response, Progress()).replace(decision=None, error=None)
    context = loop_decision(validate_calls(parse_tool_calls(begun)))
    results = {
        call.id: ToolResult(call.id, NOT_RUN, True, "over_budget") for call in context.tool_calls
    }
    return inject(context.replace(tool_results={**results, **context.tool_results}))


def _answered(turn: Iterations, response: Response, reason: Reason) -> Context:
    """The text as the answer; calls beside it are dropped, since nothing would ever answer them."""
    text = response.content if (response.content or "").strip() else None
    if text is None and not (response.refusal or "").strip():
        text = NO_ANSWER.format(reason=reason)
    extra = {key: value for key, value in response.extra.items() if key != "content" or not text}
    response = dataclasses.replace(response, content=text, tool_calls=(), extra=extra)
    context = turn.begun(response, Progress()).replace(decision=None, error=None)
    return inject(context).done()


_GUARDS = (MaxIterationsReached, BudgetExhausted, DeadlineExceeded, CircuitBroken, LoopDetected)
_FINISHED = (MaxIterationsReached, BudgetExhausted, LoopDetected)
"""What leaves room for a last answer: the time is not up, and the tools are not what is broken."""


class Run:
    """One run of a loop; `steps` is what a driver performs, once.

    Args:
        plant: what it works with.
        given: what it starts from: messages, as the caller gave them, or a paused run.
        state: its record.
    """

    def __init__(self, plant: Plant, given: Any, state: RunState) -> None:
        self.state = state
        self.result: Result | None = None
        self.turn = Iterations(plant, state)
        self._plant = plant
        self._given = given
        self._resumes = isinstance(given, Resumption)
        self._limit: Reason | None = None
        self._paused: JSONDict | None = None

    def steps(self) -> Steps[Result]:
        """Run to the end, whatever it is; on every way out the history is valid and the end is told."""
        if self._resumes:
            yield from self._given.claim()
        self.turn.clock = started = yield NOW
        refusal = self._begin(started)
        try:
            if self._plant.has_listeners:
                yield Emit(self._started(started))
            if self.state.repairs and not self._resumes and refusal is None:
                yield from self._tell(HistoryRepaired(repairs=self.state.repairs))
            has_bounds = (
                self._plant.limits.max_seconds is not None or self._plant.handle is not None
            )
            iterating = self._bounded() if has_bounds else self._iterate()
            reason = refusal or (yield from iterating)
            is_told = self._limit is not None and not isinstance(reason, DeadlineExceeded)
            if isinstance(reason, _GUARDS) and not is_told:
                yield from self._tell(LimitReached(iteration=self.turn.iteration, reason=reason))
        except GeneratorExit:
            raise
        except BaseException:
            # A cancellation of the caller's: put all in order, tell, and let it go on its way.
            self.turn.settle("Cancelled: the run was cancelled before this call was done.")
            yield from self._finish(RunCancelled(), returns=False)
            raise
        return (yield from self._finish(reason, returns=True))

    def _begin(self, started: float) -> Reason | None:
        """Take in what was given; return why it cannot be started from, None where it can."""
        turn = self.turn
        if isinstance(self._given, Resumption):
            turn.resume(self._given, started)
            return None
        turn.start(started)
        self.state.start()
        taken = validate_messages(self._given)
        if taken.messages:
            self.state.repairs = taken.repairs
            turn.keep(turn.context.replace(messages=History(taken.messages)))
        return taken.refusal

    def _started(self, at: float) -> RunStarted:
        plant = self._plant
        model, provider, request = plant.asker.backend.model_info()
        resolvable = () if plant.resolver is None else plant.resolver.names or ()
        return RunStarted(
            agent_name=self.state.agent_name,
            run_id=self.state.run_id,
            at=at,
            resumed=self._resumes,
            limits=plant.limits,
            tools=[tool.as_openai() for tool in plant.tools.values()],
            available=tuple({**plant.tools, **dict.fromkeys(resolvable)}),
            model=model,
            provider=provider,
            request=request,
            state=self.state,
        )

    def _tell(self, event: Event) -> Steps[None]:
        if self._plant.has_listeners:
            yield Emit(event)

    def _bounded(self) -> Steps[Reason | None]:
        """Iterate, within the time there is, for as long as nobody ends it."""
        handle, most = self._plant.handle, self._plant.limits.max_seconds
        # The time before a pause counts, and that of the pause does not.
        seconds = None if most is None else max(0.0, most - self.turn.elapsed_before)
        until = None if handle is None else handle.ended
        try:
            return (yield Bounded(self._iterate(), seconds=seconds, until=until))
        except TimeLimitReached:
            self.turn.settle("Cancelled: the run's time was up before this call was done.")
            return DeadlineExceeded(most or 0.0)
        except Stopped:
            self.turn.settle("Cancelled: the run was cancelled before this call was done.")
            return RunCancelled()

    def _iterate(self) -> Steps[Reason | None]:
        """Ask, step the pipeline, look at the decision, again; return why it ended, None for an answer."""
        turn = self.turn
        reason: Reason | None = None
        goes_on = self._resumes
        while reason is None:
            if not goes_on:
                reason = yield from turn.ask()
            if reason is None:
                reason = yield from turn.step(goes_on=goes_on)
            goes_on = False
            if reason is None and turn.context.decision is not None:
                if turn.context.decision is Decision.PAUSE:
                    return (yield from self._pause())
                if not (yield from turn.is_steered()):
                    return None
        if self._plant.finishes and isinstance(reason, _FINISHED):
            yield from self._tell(LimitReached(iteration=turn.iteration, reason=reason))
            self._limit = reason
            return (yield from finish(turn, self._plant, reason))
        return reason

    def _pause(self) -> Steps[Reason | None]:
        try:
            self._paused = yield from put_aside(self.turn, self._plant)
        except PausedStateError as error:
            self.turn.settle("Not run: the run failed first.")
            stage = self.turn.context.trace[-1]
            return PipelineFailed(stage, str(error), type(error).__name__, error)
        return None

    def _finish(self, reason: Reason | None, *, returns: bool) -> Steps[Result]:
        """Make the result, end the record, tell."""
        if reason is not None:
            self._paused = None
        if self._paused is None:
            # What was said too late for the model is there for whoever goes on from here.
            yield from self.turn.hear_the_rest()
        ended = yield NOW
        if self._paused is None:
            end_record(self.state, reason, ended)
        result: Result = make_result(self.turn, reason, self._limit)
        if self._paused is not None:
            result = Paused(
                pending=self.turn.context.waiting,
                messages=result.messages,
                state=self._paused,
                usage=result.usage,
                iterations=result.iterations,
                tool_calls_count=result.tool_calls_count,
                run=self.state,
            )
        self.result = result
        if (
            reason is not None or self._plant.has_listeners
        ):  # a run that failed is in the log in any case
            yield Emit(_finished(result, ended, returns=returns))
        return result


def _finished(result: Result, at: float, *, returns: bool) -> RunFinished:
    return RunFinished(
        stop_reason=result.stop_reason,
        total_iterations=result.iterations,
        tool_calls_count=result.tool_calls_count,
        result=result if returns else None,
        at=at,
        usage=result.usage,
        error=str(result.reason) if isinstance(result, Err) else None,
    )


class Prepared:
    """A run, ready to be driven.

    Args:
        loop: what it is a run of.
        given: messages, as the caller gave them, or a paused run.
        llm_send_fn: the model.
        stream: the handle of a stream; None where it is none.
        tell: an observer beside those of the loop; None is nobody.

    Attributes:
        steps: the run.
        emit: is told its events; None is nobody.
    """

    def __init__(
        self,
        loop: Loop,
        given: Any,
        llm_send_fn: LLMSendFn,
        stream: EventStream | None = None,
        tell: Observer | None = None,
    ) -> None:
        settings = loop.settings
        observers = _observers_of(settings)
        if tell is not None:  # last: it may wait for a reader, and be cancelled there
            observers.append(tell)
        telemetry = active_telemetry(
            settings.tracer_provider,
            settings.meter_provider,
            settings.logger_provider,
            capture_content=settings.capture_content,
            chat_telemetry=settings.chat_telemetry,
        )
        has_listeners = bool(observers) or telemetry is not None or is_logged(logging.INFO)
        handles = [handle for handle in (stream, settings.handle) if handle is not None]
        if len(handles) > 1:
            raise OptionError("handle: a stream is the handle of its run; leave it out")
        handle = handles[0] if handles else None
        plant = _plant(loop, llm_send_fn, has_listeners=has_listeners, handle=handle)
        state = _state_for(settings, given)
        if is_logged(logging.WARNING):
            observers.insert(0, RunLog(state.run_id, state.agent_name))
        run = Run(plant, given, state)
        if handle is not None:
            handle.bind(run)
        self.emit = Observers(observers) if observers else None
        self.steps = run.steps()
        if telemetry is not None:
            self.steps = telemetry.middleware(self.steps)
        for layer in reversed(settings.middleware):
            self.steps = layer(self.steps)


def prepare_child(
    loop: Loop,
    given: Any,
    llm_send_fn: LLMSendFn,
    state: RunState,
    around: ParentRun,
    *,
    has_listeners: bool,
) -> tuple[Steps[Result], Observers | None]:
    """Make the steps of a run that is a call of another.

    Args:
        loop: what it is a run of.
        given: messages, or a paused run.
        llm_send_fn: its model.
        state: its record.
        around: what it has of the run around it.
        has_listeners: whether anybody listens to that.

    Returns:
        The steps, and who of its own is told of its events.
    """
    settings = loop.settings
    observers = _observers_of(settings)
    plant = _plant(
        loop,
        llm_send_fn,
        has_listeners=has_listeners or bool(observers),
        handle=None,
        around=around,
    )
    steps = Run(plant, given, state).steps()
    for layer in reversed(settings.middleware):
        steps = layer(steps)
    return steps, Observers(observers) if observers else None


def _observers_of(settings: Settings) -> list[Observer]:
    given = settings.on_event or ()
    asked = map(for_run, (given,) if callable(given) else given)
    observers = [observer for observer in asked if observer is not None]
    if settings.on_iteration is not None:
        observers.append(of_iterations(settings.on_iteration))
    if settings.on_complete is not None:
        observers.append(of_completion(settings.on_complete))
    return observers


def _state_for(settings: Settings, given: Any) -> RunState:
    if isinstance(given, Resumption):
        if settings.state is not None:
            raise OptionError("state: a paused run has a record of its own; leave it out")
        return given.run_state
    return settings.state if settings.state is not None else RunState(settings.name)


def _plant(
    loop: Loop,
    llm_send_fn: LLMSendFn,
    *,
    has_listeners: bool,
    handle: RunHandle | None,
    around: ParentRun | None = None,
) -> Plant:
    settings = loop.settings
    is_bounded = settings.limits.max_seconds is not None or handle is not None
    return Plant(
        pipeline=loop.pipeline,
        asker=Asker(
            ModelClient(llm_send_fn, settings.llm_opts),
            [tool.as_openai() for tool in loop.tools.values()],
            settings.max_retries,
            settings.retry_delay,
            has_listeners,
            is_bounded or (around is not None and around.is_bounded),
        ),
        tools=dict(loop.tools),
        resolver=loop.resolver,
        limits=settings.limits,
        loop_threshold=settings.loop_threshold,
        finishes=settings.on_limit == "finish",
        show_budget=settings.show_budget,
        cost_of=settings.cost_of,
        has_listeners=has_listeners,
        handle=handle,
        locks=settings.locks,
        breaker=settings.breaker,
        pause_secret=loop.pause_secret,
        around=around,
    )
