"""One run: the outer loop, as a generator. It has no ``await``, no thread and no clock: those are effects."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Mapping
from typing import Any

from treadle import events, labels
from treadle.context import (
    NO_CALLS,
    Context,
    Decision,
    EventCounter,
    Ledger,
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
from treadle.limits import MAX_LAST_ANSWERS, Budget
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.custom_stage import lost_calls
from treadle.loop.handle import RunHandle
from treadle.loop.pause import (
    WAITING,
    PausedRun,
    PauseState,
    kept_context,
    nonce,
    sealed,
    with_nonce,
)
from treadle.loop.session_turn import RunSession, joined, save_turn, session_call
from treadle.messages import (
    NOTHING,
    Ending,
    History,
    InvalidMessagesError,
    JSONDict,
    ModelCall,
    ModelCallStatus,
    Response,
    safe_str,
    short_name,
)
from treadle.messages.parts import join_messages
from treadle.messages.repair import validate_messages
from treadle.model import Model, ModelClient
from treadle.model.info import ModelInfo
from treadle.pipeline import Progress, StageError
from treadle.results import (
    DeadlineExceeded,
    EmptyResponse,
    Err,
    InvalidInput,
    LoopDetected,
    MaxIterationsReached,
    Ok,
    OutputMissing,
    Paused,
    PipelineFailed,
    Reason,
    Result,
    RunCancelled,
)
from treadle.run_state import RunNode, RunState
from treadle.stages import (
    asked_again,
    incomplete,
    inject,
    report_notes,
    with_guidance_after_text,
    without_nudge,
)
from treadle.tools import (
    Locks,
    NotRun,
    OutputContract,
    Repeats,
    ToolCallTable,
    fingerprint,
    signature,
)
from treadle.tracebacks import from_user_code

log = logging.getLogger("treadle.loop")

GUIDANCE = (
    "The budget for this task is spent ({reason}). Do not call any more tools. "
    "Give your final answer now, with what you have{how}."
)
MAX_SHOWN = 5
"""The maximum number of calls that the reason of an endless loop names."""
NO_ANSWER = "I could not finish this within the limits I was given ({reason})."

_DONE, _STOP, _PAUSE = Decision.DONE, Decision.STOP, Decision.PAUSE  # looked up slowly
_FAILED = "Cancelled: the run failed before this call was done."
_CANCELLED = "Cancelled: the run was cancelled before this call was done."
_LATE = "Cancelled: the run's time was up before this call was done."


class Run:
    """One run of messages, or of a paused run; a driver performs `steps`, once. Its observers share the counter.

    It does not keep the loop, whose handle refers to the result. If another process may resume it, a cancellation
    of its task does not end it. A subagent is a call of a run with the services ``parent``.
    """

    def __init__(
        self,
        loop: BuiltLoop,
        given: Any,
        llm_send_fn: Model | None,
        state: RunState,
        *,
        handle: RunHandle | None = None,
        counter: EventCounter | None = None,
        has_listeners: bool = False,
        streams_to_user: bool = False,
        parent: RunServices | None = None,
        call_id: str = "",
        is_resumable: bool = False,
    ) -> None:
        settings, limits = loop.settings, loop.settings.limits
        self.pipeline, self.tools = loop.pipeline, loop.tools
        self.session: RunSession | None = settings.session
        self._secret = settings.pauses.secret
        self.handle = handle
        self.state = state
        self.given = given  # with a session, after the messages of the session
        counter = counter or EventCounter()
        if isinstance(given, PausedRun):
            counter.latest = given.paused.last_seq
        locks = settings.locks
        held: Mapping[str, str] = NOTHING
        if parent is not None and locks is None:  # keys of another table are not held here
            locks = parent.locks
            held = parent.in_flight.held_locks.get(call_id, parent.held_locks)
        cost_of = limits.cost_of
        if cost_of is not None:  # events have the limits, as data
            limits = dataclasses.replace(limits, cost_of=None)
        elif parent is not None:
            cost_of = parent.cost_of
        options = settings.llm_opts
        if loop.output is not None:
            options = {**options, **loop.output.options}
        outer = None if parent is None else parent.budget
        self.services = RunServices(
            state=state,
            budget=Budget(limits, outer, settings.name, state.agent_name),
            in_flight=ToolCallTable(can_cancel=handle is not None),
            repeats=Repeats(settings.loop_threshold),
            ledger=Ledger(counter),
            locks=Locks() if locks is None else locks,
            held_locks=held,
            breaker=settings.breaker,
            resolver=loop.resolver,
            catalog=loop.catalog,
            model=ModelClient(loop.model_for(llm_send_fn), options),
            instructions=settings.instructions,
            has_listeners=has_listeners,
            streams_to_user=streams_to_user,
            deps=settings.deps,
            asks_unknown=settings.pauses.on_unknown == "ask",
            output=loop.output,
            cost_of=cost_of,
            check_kept=None if handle is None else handle.check_kept,
            provides=loop.pipeline.provides,
        )
        # The latest context; between iterations it has everything that was done.
        self.context = _BLANK.evolve(messages=History(), tools=loop.tools, run=self.services)
        self.result: Result | None = None  # also if its task was cancelled
        self.limit: Reason | None = None  # at which the model is asked for a last answer
        self._is_resumable = is_resumable
        self._has_begun = False  # whether a stage may have run
        self._pauses = 0
        self._pending_messages: tuple[JSONDict, ...] = ()  # the model has not seen them yet
        self._progress: Progress | None = None
        self._last_answers = 0  # how often it was asked for one
        self._paused: JSONDict | None = None
        self._failure: Exception | None = None

    # The run as a whole

    def steps(self) -> Steps[Result]:
        """Perform the run; on every exit the history is valid and the end is reported."""
        if self.handle is not None:
            self.handle.bind(self)
        if self.session is not None:
            return self._in_session(self.session)
        return self._claimed(self._steps())

    def _claimed(self, steps: Steps[Result]) -> Steps[Result]:
        if not isinstance(self.given, PausedRun):
            return steps
        return self.given.claimed(steps, has_begun=lambda: self._has_begun)

    def _in_session(self, session: RunSession) -> Steps[Result]:
        """Perform the run as a turn of a session."""
        loaded: JSONDict = yield session_call(session, session.load, labels.LOAD_SESSION)
        if isinstance(self.given, PausedRun):
            if self.given.paused.pause_id != loaded["pause_id"]:
                raise PausedStateError(
                    "the last turn of the session is not the pause that is resumed"
                )
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
        started = yield NOW
        reason = self._begin(started)
        try:
            if self.services.has_listeners:
                yield Emit(self._started(started))
            if self.state.repairs and self._progress is None and reason is None:
                yield from self._emit(events.HistoryRepaired(repairs=self.state.repairs))
            if reason is None:
                reason = yield from self._bounded()
            is_reported = self.limit is not None and not isinstance(reason, DeadlineExceeded)
            if reason is not None and reason.is_guard and not is_reported:
                yield from self._emit(
                    events.LimitReached(iteration=self.context.iteration, reason=reason)
                )
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
            budget.start(started, self.given.paused.elapsed)
            stages = list(self.context.trace)
            context = self.context.evolve(decision=None, waiting=(), trace=stages)
            self._progress = Progress(context, stages)  # the iteration is in progress
            return None
        budget.start(started)
        self.state.start()
        try:
            messages, self.state.repairs = validate_messages(self.given)
        except InvalidMessagesError as error:
            return InvalidInput(error.problems)
        self.keep(self.context.evolve(messages=History(messages)))
        return None

    def _started(self, at: float) -> events.RunStarted:
        run, tools = self.services, self.tools
        info = ModelInfo(None, None, {}) if run.model is None else run.model.model_info()
        resolvable = () if run.resolver is None else run.resolver.names or ()
        offered = tools if run.catalog is None else run.catalog.offered(tools, run.ledger.found)
        return events.RunStarted(
            agent_name=self.state.agent_name,
            run_id=self.state.run_id,
            at=at,
            resumed=isinstance(self.given, PausedRun),
            limits=run.budget.limits,
            tools=[tools[name].as_openai() for name in offered],
            available=tuple({**tools, **dict.fromkeys(resolvable)}),
            state=self.state,
            **info._asdict(),
        )

    def _emit(self, event: events.Event) -> Steps[None]:
        if self.services.has_listeners:
            yield Emit(event)

    def _bounded(self) -> Steps[Reason | None]:
        """Iterate until the run is over, its time is up, or it is cancelled through its handle."""
        # With a limit, it was paused at its last answer.
        iterating = self._iterate() if self.limit is None else self._last_answer(self.limit)
        seconds = self.services.budget.limits.max_seconds
        if self.handle is None and seconds is None:
            return iterating
        return self._within_bounds(iterating, seconds)

    def _within_bounds(
        self, iterating: Steps[Reason | None], seconds: float | None
    ) -> Steps[Reason | None]:
        before = self.given.paused.elapsed if isinstance(self.given, PausedRun) else 0.0
        left = None if seconds is None else max(0.0, seconds - before)
        until = None if self.handle is None else self.handle.ended
        try:
            return (yield Bounded(iterating, seconds=left, until=until))
        except TimeLimitReached:
            reason: Reason = DeadlineExceeded(seconds or 0.0, self.services.budget.name)
        except Stopped:
            reason = RunCancelled()
        yield from self._interrupt(reason)
        return reason

    def _iterate(self) -> Steps[Reason | None]:
        """Iterate until there is a decision; return why the run ended, None for an answer."""
        reason: Reason | None = None
        while reason is None:
            reason = yield from self._begin_iteration()
            if reason is None:
                reason = yield from self._pass()
            if reason is None and self.context.decision is not None:
                if self.context.decision is _PAUSE:
                    return (yield from self._suspend())
                if self.handle is not None:
                    yield from self._receive(self.handle, ends=not self._pending_messages)
                if not self._pending_messages:
                    return None
                yield from self._add_pending()
        if self.services.budget.limits.on_limit == "finish" and reason.allows_last_answer:
            unmeasured = self.services.budget.not_measurable()
            if unmeasured is not None:  # what a last answer would use cannot be measured either
                return unmeasured
            yield from self._emit(
                events.LimitReached(iteration=self.context.iteration, reason=reason)
            )
            return (yield from self._last_answer(reason))
        return reason

    # One iteration

    def _begin_iteration(
        self, guidance: str | None = None, changes: Mapping[str, Any] | None = None
    ) -> Steps[Reason | None]:
        """Begin an iteration, with a text for the model in it alone; return the reason if a limit forbids it."""
        run = self.services
        if self._progress is not None:  # the run is resumed
            return None
        if self.handle is not None:
            yield from self._receive(self.handle)
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
        run.ledger.failures.clear()
        run.in_flight.next_batch()
        if run.has_listeners:
            yield Emit(events.IterationStarted(iteration=iteration, at=started))
        # Until its context is kept, the iteration is in progress, and `_settle` ends it if it is interrupted.
        progress = Progress()
        progress.item = self.context.begin(iteration, progress.stages, changes or NOTHING)
        if guidance is not None:
            progress.item = progress.item.guide(guidance)
        self._progress = progress  # complete: a signal may interrupt any line
        return None

    def _pass(self) -> Steps[Reason | None]:
        """Run the stages of the iteration, from the one that paused the run; return why the run ends, or None."""
        progress: Any = self._progress  # an iteration was begun, or is resumed
        self._has_begun = True
        start = progress.stages.pop() if progress.stages else None
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
        repeated = _detected_loop(context, node)
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
            yield Emit(
                events.IterationFinished(iteration=context.iteration, context=context, at=ended)
            )
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
            node = self.state.nodes[-1]
            call = node.asked[-1]
            if isinstance(call, ModelCall):
                node.asked = (*node.asked[:-1], dataclasses.replace(call, timing=timing))
            if self.services.has_listeners:
                yield Emit(
                    events.ModelFailed(
                        iteration=number,
                        error=str(reason),
                        error_type=reason.stop_reason,
                        at=(yield NOW) if timing is None else timing.ended,
                        status=ModelCallStatus.CANCELLED,
                        timing=timing,
                    )
                )
        self._settle(_LATE if isinstance(reason, DeadlineExceeded) else _CANCELLED, streamed)
        yield from report_notes(self.context)

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

    def _receive(self, handle: RunHandle, *, ends: bool = False, closing: str = "") -> Steps[None]:
        """Take the messages; if there are none and the run ends, or it is closing, the handle accepts no more."""
        key = closing or str(self.context.iteration + 1)
        # After the last answer the model is not asked again: a later message would not be seen.
        is_over = closing or self.services.budget.is_finishing
        take, args = (handle.close, ()) if is_over else (handle.take, (ends,))
        self._pending_messages += yield Call(take, *args, label=labels.STEER, key=key)
        handle.taken = ()

    def _add_pending(self) -> Steps[None]:
        """Add the user messages that arrived meanwhile; the run continues with them."""
        given, self._pending_messages = self._pending_messages, ()
        self.add_messages(given)
        self.context = without_nudge(self.context.evolve(decision=None, output=None))
        iteration = self.context.iteration + 1
        yield from self._emit(events.UserMessageAdded(iteration=iteration, messages=given))

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

    def _last_answer(self, reason: Reason) -> Steps[Reason | None]:
        """Ask for a last answer; the guidance for it is not stored in the history.

        The model is asked once with its tools, which no longer run. If it calls some, it is asked once more
        with tools disabled. If there is still no text, a fixed sentence is the answer. With the option ``output``,
        both requests force the call of the output tool.
        """
        terminal = [tool.name for tool in self.context.tools.values() if tool.terminal]
        how = f", by a call of {' or '.join(terminal)}" if terminal else ""
        guidance = GUIDANCE.format(reason=reason, how=how)
        self.limit = reason
        self.services.budget.finish()
        output = self.services.output
        # `Context.request` forces the call of an output tool.
        without_calls = {"tool_choice": "none"} if output is None or not output.tools else None
        paused_at = self._last_answers  # 0 unless the run is resumed
        for number in range(paused_at or 1, MAX_LAST_ANSWERS + 1):
            failed: Reason | None = None
            if number != paused_at:
                self._last_answers = number
                changes = without_calls if number == MAX_LAST_ANSWERS else None
                # Before the text of this request is joined to that of a stage: it is not stored.
                context = with_guidance_after_text(without_nudge(self.context))
                self.context = context.evolve(decision=None, error=None, output=None)
                failed = yield from self._begin_iteration(guidance, changes)
            failed = failed or (yield from self._pass())
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
        response = self.context.response
        extra = {key: value for key, value in response.extra.items() if key != "content"}
        response = dataclasses.replace(
            response, content=NO_ANSWER.format(reason=reason), tool_calls=(), extra=extra
        )
        context = self.context.evolve(**NO_CALLS, response=response, error=None)
        self.keep(inject(context).done())
        return None

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
            yield from self._receive(self.handle, closing="pause")
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
            pause_id=f"{self.state.run_id}:{key}:{text}",
            last_seq=last_seq,
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
        return sealed(state, context, self.tools, self._secret)

    def _restore(self, given: PausedRun) -> None:
        """Continue from the state of a paused run."""
        paused, services = given.paused, self.services
        self._pauses, self._last_answers = paused.pauses, paused.last_answers
        self._pending_messages = paused.pending_messages
        tools = self.context.tools
        kept = {name: tool for name, tool in tools.items() if name not in paused.removed_tools}
        context = given.context
        parsed = context.response if context.tool_calls else None  # a stage may have added calls
        self.context = context.evolve(run=services, tools=kept, parsed=parsed)
        self.state.history = self.context.messages
        services.budget.restore(paused.budget)
        if paused.limit is not None:
            self.limit = paused.limit
            services.budget.finish()
        services.in_flight.calls_run = paused.calls_run
        services.in_flight.is_taken_over = given.take_over or paused.is_taken_over
        services.repeats.restore(paused.repeats)
        services.ledger.seen_tools = kept
        services.ledger.refused = {(context.iteration, key) for key in context.plan.not_run}
        services.ledger.found.update(dict.fromkeys(paused.found))
        done = self.context.tool_results
        for call in () if self.context.is_injected else self.context.plan.calls:
            if call.id in done:  # reported when it paused
                services.ledger.settled.add((context.iteration, call.id))
            else:
                services.ledger.reserved[call.id] = call, uses_of(kept.get(call.name))

    def _finish(self, reason: Reason | None, *, returns: bool) -> Steps[Result]:
        """Make the result, end the run state, report it."""
        if reason is not None:
            self._paused = None
        # Messages that the model has not seen are in the history of the result; a pause keeps them in its state.
        if self._paused is None and self.handle is not None:
            yield from self._receive(self.handle, closing="end")
        given, self._pending_messages = self._pending_messages, ()
        self.add_messages(given)
        ended = yield NOW
        if self._paused is None:
            end_state(self.state, reason, ended)
        self.result = result = self._result(reason)
        if self.handle is not None:
            self.handle.bind_result(result)
            self.handle = None  # which refers to the result: avoid a reference cycle
        # As the traceback of an exception does: of a tool or a key of a lock, by the frames of their callers.
        self.services.ledger.failures = {}
        if reason is not None or self.services.has_listeners:  # a failed run is logged in any case
            yield Emit(
                events.RunFinished(
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


_BLANK = Context(History(), memo=NOTHING).begin(0, (), NOTHING)
"""The context before the first iteration; all runs share its values."""


def _detected_loop(context: Context, node: RunNode) -> LoopDetected | None:
    """Add a finished iteration to those in which `Repeats` looks for loops: its calls, or else its text."""
    calls, response = context.tool_calls, context.response
    made = ""
    if calls:
        made = signature([one.fingerprint or fingerprint(one.name, one.arguments) for one in calls])
        node.metadata["tool_signature"] = made
    looked_at = made if calls or response.is_blank else response.text
    found = context.run.repeats.look(looked_at, calls, context.tool_results, context.tools)
    if found is None:
        return None
    shown = tuple(f"{short_name(c.name)}({short_name(c.arguments)})" for c in calls[:MAX_SHOWN])
    return LoopDetected(shown or (short_name(response.text),), found[0], made, found[1])


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
