"""`Loop`: ask the model, run the tools it calls, append the results, repeat until it answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from treadle import effects
from treadle.checks import ValueCheck
from treadle.effects import Steps
from treadle.errors import OptionError, check_names
from treadle.loop.built_loop import BuiltLoop
from treadle.loop.event_stream import EventStream, streamed_run
from treadle.loop.options import OPTIONS, SIGNATURE, LoopOptions, Settings, hint_of
from treadle.loop.pause import PROCESS_CLAIMS, PausedForm, PausedRun
from treadle.loop.start import MISSING, start_run
from treadle.loop.subagent import TASK_SCHEMA, MakeMessages, Subagent
from treadle.messages import Messages
from treadle.model import Model
from treadle.results import Result
from treadle.tools import Approval, Tool, ToolBehaviour, tool_hint
from treadle.type_vars import OtherT as V
from treadle.type_vars import OutputT_co

if TYPE_CHECKING:
    from treadle.loop import signatures

_MAKE_MESSAGES = ValueCheck(callable, "a callable that takes the arguments and returns messages")
T = TypeVar("T")
U = TypeVar("U")


class _ClassOrInstance(Generic[T, U]):
    """Makes a method that also works on the class, as on an instance without options; its two types."""

    def __init__(self, method: Callable[..., Any]) -> None:
        made: Any = self
        functools.update_wrapper(made, method)  # for its docstring
        self._method = method

    @overload
    def __get__(self, instance: None, owner: object) -> T: ...
    @overload
    def __get__(self, instance: object, owner: object) -> U: ...
    def __get__(self, instance: Any, owner: Any) -> Any:
        return MethodType(self._method, _default(owner) if instance is None else instance)


class Loop(BuiltLoop[OutputT_co]):
    """An immutable, thread-safe, reusable configuration of the tool loop.

    ``Loop[Invoice]`` is a loop with ``output=Invoice``; its results are ``Ok[Invoice]``, `Err` or `Paused`.
    Without ``output``, it is a ``Loop[str]``.

    Args:
        llm_send_fn: the model of the runs that are not given another: any callable, sync or async, that takes
            ``(messages)``, ``(messages, opts)`` or ``(messages, **opts)``, and returns text, an assistant message,
            a chat completion, a `Response`, or an iterator of chunks. Or the name of a model, such as
            ``anthropic:claude-sonnet-5-5``, see `treadle.providers.backend`.
        output: the type of the output, or an `Output`, which has its options as well.
        **options: see `LoopOptions`, which describes each option.

    Raises:
        OptionError: an unknown option, or a value that an option does not accept.
        ToolDefinitionError: a tool is invalid, or nothing can run it.
        PipelineError: the list of stages is invalid.
    """

    @overload
    def __init__(
        self: Loop[str], *, llm_send_fn: Model | None = None, **options: Unpack[LoopOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Loop[U], *, llm_send_fn: Model | None = None, **options: Unpack[signatures.Given[U]]
    ) -> None: ...
    @overload
    def __init__(
        self: Loop[U | V],
        *,
        llm_send_fn: Model | None = None,
        **options: Unpack[signatures.Given[U, V]],
    ) -> None: ...
    @overload
    def __init__(
        self: Loop[Any], *, llm_send_fn: Model | None = None, **options: Unpack[signatures.AnyOf]
    ) -> None: ...
    def __init__(self, *_: Any, **options: Any) -> None:
        if _:
            raise OptionError(
                f"Loop takes options by name, as in Loop(llm_send_fn=...) and Loop(tools=[...]), "
                f"got a positional {type(_[0]).__name__}"
            )
        self._build(Settings(options))

    if not TYPE_CHECKING:
        __signature__ = SIGNATURE

    @overload
    def with_options(
        self, *, llm_send_fn: Model | None = None, **options: Unpack[LoopOptions]
    ) -> Self: ...
    @overload
    def with_options(
        self, *, llm_send_fn: Model | None = None, **options: Unpack[signatures.Given[U, V]]
    ) -> Loop[U | V]: ...
    @overload
    def with_options(
        self, *, llm_send_fn: Model | None = None, **options: Unpack[signatures.AnyOf]
    ) -> Loop[Any]: ...
    def with_options(self, **options: Any) -> Any:
        """Make a loop with some options changed; raises the errors of the constructor."""
        return self._changed(options)

    def diagram(self, kind: str = "mermaid") -> str:
        """Draw the stages, as a ``mermaid`` flowchart or as ``text``."""
        return self.pipeline.diagram(kind)

    @_ClassOrInstance["signatures.Run[str]", "signatures.Run[OutputT_co]"]
    def run(
        self, messages: Messages = MISSING, llm_send_fn: Model | None = None, **options: Any
    ) -> Coroutine[Any, Any, Result]:
        """Run on the running event loop, asyncio or trio.

        Args:
            messages: a text, or a list of OpenAI chat dicts. They are copied, validated, and repaired where a
                provider would reject them.
            llm_send_fn: the model, see `Loop`; None means that of the loop.
            **options: options of `Loop`, for this run.

        Returns:
            ``Ok`` with the answer, ``Err`` with the reason, or ``Paused``; each with everything that was done.

        Raises:
            OptionError, ToolDefinitionError, PipelineError: as in the constructor, before anything runs. There is
                no model.
        """
        return effects.drive(*start_run(self._changed(options), messages, llm_send_fn))

    @_ClassOrInstance["signatures.RunSync[str]", "signatures.RunSync[OutputT_co]"]
    def run_sync(
        self, messages: Messages = MISSING, llm_send_fn: Model | None = None, **options: Any
    ) -> Result:
        """Run in this thread, without an event loop; it also works while one is running.

        Async tools and models run on an event loop in a background thread.

        Args:
            messages: a text, or a list of OpenAI chat dicts.
            llm_send_fn: the model, see `Loop`; None means that of the loop.
            **options: options of `Loop`, for this run.

        Returns:
            ``Ok`` with the answer, ``Err`` with the reason, or ``Paused``.

        Raises:
            OptionError, ToolDefinitionError, PipelineError: as `run`.
        """
        return effects.drive_sync(*start_run(self._changed(options), messages, llm_send_fn))

    @_ClassOrInstance["signatures.Stream[str]", "signatures.Stream[OutputT_co]"]
    def stream(
        self, messages: Messages = MISSING, llm_send_fn: Model | None = None, **options: Any
    ) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Run, and read the text or the events as they happen: ``async with Loop.stream(...) as events``.

        Args:
            messages: a text, or a list of OpenAI chat dicts.
            llm_send_fn: the model, see `Loop`; None means that of the loop.
            **options: options of `Loop`, for this run.

        Returns:
            A context manager. It returns an `EventStream`, an async iterator of the events and the handle of
            the run: ``events.text()`` is the text alone, ``events.result`` the result after the last event.
            Leaving early cancels the run, which has a separate task: the block may ``yield``.
        """
        loop = self._changed(options)
        return streamed_run(lambda stream: start_run(loop, messages, llm_send_fn, stream))

    @_ClassOrInstance["signatures.StepsOf[str]", "signatures.StepsOf[OutputT_co]"]
    def steps(
        self, messages: Messages = MISSING, llm_send_fn: Model | None = None, **options: Any
    ) -> Steps[Result]:
        """The run as a generator of effects, for a custom driver."""
        return start_run(self._changed(options), messages, llm_send_fn)[0]

    @_ClassOrInstance["signatures.Resume[str]", "signatures.Resume[OutputT_co]"]
    def resume(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Continue a paused run, as `run` does; also in another process.

        Args:
            paused: the `Paused`, its ``state``, the state as JSON text, or the path of a pause that
                `Paused.save` wrote. That file is removed when the run ends; if it pauses again, the file has the
                new pause.
            decisions: `approve`, ``deny(reason)`` or ``edit(arguments)``, by the ids of the waiting calls.
                The run pauses again when it reaches a call without a decision.
            llm_send_fn: the model, see `Loop`; None means that of the loop.
            take_over: also resume a pause that another run has claimed and not ended, since it was interrupted or
                its process has ended. Calls that were approved may run a second time.
            **options: as for `run`. The tools of the waiting calls have to be among the tools of the loop.

        Returns:
            As for `run`.

        Raises:
            PausedStateError: the state was changed, belongs to other tools, was resumed already, or is being
                resumed; or there is no such saved pause.
            OptionError: a decision on a call that does not wait, or edited arguments that are invalid.
        """
        loop = self._changed(options)
        given = loop.resumption(paused, decisions, take_over=take_over)
        return effects.drive(*start_run(loop, given, llm_send_fn))

    @_ClassOrInstance["signatures.ResumeSync[str]", "signatures.ResumeSync[OutputT_co]"]
    def resume_sync(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Any,
    ) -> Result:
        """Continue a paused run in this thread, without an event loop; `resume` describes the arguments."""
        loop = self._changed(options)
        given = loop.resumption(paused, decisions, take_over=take_over)
        return effects.drive_sync(*start_run(loop, given, llm_send_fn))

    @_ClassOrInstance["signatures.ResumeStream[str]", "signatures.ResumeStream[OutputT_co]"]
    def resume_stream(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Any,
    ) -> AbstractAsyncContextManager[EventStream[Any]]:
        """Continue a paused run, and read its events as they happen; see `resume` and `stream`."""
        loop = self._changed(options)
        given = loop.resumption(paused, decisions, take_over=take_over)
        return streamed_run(lambda stream: start_run(loop, given, llm_send_fn, stream))

    def resumption(
        self, paused: PausedForm, decisions: Mapping[str, Approval], *, take_over: bool = False
    ) -> PausedRun:
        """Check a paused run, for `resume`; raises the errors of `resume`."""
        store = self.settings.pauses.claims
        return PausedRun(
            self, paused, decisions, PROCESS_CLAIMS if store is None else store, take_over=take_over
        )

    def as_tool(
        self,
        name: str,
        description: str,
        llm_send_fn: Model | None = None,
        *,
        input_schema: Mapping[str, Any] = TASK_SCHEMA,
        messages: MakeMessages | None = None,
        instructions: str | None = None,
        **options: Unpack[ToolBehaviour],
    ) -> Tool:
        """Make a tool of this loop, a subagent: each call of the tool is a run of the loop.

        Such a run draws on the limits of the outer run in addition to its own, and ends when the outer run ends.
        Its events, spans and state are inside those of its call. An ``Err`` is an ordinary tool error.

        Args:
            name: the tool's name.
            description: what it does, for the model that calls it.
            llm_send_fn: the model of these runs; None means that of this loop.
            input_schema: its arguments; by default one text, the ``task``.
            messages: makes the initial messages from the arguments; by default one user message.
            instructions: the option of that name, for these runs; None means that of this loop.
            **options: options of the tool, see `Tool`.

        Raises:
            OptionError: an unknown option.
            ToolDefinitionError: an option is invalid.
        """
        check_names(
            options, ToolBehaviour.__annotations__, "as_tool: unknown option", _as_tool_hint
        )
        if messages is not None:
            _MAKE_MESSAGES.check("as_tool: messages", messages)
        for option in ("session", "journal"):
            if getattr(self.settings, option) is not None:
                raise OptionError(f"{option}: a subagent has none; give it to the outer loop")
        changes: dict[str, Any] = {"llm_send_fn": self.model_for(llm_send_fn)}
        if instructions is not None:
            changes["instructions"] = instructions
        steps = Subagent(self._changed(changes), messages)
        return Tool(name, description, input_schema, steps=steps, **options)


def _as_tool_hint(name: str) -> str | None:
    if name in OPTIONS:
        return f"it is an option of the loop: loop.with_options({name}=...).as_tool(...)"
    return tool_hint(name) or hint_of(name)


@functools.cache
def _default(owner: type[Loop[Any]]) -> Loop[Any]:
    return owner()
