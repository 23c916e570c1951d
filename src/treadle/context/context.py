"""The context: what the stages of an iteration see, and the verbs with which they change it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Self, TypedDict, Unpack, get_type_hints

from treadle.context import calls
from treadle.context.history_edits import with_messages
from treadle.context.iteration import NO_CALLS, Decision, Iteration
from treadle.context.request import RequestChanges, check_request_changes, names_of
from treadle.errors import OptionError, check_names
from treadle.messages import History, Response, ToolCall, ToolResult, is_mapping
from treadle.messages.repair import validate_messages
from treadle.results import PendingCall, Reason, StoppedByStage
from treadle.tools import NotRun, Plan, Tool, ToolLike, check_implementations, tool_result, toolset


class ContextChanges(TypedDict, total=False):
    """The fields that `Context.replace` sets, with the verbs of other stages; `Context` describes each."""

    messages: History | Sequence[Mapping[str, Any]]
    tools: Annotated[Mapping[str, Tool], "ctx.with_tools(add=, remove=)"]
    response: Annotated[Response, "ctx.with_response(response)"]
    tool_calls: Annotated[Sequence[ToolCall], "ctx.drop, ctx.edit_call or ctx.add_call"]
    plan: Annotated[Plan, "ctx.drop(call, why) or ctx.answer(call, value)"]
    tool_results: Annotated[
        Mapping[str, ToolResult],
        "ctx.answer(call, value) before a call runs, ctx.edit_result(call, text) after it ran",
    ]
    validation_errors: Annotated[Mapping[str, tuple[str, ...]], "ctx.answer(call, value)"]
    decision: Annotated[Decision | None, "ctx.done(output), ctx.stop(reason) or ctx.pause(waiting)"]
    error: Annotated[Reason | None, "ctx.stop(reason)"]
    output: Annotated[Any, "ctx.done(output)"]
    guidance: Annotated[str | None, "ctx.guide(text)"]
    memo: Annotated[Mapping[str, Any], "ctx.remember(name, value)"]
    waiting: Annotated[tuple[PendingCall, ...], "ctx.pause(waiting)"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Context(Iteration):
    """An immutable record that flows through the stages. A stage changes it with a verb, which returns a copy.

    Each verb checks what it does where it is called, so that an error has the line of the stage. A call is given
    as an object of ``ctx.tool_calls`` or by its id.

    Args:
        messages: the history. The messages of this iteration are in it once they are injected.
        tools: the tools of the run, by name.
        response: the model's response in this iteration.
        run: the state of the run that outlives the iteration.
        iteration: the number of this iteration, from 1.
        tool_calls: the calls of the response, with unique ids.
        plan: which of these calls run, and in which batches.
        tool_results: the results so far, by id of the call.
        validation_errors: the violations of invalid calls, by id of the call.
        result_messages: the messages that this iteration added to the history; empty until it is injected.
        decision: ends the run; None lets it continue.
        error: the reason, if the decision is to stop.
        output: the validated arguments of a terminal tool.
        guidance: a text for the model in the next request only.
        memo: values that stages keep between iterations, by name.
        approvals: the decisions on calls that waited for approval, by id of the call.
        waiting: the calls that wait for approval, if the decision is to pause.
        paused_runs: the states of paused subagents, by id of the call.
        trace: the names of the stages that this iteration has entered so far; it grows until the iteration ends.
        request_changes: the fields of the request that stages changed; see `with_request`.
        is_asked: whether the model was asked in this iteration.
        parsed: the response whose calls are ``tool_calls``; None before they are parsed.
        answered_by: the model that gave the response; None if middleware or a stage did.
        accepted: the output that was checked; a stage may end the run with another one.
        notes: what stages did in this iteration, which is emitted as events.
    """

    # Before the model is asked

    def with_request(self, **changes: Unpack[RequestChanges]) -> Self:
        """Change the request of this iteration; the history stays as it is.

        Args:
            **changes: fields of `Request`. ``options`` are merged into those of the run, ``tools`` are names
                of tools of the run.

        Raises:
            OptionError: a field, a tool or a choice of one that does not exist, or the model was asked already.
            InvalidMessagesError: malformed messages. A broken history is repaired, and the repair reported.
        """
        if self.is_asked:
            raise OptionError(
                "with_request: the model was asked already; put the stage before ask_model"
            )
        checked = check_request_changes(changes, self.tools)
        check_names(checked.get("tools", ()), self.tools, "with_request: there is no tool")
        ctx, before = self, self.request_changes
        if "options" in checked and "options" in before:
            checked["options"] = {**before["options"], **checked["options"]}
        if "messages" in checked:
            checked["messages"], repairs = validate_messages(checked["messages"])
            ctx = self.noted(self.stage, tuple(repairs)) if repairs else self
        return ctx.evolve(request_changes={**before, **checked})

    def with_tools(
        self, *, add: Iterable[ToolLike] = (), remove: Iterable[str | Tool] = ()
    ) -> Self:
        """Change the tools from now on; before `ask_model`, from this request on.

        Args:
            add: tools, of any kind that ``tools=`` accepts.
            remove: tools, or their names. An open call of a removed tool does not run.

        Raises:
            OptionError: a tool to remove that does not exist.
            ToolDefinitionError: an invalid tool, or one that nothing can run.
        """
        removed = names_of("with_tools: remove", remove)
        check_names(removed, self.tools, "with_tools: there is no tool")
        added = toolset(add, "with_tools: add")
        check_implementations(added.values(), self.run.resolver, "with_tools: ")
        kept = {name: tool for name, tool in self.tools.items() if name not in removed}
        changed = self.evolve(tools={**kept, **added})
        for call in self.tool_calls:
            is_open = call.id not in self.tool_results and not self.run.has_run(call)
            is_other = self.tools.get(call.name) is not changed.tools.get(call.name)
            if call.fingerprint and is_open and is_other:
                changed = calls.checked_again(changed, call, "with_tools")
                # The other tool may have other ``max_uses``.
                if call.id in self.run.ledger.reserved:
                    self.run.release(call)
                    changed = calls.admitted(changed, call)
        return changed

    def guide(self, text: str) -> Self:
        """Add a text for the model to the next request only; the history does not have it.

        Raises:
            OptionError: it is not a text, or is empty.
        """
        calls.check_text("guide", text)
        return self.evolve(guidance=text if self.guidance is None else f"{self.guidance}\n\n{text}")

    # The response and its calls

    def with_response(self, response: Response | str) -> Self:
        """Replace the response, until one of its calls has run; its calls are replaced as well.

        Before `ask_model`, ``ctx.with_response(...).done()`` ends the run without asking the model. A stage that
        replaces `ask_model` sets its response so, which counts as a request.

        Args:
            response: a `Response`, or another form of it that a model may return, such as a text.

        Raises:
            OptionError: it is no response, one of the calls has run, or the response is in the history.
        """
        made = calls.checked_response(response)
        if not self.is_asked:
            changed = self.evolve(response=made, parsed=None)
            if not (self.run.provides and calls.provides(self, "response")):
                return changed
            self.run.budget.count_request()
            self.run.count_response(made)
            changed = changed.noted(self.request.messages, made)
            return changed.evolve(is_asked=True, guidance=None)
        calls.check_open(self, "with_response", self.tool_calls)
        is_parsed = bool(self.tool_calls) or calls.has_passed(self, "tool_calls")
        self.run.release_idle()
        ctx = self.evolve(**NO_CALLS, response=made)
        ctx = calls.with_parsed_calls(ctx) if is_parsed else ctx
        for call in ctx.tool_calls:
            if calls.is_planned(self):
                ctx = calls.refused(ctx, call, NotRun.RESPONSE_REPLACED, stage=self.stage)
            elif calls.are_validated(self):
                ctx = calls.checked_again(ctx, call, "with_response")
        return ctx

    def drop(self, call: ToolCall | str, why: str) -> Self:
        """Take a call out before it runs. The model reads "Not run", and the reason.

        Args:
            call: the call.
            why: the reason, for the model.

        Raises:
            OptionError: there is no such call, it has run, or it is in the history.
        """
        calls.check_text("drop: why", why)
        ctx, found = calls.opened(self, call, "drop")
        return calls.refused(ctx, found, NotRun.REMOVED, why=why.strip())

    def answer(self, call: ToolCall | str, value: Any, *, is_error: bool = False) -> Self:
        """Answer a call before it runs, in place of its tool.

        Args:
            call: the call.
            value: what its tool would return: a text, data or content parts.
            is_error: whether the call failed.

        Raises:
            OptionError: there is no such call, it has run, or it is in the history.
        """
        ctx, found = calls.opened(self, call, "answer")
        result = tool_result(found.id, value, is_error=is_error)
        if calls.is_dispatcher(ctx):
            return calls.with_reported_results(ctx, {found.id: result})
        validates = "validation_errors" in self.run.provides.get(self.stage, ())
        reason = NotRun.INVALID if is_error and validates else NotRun.ANSWERED
        return calls.answered(ctx, found, dataclasses.replace(result, status=reason.value))

    def edit_call(self, call: ToolCall | str, arguments: Mapping[str, Any] | str) -> Self:
        """Change the arguments of a call before it runs. They are validated, and its approval is asked for again.

        Args:
            call: the call; before the plan, it may be invalid so far.
            arguments: a mapping or JSON text.

        Raises:
            OptionError: there is no such call, it has run or was answered, or the arguments are no JSON data.
        """
        ctx, known = calls.opened(self, call, "edit_call")
        is_invalid = known.id in ctx.validation_errors and not calls.is_planned(ctx)
        if known.id in ctx.tool_results and not is_invalid:
            raise OptionError(
                f"edit_call: call {known.id!r} was answered: {ctx.tool_results[known.id].content!r}"
            )
        # The stage gives all of the arguments, also of a call that was cut.
        text = _as_json("edit_call", arguments)
        edited = dataclasses.replace(
            known, arguments=text, input=None, fingerprint="", is_whole=None
        )
        ctx = calls.with_call(ctx, edited).evolve(
            tool_results=calls.without(ctx.tool_results, known.id),
            validation_errors=calls.without(ctx.validation_errors, known.id),
        )
        return calls.checked_again(ctx, edited, "edit_call") if known.fingerprint else ctx

    def add_call(
        self, name: str, arguments: Mapping[str, Any] | str, *, call_id: str | None = None
    ) -> Self:
        """Add a call as if the model had made it: it is validated, planned, approved and counted like the others.

        Add it before `plan_calls`: a later call runs without asking a circuit breaker that runs share.

        Args:
            name: the name of the tool.
            arguments: a mapping or JSON text.
            call_id: an id that is unique in the history, without "/"; None makes one.

        Raises:
            OptionError: the model was not asked, calls have run, or an argument is invalid.
        """
        calls.check_open(self, "add_call", self.tool_calls)
        calls.check_text("add_call: name", name)
        ctx = calls.with_parsed_calls(self)
        if call_id is None:
            wanted = f"added_{ctx.iteration}_{len(ctx.tool_calls) + 1}"
            call_id = ctx.messages.unused_id(wanted, {one.id: 1 for one in ctx.tool_calls})
        else:
            calls.check_new_id("add_call", ctx, call_id)
        made = ToolCall(call_id, name, _as_json("add_call", arguments))
        is_planned = calls.is_planned(ctx)
        is_checked = is_planned or calls.are_validated(ctx)
        ctx = ctx.evolve(tool_calls=(*ctx.tool_calls, made), parsed=ctx.response)
        if is_checked:
            ctx = calls.checked_again(ctx, made, "add_call")
        if is_planned and call_id not in ctx.tool_results:
            batches = (*ctx.plan.batches, (ctx.tool_calls[-1],))
            ctx = calls.with_plan(ctx, dataclasses.replace(ctx.plan, batches=batches))
        return ctx

    def edit_result(self, call: ToolCall | str, text: str) -> Self:
        """Change the text of a result before it is in the history, such as to redact or to trim it.

        Args:
            call: the call.
            text: the new text; content parts of the result are left out.

        Raises:
            OptionError: the call has no result, or it is in the history already.
        """
        calls.expect(isinstance(text, str), "edit_result", "a text", text)  # pyright: ignore[reportUnnecessaryIsInstance]
        found = calls.found_call(self, call, "edit_result")
        result = self.tool_results.get(found.id)
        if result is None:
            raise OptionError(f"edit_result: call {found.id!r} has no result yet")
        calls.check_open(self, "edit_result")
        edited = dataclasses.replace(result, content=text, parts=None)
        return self.evolve(tool_results={**self.tool_results, found.id: edited})

    # Any field that the stage provides

    def replace(self, **changes: Unpack[ContextChanges]) -> Self:
        """A copy with some fields set: ``messages``, and those that the current stage provides.

        A stage provides the fields that it declares (``@stage(provides=...)``), and those of the stage that it
        replaces. Other fields have verbs.

        Args:
            **changes: the fields. ``messages`` rewrites the history: it is repaired where it is broken; the
                current exchange stays, whole, and an older one goes as a whole.

        Raises:
            OptionError: a field that does not exist, that the stage does not provide, or with an invalid value.
            InvalidMessagesError: malformed messages.
        """
        check_names(changes, _FIELDS, "replace: a context has no field")
        if not self.run.provides:
            return self.evolve(**changes)
        for name in changes:
            if name not in ContextChanges.__annotations__:
                raise OptionError(f"replace: {name}: only a built-in stage sets it")
            if name != "messages" and not calls.provides(self, name):
                (verb,) = get_type_hints(ContextChanges, include_extras=True)[name].__metadata__
                raise OptionError(
                    f"replace: {name}: stage {self.stage!r} does not provide it; use {verb}, or declare "
                    f"that the stage does: @stage(replaces=...) or @stage(provides=({name!r},))"
                )
        changed: Any = self
        values: dict[str, Any] = dict(changes)
        for name, set_field in _SETTERS.items():
            if name in values:
                changed = set_field(changed, values.pop(name))
        for name in filter(values.__contains__, _CHECKS):
            is_right, expected = _CHECKS[name]
            calls.expect(is_right(values[name]), f"replace: {name}", expected, values[name])
        reason = values.get("error", changed.error)
        if values.get("decision") is Decision.STOP and reason is None:
            raise OptionError("replace: decision: a run stops for a reason; use ctx.stop(reason)")
        return changed.evolve(**values) if values else changed

    # Values that are kept, and decisions

    def remember(self, name: str, value: Any) -> Self:
        """Keep a value for later iterations, as ``memo[name]``.

        Raises:
            OptionError: the name is not a text, or is empty.
            PausedStateError: the run goes on in other processes, and the value is no data.
        """
        calls.check_text("remember: name", name)
        if self.run.check_kept is not None:
            self.run.check_kept(name, value)
        return self.evolve(memo={**self.memo, name: value})

    def done(self, output: Any = None) -> Self:
        """End the run with the response as its answer.

        Args:
            output: the output of the run; None takes the text of the response.

        Raises:
            OptionError: there is no answer: the model was not asked, and neither a response nor an output is set.
        """
        if output is None and not self.is_asked and self.response.is_blank and self.run.provides:
            raise OptionError(
                "done: the model was not asked yet, and there is no answer; give one: "
                "ctx.with_response(...).done(), or ctx.done(output)"
            )
        return self.evolve(decision=Decision.DONE, output=output)

    def stop(self, reason: Reason | str) -> Self:
        """End the run without an answer.

        Args:
            reason: a text, which becomes a `StoppedByStage` with the name of the current stage; or a
                reason, such as one of a limit that the stage guards.

        Raises:
            OptionError: it is neither, or the text is empty.
        """
        if isinstance(reason, str):
            calls.check_text("stop", reason)
            reason = StoppedByStage(self.stage, reason)
        is_reason = isinstance(reason, Reason)  # pyright: ignore[reportUnnecessaryIsInstance]
        calls.expect(is_reason, "stop", "a Reason or a text", reason)
        return self.evolve(decision=Decision.STOP, error=reason)

    def pause(self, waiting: Iterable[PendingCall]) -> Self:
        """Pause the run; when it is resumed, it enters the current stage again.

        Args:
            waiting: the calls, or other questions, that wait for a decision.

        Raises:
            OptionError: it is something else.
        """
        pending: Any = tuple(waiting) if isinstance(waiting, Iterable) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        calls.expect(_are_pending(pending), "pause", "a list of PendingCall objects", waiting)
        return self.evolve(decision=Decision.PAUSE, waiting=pending)


def _as_json(verb: str, arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    calls.expect(is_mapping(arguments), f"{verb}: arguments", "a mapping or JSON text", arguments)
    try:
        return json.dumps(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"{verb}: arguments: {error}") from error


def _with_tools(ctx: Context, tools: Any) -> Context:
    """Set all tools: those that are left out are removed."""
    added = toolset(tools.values() if isinstance(tools, Mapping) else tools, "replace: tools")
    removed = [name for name in ctx.tools if name not in added]
    return ctx.with_tools(add=added.values(), remove=removed)


def _with_memo(ctx: Context, memo: Any) -> Context:
    """Set all values that are kept: those that are left out are forgotten."""
    calls.expect(is_mapping(memo), "replace: memo", "a mapping of values by name", memo)
    ctx = ctx.evolve(memo={})
    for name, value in memo.items():
        ctx = ctx.remember(name, value)
    return ctx


def _are_violations(value: Any) -> bool:
    texts: Any = value.values() if is_mapping(value) else [None]
    return all(isinstance(each, (tuple, list)) for each in texts) and all(
        isinstance(one, str) for each in texts for one in each
    )


def _are_pending(value: Any) -> bool:
    return value.__class__ is tuple and all(isinstance(one, PendingCall) for one in value)


_SETTERS: Mapping[str, Callable[[Context, Any], Context]] = {
    "tools": _with_tools,
    "response": Context.with_response,
    "tool_calls": calls.with_calls,
    "plan": calls.with_plan,
    "tool_results": calls.with_results,
    "memo": _with_memo,
    "messages": with_messages,
}
"""How `replace` checks and sets fields of a stage that provides them, in the order in which it sets them."""
_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "validation_errors": (_are_violations, "a mapping of tuples of texts by id of the call"),
    "error": (lambda one: one is None or isinstance(one, Reason), "a Reason or None"),
    "decision": (lambda one: one is None or isinstance(one, Decision), "a Decision or None"),
    "guidance": (lambda one: one is None or isinstance(one, str), "a text or None"),
    "waiting": (_are_pending, "a tuple of PendingCalls"),
}
"""What `replace` expects of the other fields that are checked."""
_FIELDS = sorted(spec.name for spec in dataclasses.fields(Context))
