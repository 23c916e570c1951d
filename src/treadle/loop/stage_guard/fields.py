"""The fields of a context: which ones a custom stage may change, when, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from treadle.context import Context, Decision
from treadle.messages import (
    History,
    NotAResponseError,
    ReadOnlyDict,
    Response,
    describe,
    is_mapping,
    read_only,
    to_response,
)
from treadle.results import PendingCall, Reason
from treadle.tools import Plan, Tool, check_implementations, toolset

_FIXED = ("run", "iteration", "approvals", "paused_runs", "trace")
"""Fields that no custom stage may change."""


_OF_THE_RESPONSE = ("tool_calls", "tool_results", "plan", "validation_errors")
"""Fields that have a meaning only after the model was asked."""


def protect(ctx: Context) -> None:
    """Make the contents of a context read-only, before a custom stage receives it: an edit in place raises."""
    fields = ctx.__dict__
    for name in _SHALLOW:
        if fields[name].__class__ is dict:
            fields[name] = ReadOnlyDict(fields[name])
    if ctx.result_messages:
        fields["result_messages"] = tuple(map(read_only, ctx.result_messages))
    for call in ctx.tool_calls:
        _protect(call, "input", "extra")
    for call in ctx.response.tool_calls:
        _protect(call, "input", "extra")
    _protect(ctx.response, "extra")
    _protect(ctx.plan, "not_run", "duplicates", "approvals")


def _protect(one: Any, *names: str) -> None:
    """Make fields of a frozen object read-only, which keeps its identity."""
    for name in names:
        value = getattr(one, name)
        if value.__class__ is dict:
            object.__setattr__(one, name, read_only(value))


_SHALLOW = (
    "tools", "tool_results", "validation_errors", "memo", "approvals", "paused_runs", "request_changes",
)  # fmt: skip


def changed(name: str, before: Context, after: Context) -> bool:
    """Whether a stage set a field to another object."""
    return getattr(before, name) is not getattr(after, name)


def checked_fields(before: Context, after: Context) -> Context:
    """Check that a stage changed only fields that it may change, to values of the right type."""
    _check_times(before, after)
    for name, (kinds, expected) in _KINDS.items():
        value = getattr(after, name)
        if changed(name, before, after) and not isinstance(value, kinds):
            raise TypeError(f"{name}: expected {expected}, got {describe(value)}")
    if after.decision is Decision.STOP and after.error is None:
        raise TypeError("error: a decision to stop needs a reason, as in ctx.stop('why')")
    if after.decision is Decision.DONE and not after.is_asked and _has_no_answer(after):
        raise TypeError(
            "decision: the model was not asked yet, and there is no answer; to answer without asking it, set a "
            "response as well: ctx.replace(response=...).done()"
        )
    if not all(isinstance(one, PendingCall) for one in after.waiting):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("waiting: expected PendingCall objects")
    if changed("response", before, after):
        check_response(after.response)
    if changed("tools", before, after):
        after = after.evolve(tools=_checked_tools(after))
    return after


def _has_no_answer(ctx: Context) -> bool:
    return ctx.output is None and ctx.response.is_blank


def _check_times(before: Context, after: Context) -> None:
    """Check that each field may be changed at this point."""
    too_early = () if after.is_asked else _OF_THE_RESPONSE
    for name in (*_FIXED, *too_early):
        if changed(name, before, after):
            when = "only be changed after ask_model" if name in too_early else "not be changed"
            raise TypeError(f"{name} may {when}")
    if not after.is_asked and changed("response", before, after) and after.decision is None:
        raise TypeError(
            "response: the model was not asked yet; to answer without asking it, decide so: "
            "ctx.replace(response=...).done()"
        )
    if after.is_asked and before.is_asked and changed("request_changes", before, after):
        raise TypeError("the request may only be changed before ask_model")


def check_response(response: Response) -> None:
    """Check that a response, as a stage returned it, can become a message."""
    try:
        to_response(response)
    except NotAResponseError as error:
        raise TypeError(str(error).removeprefix("llm_send_fn: ")) from None


_NONE = type(None)


_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "response": ((Response,), "a Response"),
    "tool_calls": ((tuple, list), "a tuple of ToolCall objects"),
    "tool_results": ((Mapping,), "a mapping of ToolResult objects by id"),
    "plan": ((Plan,), "a Plan"),
    "validation_errors": ((Mapping,), "a mapping of problems by id"),
    "decision": ((Decision, _NONE), "a Decision or None"),
    "error": ((*get_args(Reason), _NONE), "a Reason or None"),
    "guidance": ((str, _NONE), "a text or None"),
    "memo": ((Mapping,), "a mapping"),
    "waiting": ((tuple, list), "a tuple of PendingCall objects"),
    "messages": ((History, list, tuple), "a history or a list of messages"),
    "request_changes": ((Mapping,), "a mapping"),
}


def _checked_tools(ctx: Context) -> Mapping[str, Tool]:
    given: Any = ctx.tools
    is_right = is_mapping(given) and all(
        isinstance(tool, Tool) and name == tool.name for name, tool in given.items()
    )
    tools: Mapping[str, Tool] = given if is_right else toolset(given)
    check_implementations(tools.values(), ctx.run.resolver)
    return tools
