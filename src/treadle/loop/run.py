"""One run: the outer loop, as a generator. It has no ``await``, no thread and no clock: all that is effects."""

from __future__ import annotations

from typing import Any

from treadle.loop.intake import take_in
from treadle.loop.loop_detection import LoopDetector
from treadle.loop.outcome import end_record, make_result
from treadle.loop.plant import Plant
from treadle.pipeline import (
    NOW,
    Emit,
    NotOneItemError,
    StageError,
    Steps,
    Stopped,
    TimeLimitReached,
    Trace,
    Within,
)
from treadle.stages import ToolRunner, inject, parse_tool_calls
from treadle.types import (
    BudgetExhausted,
    CircuitBroken,
    Context,
    DeadlineExceeded,
    Decision,
    Event,
    History,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    LimitReached,
    LLMError,
    LoopDetected,
    MaxIterationsReached,
    ModelFailed,
    ModelResponded,
    PipelineFailed,
    Plan,
    Reason,
    Response,
    Result,
    RunCancelled,
    RunFinished,
    RunNode,
    RunStarted,
    RunState,
)

_GUARDS = (MaxIterationsReached, BudgetExhausted, DeadlineExceeded, CircuitBroken, LoopDetected)


class Run:
    """One run of a loop; `steps` is what a driver performs, once.

    Args:
        plant: what it works with.
        messages: what it starts from, as the caller gave it.
        state: its record.
        until: ends the run when it is set; None where nobody can.
    """

    def __init__(self, plant: Plant, messages: Any, state: RunState, until: Any = None) -> None:
        self.state = state
        self.runner = ToolRunner(plant.can_cancel)
        self.result: Result | None = None
        self.iteration = 0
        self._clock = 0.0
        self.context = Context(
            messages=History(),
            tools=plant.tools,
            response=Response(),
            limits=plant.limits,
            state=state,
            runner=self.runner,
            resolve_tool=plant.resolver,
            iteration=0,
            watched=plant.watched,
        )
        self._plant = plant
        self._given = messages
        self._until = until
        self._trace: Trace | None = None
        self._detector = LoopDetector(plant.loop_threshold)

    def steps(self) -> Steps[Result]:
        """Run to the end, whatever it is; on every way out the history is valid and the end is told."""
        self._clock = started = yield NOW
        self.context = self.context.replace(started_at=started)
        self.state.start()
        taken = take_in(self._given)
        if taken.messages:
            self.state.repairs = taken.repairs
            self._keep(self.context.replace(messages=History(taken.messages)))
        try:
            yield from self._tell(
                RunStarted(agent_name=self.state.agent_name, run_id=self.state.run_id, at=started)
            )
            reason = taken.refusal or (yield from self._bounded())
            if isinstance(reason, _GUARDS):
                yield from self._tell(LimitReached(iteration=self.iteration, reason=reason))
        except GeneratorExit:
            raise
        except BaseException:
            # A cancellation of the caller's: put all in order, tell, and let it go on its way.
            self._settle("Cancelled: the run was cancelled before this call was done.")
            yield from self._finish(RunCancelled(), returns=False)
            raise
        return (yield from self._finish(reason, returns=True))

    def _tell(self, event: Event) -> Steps[None]:
        if self._plant.watched:
            yield Emit(event)

    def _bounded(self) -> Steps[Reason | None]:
        """Iterate, within the time there is, for as long as nobody ends it."""
        if self.state.repairs:
            yield from self._tell(HistoryRepaired(repairs=self.state.repairs))
        seconds = self._plant.limits.max_seconds
        if seconds is None and self._until is None:
            return (yield from self._iterate())
        try:
            return (yield Within(self._iterate(), seconds=seconds, until=self._until))
        except TimeLimitReached:
            self._settle("Cancelled: the run's time was up before this call was done.")
            return DeadlineExceeded(seconds or 0.0)
        except Stopped:
            self._settle("Cancelled: the run was cancelled before this call was done.")
            return RunCancelled()

    def _keep(self, context: Context) -> None:
        """Make a context the latest one: from here on the run is as it says."""
        self.context = context
        self._trace = None
        self.state.history = context.messages

    def _iterate(self) -> Steps[Reason | None]:
        """Ask, step the pipeline, look at the decision, again; return why it ended, None for an answer."""
        while True:
            reason = yield from self._iteration()
            if reason is not None or self.context.decision is Decision.DONE:
                return reason

    def _iteration(self) -> Steps[Reason | None]:
        context = self.context
        self.iteration = iteration = self.iteration + 1
        # It starts when the last one ended; but what watchers took since then is not the model's time.
        started = (yield NOW) if context.watched else self._clock
        node = self.state.new_node(at=started)
        node.start(started)
        if context.watched:
            yield Emit(IterationStarted(iteration=iteration, at=started))
        try:
            response = yield from self._plant.asker.ask(
                context.messages, context.guidance, iteration
            )
        except LLMError as error:
            return (yield from self._model_failed(node, error))
        self.state.record_usage(response.usage)
        node.usage = response.usage
        # Until it is kept, an iteration is in the trace: an interruption finds it there.
        trace = self._trace = Trace()
        trace.item = _begun(context, response, iteration, trace)
        if context.watched:
            yield from self._tell_response(iteration, response, started)
        reason = yield from self._step(trace)
        return (yield from self._close(node, reason))

    def _step(self, trace: Trace) -> Steps[Reason | None]:
        """Take the context through the stages; return why the run ends, None where the context says."""
        try:
            stepped = yield from self._plant.pipeline.steps(trace.item, trace)
        except StageError as error:
            self._settle("Not run: the run failed first.")
            cause = error.cause
            return PipelineFailed(error.stage, str(cause), type(cause).__name__, cause)
        except NotOneItemError as error:
            self._settle("Not run: the run failed first.")
            return PipelineFailed(trace.stages[-1], str(error), type(error).__name__, error)
        self._keep(self._injected(stepped))
        return None

    def _close(self, node: RunNode, reason: Reason | None) -> Steps[Reason | None]:
        """End an iteration: look for endless loops, note how it went, tell."""
        context = self.context
        repeated = self._detector.look(context, node)
        if reason is None and context.decision is Decision.STOP:
            reason = context.error
        if reason is None and context.decision is None:
            if _has_nothing_to_ask(context):
                self.context = context = context.done()
                repeated = None
            reason = repeated
            # What budget_guard says in its words, for stage lists that do without it.
            is_open = reason is None and context.decision is None
            if is_open and context.iteration >= context.limits.max_iterations:
                reason = MaxIterationsReached(context.limits.max_iterations)
        if reason is not None and context.decision is None:
            self.context = context = context.stop(reason)
        self._clock = ended = yield NOW
        if reason is None or isinstance(reason, MaxIterationsReached):
            node.succeed(at=ended)
        else:
            node.fail(reason, ended)
        if context.watched:
            yield Emit(IterationFinished(iteration=context.iteration, context=context, at=ended))
        return reason

    def _model_failed(self, node: RunNode, error: LLMError) -> Steps[Reason]:
        ended = yield NOW
        node.fail(error, ended)
        self.state.record_usage(None)
        self.context = self.context.replace(usage=self.context.usage.plus(None))
        yield from self._tell(
            ModelFailed(
                iteration=self.iteration,
                error=error.message,
                error_type=error.error_type,
                at=ended,
            )
        )
        return error

    def _tell_response(self, iteration: int, response: Response, started: float) -> Steps[None]:
        now = yield NOW
        yield Emit(
            ModelResponded(iteration=iteration, response=response, at=now, duration=now - started)
        )

    def _injected(self, context: Context, unanswered: str = "Not run.") -> Context:
        """The context with its iteration in the history, whichever stages have seen to it or not."""
        if context.messages is not self.context.messages:
            return context
        if context.response.tool_calls and not context.tool_calls:
            context = parse_tool_calls(context)
        return inject(context, unanswered)

    def _settle(self, unanswered: str) -> None:
        """Put an interrupted iteration in the history: its calls, the results there are, and why not more."""
        trace = self._trace
        if trace is None:  # between iterations: all there is was kept
            return
        context: Context = trace.item
        results = {**self.runner.results, **context.tool_results}
        self.runner.running.clear()
        node = self.state.current_node
        ran = 0 if node is None else sum(call.started_at is not None for call in node.tool_calls)
        count = max(context.tool_calls_count, self.context.tool_calls_count + ran)
        context = context.replace(tool_results=results, tool_calls_count=count)
        self._keep(self._injected(context, unanswered).replace(trace=tuple(trace.stages)))

    def _finish(self, reason: Reason | None, *, returns: bool) -> Steps[Result]:
        """Make the result, end the record, tell."""
        ended = yield NOW
        end_record(self.state, reason, ended)
        self.result = result = make_result(self.context, self.iteration, reason)
        yield from self._tell(
            RunFinished(
                stop_reason=result.stop_reason,
                total_iterations=result.iterations,
                tool_calls_count=result.tool_calls_count,
                result=result if returns else None,
                at=ended,
            )
        )
        return result


def _begun(context: Context, response: Response, iteration: int, trace: Trace) -> Context:
    """The context as it enters the stages: the response in it, nothing left of the last iteration."""
    return context.replace(
        response=response,
        iteration=iteration,
        trace=trace.stages,
        usage=context.usage.plus(response.usage),
        tool_calls=(),
        plan=_NO_PLAN,
        tool_results={},
        validation_errors={},
        result_messages=(),
        guidance=None,
    )


def _has_nothing_to_ask(context: Context) -> bool:
    """Whether a text is the last word, and no stage has anything to add: then it is the answer."""
    is_text = not context.tool_calls and not context.response.is_blank
    return is_text and context.guidance is None and context.messages.ends_with_assistant


_NO_PLAN = Plan()
