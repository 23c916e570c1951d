"""`Loop`: ask the model, run the tools it calls, feed the results back, until it answers."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack

import anyio

from treadle.effects import Steps, background_task, drive, drive_sync
from treadle.errors import ToolDefinitionError
from treadle.events import Event
from treadle.loop.handle import EventStream
from treadle.loop.observers import Observers
from treadle.loop.options import LoopOptions, Settings
from treadle.loop.pause import Resumption
from treadle.loop.run import ParentRun, Prepared, pipeline_of, prepare_child, tools_of
from treadle.loop.subagent import TASK_SCHEMA, ChildLoop, MakeMessages
from treadle.messages import Messages
from treadle.model import LLMSendFn
from treadle.results import Result
from treadle.run_state import RunState
from treadle.tools import Approval, Resolver, Tool, ToolBehaviour

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
        self.pipeline = pipeline_of(settings)
        self.tools: Mapping[str, Tool] = tools_of(settings)
        secret = settings.pause_secret
        self.pause_secret = secret.encode() if isinstance(secret, str) else secret
        resolve = settings.resolve_tool
        self.resolver = None if resolve is None else Resolver(resolve)
        for tool in self.tools.values():
            if not tool.has_implementation and not tool.terminal and self.resolver is None:
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
        prepared = Prepared(self.with_options(**options), messages, llm_send_fn)
        return drive(prepared.steps, prepared.emit)

    @_OnClassToo
    def run_sync(
        self, messages: Messages, llm_send_fn: LLMSendFn, **options: Unpack[LoopOptions]
    ) -> Result:
        """As `run`, in this thread, without an event loop; works where one is running, too.

        Async tools and backends are run on one loop in the background.
        """
        prepared = Prepared(self.with_options(**options), messages, llm_send_fn)
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
        return Prepared(self.with_options(**options), messages, llm_send_fn).steps

    @_OnClassToo
    def resume(
        self,
        paused: Any,
        decisions: Mapping[str, Approval],
        llm_send_fn: LLMSendFn,
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result]:
        """Go on with a run that was paused, as `run` does; in another process, too.

        Args:
            paused: the `Paused`, its ``state``, or that as JSON text.
            decisions: `approve`, ``deny(reason)`` or ``edit(arguments)``, by the ids of the calls that wait.
                Where one is missing, the run is paused again when it comes to that call.
            llm_send_fn: the model.
            **options: as of `run`. The tools have to be those that the calls are of.

        Returns:
            As `run`.

        Raises:
            PausedStateError: the state was changed, belongs to other tools, or was resumed already.
            OptionError: a decision on a call that does not wait, or an edit that its tool does not take.
        """
        prepared = self._resumed(paused, decisions, llm_send_fn, options)
        return drive(prepared.steps, prepared.emit)

    @_OnClassToo
    def resume_sync(
        self,
        paused: Any,
        decisions: Mapping[str, Approval],
        llm_send_fn: LLMSendFn,
        **options: Unpack[LoopOptions],
    ) -> Result:
        """As `resume`, in this thread, without an event loop."""
        prepared = self._resumed(paused, decisions, llm_send_fn, options)
        return drive_sync(prepared.steps, prepared.emit)

    @_OnClassToo
    def resume_stream(
        self,
        paused: Any,
        decisions: Mapping[str, Approval],
        llm_send_fn: LLMSendFn,
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream]:
        """As `resume`, with the events as they happen; see `stream`."""
        loop = self.with_options(**options)
        return _streamed(loop, loop.resumption(paused, decisions), llm_send_fn)

    def _resumed(
        self, paused: Any, decisions: Mapping[str, Approval], model: LLMSendFn, options: LoopOptions
    ) -> Prepared:
        loop = self.with_options(**options)
        return Prepared(loop, loop.resumption(paused, decisions), model)

    def resumption(self, paused: Any, decisions: Mapping[str, Approval]) -> Resumption:
        """A paused run, checked, for `resume`; raises what that raises."""
        claim = self.settings.consume_pause
        return Resumption(
            paused, decisions, self.tools, self.pause_secret, claim, pipeline=self.pipeline
        )

    def as_tool(
        self,
        name: str,
        description: str,
        llm_send_fn: LLMSendFn,
        *,
        input_schema: Mapping[str, Any] = TASK_SCHEMA,
        messages: MakeMessages | None = None,
        instructions: str | None = None,
        **options: Unpack[ToolBehaviour],
    ) -> Tool:
        """Make a tool of this loop: each call of it is a run.

        Such a run draws on the limits of the run that makes the call, beside its own. It ends where that ends;
        its events, spans and record are within those of that call. An ``Err`` is an ordinary tool error.

        Args:
            name: the tool's name.
            description: what it does, for the model that calls it.
            llm_send_fn: the model of these runs.
            input_schema: what it takes; by default one text, the ``task``.
            messages: makes what a run starts from, of the arguments; by default one user message.
            instructions: a system message that comes before it.
            **options: of the tool, see `Tool`.
        """
        steps = ChildLoop(self, llm_send_fn, messages, instructions)
        return Tool(name, description, input_schema, steps=steps, **options)

    def child_steps(
        self,
        given: Any,
        llm_send_fn: LLMSendFn,
        state: RunState,
        around: ParentRun,
        *,
        has_listeners: bool,
    ) -> tuple[Steps[Result], Observers | None]:
        """The steps of a run within another's, and who of its own is told; for `as_tool`."""
        return prepare_child(self, given, llm_send_fn, state, around, has_listeners=has_listeners)


@functools.cache
def _plain() -> Loop:
    """The loop with every option at its default, which is the same for all."""
    return Loop()


@asynccontextmanager
async def _streamed(
    loop: Loop, messages: Any, llm_send_fn: LLMSendFn
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
        prepared = Prepared(loop, messages, llm_send_fn, handle, tell)
        async with background_task(run):
            with events:
                yield handle


_EVENTS_AHEAD = 64
"""Events that a run may be ahead of their reader; then it waits."""
