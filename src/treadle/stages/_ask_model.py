"""`ask_model`: sends the request of this iteration, and takes the response."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

from treadle import events, labels
from treadle.checks import FLAG, functions, number
from treadle.context import NO_CALLS, Context, Request, expect, with_second_response
from treadle.context.request import TOOL_CHOICES
from treadle.effects import NOW, Call, Emit, Reporter, Sleep, Steps, without_frame
from treadle.errors import check_names
from treadle.messages import Chunk, JSONDict, ModelCall, ModelCallStatus, Response, Timing, safe_str
from treadle.messages.estimate import estimate_usage
from treadle.messages.parts import as_text_results, has_parts, join_messages
from treadle.messages.repair import validate_messages
from treadle.messages.sanitizing import sendable, sendable_json
from treadle.model import (
    ModelClient,
    ModelMiddleware,
    ModelRequest,
    StreamInterruptedError,
    TimedResponse,
    is_retryable,
)
from treadle.model.request import EventsOf, through, with_cost
from treadle.model.retry import BASE_DELAY, MAX_ASKED_DELAY, delay_before_retry, retry_after
from treadle.pipeline import stage
from treadle.redaction import redacted
from treadle.results import LLMError
from treadle.stages._inject_results import inject
from treadle.stages._notes import report_notes
from treadle.stages._reservation import Reserved
from treadle.tools import OutputContract, PartialReader
from treadle.tracebacks import from_user_code

OnRetry: TypeAlias = Callable[[Request, Exception, int], Any]
"""Takes the request, the error, and the number of the attempt that failed, from 1; returns the request of the
next attempt, or None for the same request."""


@stage(requires=("messages", "tools"), provides=("response",))
def ask_model(  # noqa: C901, PLR0912 - a part of it would cost a generator in each iteration
    ctx: Context,
    *,
    max_retries: Annotated[int, number(0)] = 3,
    retry_delay: Annotated[float, number(0, "seconds")] = BASE_DELAY,
    max_retry_delay: Annotated[float, number(0, "seconds")] = MAX_ASKED_DELAY,
    on_retry: OnRetry | None = None,
    restart_streams: Annotated[bool, FLAG] = False,
    model_middleware: Annotated[
        Sequence[ModelMiddleware], functions("a list of functions that take a request and send")
    ] = (),
) -> Steps[Context]:
    """Send ``ctx.request`` to the model and take its response, with retries and streaming.

    If the model fails, the run ends with `LLMError`. Calls that a model makes although the request
    disables tools (``tool_choice="none"``) are dropped.

    Args:
        ctx: the context.
        max_retries: the number of attempts after the first, for temporary errors; see
            `treadle.model.is_retryable`.
        retry_delay: seconds before the second attempt; each further delay is twice as long, up to 30 s. If the
            server asks for a wait, that takes precedence; see `treadle.model.retry.retry_after`.
        max_retry_delay: the longest wait that a server may ask for, in seconds. If it asks for more, the request
            is not sent again: the run ends with `LLMError`, which names the time.
        on_retry: may change the request before it is sent again: its model, its temperature, its messages.
        restart_streams: whether a stream that breaks off after listeners have received text of it is requested
            again. They receive `ModelRetried`, and have to discard that text. By default the run ends with
            `LLMError`, and the text so far is kept in the history.
        model_middleware: functions around each request, the first outermost; see
            `treadle.model.ModelMiddleware`.
    """
    run, model = ctx.run, ctx.run.model
    reason = run.budget.exhausted()
    if reason is not None:
        return ctx.stop(reason)
    if model is None:
        raise RuntimeError("this context has no model to ask")
    if ctx.notes or ctx.plan.not_run or run.ledger.notes or run.ledger.unsettled:
        yield from report_notes(ctx)
    if ctx.is_asked:
        ctx = asked_again(ctx)
    if ctx.guidance is not None:
        ctx = with_guidance_after_text(ctx)
    first = request = ctx.request
    reserved = Reserved(ctx, model, request) if run.budget.reserves else None
    try:
        if reserved is not None:
            yield from reserved.hold()
            reason = run.budget.exhausted()
            if reason is not None:
                return ctx.stop(reason)
        run.budget.count_request()
        guidance, requested = ctx.guidance, run.ledger.clock
        if run.budget.limits.show_budget:
            left = run.budget.remaining(requested)
            guidance = ctx.guide(f"Left for this task: {left}.").guidance
        if run.has_listeners:
            requested = yield NOW
            yield Emit(
                events.ModelRequested(
                    iteration=ctx.iteration,
                    at=requested,
                    messages=request.messages,
                    instructions=request.instructions,
                    guidance=guidance,
                )
            )
        attempts = _Attempts(
            ctx, model, guidance, model_middleware, max_retry_delay, restart_streams
        )
        try:
            answer = yield from attempts.send(request)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            made = yield from attempts.retry(request, error, max_retries, retry_delay, on_retry)
            if isinstance(made, Context):  # not raised: the frames of the run would be kept
                return made
            answer, request = made
            if request.tools != first.tools:  # calls are checked against those that were sent
                ctx = ctx.evolve(request_changes={**ctx.request_changes, "tools": request.tools})
        response = attempts.counted(request, answer)
        if reserved is not None:
            reserved.measured(response)
    finally:
        if reserved is not None:
            reserved.release()
    if run.has_listeners:
        ended = run.ledger.clock
        yield Emit(
            events.ModelResponded(
                iteration=ctx.iteration,
                response=response,
                at=ended,
                duration=ended - requested,
                status=response.status,
            )
        )
    model = attempts.answered_by
    if ctx.is_asked:
        return with_second_response(ctx.evolve(answered_by=model), response)
    return ctx.evolve(
        response=response, answered_by=model, parsed=None, is_asked=True, guidance=None
    )


def with_guidance_after_text(ctx: Context) -> Context:
    """Put guidance after a text of the model into the history, so that the next text is another message."""
    if ctx.guidance is None or not ctx.messages.ends_with_assistant:
        return ctx
    message: JSONDict = {"role": "user", "content": sendable(ctx.guidance)}
    changes = ctx.request_changes
    if "messages" in changes:
        view = list(changes["messages"])
        _add_guidance(view, message["content"])
        changes = {**changes, "messages": view}
    return ctx.evolve(messages=ctx.messages.append(message), request_changes=changes, guidance=None)


@dataclasses.dataclass(slots=True, eq=False)
class _Attempts:
    """The attempts of one request. ``answered_by`` is the model that answered; None if middleware did."""

    _ctx: Context
    _model: ModelClient
    _guidance: str | None
    _middleware: Sequence[ModelMiddleware]
    _max_retry_delay: float
    _restart_streams: bool
    answered_by: ModelClient | None = None
    _number: int = 1
    # By its id: the error has frames that refer to this object, and its resources are freed with it.
    _failed: int = 0
    _timing: Timing | None = None

    def send(self, request: Request) -> Steps[TimedResponse]:
        """The steps that send a request once, through the middleware."""
        sent = _model_request(self._ctx, self._model, request, self._guidance)
        if not self._middleware:
            return self._perform(sent)
        self.answered_by = None  # middleware may answer itself
        sent.iteration, sent.attempt = self._ctx.iteration, self._number
        sent.max_retry_delay = self._max_retry_delay
        sent.report_switch = self._retried
        return through(self._middleware, self._perform)(sent)

    def _perform(self, sent: ModelRequest) -> Steps[TimedResponse]:
        """Send one request to its model."""
        run, key = self._ctx.run, str(self._ctx.iteration)
        sent.is_priced = run.cost_of is None
        try:
            answer: TimedResponse = yield Call(
                ModelRequest.send,
                sent,
                mode=sent.model.mode,
                label=labels.CHAT,
                key=key,
                reporting=True,
                about=sent,
            )
        except BaseException as error:
            # A request that was sent and has no response; no limit depends on what it used.
            run.state.record_usage(None)
            run.budget.record_response(None)
            status, text, timing = ModelCallStatus.CANCELLED, "", None
            if isinstance(error, Exception):
                so_far = Call(sent.so_far, label=labels.STREAMED, key=key, reporting=True)
                status, (text, timing) = ModelCallStatus.ERROR, (yield so_far)
                self._failed, self._timing = id(error), timing
            else:
                sent.abandon()
                run.ledger.interrupted_request = self._ctx.iteration, sent
            if run.state.current_node is not None:
                run.state.current_node.asked += (_unanswered(sent, status, timing, error),)
            is_kept = run.streams_to_user and not self._restart_streams
            if text and is_kept and isinstance(error, Exception):
                raise StreamInterruptedError(text, error) from error
            raise
        self.answered_by = sent.model
        return answer

    def counted(self, request: Request, answer: TimedResponse) -> Response:
        """Count the usage of a response; return it with its cost and, if asked for, an estimate."""
        run, (response, _, ended) = self._ctx.run, answer
        if run.budget.estimates and (response.usage is None or response.usage.is_lower_bound):
            tools = [run.ledger.payloads[name][1] for name in request.tools]
            others = (request.instructions or "", self._guidance or "")
            estimate = estimate_usage(request.messages, tools, response, others)
            response = dataclasses.replace(response, usage=estimate)
        cost_of = run.cost_of
        if cost_of is None and self.answered_by is not None:
            cost_of = self.answered_by.cost_of
        if cost_of is not None:
            response = with_cost(response, cost_of)
        choice = request.tool_choice or request.options.get("tool_choice")
        if response.tool_calls and choice == "none":
            response = dataclasses.replace(response, tool_calls=())
        run.ledger.clock, run.ledger.interrupted_request = ended, None
        run.count_response(response)
        return response

    def retry(
        self, request: Request, error: Exception, most: int, delay: float, on_retry: OnRetry | None
    ) -> Steps[tuple[TimedResponse, Request] | Context]:
        """Send a request again after a temporary error, until an attempt succeeds or the run ends."""
        try:
            while self._number <= most and is_retryable(error):
                now = yield NOW
                asked = retry_after(error, now)
                if asked is not None and asked > self._max_retry_delay:
                    wait = f"{asked:,.1f}".removesuffix(".0")
                    most_wait = f"max_retry_delay={self._max_retry_delay:g}"
                    note = f"; the server asked to wait {wait} s, more than {most_wait}"
                    return (yield from self._ended(error, note))
                pause = yield from delay_before_retry(asked, self._number, delay)
                yield from self._retried(error, delay=pause, at=now)
                yield Sleep(pause)
                if on_retry is not None:
                    request = yield from self._changed(on_retry, request, error)
                self._number += 1
                try:
                    return (yield from self.send(request)), request
                except Exception as raised:  # noqa: BLE001 - as above
                    error = raised
            return (yield from self._ended(error))
        finally:
            del error  # its traceback refers to this frame

    def _retried(
        self,
        error: Exception,
        model: str | None = None,
        next_model: str | None = None,
        *,
        delay: float = 0.0,
        at: float | None = None,
    ) -> Steps[None]:
        """Report that a request failed and is sent again, by middleware to another model."""
        yield Emit(
            events.ModelRetried(
                iteration=self._ctx.iteration,
                attempt=self._number,
                error=_text_of(error),
                error_type=type(error).__name__,
                delay=delay,
                at=(yield NOW) if at is None else at,
                timing=self._timing if id(error) == self._failed else None,
                model=model,
                next_model=next_model,
            )
        )

    def _changed(self, on_retry: OnRetry, request: Request, error: Exception) -> Steps[Request]:
        """Ask ``on_retry`` for the request of the next attempt."""
        repairs: Sequence[str] = ()
        try:
            args = request, error, self._number
            made: Any = yield Call(on_retry, *args, label=labels.STAGE, key="on_retry")
            if made is None:
                return request
            expect(isinstance(made, Request), "on_retry", "a Request or None", made)
            check_names(made.tools, self._ctx.tools, "on_retry: there is no tool")
            if made.messages is not request.messages:
                messages, repairs = validate_messages(made.messages)
                made = dataclasses.replace(made, messages=messages)
        except Exception as raised:  # the run ends with `PipelineFailed`
            yield from self._ended(raised)
            raise
        if repairs and self._ctx.run.has_listeners:
            yield Emit(events.HistoryRepaired(repairs=tuple(repairs), stage="on_retry"))
        return made

    def _ended(self, error: Exception, note: str = "") -> Steps[Context]:
        """End the run because the model failed, with a note on why; listeners keep the text that they received."""
        ctx = self._ctx
        if isinstance(error, StreamInterruptedError):
            ctx = ctx.evolve(response=Response(error.text, is_streamed=True), is_asked=True)
            note = (
                f"; listeners had received {len(error.text):,} characters of the response, so it was not "
                "requested again (see restart_streams)"
            )
            error = error.error
        cause = from_user_code(without_frame(error))
        reason = LLMError(_text_of(error) + note, type(error).__name__, self._number, cause)
        reason.__cause__ = cause
        if ctx.run.has_listeners:
            yield Emit(
                events.ModelFailed(
                    iteration=ctx.iteration,
                    error=reason.message,
                    error_type=reason.error_type,
                    at=(yield NOW),
                    timing=self._timing if id(cause) == self._failed else None,
                )
            )
        return ctx.stop(reason)


def _unanswered(
    sent: ModelRequest, status: ModelCallStatus, timing: Timing | None, error: BaseException
) -> ModelCall:
    """The record of a request that has no response."""
    info, named = sent.model.model_info(), sent.opts.get("model")
    model = named if isinstance(named, str) else info.model
    is_error = isinstance(error, Exception)
    text, kind = (_text_of(error), type(error).__name__) if is_error else (None, None)
    return ModelCall(status, model, info.provider, timing, error=text, error_type=kind)


def _text_of(error: BaseException) -> str:
    """The text of an exception of a model. It may name the URL and the headers of the request."""
    return redacted(safe_str(error))


def _model_request(
    ctx: Context, model: ModelClient, request: Request, guidance: str | None
) -> ModelRequest:
    run = ctx.run
    if request.messages is ctx.messages:
        messages = ctx.messages.for_model(model.takes_parts)
    else:
        messages = list(map(sendable_json, request.messages))
        if not model.takes_parts and any(map(has_parts, messages)):
            messages = as_text_results(messages)
    if request.instructions:
        messages.insert(0, {"role": "system", "content": sendable(request.instructions)})
    if guidance is not None:
        _add_guidance(messages, sendable(guidance))
    offered: list[JSONDict] = []
    for name in request.tools:
        tool, made = ctx.tools[name], run.ledger.payloads.get(name)
        if made is None or made[0] is not tool:  # made once per run
            made = run.ledger.payloads[name] = tool, tool.as_openai()
        offered.append(made[1])
    choice = request.tool_choice
    if isinstance(choice, str) and choice in ctx.tools and choice not in TOOL_CHOICES:
        choice = {"type": "function", "function": {"name": choice}}
    sent = ModelRequest(model, messages, model.opts_of(request.options, offered, choice))
    if run.has_listeners:  # without the context, to which the run refers: that would be a cycle
        sent.events = functools.partial(events_of_chunks, ctx.iteration, run.output, request.tools)
    sent.has_origins = request.messages is not ctx.messages or ctx.messages.has_origins
    return sent


def events_of_chunks(
    iteration: int, output: OutputContract | None, tools: Sequence[str]
) -> EventsOf:
    """The function that makes the events of a streamed response."""
    is_first = True
    partial = None if output is None else PartialReader(output, tools)

    def events_of(chunk: Chunk, reporter: Reporter) -> Iterator[events.Event]:
        nonlocal is_first
        if is_first:
            is_first = False
            yield events.FirstChunk(iteration=iteration, at=reporter.now())
        if chunk.text:
            yield events.TextDelta(iteration=iteration, text=chunk.text)
        if chunk.extra and chunk.reasoning:
            yield events.ReasoningDelta(iteration=iteration, text=chunk.reasoning)
        for piece in chunk.tool_calls:
            yield events.ToolCallDelta(
                iteration=iteration,
                index=piece.index,
                id=piece.id,
                name=piece.name,
                arguments=piece.arguments,
            )
        if partial is not None:
            for found in partial.add(chunk):
                yield events.PartialOutput(iteration=iteration, output=found)

    return events_of


def _add_guidance(messages: list[JSONDict], guidance: str) -> None:
    """Append guidance to a request; two user messages never follow each other."""
    message: JSONDict = {"role": "user", "content": guidance}
    if messages and messages[-1].get("role") == "user":
        message = join_messages(messages.pop(), message)
    messages.append(message)


def asked_again(ctx: Context) -> Context:
    """The context for a second request in one iteration; the first response goes into the history."""
    run = ctx.run
    run.release_idle()
    run.ledger.reserved.clear()
    injected = inject(ctx, "Not run: the model was asked again first.")
    if run.in_flight.results:
        run.in_flight.results.clear()
        ids = {call.id for call in ctx.tool_calls}
        before = run.ledger.dispatched
        others = [one for one in before if not ids.issuperset(c.id for c in one.plan.calls)]
        run.ledger.dispatched = (*others, injected)
    changes = ctx.request_changes
    if "messages" in changes:
        view, exchange = changes["messages"], injected.result_messages
        if exchange and view and view[-1].get("role") == "assistant":  # the exchange has joined it
            view = view[:-1]
        changes = {**changes, "messages": [*view, *exchange]}
    return injected.evolve(**NO_CALLS, request_changes=changes, response=Response())
