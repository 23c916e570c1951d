"""The vocabulary: what a pipeline is written in, as plain data that `compiler` flattens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from treadle.pipeline.effects import Mode, call_mode
from treadle.pipeline.errors import PipelineError
from treadle.pipeline.naming import name_of
from treadle.pipeline.stage import Component, Fn, Stage, stage

if TYPE_CHECKING:
    from treadle.pipeline.pipeline import Pipeline

__all__ = [
    "Component",
    "Composer",
    "DeadEnd",
    "Done",
    "Embed",
    "Fn",
    "Goto",
    "GotoPoint",
    "PlugWith",
    "Stage",
    "Switch",
    "Tbd",
    "components_of",
    "composer",
    "dead_end",
    "done",
    "embed",
    "goto",
    "goto_point",
    "plug_with",
    "stage",
    "switch",
    "tbd",
]


def check_plain(fn: Any, what: str) -> None:
    """See that a function is one that can decide or convert on the spot.

    Args:
        fn: what was given.
        what: what it is to be, for the error.

    Raises:
        PipelineError: it cannot be called, or it is async or a generator, which only stages may be.
    """
    if not callable(fn):
        raise PipelineError(f"{what} is a callable, not {type(fn).__name__}: {fn!r}")
    if call_mode(fn) is not Mode.THREAD:
        raise PipelineError(
            f"{what} is a plain function, and {name_of(fn)!r} is async or a generator; "
            f"let a stage before it do that work"
        )


@dataclass(frozen=True, slots=True)
class Switch(Component):
    """Sends the item down one of several branches, made by `switch`."""

    fn: Fn
    branches: Mapping[Any, tuple[Component, ...]]


def switch(fn: Fn, branches: Mapping[Any, Any], name: str | None = None) -> Switch:
    """Choose a branch for each item.

    Args:
        fn: takes the item, returns the key of its branch.
        branches: for each key a component, or a sequence of them (empty passes the item through).
        name: the name; None is the function's.

    Returns:
        The component. An item with a key that no branch has is an error that names the keys.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of switch {label!r}")
    if not isinstance(cast("Any", branches), Mapping) or not branches:
        raise PipelineError(f"switch {label!r} has no branches: {branches!r}")
    made = {key: components_of(branch) for key, branch in branches.items()}
    return Switch(label, fn, made, anonymous=name is None and label == "lambda")


@dataclass(frozen=True, slots=True)
class Goto(Component):
    """Jumps to a point of the pipeline, made by `goto`."""

    point: str
    when: Fn


def goto(point: str, when: Fn, name: str | None = None) -> Goto:
    """Go on at a `goto_point`, before or after this place, for items that meet a condition.

    Args:
        point: the name of the point.
        when: takes the item, returns whether to jump.
        name: the name; None makes one up.
    """
    check_plain(when, f"the condition of a goto to {point!r}")
    return Goto(name or f"goto {point}", point, when, anonymous=name is None)


@dataclass(frozen=True, slots=True)
class GotoPoint(Component):
    """A place that a `goto` jumps to, made by `goto_point`."""


def goto_point(name: str) -> GotoPoint:
    """Mark a place to jump to. It does nothing itself."""
    return GotoPoint(name)


@dataclass(frozen=True, slots=True)
class Done(Component):
    """Lets items leave the pipeline early, made by `done`."""

    when: Fn


def done(when: Fn, name: str | None = None) -> Done:
    """Let items that meet a condition leave the whole pipeline here, as its result.

    Args:
        when: takes the item, returns whether it is done.
        name: the name; None makes one up.
    """
    check_plain(when, "the condition of a done")
    return Done(name or "done", when, anonymous=name is None)


@dataclass(frozen=True, slots=True)
class DeadEnd(Component):
    """Drops every item that gets here, made by `dead_end`."""


def dead_end(name: str | None = None) -> DeadEnd:
    """Drop the item: nothing comes out for it. Useful at the end of a branch."""
    return DeadEnd(name or "dead_end", anonymous=name is None)


@dataclass(frozen=True, slots=True)
class Composer(Component):
    """Makes zero, one or many items of one, made by `composer`."""

    fn: Fn
    memo: Any


def composer(fn: Fn, memo: Any = None, name: str | None = None) -> Composer:
    """Make zero, one or many items of each, with a memory.

    Args:
        fn: takes the item and the memo, returns the items that go on and the new memo.
        memo: the first memo of every run. A run is one `run` or one `stream`; runs share nothing,
            as long as the function returns a new memo and leaves the old one as it is.
        name: the name; None is the function's.
    """
    label = name or name_of(fn)
    check_plain(fn, f"the function of composer {label!r}")
    return Composer(label, fn, memo, anonymous=name is None and label == "lambda")


@dataclass(frozen=True, slots=True)
class PlugWith(Component):
    """Runs components on an adapted item, made by `plug_with`."""

    plug: Fn
    unplug: Fn
    components: tuple[Component, ...]


def plug_with(adapter: Any, components: Any, name: str | None = None) -> PlugWith:
    """Run components that were written for another kind of item.

    Args:
        adapter: has ``plug(item)``, which makes the inner item, and ``unplug(inner, original)``,
            which makes the item that goes on; or is the pair of these two functions.
        components: what the inner item goes through.
        name: the name; None is the adapter's.

    Raises:
        PipelineError: the adapter lacks one of the two.
    """
    match adapter:
        case (plug, unplug):
            label = name or name_of(plug)
        case _:
            plug, unplug = getattr(adapter, "plug", None), getattr(adapter, "unplug", None)
            label = name or name_of(adapter)
    if not callable(plug) or not callable(unplug):
        raise PipelineError(
            f"plug_with: {adapter!r} needs two functions, plug(item) and unplug(inner, original)"
        )
    check_plain(plug, f"the plug of {label!r}")
    check_plain(unplug, f"the unplug of {label!r}")
    return PlugWith(label, plug, unplug, components_of(components), anonymous=name is None)


@dataclass(frozen=True, slots=True)
class Embed(Component):
    """The components of another pipeline, made by `embed`."""

    pipeline: Pipeline[Any]


def embed(pipeline: Pipeline[Any], name: str) -> Embed:
    """Put another pipeline's components here: one copy, whose names start with ``name.``.

    Args:
        pipeline: what to embed. Its own `done` and ``until`` leave the embedded part alone; the
            ``until`` of the pipeline around it holds within it too, and leaves both.
        name: the name space.
    """
    if not isinstance(getattr(pipeline, "components", None), tuple):
        raise PipelineError(f"embed({name!r}) takes a Pipeline, not {type(pipeline).__name__}")
    return Embed(name, pipeline)


@dataclass(frozen=True, slots=True)
class Tbd(Component):
    """A part yet to be written, made by `tbd`."""


def tbd(name: str) -> Tbd:
    """Hold a place: the item passes through, and diagrams show that something is missing."""
    return Tbd(name)


def components_of(given: Any) -> tuple[Component, ...]:
    """Make components of what a user wrote: a component, a bare callable, or a sequence of these.

    Raises:
        PipelineError: something else.
    """
    if isinstance(given, Component):
        return (given,)
    if isinstance(given, (list, tuple)):
        parts: Sequence[Any] = cast("Any", given)
        return tuple(component for part in parts for component in components_of(part))
    if callable(given):
        return (stage(given),)
    raise PipelineError(
        f"a pipeline takes components and callables, not {type(given).__name__}: {given!r}"
    )
