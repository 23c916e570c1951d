"""`ask_model`: sends the request of this iteration, and takes the response."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

from treadle import labels
from treadle.checks import FLAG, functions, number
from treadle.context import NO_CALLS, Context, Request, with_second_response
from treadle.effects import NOW, Call, Emit, Reporter, Sleep, Steps, without_frame
from treadle.events import (
    Event,
    FirstChunk,
    HistoryRepaired,
    ModelFailed,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    PartialOutput,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
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
    run = ctx.run
    reason = run.budget.exhausted()
    if reason is not None:
        return ctx.stop(reason)
    if ctx.notes or ctx.plan.not_run or run.ledger.notes or run.ledger.unsettled:
        yield from report_notes(ctx)
    if ctx.is_asked:
        ctx = asked_again(ctx)
    if ctx.guidance is not None:
        ctx = with_guidance_after_text(ctx)
    first = request = ctx.request
    reserved = Reserved(ctx, request) if run.budget.reserves else None
    try:
        if reserved is not None:
            yield from reserved.hold()
            reason = run.budget.exhausted()
            if reason is not None:
                return ctx.stop(reason)
        run.budget.count_request()
        guidance, requested = ctx.guidance, run.ledger.clock
        if run.budget.limits.show_budget:
            guidance = _with_budget(ctx)
        if run.has_listeners:
            requested = yield NOW
            yield Emit(
                ModelRequested(
                    iteration=ctx.iteration,
                    at=requested,
                    messages=request.messages,
                    instructions=request.instructions,
                    guidance=guidance,
                )
            )
        if run.model is None:
            raise RuntimeError("this context has no model to ask")
        attempts = _Attempts(
            ctx, run.model, guidance, model_middleware, max_retry_delay, restart_streams
        )
        try:
            answer = yield from attempts.send(request)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            made = yield from attempts.retry(request, error, max_retries, retry_delay, on_retry)
            if isinstance(made, LLMError):
                return (yield from attempts.end(made))
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
            ModelResponded(
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
    _shown: str = ""
    # By its id: the error has frames that refer to this object, and its resources are freed with it.
    _failed: tuple[int, Timing | None] = (0, None)

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
        except Exception as error:
            _count_unknown(self._ctx)
            text, timing = yield Call(sent.so_far, label=labels.STREAMED, key=key, reporting=True)
            self._failed = id(error), timing
            self._note(sent, ModelCallStatus.ERROR, timing, error)
            if text and run.streams_to_user and not self._restart_streams:
                raise StreamInterruptedError(text, error) from error
            raise
        except BaseException:
            sent.abandon()
            _count_unknown(self._ctx)
            self._note(sent, ModelCallStatus.CANCELLED)
            run.ledger.interrupted_request = self._ctx.iteration, sent
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

    def _note(
        self,
        sent: ModelRequest,
        status: ModelCallStatus,
        timing: Timing | None = None,
        error: Exception | None = None,
    ) -> None:
        """Note a request that has no response in the node of the iteration."""
        node = self._ctx.run.state.current_node
        if node is not None:
            info, named = sent.model.model_info(), sent.opts.get("model")
            model = named if isinstance(named, str) else info.model
            text, kind = (None, None) if error is None else (_text_of(error), type(error).__name__)
            made = ModelCall(status, model, info.provider, timing, error=text, error_type=kind)
            node.asked += (made,)

    def _timing_of(self, error: BaseException | None) -> Timing | None:
        """The times of the request that raised an error; None if middleware raised it."""
        known, timing = self._failed
        return timing if id(error) == known else None

    def retry(
        self, request: Request, error: Exception, most: int, delay: float, on_retry: OnRetry | None
    ) -> Steps[tuple[TimedResponse, Request] | LLMError]:
        """Send a request again after a temporary error, until an attempt succeeds or no other one may.

        The reason is not raised, since its traceback would keep the frames of the whole run.
        """
        try:
            while self._number <= most and is_retryable(error):
                now = yield NOW
                asked = retry_after(error, now)
                if asked is not None and asked > self._max_retry_delay:
                    wait = f"{asked:,.1f}".removesuffix(".0")
                    most_wait = f"max_retry_delay={self._max_retry_delay:g}"
                    note = f"; the server asked to wait {wait} s, more than {most_wait}"
                    return self._failure(error, note)
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
            return self._failure(error)
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
            ModelRetried(
                iteration=self._ctx.iteration,
                attempt=self._number,
                error=_text_of(error),
                error_type=type(error).__name__,
                delay=delay,
                at=(yield NOW) if at is None else at,
                timing=self._timing_of(error),
                model=model,
                next_model=next_model,
            )
        )

    def _failure(self, error: Exception, note: str = "") -> LLMError:
        """The reason of a run whose last attempt to ask the model failed; the note ends its text."""
        if isinstance(error, StreamInterruptedError):
            self._shown, error = error.text, error.error
            note = (
                f"; listeners had received {len(self._shown):,} characters of the response, so it was not "
                "requested again (see restart_streams)"
            )
        cause = from_user_code(without_frame(error))
        reason = LLMError(_text_of(error) + note, type(error).__name__, self._number, cause)
        reason.__cause__ = cause
        return reason

    def _changed(self, on_retry: OnRetry, request: Request, error: Exception) -> Steps[Request]:
        """Ask ``on_retry`` for the request of the next attempt."""
        try:
            args = request, error, self._number
            made = yield Call(on_retry, *args, label=labels.STAGE, key="on_retry")
            if made is None:
                return request
            made, repairs = _checked_retry(self._ctx, request, made)
        except Exception as raised:  # the run ends with `PipelineFailed`
            reason = LLMError(_text_of(raised), type(raised).__name__, cause=raised)
            yield from self.end(reason)
            raise
        if repairs and self._ctx.run.has_listeners:
            yield Emit(HistoryRepaired(repairs=repairs, stage="on_retry"))
        return made

    def end(self, reason: LLMError) -> Steps[Context]:
        """End the run because the model failed; the text that was shown goes into the history."""
        ctx, run = self._ctx, self._ctx.run
        if self._shown:
            ctx = ctx.evolve(response=Response(self._shown, is_streamed=True), is_asked=True)
        if run.has_listeners:
            ended = yield NOW
            yield Emit(
                ModelFailed(
                    iteration=ctx.iteration,
                    error=reason.message,
                    error_type=reason.error_type,
                    at=ended,
                    timing=self._timing_of(reason.cause),
                )
            )
        return ctx.stop(reason)


def _checked_retry(ctx: Context, request: Request, made: Any) -> tuple[Request, tuple[str, ...]]:
    """The request of ``on_retry``, with the repairs of its messages."""
    if not isinstance(made, Request):
        raise TypeError(f"on_retry: expected a Request or None, got {type(made).__name__}")
    for name in made.tools:
        if name not in ctx.tools:
            raise LookupError(f"on_retry: there is no tool {name!r}")
    if made.messages is request.messages:
        return made, ()
    messages, repairs = validate_messages(made.messages)
    return dataclasses.replace(made, messages=messages), tuple(repairs)


def _text_of(error: BaseException) -> str:
    """The text of an exception of a model. It may name the URL and the headers of the request."""
    return redacted(safe_str(error))


def _with_budget(ctx: Context) -> str:
    """The guidance of a request that shows what remains of the limits."""
    remaining = f"Left for this task: {ctx.run.budget.remaining(ctx.run.ledger.clock)}."
    return remaining if ctx.guidance is None else f"{ctx.guidance}\n\n{remaining}"


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
    if isinstance(choice, str) and choice in ctx.tools and choice not in _CHOICES:
        choice = {"type": "function", "function": {"name": choice}}
    events = None
    if run.has_listeners:  # without the context, to which the run refers: that would be a cycle
        events = functools.partial(events_of_chunks, ctx.iteration, run.output, request.tools)
    opts = model.opts_of(request.options, offered, choice)
    sent = ModelRequest(model, messages, opts, events)
    sent.has_origins = request.messages is not ctx.messages or ctx.messages.has_origins
    return sent


_CHOICES = frozenset({"auto", "none", "required"})


def events_of_chunks(
    iteration: int, output: OutputContract | None, tools: Sequence[str]
) -> EventsOf:
    """The function that makes the events of a streamed response."""
    is_first = True
    partial = None if output is None else PartialReader(output, tools)

    def events_of(chunk: Chunk, reporter: Reporter) -> Iterator[Event]:
        nonlocal is_first
        if is_first:
            is_first = False
            yield FirstChunk(iteration=iteration, at=reporter.now())
        if chunk.text:
            yield TextDelta(iteration=iteration, text=chunk.text)
        if chunk.extra and chunk.reasoning:
            yield ReasoningDelta(iteration=iteration, text=chunk.reasoning)
        for piece in chunk.tool_calls:
            yield ToolCallDelta(
                iteration=iteration,
                index=piece.index,
                id=piece.id,
                name=piece.name,
                arguments=piece.arguments,
            )
        if partial is not None:
            for found in partial.add(chunk):
                yield PartialOutput(iteration=iteration, output=found)

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


def _count_unknown(ctx: Context) -> None:
    """Count a request that was sent and has no response; no limit depends on what it used."""
    ctx.run.state.record_usage(None)
    ctx.run.budget.record_response(None)
