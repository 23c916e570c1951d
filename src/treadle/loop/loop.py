"""`Loop`: ask the model, run the tools it calls, feed the results back, until it answers."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

import anyio

from treadle.loop.ask import Asker
from treadle.loop.backend import Backend, LLMSendFn
from treadle.loop.handle import EventStream
from treadle.loop.observers import Observer, Observers, of_iterations
from treadle.loop.options import LoopOptions, Settings
from treadle.loop.plant import Plant
from treadle.loop.run import Run
from treadle.pipeline import Pipeline, Steps, companion, did_you_mean, drive, drive_sync
from treadle.stages import GIVEN, RepairCall, Resolver, default_stages
from treadle.telemetry import active_telemetry
from treadle.types import (
    Context,
    Event,
    Messages,
    OptionError,
    Result,
    RunState,
    Tool,
    ToolDefinitionError,
    as_tool,
    is_mapping,
    terminal_copy,
    toolset,
)

P = ParamSpec("P")
R = TypeVar("R")


class _OnClassToo(Generic[P, R]):
    """A method that works on the class as well, as on an instance with every option at its default."""

    def __init__(self, method: Callable[Concatenate[Loop, P], R]) -> None:
        self._method = method
        functools.update_wrapper(self, method)  # type: ignore[arg-type]  # for its docstring

    def __get__(self, instance: Loop | None, owner: type[Loop]) -> Callable[P, R]:
        return functools.partial(self._method, _plain() if instance is None else instance)


class Loop:
    """An immutable, thread-safe, reusable configuration of the tool loop.

    Args:
        **options: see `treadle.loop.options.Settings`, which says what each is and its default.

    Raises:
        OptionError: an option that does not exist, or a value that it cannot take.
        ToolDefinitionError: a broken tool, or one that nothing could run.
        PipelineError: stages that cannot work together.
    """

    def __init__(self, **options: Unpack[LoopOptions]) -> None:
        self._configure(Settings().with_options(options))

    def _configure(self, settings: Settings) -> None:
        self.settings = settings
        self.pipeline = _pipeline_of(settings)
        self.tools: Mapping[str, Tool] = _tools_of(settings)
        resolve = settings.resolve_tool
        self.resolver = None if resolve is None else Resolver(resolve)
        for tool in self.tools.values():
            if tool.fn is None and not tool.terminal and self.resolver is None:
                raise ToolDefinitionError(
                    f"tool {tool.name!r} has no function and there is no resolve_tool to run it"
                )

    def with_options(self, **options: Unpack[LoopOptions]) -> Loop:
        """A new loop with some options changed; raises what the constructor raises."""
        if not options:
            return self
        changed = object.__new__(Loop)
        changed._configure(self.settings.with_options(options))
        return changed

    def diagram(self, kind: str = "mermaid") -> str:
        """Draw the stages, as a ``mermaid`` flowchart or as ``text``."""
        return self.pipeline.diagram(kind)

    @_OnClassToo
    def run(
        self, messages: Messages, llm_send_fn: LLMSendFn, **options: Unpack[LoopOptions]
    ) -> Coroutine[Any, Any, Result]:
        """Run to an answer, on the running event loop (asyncio or trio).

        Args:
            messages: OpenAI chat dicts; they are copied, checked, and repaired where no provider would
                take them.
            llm_send_fn: any callable, sync or async, that takes ``(messages)``, ``(messages, opts)`` or
                ``(messages, **opts)``, and returns text, an assistant message, a chat completion, a
                `Response`, or an iterator of chunks.
            **options: any option of `Loop`, for this run.

        Returns:
            ``Ok`` with the answer, or ``Err`` with the reason; both with everything that was done.

        Raises:
            OptionError, ToolDefinitionError, PipelineError: as the constructor, before anything runs.
        """
        prepared = _Prepared(self.with_options(**options), messages, llm_send_fn)
        return drive(prepared.steps, prepared.emit)

    @_OnClassToo
    def run_sync(
        self, messages: Messages, llm_send_fn: LLMSendFn, **options: Unpack[LoopOptions]
    ) -> Result:
        """As `run`, in this thread, without an event loop; works where one is running, too.

        Async tools and backends are run on one loop in the background.
        """
        prepared = _Prepared(self.with_options(**options), messages, llm_send_fn)
        return drive_sync(prepared.steps, prepared.emit)

    @_OnClassToo
    def stream(
        self, messages: Messages, llm_send_fn: LLMSendFn, **options: Unpack[LoopOptions]
    ) -> AbstractAsyncContextManager[EventStream]:
        """As `run`, with its events as they happen: ``async with Loop.stream(...) as events``.

        Returns:
            A context manager of the events, an async iterator, which is the handle of the run too:
            ``events.result`` has the result once they have ended. Leaving early cancels the run.
        """
        return _streamed(self.with_options(**options), messages, llm_send_fn)

    @_OnClassToo
    def steps(
        self, messages: Messages, llm_send_fn: LLMSendFn, **options: Unpack[LoopOptions]
    ) -> Steps[Result]:
        """The run as a generator of effects, for a driver of one's own."""
        return _Prepared(self.with_options(**options), messages, llm_send_fn).steps


