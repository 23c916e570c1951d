"""`ask_model`: sends the request of this iteration, and takes the response."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from treadle import labels
from treadle.checks import FLAG, functions, number
from treadle.context import Context, Request
from treadle.effects import NOW, Call, Emit, Reporter, Sleep, Steps, without_frame
from treadle.events import (
    CallRefused,
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
from treadle.messages import (
    Chunk,
    JSONDict,
    ModelCall,
    ModelCallStatus,
    Response,
    Timing,
    as_text_results,
    estimate_usage,
    has_parts,
    is_list,
    safe_str,
    sendable,
    sendable_json,
    text_part,
    validate_messages,
)
from treadle.model import (
    BASE_DELAY,
    MAX_ASKED_DELAY,
    EventsOf,
    ModelClient,
    ModelMiddleware,
    ModelRequest,
    StreamInterruptedError,
    TimedResponse,
    delay_before_retry,
    is_retryable,
    retry_after,
    through,
    with_cost,
)
from treadle.pipeline import stage
from treadle.redaction import redacted
from treadle.results import LLMError
from treadle.run_state import RunNode
from treadle.stages._inject_results import inject
from treadle.stages._reservation import Reserved
from treadle.stages._shared_breaker import release_calls
from treadle.tools import Plan
from treadle.tracebacks import from_user_code

if TYPE_CHECKING:
    from treadle.tools.output import OutputContract

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
            server asks for a wait, that takes precedence; see `treadle.model.retry_after`.
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
    reserved = Reserved(ctx) if run.budget.reserves else None
    try:
        if reserved is not None:
            yield from reserved.hold()
        reason = run.budget.exhausted()
        if reason is not None:
            return ctx.stop(reason)
        again = _asked_again(ctx) if ctx.is_asked else None
        if again is not None:
            ctx = again
        if run.repairs:
            yield from report_edits(ctx)
        if ctx.guidance is not None and ctx.messages.ends_with_assistant:
            ctx = _with_stored_guidance(ctx, ctx.guidance)
        request = ctx.request
        run.budget.count_request()
        requested = run.clock
        if run.has_listeners:
            requested = yield NOW
            yield _requested(ctx, request, requested)
        sending = _model_of(ctx), restart_streams, model_middleware, max_retry_delay
        try:
            answer = yield from _send(ctx, request, sending, 1)
        except Exception as error:  # noqa: BLE001 - a model may raise anything
            retries = max_retries, retry_delay, on_retry
            made = yield from _retried(ctx, request, error, sending, retries)
            if isinstance(made, _Failure):
                return (yield from _failed(ctx, *made))
            answer, request = made
            ctx = _with_tools(ctx, request)
        response = _counted(ctx, request, answer)
        if reserved is not None:
            reserved.measured(response)
    finally:
        if reserved is not None:
            reserved.release()
    if run.has_listeners:
        ended = run.clock
        duration = ended - requested
        yield Emit(
            ModelResponded(
                iteration=ctx.iteration,
                response=response,
                at=ended,
                duration=duration,
                status=response.status,
            )
        )
    if again is not None:
        run.asked_again = again, response
    return ctx.evolve(response=response, parsed=None, is_asked=True, guidance=None)


def _with_stored_guidance(ctx: Context, guidance: str) -> Context:
    """Put guidance after a text of the model into the history, so that the next text is another message."""
    message: JSONDict = {"role": "user", "content": sendable(guidance)}
    changes = ctx.request_changes
    if "messages" in changes:
        changes = {**changes, "messages": [*changes["messages"], message]}
    return ctx.evolve(messages=ctx.messages.append(message), request_changes=changes, guidance=None)


def _requested(ctx: Context, request: Request, at: float) -> Emit:
    return Emit(
        ModelRequested(
            iteration=ctx.iteration,
            at=at,
            messages=request.messages,
            instructions=request.instructions,
            guidance=_guidance(ctx),
        )
    )


_Retries: TypeAlias = tuple[int, float, OnRetry | None]
"""The options of `ask_model` for failed attempts: ``max_retries``, ``retry_delay`` and ``on_retry``."""


class _Failure(NamedTuple):
    """Why there is no response, and the text of it that listeners have received."""

    reason: LLMError
    shown: str = ""


_Sending: TypeAlias = tuple[ModelClient, bool, Sequence[ModelMiddleware], float]
"""The model, and ``restart_streams``, ``model_middleware`` and ``max_retry_delay`` of `ask_model`."""


def _model_of(ctx: Context) -> ModelClient:
    if ctx.run.model is None:
        raise RuntimeError("this context has no model to ask")
    return ctx.run.model


def _send(ctx: Context, request: Request, sending: _Sending, attempt: int) -> Steps[TimedResponse]:
    """The steps that send a request once, through the middleware."""
    run, (model, restart_streams, middleware, max_retry_delay) = ctx.run, sending
    sent = _model_request(ctx, model, request)
    if not middleware:
        return _perform(ctx, restart_streams, sent)
    run.answered_by = None  # middleware may answer itself
    sent.iteration, sent.attempt, sent.max_retry_delay = ctx.iteration, attempt, max_retry_delay
    sent.report_switch = functools.partial(
        _switched, (ctx.iteration, attempt), run.state.current_node
    )
    return through(middleware, functools.partial(_perform, ctx, restart_streams))(sent)


def _retried(
    ctx: Context, request: Request, error: Exception, sending: _Sending, retries: _Retries
) -> Steps[tuple[TimedResponse, Request] | _Failure]:
    """Send a request again after a temporary error, until an attempt succeeds or no other one may.

    Returns:
        The answer, and the request that was sent; or why there is none, if the error is not temporary or the last
        attempt failed. The reason is not raised, since its traceback would keep the frames of the whole run.
    """
    attempt, (most, delay, on_retry), longest = 1, retries, sending[-1]
    while attempt <= most and is_retryable(error):
        now = yield NOW
        asked = retry_after(error, now) or 0
        if asked > longest:
            wait = f"{asked:,.1f}".removesuffix(".0")
            note = f"; the server asked to wait {wait} s, more than max_retry_delay={longest:g}"
            return _failure(error, attempt, note)
        yield from _wait(ctx, error, attempt, delay, now)
        if on_retry is not None:
            request = yield from _changed(ctx, on_retry, request, error, attempt)
        attempt += 1
        try:
            return (yield from _send(ctx, request, sending, attempt)), request
        except Exception as raised:  # noqa: BLE001 - as above
            error = raised
    return _failure(error, attempt)


def _with_tools(ctx: Context, request: Request) -> Context:
    """The context with the tools of a request that ``on_retry`` has changed: calls are checked against these."""
    if request.tools == ctx.request.tools:
        return ctx
    return ctx.evolve(request_changes={**ctx.request_changes, "tools": request.tools})


def _failure(error: Exception, attempt: int, note: str = "") -> _Failure:
    """The reason of a run whose last attempt to ask the model failed; the note ends its text."""
    shown = ""
    if isinstance(error, StreamInterruptedError):
        shown, error = error.text, error.error
        note = (
            f"; listeners had received {len(shown):,} characters of the response, so it was not requested "
            "again (see restart_streams)"
        )
    cause = from_user_code(without_frame(error))
    reason = LLMError(_text_of(error) + note, type(error).__name__, attempt, cause)
    reason.__cause__ = cause
    return _Failure(reason, shown)


def _perform(ctx: Context, restart_streams: bool, sent: ModelRequest) -> Steps[TimedResponse]:
    """Send one request to its model."""
    run = ctx.run
    sent.is_priced = run.cost_of is None
    try:
        answer: TimedResponse = yield Call.of(
            ModelRequest.send,
            (sent,),
            sent.model.mode,
            label=labels.CHAT,
            key=str(ctx.iteration),
            reporting=True,
            about=sent,
        )
    except Exception as error:
        _count_unknown(ctx)
        text, timing = yield Call(
            sent.so_far, label=labels.STREAMED, key=str(ctx.iteration), reporting=True
        )
        _note_failed(ctx, sent, ModelCallStatus.ERROR, timing, error)
        if text and run.streams_to_user and not restart_streams:
            raise StreamInterruptedError(text, error) from error
        raise
    except BaseException:
        sent.abandon()
        _count_unknown(ctx)
        _note_failed(ctx, sent, ModelCallStatus.CANCELLED)
        run.abandoned = ctx.iteration, sent
        raise
    run.answered_by = sent.model
    return answer


def _note_failed(
    ctx: Context,
    sent: ModelRequest,
    status: ModelCallStatus,
    timing: Timing | None = None,
    error: Exception | None = None,
) -> None:
    """Note a request that has no response in the node of the iteration."""
    node = ctx.run.state.current_node
    if node is None:
        return
    info, named = sent.model.model_info(), sent.opts.get("model")
    node.asked += (
        ModelCall(
            status,
            named if isinstance(named, str) else info.model,
            info.provider,
            timing,
            error=None if error is None else _text_of(error),
            error_type=None if error is None else type(error).__name__,
        ),
    )


def _timing_of(node: RunNode | None, text: str) -> Timing | None:
    """The times of the latest request, if it failed with an error of this text; else middleware raised it."""
    last = node.asked[-1] if node is not None and node.asked else None
    return last.timing if isinstance(last, ModelCall) and last.error == text else None


def report_edits(ctx: Context) -> Steps[None]:
    """Report the repairs of the stages' edits, and the planned calls that do not run after all."""
    run = ctx.run
    while run.repairs:
        name, lines = run.repairs.pop(0)
        if run.has_listeners:
            yield Emit(HistoryRepaired(repairs=lines, stage=name))
    while run.refused:
        call, reason = run.refused.pop(0)
        if reason is None:
            yield from release_calls(ctx, (call,))
        elif run.has_listeners:
            yield Emit(CallRefused(iteration=ctx.iteration, call=call, reason=reason))


