"""One run: the outer loop, as a generator. It has no ``await``, no thread and no clock: those are effects."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

from treadle import labels
from treadle.context import (
    NO_CALLS,
    Context,
    Decision,
    RunServices,
    uses_of,
    with_parsed_calls,
    with_reservations,
)
from treadle.effects import (
    NOW,
    Bounded,
    Call,
    Emit,
    Steps,
    Stopped,
    TimeLimitReached,
    log_suppressed,
)
from treadle.errors import PausedStateError, SessionError, causes_of
from treadle.events import (
    Event,
    HistoryRepaired,
    IterationFinished,
    IterationStarted,
    LimitReached,
    ModelFailed,
    RunFinished,
    RunStarted,
    UserMessageAdded,
)
from treadle.limits import MAX_LAST_ANSWERS
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.custom_stage import lost_calls
from treadle.loop.handle import RunHandle
from treadle.loop.loop_detection import detected_loop
from treadle.loop.pause import (
    WAITING,
    PausedRun,
    PauseState,
    kept_context,
    nonce,
    sealed,
    with_nonce,
)
from treadle.loop.session_turn import RunSession, check_is_last, joined, load_session, save_turn
from treadle.messages import (
    NOTHING,
    Ending,
    History,
    InvalidMessagesError,
    JSONDict,
    ModelCall,
    ModelCallStatus,
    Response,
    Timing,
    join_messages,
    safe_str,
    validate_messages,
)
from treadle.model import ModelInfo
from treadle.pipeline import Progress, StageError
from treadle.results import (
    DeadlineExceeded,
    EmptyResponse,
    Err,
    InvalidInput,
    MaxIterationsReached,
    Ok,
    OutputMissing,
    Paused,
    PipelineFailed,
    Reason,
    Result,
    RunCancelled,
)
from treadle.run_state import RunState
from treadle.stages import (
    asked_again,
    incomplete,
    inject,
    report_notes,
    with_guidance_after_text,
    without_nudge,
)
from treadle.tools import NotRun, OutputContract
from treadle.tracebacks import from_user_code

log = logging.getLogger("treadle.loop")

GUIDANCE = (
    "The budget for this task is spent ({reason}). Do not call any more tools. "
    "Give your final answer now, with what you have{how}."
)
NO_ANSWER = "I could not finish this within the limits I was given ({reason})."

_DONE, _STOP, _PAUSE = Decision.DONE, Decision.STOP, Decision.PAUSE  # looked up slowly
_FAILED = "Cancelled: the run failed before this call was done."
_CANCELLED = "Cancelled: the run was cancelled before this call was done."
_LATE = "Cancelled: the run's time was up before this call was done."


class Run:
    """One run of messages, or of a paused run; a driver performs `steps`, once.

    It does not keep the loop: the handle among its settings refers to the run. If another process may resume it,
    a cancellation of its task does not end it.
    """

    def __init__(
        self,
        loop: BuiltLoop,
        services: RunServices,
        given: Any,
        handle: RunHandle | None = None,
        *,
        is_resumable: bool = False,
    ) -> None:
        self.pipeline, self.tools = loop.pipeline, loop.tools
        self.session: RunSession | None = loop.settings.session
        self._finishes = loop.settings.limits.on_limit == "finish"
        self._secret = loop.settings.pauses.secret
        self.handle = handle
        self.services = services
        self.state = services.state
        # The latest context; between iterations it has everything that was done.
        self.context = _BLANK.evolve(messages=History(), tools=loop.tools, run=services)
        self.result: Result | None = None  # also if its task was cancelled
        self.limit: Reason | None = None  # at which the model is asked for a last answer
        self.given = given  # with a session, after the messages of the session
        self._is_resumable = is_resumable
        self._has_begun = False  # whether a stage may have run
        self._pauses = 0
        self._elapsed_before = 0.0  # seconds before the latest pause
        self._pending_messages: tuple[JSONDict, ...] = ()  # the model has not seen them yet
        self._progress: Progress | None = None
        self._last_answers = 0  # how often it was asked for one
        self._paused: JSONDict | None = None
        self._failure: Exception | None = None

    # The run as a whole

    def steps(self) -> Steps[Result]:
        """Perform the run; on every exit the history is valid and the end is reported."""
        if self.session is not None:
            return self._in_session(self.session)
        return self._claimed(self._steps())

    def _claimed(self, steps: Steps[Result]) -> Steps[Result]:
        if not isinstance(self.given, PausedRun):
            return steps
        return self.given.claimed(steps, has_begun=lambda: self._has_begun)

    def _in_session(self, session: RunSession) -> Steps[Result]:
        """Perform the run as a turn of a session."""
        loaded = yield from load_session(session)
        if isinstance(self.given, PausedRun):
            check_is_last(self.given.state["pause_id"], loaded)
        else:
            self.given = joined(loaded["messages"], self.given)
            self.context = self.context.evolve(memo=loaded["memo"])
        # The pause is over when the turn is stored: else the session still has it, and it can be taken over.
        return (yield from self._claimed(self._stored(session, loaded)))

    def _stored(self, session: RunSession, loaded: JSONDict) -> Steps[Result]:
        """Perform the run, and store its turn."""
        try:
            result = yield from self._steps()
        except GeneratorExit:
            raise
        except BaseException:
            if self.result is not None and not self._is_resumable:  # the run was cancelled
                try:
                    yield from save_turn(session, loaded, self.result, self.context)
                except SessionError:
                    log.exception("the turn of a cancelled run could not be stored")
            raise
        yield from save_turn(session, loaded, result, self.context)
        return result

    def _steps(self) -> Steps[Result]:
        is_resumed = isinstance(self.given, PausedRun)
        started = yield NOW
        reason = self._begin(started)
        try:
            if self.services.has_listeners:
                yield Emit(self._started(started, is_resumed=is_resumed))
            if self.state.repairs and not is_resumed and reason is None:
                yield from self._emit(HistoryRepaired(repairs=self.state.repairs))
            if reason is None:
                reason = yield from self._bounded(is_resumed=is_resumed)
            is_reported = self.limit is not None and not isinstance(reason, DeadlineExceeded)
            if reason is not None and reason.is_guard and not is_reported:
                yield from self._emit(LimitReached(iteration=self.context.iteration, reason=reason))
        except GeneratorExit:
            raise
        except BaseException:
            # The caller cancelled the run: make the history valid, report the end, and re-raise.
            cancelled = RunCancelled()
            yield from self._interrupt(cancelled)
            yield from self._finish(cancelled, returns=False)
            raise
        return (yield from self._finish(reason, returns=True))

    def _begin(self, started: float) -> Reason | None:
        """Validate the input; return why the run cannot start, or None."""
        budget = self.services.budget
        self.services.ledger.advance(started)
        if isinstance(self.given, PausedRun):
            self._restore(self.given)
            budget.start(started, self._elapsed_before)
            # From now on the iteration is in progress.
            progress = Progress(stages=list(self.context.trace))
            progress.item = self.context.evolve(decision=None, waiting=(), trace=progress.stages)
            self._progress = progress
            return None
        budget.start(started)
        self.state.start()
        try:
            messages, self.state.repairs = validate_messages(self.given)
        except InvalidMessagesError as error:
            return InvalidInput(error.problems)
        self.keep(self.context.evolve(messages=History(messages)))
        return None

    def _started(self, at: float, *, is_resumed: bool) -> RunStarted:
        run, tools = self.services, self.tools
        info = ModelInfo(None, None, {}) if run.model is None else run.model.model_info()
        resolvable = () if run.resolver is None else run.resolver.names or ()
        offered = tools if run.catalog is None else run.catalog.offered(tools, run.ledger.found)
        return RunStarted(
            agent_name=self.state.agent_name,
            run_id=self.state.run_id,
            at=at,
            resumed=is_resumed,
            limits=run.budget.limits,
            tools=[tools[name].as_openai() for name in offered],
            available=tuple({**tools, **dict.fromkeys(resolvable)}),
            model=info.model,
            provider=info.provider,
            request=info.request,
            state=self.state,
        )

    def _emit(self, event: Event) -> Steps[None]:
        if self.services.has_listeners:
            yield Emit(event)

    def _bounded(self, *, is_resumed: bool) -> Steps[Reason | None]:
        """Iterate until the run is over, its time is up, or it is cancelled through its handle."""
        if self.limit is None:
            iterating = self._iterate(is_resumed=is_resumed)
        else:  # it was paused at its last answer
            iterating = self._last_answer(self.limit, is_resumed=True)
        seconds = self.services.budget.limits.max_seconds
        if self.handle is None and seconds is None:
            return iterating
        return self._within_bounds(iterating, seconds)

    def _within_bounds(
        self, iterating: Steps[Reason | None], seconds: float | None
    ) -> Steps[Reason | None]:
        left = None if seconds is None else max(0.0, seconds - self._elapsed_before)
        until = None if self.handle is None else self.handle.ended
        try:
            return (yield Bounded(iterating, seconds=left, until=until))
        except TimeLimitReached:
            reason: Reason = DeadlineExceeded(seconds or 0.0, self.services.budget.name)
        except Stopped:
            reason = RunCancelled()
        yield from self._interrupt(reason)
        return reason

    def _iterate(self, *, is_resumed: bool) -> Steps[Reason | None]:
        """Iterate until there is a decision; return why the run ended, None for an answer."""
        self._has_begun = True
        reason: Reason | None = None
        while reason is None:
            if not is_resumed:
                reason = yield from self._begin_iteration()
            if reason is None:
                reason = yield from self._pass(is_resumed=is_resumed)
            is_resumed = False
            if reason is None and self.context.decision is not None:
                if self.context.decision is _PAUSE:
                    return (yield from self._suspend())
                if self.handle is not None:
                    ends = not self._pending_messages
                    self._pending_messages += yield self._taking(self.handle, ends=ends)
                    self.handle.taken = ()
                if not self._pending_messages:
                    return None
                yield from self._add_pending()
        if self._finishes and reason.allows_last_answer:
            unmeasured = self.services.budget.not_measurable()
            if unmeasured is not None:  # what a last answer would use cannot be measured either
                return unmeasured
            yield from self._emit(LimitReached(iteration=self.context.iteration, reason=reason))
            return (yield from self._last_answer(reason))
        return reason

    # One iteration

    def _begin_iteration(
        self, guidance: str | None = None, changes: Mapping[str, Any] | None = None
    ) -> Steps[Reason | None]:
        """Begin an iteration, with a text for the model in it alone; return the reason if a limit forbids it."""
        run = self.services
        if self.handle is not None:
            self._pending_messages += yield self._taking(self.handle)
            self.handle.taken = ()
        if self._pending_messages:
            yield from self._add_pending()
        reason = run.budget.exhausted()
        if reason is not None:
            self.context = self.context.stop(reason)
            return reason
        # Without listeners, no time has passed since the last one ended.
        started = (yield NOW) if run.has_listeners else run.ledger.clock
        iteration = self.context.iteration + 1
        self.state.new_node(at=started).start(started)
        run.ledger.reserved.clear()
        run.in_flight.next_batch()
        if run.has_listeners:
            yield Emit(IterationStarted(iteration=iteration, at=started))
        # Until its context is kept, the iteration is in progress, and `_settle` ends it if it is interrupted.
        progress = Progress()
        progress.item = self.context.begin(iteration, progress.stages, changes or NOTHING)
        if guidance is not None:
            progress.item = progress.item.guide(guidance)
        self._progress = progress  # complete: a signal may interrupt any line
        return None

    def _pass(self, *, is_resumed: bool = False) -> Steps[Reason | None]:
        """Run the stages of the iteration, from the one that paused the run; return why the run ends, or None."""
        progress = self._progress
        if progress is None:
            raise AssertionError("unreachable: an iteration was begun, or is resumed")
        start = progress.stages.pop() if is_resumed else None
        reason: Reason | None = None
        try:
            context = yield from self.pipeline.steps(progress.item, progress, start=start)
        except StageError as error:
            self._settle(_FAILED)
            cause = self._failure = from_user_code(error.cause)
            reason = PipelineFailed(error.stage, safe_str(cause), type(cause).__name__, cause)
        else:
            if context.decision is _PAUSE:
                self.context = context
                return None  # the iteration is not over
            run = self.services
            if not context.is_asked and context.decision is not _STOP:  # else `ask_model` counts it
                run.budget.iterations += 1
            run.release_idle()
            context = inject(context, "Not run.")
            self.keep(context)
        return (yield from self._end_iteration(reason))

    def _end_iteration(self, reason: Reason | None) -> Steps[Reason | None]:
        """End an iteration: look for loops, record its status, report it."""
        run, context, node = self.services, self.context, self.state.nodes[-1]
        if context.notes or context.plan.not_run or run.ledger.notes or run.ledger.unsettled:
            yield from report_notes(context)
        repeated = detected_loop(context, node)
        is_over = context.decision is not None or repeated is not None or not context.tool_calls
        if reason is None and is_over:
            reason = self._reason_to_end(repeated)
            context = self.context
        if reason is not None and context.decision is not _STOP:
            self.context = context = context.stop(reason)
        if run.has_listeners:
            run.ledger.advance((yield NOW))
        ended = run.ledger.clock
        if reason is None or isinstance(reason, MaxIterationsReached):
            node.succeed(at=ended)
        else:
            node.fail(reason, ended)
        if run.has_listeners:
            yield Emit(IterationFinished(iteration=context.iteration, context=context, at=ended))
        return reason

    def _reason_to_end(self, repeated: Reason | None) -> Reason | None:
        """Why an iteration that did not fail ends the run without an answer; None if it does not."""
        run, context = self.services, self.context
        if context.decision is _STOP:
            return context.error
        if context.decision is not None:
            if context.output is None and context.response.ending is Ending.FILTERED:
                return incomplete(context)  # a stage has taken it as the answer
            return None if run.output is None else self._problem_of_output(run.output)
        ending = context.response.ending
        is_text = not context.tool_calls and not context.response.is_blank and run.output is None
        is_text = is_text and ending is not Ending.PAUSED
        # A text to which no stage has added anything is the answer.
        if not (is_text and context.guidance is None and context.messages.ends_with_assistant):
            return None if run.budget.is_finishing else repeated
        if ending in (Ending.CUT, Ending.FILTERED):
            return incomplete(context)
        self.context = context.done()
        return None

    def _problem_of_output(self, output: OutputContract) -> Reason | None:
        """Check the output with which a custom stage ended the run; those of the model are checked already."""
        given = self.context.output
        if given is self.context.accepted and given is not None:
            return None
        value, problems = output.check(given)
        if not problems:
            self.context = self.context.evolve(output=value)
            return None
        text = f"done: the output is not of the type that output= requires: {'; '.join(problems)}"
        return PipelineFailed(self.context.stage, text, "TypeError")

    def keep(self, context: Context) -> None:
        """Make a context the latest one."""
        self.context = context
        self._progress = None
        self.services.ledger.dispatched = ()
        self.state.history = context.messages

    def _interrupt(self, reason: Reason) -> Steps[None]:
        """Settle an interrupted run; log what a stage raised in its cleanup, since it is not the reason."""
        if self._failure is not None:
            log_suppressed(self._failure)
        streamed = ""
        number, request = self.services.ledger.interrupted_request or (0, None)
        current = None if self._progress is None else self._progress.item.iteration
        if request is not None and number == current:
            streamed, timing = yield Call(
                request.so_far, label=labels.STREAMED, key=str(number), reporting=True
            )
            yield from self._cancelled_call(number, reason, timing)
        self._settle(_LATE if isinstance(reason, DeadlineExceeded) else _CANCELLED, streamed)
        yield from report_notes(self.context)

    def _cancelled_call(self, iteration: int, reason: Reason, timing: Timing | None) -> Steps[None]:
        """Report the request to the model that was interrupted, and note its times."""
        node = self.state.nodes[-1]
        call = node.asked[-1]
        if isinstance(call, ModelCall):
            node.asked = (*node.asked[:-1], dataclasses.replace(call, timing=timing))
        if self.services.has_listeners:
            yield Emit(
                ModelFailed(
                    iteration=iteration,
                    error=str(reason),
                    error_type=reason.stop_reason,
                    at=(yield NOW) if timing is None else timing.ended,
                    status=ModelCallStatus.CANCELLED,
                    timing=timing,
                )
            )

    def _settle(self, unanswered: str, streamed: str = "") -> None:
        """Put an interrupted iteration, and the text streamed so far, in the history."""
        progress = self._progress
        if progress is None:  # between iterations: everything was kept
            return
        context: Context = progress.item
        in_flight = self.services.in_flight
        if lost_calls(context):  # a stage that dispatched them itself was interrupted
            context = self._with_dispatched(unanswered)
        if streamed:  # of a second request, if the first one of the iteration was answered
            context = asked_again(context) if context.is_asked else context
            context = context.evolve(response=Response(streamed), is_asked=True)
        in_flight.running.clear()
        self.services.release_idle()
        if self.services.breaker is not None:
            self.services.ledger.unsettled += context.tool_calls
        done = in_flight.results
        # A call that a stage ran although the plan refused it has an answer that says so.
        ran = {call_id: one for call_id, one in done.items() if one.status == NotRun.NOT_ALLOWED}
        context = context.evolve(tool_results={**done, **context.tool_results, **ran})
        try:
            context = inject(context, unanswered)
        except Exception:  # a stage left a value that cannot become a message
            log.exception("an interrupted iteration could not be put in the history")
            context = self.context
        self.keep(context.evolve(trace=tuple(progress.stages)))

    def _with_dispatched(self, unanswered: str) -> Context:
        """The context that a stage dispatched last, with the calls that it dispatched before in the history."""
        *others, context = self.services.ledger.dispatched
        for other in others:
            if lost_calls(context, (other,)):
                results = {**self.services.in_flight.results, **other.tool_results}
                other = other.evolve(messages=context.messages, tool_results=results)  # noqa: PLW2901
                context = context.evolve(messages=inject(other, unanswered).messages)
        return context

    # User messages that arrive meanwhile

    def _taking(self, handle: RunHandle, *, ends: bool = False) -> Call:
        """The effect that takes user messages; if there are none and the run ends, the handle accepts no more."""
        key = str(self.context.iteration + 1)
        if not self.services.budget.is_finishing:
            return Call(handle.take, ends, label=labels.STEER, key=key)
        # After the last answer the model is not asked again: a later message would not be seen.
        return Call(handle.close, label=labels.STEER, key=key)

    def _add_pending(self) -> Steps[None]:
        """Add the user messages that arrived meanwhile; the run continues with them."""
        given, self._pending_messages = self._pending_messages, ()
        self.add_messages(given)
        self.context = without_nudge(self.context.evolve(decision=None, output=None))
        iteration = self.context.iteration + 1
        yield from self._emit(UserMessageAdded(iteration=iteration, messages=given))

    def add_messages(self, given: tuple[JSONDict, ...]) -> None:
        """Put user messages in the history; a new turn begins with them."""
        if not given:
            return
        self.services.in_flight.next_batch()
        self.services.repeats.new_turn()
        message, history = functools.reduce(join_messages, given), self.context.messages
        if history and history[-1]["role"] == "user":  # some providers refuse two in a row
            messages = history.raw()
            history, message = History(messages[:-1]), join_messages(messages[-1], message)
        self.keep(self.context.evolve(messages=history.append(message)))

    # The last answer

    def _last_answer(self, reason: Reason, *, is_resumed: bool = False) -> Steps[Reason | None]:
        """Ask for a last answer; the guidance for it is not stored in the history.

        The model is asked once with its tools, which no longer run. If it calls some, it is asked once more
        with tools disabled. If there is still no text, a fixed sentence is the answer. With the option ``output``,
        both requests force the call of the output tool.
        """
        self._has_begun = True
        terminal = [tool.name for tool in self.context.tools.values() if tool.terminal]
        how = f", by a call of {' or '.join(terminal)}" if terminal else ""
        guidance = GUIDANCE.format(reason=reason, how=how)
        self._finish_at(reason)
        output = self.services.output
        # `Context.request` forces the call of an output tool.
        without_calls = {"tool_choice": "none"} if output is None or not output.tools else None
        for number in range(self._last_answers if is_resumed else 1, MAX_LAST_ANSWERS + 1):
            failed: Reason | None = None
            if not is_resumed:
                self._last_answers = number
                changes = without_calls if number == MAX_LAST_ANSWERS else None
                # Before the text of this request is joined to that of a stage: it is not stored.
                context = with_guidance_after_text(without_nudge(self.context))
                self.context = context.evolve(decision=None, error=None, output=None)
                failed = yield from self._begin_iteration(guidance, changes)
            failed = failed or (yield from self._pass(is_resumed=is_resumed))
            is_resumed = False
            if isinstance(failed, EmptyResponse):
                break
            if failed is not None or self.context.decision is _DONE:
                return failed
            if self.context.decision is _PAUSE:
                return (yield from self._suspend())
            if not self.context.tool_calls and output is None:
                break
        if output is not None:
            results = self.context.tool_results.values()
            is_denied = any(result.status == NotRun.DENIED for result in results)
            other = "the model called other tools at the limit"
            rejected = output.rejected(self.context.memo) or [
                ["a person did not approve it" if is_denied else other]
            ]
            return OutputMissing(max(len(rejected), 2), tuple(rejected[-1]), reason)
        self.keep(_without_answer(self.context, reason))
        return None

    def go_on_with(self, other: Run) -> None:
        """Take the settings of a run that has not started, between iterations; its limits count earlier usage."""
        now = self.context.tools
        changed = {name: tool for name, tool in now.items() if self.tools.get(name) is not tool}
        removed = self.tools.keys() - now.keys()
        tools = {name: tool for name, tool in other.tools.items() if name not in removed}
        tools |= changed  # by a stage, from then on
        used = self.services.budget
        other.services.budget.restore(used.used())
        other.services.budget.started_at = used.started_at
        if used.is_finishing:
            other.services.budget.finish()
        kept: Any = {name: getattr(self.services, name) for name in _KEPT}
        self.services = dataclasses.replace(other.services, **kept)
        self.pipeline, self.tools = other.pipeline, other.tools
        self._finishes, self._secret = other._finishes, other._secret
        self.context = self.context.evolve(tools=tools, run=self.services)

    # Pauses and results

    def _suspend(self) -> Steps[Reason | None]:
        """Pause: make the state from which another run continues, and a valid history."""
        try:
            self._paused = yield from self._paused_state()
        except PausedStateError as error:
            self._settle(_FAILED)
            # Their frames are those of this run, which refers to the reason.
            for one in causes_of(error):
                one.with_traceback(None)
            reason = PipelineFailed(self.context.stage, str(error), type(error).__name__, error)
            return (yield from self._end_iteration(reason))
        # The calls of a response that was not parsed yet wait as well.
        self.keep(inject(with_parsed_calls(self.context), WAITING))
        return None

    def _paused_state(self) -> Steps[JSONDict]:
        services = self.services
        self.context = with_reservations(self.context)
        yield from report_notes(self.context)
        now = yield NOW
        self._pauses += 1
        if self.handle is not None:
            self._pending_messages += yield Call(self.handle.close, label=labels.STEER, key="pause")
            self.handle.taken = ()
        key = str(self._pauses)
        text = yield Call(nonce, label=labels.RANDOM, key=f"pause {key}")
        counter = services.ledger.event_counter
        last_seq = yield Call(counter.after_pause, label=labels.LAST_SEQ, key=key)
        if not self.pipeline.has_entry(self.context.stage):
            raise PausedStateError(
                f"the run cannot pause: a run cannot be resumed at stage {self.context.stage!r}"
            )
        context = self.context = with_nonce(self.context, text)
        state = PauseState(
            stage=context.stage,
            elapsed=services.budget.elapsed(now),
            pauses=self._pauses,
            pending=list(context.waiting),
            pending_messages=self._pending_messages,
            context=kept_context(context),
            state=dataclasses.replace(self.state, history=History()),
            budget=services.budget.used(),
            limit=self.limit,
            last_answers=self._last_answers,
            repeats=services.repeats,
            removed_tools=[name for name in self.tools if name not in context.tools],
            found=list(services.ledger.found),
            calls_run=services.in_flight.calls_run,
            is_taken_over=services.in_flight.is_taken_over,
        )
        return sealed(
            state,
            context,
            self.tools,
            pause_id=f"{self.state.run_id}:{key}:{text}",
            last_seq=last_seq,
            secret=self._secret,
        )

    def _restore(self, given: PausedRun) -> None:
        """Continue from the state of a paused run."""
        paused, services = given.paused, self.services
        self._pauses, self._elapsed_before = paused.pauses, paused.elapsed
        self._pending_messages, self._last_answers = paused.pending_messages, paused.last_answers
        tools = self.context.tools
        kept = {name: tool for name, tool in tools.items() if name not in paused.removed_tools}
        context = given.context
        parsed = context.response if context.tool_calls else None  # a stage may have added calls
        self.context = context.evolve(run=services, tools=kept, parsed=parsed)
        self.state.history = self.context.messages
        services.budget.restore(paused.budget)
        if paused.limit is not None:
            self._finish_at(paused.limit)
        services.in_flight.calls_run = paused.calls_run
        services.in_flight.is_taken_over = given.take_over or paused.is_taken_over
        services.repeats.restore(paused.repeats)
        services.ledger.seen_tools = kept
        services.ledger.refused = {(context.iteration, key) for key in context.plan.not_run}
        services.ledger.found.update(dict.fromkeys(paused.found))
        done = self.context.tool_results
        for call in () if self.context.is_injected else self.context.plan.calls:
            if call.id not in done:
                services.ledger.reserved[call.id] = call, uses_of(kept.get(call.name))

    def _finish_at(self, limit: Reason) -> None:
        """Ask for a last answer from now on, since a limit was reached."""
        self.limit = limit
        self.services.budget.finish()

    def _finish(self, reason: Reason | None, *, returns: bool) -> Steps[Result]:
        """Make the result, end the run state, report it."""
        if reason is not None:
            self._paused = None
        if self._paused is None:
            # Messages that arrived too late for the model are in the history of the result.
            given, self._pending_messages = self._pending_messages, ()
            if self.handle is not None:
                given += yield Call(self.handle.close, label=labels.STEER, key="end")
            self.add_messages(given)
        ended = yield NOW
        if self._paused is None:
            end_state(self.state, reason, ended)
        self.result = result = self._result(reason)
        self.handle = None  # which refers to the run: avoid a reference cycle
        # As the traceback of an exception does: of a tool or a key of a lock, by the frames of their callers.
        self.services.ledger.failures = {}
        if reason is not None or self.services.has_listeners:  # a failed run is logged in any case
            yield Emit(
                RunFinished(
                    stop_reason=result.stop_reason,
                    total_iterations=result.iterations,
                    tool_calls_count=result.tool_calls_count,
                    result=result if returns else None,
                    at=ended,
                    usage=result.usage,
                    error=str(result.reason) if isinstance(result, Err) else None,
                )
            )
        return result

    def _result(self, reason: Reason | None) -> Result:
        context = self.context
        facts: dict[str, Any] = {
            "messages": context.messages.raw(),
            "usage": self.services.budget.usage,
            "iterations": context.iteration,
            "tool_calls_count": self.services.in_flight.calls_run,
            "run": self.state,
        }
        if reason is not None:
            return Err(reason, stop_reason=reason.stop_reason, **facts)
        if self._paused is not None:
            return Paused(context.waiting, state=self._paused, **facts)
        is_text = context.output is None and self.services.output is None
        stop_reason = "finished" if self.limit else "answered" if is_text else "output"
        output = context.response.text if is_text else context.output
        return Ok(
            context.response, output=output, stop_reason=stop_reason, limit=self.limit, **facts
        )


_KEPT = (
    "state", "in_flight", "repeats", "ledger", "locks", "held_locks", "has_listeners", "streams_to_user",
    "check_kept",
)  # fmt: skip
"""The services of a run that it keeps when it goes on with the settings of another one."""
_BLANK = Context(History(), memo=NOTHING).begin(0, (), NOTHING)
"""The context before the first iteration; all runs share its values."""


def _without_answer(context: Context, reason: Reason) -> Context:
    """A fixed sentence as the answer, if the model gave none."""
    response = context.response
    extra = {key: value for key, value in response.extra.items() if key != "content"}
    response = dataclasses.replace(
        response, content=NO_ANSWER.format(reason=reason), tool_calls=(), extra=extra
    )
    return inject(context.evolve(**NO_CALLS, response=response, error=None)).done()


def end_state(state: RunState, reason: Reason | None, ended: float) -> None:
    """End the state of a run, and what in it is still running; the reason is None for an answer."""
    node = state.current_node
    is_late = isinstance(reason, DeadlineExceeded)
    if node is not None and node.is_running:
        if is_late:
            node.timeout(ended)
        else:
            node.fail(reason, ended)
    for call in node.tool_calls if node is not None and reason is not None else ():
        # A call that still waits for approval.
        if call.run is not None and call.run.is_running:
            end_state(call.run, reason, ended)
        if call.is_running:
            call.fail(reason, ended)
    if reason is None:
        state.succeed()
    elif is_late:
        state.timeout()
    else:
        state.fail(reason)