@functools.cache
def _plain() -> Loop:
    """The loop with every option at its default, which is the same for all."""
    return Loop()


@asynccontextmanager
async def _streamed(
    loop: Loop, messages: Messages, llm_send_fn: LLMSendFn
) -> AsyncGenerator[EventStream]:
    sender, events = anyio.create_memory_object_stream[Event](_EVENTS_AHEAD)
    handle = EventStream(events)

    async def tell(event: Event) -> None:
        with suppress(anyio.BrokenResourceError):  # nobody reads any more
            await sender.send(event)

    async def run() -> None:
        with sender:
            await drive(prepared.steps, prepared.emit)

    with sender, events:
        prepared = _Prepared(loop, messages, llm_send_fn, handle, tell)
        async with companion(run):
            with events:
                yield handle


_EVENTS_AHEAD = 64
"""Events that a run may be ahead of their reader; then it waits."""


class _Prepared:
    """A run, ready to be driven: its steps, and who is told of its events."""

    def __init__(
        self,
        loop: Loop,
        messages: Any,
        llm_send_fn: LLMSendFn,
        stream: EventStream | None = None,
        tell: Observer | None = None,
    ) -> None:
        settings = loop.settings
        observers = [settings.on_event] if settings.on_event is not None else []
        if settings.on_iteration is not None:
            observers.append(of_iterations(settings.on_iteration))
        if tell is not None:  # last: it may wait for a reader, and be cancelled there
            observers.append(tell)
        telemetry = active_telemetry(settings.tracer_provider, settings.meter_provider)
        watched = bool(observers) or telemetry is not None
        handles = [handle for handle in (stream, settings.handle) if handle is not None]
        if len(handles) > 1:
            raise OptionError("handle: a stream is the handle of its run; leave it out")
        plant = Plant(
            pipeline=loop.pipeline,
            asker=Asker(
                Backend(llm_send_fn, settings.llm_opts),
                [tool.as_openai() for tool in loop.tools.values()],
                settings.max_retries,
                settings.retry_delay,
                watched,
            ),
            tools=dict(loop.tools),
            resolver=loop.resolver,
            limits=settings.limits,
            loop_threshold=settings.loop_threshold,
            watched=watched,
            can_cancel=bool(handles),
        )
        state = settings.state if settings.state is not None else RunState(settings.name)
        run = Run(plant, messages, state, handles[0].ended if handles else None)
        for handle in handles:
            handle.bind(run)
        self.emit = Observers(observers) if observers else None
        self.steps = run.steps()
        if telemetry is not None:
            self.steps = telemetry.layer(self.steps)
        for layer in reversed(settings.layers):
            self.steps = layer(self.steps)


def _pipeline_of(settings: Settings) -> Pipeline[Context]:
    if settings.stages is None:
        return _default_pipeline(
            settings.repair_call, settings.max_blank_stops, settings.breaker_threshold
        )
    return _pipeline(settings.stages)


@functools.lru_cache(maxsize=64)
def _default_pipeline(
    repair_call: RepairCall | None, max_blank_stops: int, breaker_threshold: int
) -> Pipeline[Context]:
    """The pipeline of the default stages; runs that are configured alike share one."""
    return _pipeline(
        default_stages(
            repair_call=repair_call,
            max_blank_stops=max_blank_stops,
            breaker_threshold=breaker_threshold,
        )
    )


def _pipeline(stages: Any) -> Pipeline[Context]:
    if isinstance(stages, Pipeline):
        stages = stages.components
    return Pipeline(
        list(stages), until=lambda ctx: ctx.decision is not None, item=Context, given=GIVEN
    )


def _tools_of(settings: Settings) -> dict[str, Tool]:
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
