"""Compiles the components that only a `StreamPipeline` runs."""

from __future__ import annotations

import dataclasses
from typing import Any

from treadle.pipeline.compiler import Compiler, Filled, Kind, Op, Scope
from treadle.pipeline.components import Component
from treadle.pipeline.streams.components import Composer, DeadEnd, PlugWith, Replicated


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class StreamOp(Op):
    """An operation at which the item leaves `execute`: it is dropped, made or converted."""

    kind: Kind = Kind.END


class Drop(StreamOp):
    """Drops the item."""


class Plug(StreamOp):
    """Makes the inner item of a plug."""


class Unplug(StreamOp):
    """Makes the item to continue with after a plug."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Compose(StreamOp):
    """Makes several items of one.

    Args:
        memo: the initial memo.
    """

    memo: Any = None


class StreamCompiler(Compiler):
    """Compiles the components of a `StreamPipeline`.

    Attributes:
        counts: how many items of a stream may be in a stage at once, by the position of the stage.
    """

    def __init__(self, item: type | None) -> None:
        super().__init__(item)
        self.counts: dict[int, int] = {}

    def component(self, component: Component, name: str, scope: Scope, filled: Filled) -> Filled:
        """Compile one component; return the fields that are filled after it."""
        match component:
            case DeadEnd():
                self.emit(Drop(name=name))
                return None
            case Composer(fn=fn, memo=memo):
                self.emit_result(Compose(name=name, fn=fn, memo=memo), scope)
                return filled
            case PlugWith():
                # The inner item has another type: the outer until, fields and points do not apply.
                fields, self.fields = self.fields, None
                self.emit(Plug(name=name, fn=component.plug))
                self.scope(component.components, Scope(name + "/"), None)
                self.emit_result(Unplug(name=name, fn=component.unplug), scope)
                self.fields = fields
                return filled
            case _:
                made: Any = component
                if isinstance(made, Replicated):
                    self.counts[len(self.ops)] = made.count
                return super().component(component, name, scope, filled)