def _guidance(ctx: Context) -> str | None:
    if not ctx.run.show_budget:
        return ctx.guidance
    remaining = f"Left for this task: {ctx.run.budget.remaining(ctx.run.clock)}."
    return remaining if ctx.guidance is None else f"{ctx.guidance}\n\n{remaining}"


def _model_request(ctx: Context, model: ModelClient, request: Request) -> ModelRequest:
    """Make the request to send."""
    run = ctx.run
    if request.messages is ctx.messages:
        messages = ctx.messages.for_model(model.takes_parts)
    else:
        messages = list(map(sendable_json, request.messages))
        if not model.takes_parts and any(map(has_parts, messages)):
            messages = as_text_results(messages)
    if request.instructions:
        messages.insert(0, {"role": "system", "content": sendable(request.instructions)})
    if run.show_budget or ctx.guidance is not None:
        _add_guidance(messages, sendable(_guidance(ctx) or ""))
    offered: list[JSONDict] = []
    for name in request.tools:
        tool, made = ctx.tools[name], run.payloads.get(name)
        if made is None or made[0] is not tool:  # made once per run
            made = run.payloads[name] = tool, tool.as_openai()
        offered.append(made[1])
    choice = request.tool_choice
    if isinstance(choice, str) and choice in ctx.tools and choice not in _CHOICES:
        choice = {"type": "function", "function": {"name": choice}}
    events = None
    if run.has_listeners:  # without the context, to which the run refers: that would be a cycle
        events = functools.partial(events_of_chunks, ctx.iteration, run.output, request.tools)
    sent = model.request(messages, offered, request.options, choice, events)
    sent.has_origins = request.messages is not ctx.messages or ctx.messages.has_origins
    return sent


