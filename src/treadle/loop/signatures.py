"""The types of `Loop`'s methods: which output a result has.

They work on the class and on an instance, and take the option ``output``, which decides the type of the result.
Type checkers cannot read `Loop`'s definitions for that, and have no type of "a method with these overloads", so
each method repeats them. At run time this module is not imported.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, Required, TypeAlias, TypeVar, Unpack, overload

from treadle.effects import Steps
from treadle.loop.event_stream import EventStream
from treadle.loop.options import LoopOptions as Options
from treadle.loop.pause import PausedForm
from treadle.messages import Messages
from treadle.model import Model
from treadle.results import Result
from treadle.tools import Approval, Output
from treadle.type_vars import OtherT as V
from treadle.type_vars import OutputT_co

U = TypeVar("U")
Backend: TypeAlias = Model | None
Decisions: TypeAlias = Mapping[str, Approval]


class Given(Options, Generic[U, V], total=False):
    """The options with an output of a type, or of one of two types."""

    output: Required[type[U] | list[type[U]] | tuple[type[U], type[V]] | Output[U]]


class AnyOf(Options, total=False):
    """The options with an output that type checkers cannot read, such as a union or a JSON Schema."""

    output: Required[Any]


class Run(Protocol[OutputT_co]):
    """The type of `Loop.run`."""

    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Options]
    ) -> Coroutine[Any, Any, Result[OutputT_co]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Given[U, V]]
    ) -> Coroutine[Any, Any, Result[U | V]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[AnyOf]
    ) -> Coroutine[Any, Any, Result[Any]]: ...


class RunSync(Protocol[OutputT_co]):
    """The type of `Loop.run_sync`."""

    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Options]
    ) -> Result[OutputT_co]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Given[U, V]]
    ) -> Result[U | V]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[AnyOf]
    ) -> Result[Any]: ...


class Stream(Protocol[OutputT_co]):
    """The type of `Loop.stream`."""

    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Options]
    ) -> AbstractAsyncContextManager[EventStream[OutputT_co]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Given[U, V]]
    ) -> AbstractAsyncContextManager[EventStream[U | V]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[AnyOf]
    ) -> AbstractAsyncContextManager[EventStream[Any]]: ...


class StepsOf(Protocol[OutputT_co]):
    """The type of `Loop.steps`."""

    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Options]
    ) -> Steps[Result[OutputT_co]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[Given[U, V]]
    ) -> Steps[Result[U | V]]: ...
    @overload
    def __call__(
        self, messages: Messages = ..., llm_send_fn: Backend = None, **options: Unpack[AnyOf]
    ) -> Steps[Result[Any]]: ...


class ResumeOptions(Options, total=False):
    """The options of a resumed run."""

    take_over: bool


class ResumeGiven(Given[U, V], ResumeOptions, Generic[U, V], total=False):
    """The options of a resumed run with an output of a type, or of one of two types."""


class ResumeAnyOf(AnyOf, ResumeOptions, total=False):
    """The options of a resumed run with an output that type checkers cannot read."""


class Resume(Protocol[OutputT_co]):
    """The type of `Loop.resume`."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeOptions],
    ) -> Coroutine[Any, Any, Result[OutputT_co]]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeGiven[U, V]],
    ) -> Coroutine[Any, Any, Result[U | V]]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeAnyOf],
    ) -> Coroutine[Any, Any, Result[Any]]: ...


class ResumeSync(Protocol[OutputT_co]):
    """The type of `Loop.resume_sync`."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeOptions],
    ) -> Result[OutputT_co]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeGiven[U, V]],
    ) -> Result[U | V]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeAnyOf],
    ) -> Result[Any]: ...


class ResumeStream(Protocol[OutputT_co]):
    """The type of `Loop.resume_stream`."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeOptions],
    ) -> AbstractAsyncContextManager[EventStream[OutputT_co]]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeGiven[U, V]],
    ) -> AbstractAsyncContextManager[EventStream[U | V]]: ...
    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Decisions,
        llm_send_fn: Backend = None,
        **options: Unpack[ResumeAnyOf],
    ) -> AbstractAsyncContextManager[EventStream[Any]]: ...
