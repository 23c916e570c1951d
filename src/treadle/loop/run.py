"""One run: the outer loop, as a generator. It has no ``await``, no thread and no clock: all that is effects."""

from __future__ import annotations

from typing import Any

from treadle.loop.finish import finish
from treadle.loop.intake import take_in
from treadle.loop.iteration import Iterations
from treadle.loop.outcome import end_record, make_result
from treadle.loop.pause import PausedStateError, Resumption, put_aside
from treadle.loop.plant import Plant
from treadle.pipeline import NOW, Emit, Steps, Stopped, TimeLimitReached, Within
from treadle.types import (
    BudgetExhausted,
    CircuitBroken,
    DeadlineExceeded,
    Decision,
    Err,
    Event,
    History,
    HistoryRepaired,
    JSONDict,
    LimitReached,
    LoopDetected,
    MaxIterationsReached,
    Paused,
    PipelineFailed,
    Reason,
    Result,
    RunCancelled,
    RunFinished,
    RunStarted,
    RunState,
)

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
            if self._plant.watched:
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
        taken = take_in(self._given)
        if taken.messages:
            self.state.repairs = taken.repairs
            turn.keep(turn.context.replace(messages=History(taken.messages)))
        return taken.refusal

    def _started(self, at: float) -> RunStarted:
        plant = self._plant
        model, provider, request = plant.asker.backend.identity()
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
        if self._plant.watched:
            yield Emit(event)

    def _bounded(self) -> Steps[Reason | None]:
        """Iterate, within the time there is, for as long as nobody ends it."""
        handle, most = self._plant.handle, self._plant.limits.max_seconds
        # The time before a pause counts, and that of the pause does not.
        seconds = None if most is None else max(0.0, most - self.turn.elapsed_before)
        until = None if handle is None else handle.ended
        try:
            return (yield Within(self._iterate(), seconds=seconds, until=until))
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
        if reason is not None or self._plant.watched:  # a run that failed is in the log in any case
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