_CHOICES = frozenset({"auto", "none", "required"})


def events_of_chunks(
    iteration: int, output: OutputContract | None, tools: Sequence[str]
) -> EventsOf:
    """The function that makes the events of a streamed response."""
    is_first = True
    partial = None if output is None else output.partial(tools)

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
    last: JSONDict = messages[-1] if messages else {}
    content: Any = last.get("content")
    if last.get("role") == "user" and isinstance(content, str):
        messages[-1] = {**last, "content": f"{content}\n\n{guidance}"}
    elif last.get("role") == "user" and is_list(content):
        messages[-1] = {**last, "content": [*content, text_part(guidance)]}
    else:
        messages.append({"role": "user", "content": guidance})


def _text_of(error: Exception) -> str:
    """The text of an exception of a model. It may name the URL and the headers of the request."""
    return redacted(safe_str(error))


def _switched(
    place: tuple[int, int],
    node: RunNode | None,
    error: Exception,
    model: str,
    next_model: str,
) -> Steps[None]:
    """Report that a model failed, and that middleware asks another one."""
    iteration, attempt = place
    now = yield NOW
    text = _text_of(error)
    yield Emit(
        ModelRetried(
            iteration=iteration,
            attempt=attempt,
            error=text,
            error_type=type(error).__name__,
            delay=0.0,
            at=now,
            timing=_timing_of(node, text),
            model=model,
            next_model=next_model,
        )
    )


def _wait(
    ctx: Context, error: Exception, attempt: int, retry_delay: float, now: float
) -> Steps[None]:
    """Report the failed attempt, and wait before the next."""
    delay = yield from delay_before_retry(error, attempt, retry_delay, now)
    text = _text_of(error)
    yield Emit(
        ModelRetried(
            iteration=ctx.iteration,
            attempt=attempt,
            error=text,
            error_type=type(error).__name__,
            delay=delay,
            at=now,
            timing=_timing_of(ctx.run.state.current_node, text),
        )
    )
    yield Sleep(delay)


