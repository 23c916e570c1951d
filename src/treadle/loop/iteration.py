"""The iterations of a run: ask the model, take its answer through the stages, look at what came of it."""

from __future__ import annotations

import functools
import logging
from typing import Any

from treadle.loop.loop_detection import LoopDetector
from treadle.loop.pause import Resumption
from treadle.loop.plant import Plant
from treadle.loop.request import request
from treadle.pipeline import NOW, Call, Emit, NotOneItemError, StageError, Steps, Trace
from treadle.stages import ToolRunner, inject, parse_tool_calls
from treadle.types import (
    Budget,
    Context,
    Decision,
    History,
    IterationFinished,
    JSONDict,
    MaxIterationsReached,
    PipelineFailed,
    Plan,
    Reason,
    Response,
    RunState,
    UserSteered,
    joined,
    labels,
    text_of,
)

log = logging.getLogger("treadle.loop")


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
            watched=plant.watched,
            budget=self.budget,
        )
        self._trace: Trace | None = None

    def start(self, at: float) -> None:
        """Begin at some time, in seconds since the epoch."""
        self.budget.started_at = at
        self.context = self.context.replace(started_at=at)

    def resume(self, resumption: Resumption, at: float) -> None:
        """Stand as the run stood when it was put aside; its clock goes on from there."""
        resumption.restore(self)
        self.start(at - self.elapsed_before)
        # From now on it is in the trace, as any iteration that is under way.
        trace = self._trace = Trace(stages=list(self.context.trace))
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
            reason = budget.spent()
            if reason is not None:
                self.context = context.stop(reason)
                return reason
        response = yield from request(self, context.guidance)
        if isinstance(response, Reason):
            return response
        # Until it is kept, an iteration is in the trace: an interruption finds it there.
        trace = self._trace = Trace()
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
            reason = PipelineFailed(error.stage, text_of(cause), type(cause).__name__, cause)
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
        if self.context.watched:
            yield Emit(UserSteered(iteration=self.iteration + 1, messages=given))
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
        message = functools.reduce(joined, said)
        messages = self.context.messages
        if messages and messages[-1]["role"] == "user":  # two in a row are not for every provider
            messages, message = History(messages[:-1]), joined(messages[-1], message)
        self.keep(self.context.replace(messages=messages.append(message)))

    def begun(self, response: Response, trace: Trace) -> Context:
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
                reason = self.budget.spent()
        if reason is not None and context.decision is None:
            self.context = context = context.stop(reason)
        self.clock = ended = yield NOW
        if reason is None or isinstance(reason, MaxIterationsReached):
            node.succeed(at=ended)
        else:
            node.fail(reason, ended)
        if context.watched:
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
        if context.watched:
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
