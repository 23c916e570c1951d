"""The types of `Loop`'s methods: which output a result has.

They work on the class and on an instance, and take the option ``output``, which decides the type of the result.
Type checkers cannot read `Loop`'s own definitions for that; at run time this module is not imported.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, Unpack, overload

from treadle.effects import Steps
from treadle.loop.event_stream import EventStream
from treadle.loop.loop import Loop
from treadle.loop.options import LoopOptions
from treadle.loop.pause import PausedForm
from treadle.messages import Messages
from treadle.model import Model
from treadle.results import Result
from treadle.tools import Approval

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")
T_co = TypeVar("T_co", covariant=True)


class Run:
    """The type of `Loop.run`."""

    @overload
    def __get__(self, instance: None, owner: object) -> RunWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> RunWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class RunWith(Protocol[T_co]):
    """`Loop.run` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[T_co]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[U | V]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[U]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[Any]]: ...


class RunSync:
    """The type of `Loop.run_sync`."""

    @overload
    def __get__(self, instance: None, owner: object) -> RunSyncWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> RunSyncWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class RunSyncWith(Protocol[T_co]):
    """`Loop.run_sync` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Result[T_co]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> Result[U | V]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> Result[U]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> Result[Any]: ...


class Stream:
    """The type of `Loop.stream`."""

    @overload
    def __get__(self, instance: None, owner: object) -> StreamWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> StreamWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class StreamWith(Protocol[T_co]):
    """`Loop.stream` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[T_co]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[U | V]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[U]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[Any]]: ...


class StepsOf:
    """The type of `Loop.steps`."""

    @overload
    def __get__(self, instance: None, owner: object) -> StepsOfWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> StepsOfWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class StepsOfWith(Protocol[T_co]):
    """`Loop.steps` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        **options: Unpack[LoopOptions],
    ) -> Steps[Result[T_co]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> Steps[Result[U | V]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> Steps[Result[U]]: ...

    @overload
    def __call__(
        self,
        messages: Messages = ...,
        llm_send_fn: Model | None = None,
        *,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> Steps[Result[Any]]: ...


class Resume:
    """The type of `Loop.resume`."""

    @overload
    def __get__(self, instance: None, owner: object) -> ResumeWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> ResumeWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class ResumeWith(Protocol[T_co]):
    """`Loop.resume` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[T_co]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[U | V]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[U]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> Coroutine[Any, Any, Result[Any]]: ...


class ResumeSync:
    """The type of `Loop.resume_sync`."""

    @overload
    def __get__(self, instance: None, owner: object) -> ResumeSyncWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> ResumeSyncWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class ResumeSyncWith(Protocol[T_co]):
    """`Loop.resume_sync` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Unpack[LoopOptions],
    ) -> Result[T_co]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> Result[U | V]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> Result[U]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> Result[Any]: ...


class ResumeStream:
    """The type of `Loop.resume_stream`."""

    @overload
    def __get__(self, instance: None, owner: object) -> ResumeStreamWith[str]: ...
    @overload
    def __get__(self, instance: Loop[T], owner: object) -> ResumeStreamWith[T]: ...
    def __get__(self, instance: Any, owner: object) -> Any: ...


class ResumeStreamWith(Protocol[T_co]):
    """`Loop.resume_stream` of a loop whose output is of the type ``T_co``."""

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[T_co]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: tuple[type[U], type[V]],
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[U | V]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: type[U] | Sequence[type[U]],
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[U]]: ...

    @overload
    def __call__(
        self,
        paused: PausedForm,
        decisions: Mapping[str, Approval],
        llm_send_fn: Model | None = None,
        *,
        take_over: bool = False,
        output: Any,
        **options: Unpack[LoopOptions],
    ) -> AbstractAsyncContextManager[EventStream[Any]]: ...