def _changed(
    ctx: Context, on_retry: OnRetry, request: Request, error: Exception, attempt: int
) -> Steps[Request]:
    """Ask ``on_retry`` for the request of the next attempt."""
    try:
        return (yield from _asked_to_change(ctx, on_retry, request, error, attempt))
    except Exception as raised:  # the run ends with `PipelineFailed`
        reason = LLMError(_text_of(raised), type(raised).__name__, cause=raised)
        yield from _failed(ctx, reason)
        raise


def _asked_to_change(
    ctx: Context, on_retry: OnRetry, request: Request, error: Exception, attempt: int
) -> Steps[Request]:
    made = yield Call(on_retry, request, error, attempt, label=labels.STAGE, key="on_retry")
    if made is None:
        return request
    if not isinstance(made, Request):
        raise TypeError(f"on_retry: expected a Request or None, got {type(made).__name__}")
    for name in made.tools:
        if name not in ctx.tools:
            raise LookupError(f"on_retry: there is no tool {name!r}")
    if made.messages is not request.messages:
        messages, repairs = validate_messages(made.messages)
        ctx.run.note_repairs(repairs, "on_retry")
        made = dataclasses.replace(made, messages=messages)
    return made


def _failed(ctx: Context, reason: LLMError, shown: str = "") -> Steps[Context]:
    """End the run because the model failed; the text that was shown goes into the history."""
    run = ctx.run
    if shown:
        ctx = ctx.evolve(response=Response(shown, is_streamed=True), is_asked=True)
    if run.has_listeners:
        ended = yield NOW
        text = _text_of(reason.cause) if isinstance(reason.cause, Exception) else reason.message
        yield Emit(
            ModelFailed(
                iteration=ctx.iteration,
                error=reason.message,
                error_type=reason.error_type,
                at=ended,
                timing=_timing_of(run.state.current_node, text),
            )
        )
    return ctx.stop(reason)


def _asked_again(ctx: Context) -> Context:
    """The context for a second request in one iteration; the first response goes into the history."""
    run = ctx.run
    for call in ctx.plan.calls:
        if call.id not in ctx.tool_results:
            run.release(call)
    run.reserved.clear()
    injected = inject(ctx, "Not run: the model was asked again first.")
    if run.in_flight.results:
        run.in_flight.results.clear()
        ids = {call.id for call in ctx.tool_calls}
        others = [one for one in run.dispatched if not ids.issuperset(c.id for c in one.plan.calls)]
        run.dispatched = (*others, injected)
    changes = ctx.request_changes
    if "messages" in changes:
        view = _with_exchange(changes["messages"], injected.result_messages)
        changes = {**changes, "messages": view}
    return injected.evolve(
        request_changes=changes,
        response=Response(),
        tool_calls=(),
        plan=Plan(),
        tool_results={},
        validation_errors={},
        result_messages=(),
    )


def _with_exchange(view: Sequence[JSONDict], exchange: tuple[JSONDict, ...]) -> Sequence[JSONDict]:
    """What a stage put into the request, with the exchange of an earlier request of this iteration."""
    if not exchange:
        return view
    is_joined = bool(view) and view[-1].get("role") == "assistant"
    return [*(view[:-1] if is_joined else view), *exchange]


def _counted(ctx: Context, request: Request, answer: TimedResponse) -> Response:
    """Count the usage of a response; return the response, with its cost and, if asked for, an estimate."""
    run, (response, _, ended) = ctx.run, answer
    if run.budget.estimates and (response.usage is None or response.usage.is_lower_bound):
        response = _estimated(ctx, request, response)
    cost_of = run.cost_of
    if cost_of is None and run.answered_by is not None:
        cost_of = run.answered_by.cost_of
    if cost_of is not None:
        response = with_cost(response, cost_of)
    choice = request.tool_choice or request.options.get("tool_choice")
    if response.tool_calls and choice == "none":
        response = dataclasses.replace(response, tool_calls=())
    usage = response.usage
    run.clock, run.abandoned = ended, None
    run.state.record_usage(usage)
    run.budget.record_response(response)
    node = run.state.current_node
    if node is not None:
        node.usage = usage if node.usage is None else node.usage.plus(usage)
        node.asked += ((response.times, usage, response.model, response.provider),)
    return response


def _count_unknown(ctx: Context) -> None:
    """Count a request that was sent and has no response; no limit depends on what it used."""
    ctx.run.state.record_usage(None)
    ctx.run.budget.record_usage(None)


def _estimated(ctx: Context, request: Request, response: Response) -> Response:
    tools = [ctx.run.payloads[name][1] for name in request.tools]
    others = (request.instructions or "", _guidance(ctx) or "")
    usage = estimate_usage(request.messages, tools, response, others)
    return dataclasses.replace(response, usage=usage)
