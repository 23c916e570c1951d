"""Strategies for events: one for each class, with any values in all of its fields."""

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from treadle import (
    BudgetExhausted,
    Context,
    Decision,
    Err,
    Event,
    Limits,
    LoopDetected,
    Ok,
    Paused,
    PendingCall,
    Reason,
    Response,
    RunFinished,
    RunState,
    StoppedByStage,
    SubagentEvent,
)
from treadle.messages import History

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.text(max_size=3),
    lambda parts: (
        st.lists(parts, max_size=2) | st.dictionaries(st.text(max_size=2), parts, max_size=2)
    ),
    max_leaves=3,
)
"""Any JSON data."""
PLAIN = {
    str: st.text(max_size=4),
    int: st.integers(0, 5),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}
REASONS = st.one_of(
    st.builds(BudgetExhausted, PLAIN[str], PLAIN[float], PLAIN[float]),
    st.builds(LoopDetected, st.tuples(PLAIN[str]), PLAIN[int], PLAIN[str], PLAIN[int]),
    st.builds(StoppedByStage, PLAIN[str], PLAIN[str]),
)


def values_of(hint):
    """Values of a type, given as an annotation."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint in SPECIAL:
        return SPECIAL[hint]
    if origin in {typing.Union, types.UnionType}:
        return st.one_of(*(st.none() if arg is type(None) else values_of(arg) for arg in args))
    if origin in {tuple, Sequence}:
        return st.lists(values_of(args[0]), max_size=2).map(tuple)
    if origin in {dict, Mapping}:
        return st.dictionaries(st.text(max_size=3), values_of(args[1]), max_size=2)
    if hint in PLAIN:
        return PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, BaseException):
        return st.builds(ValueError, PLAIN[str])
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(hint)
    return instances_of(hint) if dataclasses.is_dataclass(hint) else JSON


def instances_of(kind):
    """Instances of a dataclass."""
    hints = typing.get_type_hints(kind)
    fields = {
        spec.name: values_of(hints[spec.name]) for spec in dataclasses.fields(kind) if spec.init
    }
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


RESPONSES = st.builds(Response, st.none() | PLAIN[str])
RESULTS = st.one_of(
    st.builds(Ok, RESPONSES, output=JSON, stop_reason=PLAIN[str], limit=st.none() | REASONS),
    st.builds(Err, REASONS, stop_reason=PLAIN[str]),
    st.builds(
        Paused,
        st.lists(
            st.builds(PendingCall, PLAIN[str], PLAIN[str], st.just({"n": 1}), PLAIN[str]),
            max_size=2,
        ).map(tuple),
    ),
)
CONTEXTS = st.builds(
    Context,
    st.just(History()),
    iteration=PLAIN[int],
    decision=st.none() | st.sampled_from(Decision),
    error=st.none() | REASONS,
    trace=st.lists(PLAIN[str], max_size=2).map(tuple),
)
SPECIAL = {
    typing.Any: JSON,
    Limits: st.builds(Limits, st.integers(1, 5), max_cost=st.none() | st.floats(0, 5)),
    Context: CONTEXTS,
    Exception: st.builds(ValueError, PLAIN[str]),
    RunState: st.builds(RunState, PLAIN[str]),
    Reason: REASONS,
    typing.get_type_hints(RunFinished)["result"]: RESULTS | st.none(),
}
"""Values of the types that refuse some values, or are no dataclasses."""


KINDS = [kind for kind in typing.get_args(Event) if kind is not SubagentEvent]
"""The classes of events, except that of the events of subagents."""
