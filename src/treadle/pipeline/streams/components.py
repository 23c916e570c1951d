"""The components that drop, make, convert or replicate items; only a `StreamPipeline` runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Concatenate, ParamSpec, TypeVar

from treadle.fast_dataclass import fast_dataclass
from treadle.pipeline.compiler import Compiler, Component, Components, Kind, Look, Op
from treadle.pipeline.components import (
    ComponentLike,
    Part,
    Stage,
    check_plain,
    components_of,
    name_of,
    stage,
)
from treadle.pipeline.errors import PipelineError
from treadle.type_vars import ParamsT, ReturnT_co

P = ParamSpec("P")
R = TypeVar("R")


def dead_end(name: str | None = None) -> Component:
    """Drop the item: the pipeline returns nothing for it. Useful at the end of a branch."""
    look = Look('[/"{}"/]', "{0}" if name is None else "dead_end {0}", continues=False)
    return Part(name or "dead_end", look, {}, _add_end, anonymous=name is None)


def _add_end(compiler: Compiler, name: str, _: object) -> None:
    compiler.ops.append(Op(Kind.DROP, name))
    compiler.filled = None


def composer(
    fn: Callable[[Any, Any], tuple[Iterable[Any], Any]], memo: Any = None, name: str | None = None
) -> Component:
    """Make zero, one or many items of each, with a memo that is passed from item to item.

    Args:
        fn: takes the item and the memo, returns the items to continue with and the new memo.
        memo: the initial memo of each `run` and each `stream`. It is copied; runs share no state
            if the function returns a new memo and does not change the old one.
        name: the name; None takes the name of the function.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of composer {label!r}")
    look, add = Look('[["{}"]]', "composer {0}"), functools.partial(_add_composer, fn, memo)
    return Part(label, look, {}, add, anonymous=name is None and label == "lambda")


def _add_composer(fn: Any, memo: Any, compiler: Compiler, name: str, _: object) -> None:
    compiler.add_result(Op(Kind.COMPOSE, name, fn, memo))


def plug_with(adapter: Any, components: ComponentLike, name: str | None = None) -> Component:
    """Run components that were written for another type of item.

    Args:
        adapter: an object with ``plug(item)``, which makes the inner item, and
            ``unplug(inner, original)``, which makes the item to continue with; or a pair of these
            functions.
        components: the components that the inner item passes through.
        name: the name; None takes the name of the adapter.

    Raises:
        PipelineError: the adapter lacks one of the two functions.
    """
    match adapter:
        case (plug, unplug):
            label = name or name_of(plug)
        case _:
            plug, unplug = getattr(adapter, "plug", None), getattr(adapter, "unplug", None)
            label = name or name_of(adapter)
    if not callable(plug) or not callable(unplug):
        raise PipelineError(
            f"plug_with: {type(adapter).__name__} needs two functions, plug(item) and unplug(inner, original)"
        )
    check_plain(plug, f"the plug of {label!r}")
    check_plain(unplug, f"the unplug of {label!r}")
    add = functools.partial(_add_plugged, plug, unplug)
    look = Look("{} (plugged)", "plug_with {0}", is_box=True)
    parts = {"": components_of(components)}
    return Part(label, look, parts, add, anonymous=name is None)


def _add_plugged(
    plug: Any, unplug: Any, compiler: Compiler, name: str, parts: Mapping[Any, Components]
) -> None:
    # The fields of the outer item, and its ``until``, do not apply inside.
    outer, compiler.fields, compiler.filled = (compiler.fields, compiler.filled), None, None
    compiler.ops.append(Op(Kind.PLUG, name, plug))
    compiler.add_scope(parts[""], f"{name}/")
    compiler.add_result(Op(Kind.UNPLUG, name, unplug))
    compiler.fields, compiler.filled = outer


@fast_dataclass
class Replicated(Stage[ParamsT, ReturnT_co]):
    """A stage that several items of a stream may be in at once, made by `replicated`."""

    look = Look(title="{0} (x{1.count})")

    count: int = 1


def replicated(fn: Callable[Concatenate[Any, P], R], count: int) -> Replicated[P, R]:
    """Make a stage that a limited number of items of a stream may be in at once.

    Args:
        fn: a stage, or the function of one. A plain function runs in that many worker threads.
        count: the number of items. A single item is not affected.

    Raises:
        PipelineError: the count is below 1.
    """
    made = stage(fn)
    if count < 1:
        raise PipelineError(f"stage {made.name!r}: count must be at least 1, not {count}")
    values = {one.name: getattr(made, one.name) for one in fields(made)}
    return Replicated(**values, count=count)
