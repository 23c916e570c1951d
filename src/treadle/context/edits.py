"""What a stage may do to calls, results and the response: each edit is checked where it is made.

The verbs of `treadle.Context` call these functions. A call that ran stays in the history, once, with its result;
what a stage takes out did not run, and is answered.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from treadle.context.calls import (
    IterationT,
    admitted,
    approval_questions,
    check_call,
    has_run,
    invalid_answer,
    with_parsed_calls,
)
from treadle.context.iteration import Iteration
from treadle.context.services import Note
from treadle.errors import OptionError
from treadle.messages import (
    NotAResponseError,
    Response,
    ToolCall,
    ToolResult,
    describe,
    is_content_part,
    is_mapping,
    text_of_parts,
    to_response,
)
from treadle.run_state import RunNode
from treadle.tools import NotRun, Plan, fingerprint, not_run, tool_result


def expect(is_right: bool, where: str, expected: str, value: object) -> None:
    """Raise `OptionError` unless a value is right."""
    if not is_right:
        raise OptionError(f"{where}: expected {expected}, got {describe(value)}")


def check_text(where: str, value: object) -> None:
    """Raise `OptionError` unless a value is a text that is not empty."""
    expect(isinstance(value, str) and bool(value.strip()), where, "a text that is not empty", value)


def provides(ctx: Iteration, field: str) -> bool:
    """Whether the current stage provides a field; a context of a test, which no pipeline runs, may set any."""
    run = ctx.run
    return not run.provides or field in run.provides.get(ctx.stage, ())


def has_passed(ctx: Iteration, field: str) -> bool:
    """Whether a stage that provides a field came before the current one, since the model was asked."""
    for name in reversed(ctx.trace[:-1]):
        provided = ctx.run.provides.get(name, ())
        if field in provided:
            return True
        if "response" in provided:
            break
    return False


def _is_dispatcher(ctx: Iteration) -> bool:
    """Whether the results that the current stage sets are those of calls that it ran."""
    provided = ctx.run.provides.get(ctx.stage, ())
    return "tool_results" in provided and not {"validation_errors", "output"} & set(provided)


def _is_planned(ctx: Iteration) -> bool:
    return bool(ctx.plan.batches or ctx.plan.not_run) or has_passed(ctx, "plan")


def _are_validated(ctx: Iteration) -> bool:
    is_checked = any(call.fingerprint for call in ctx.tool_calls)
    return is_checked or has_passed(ctx, "validation_errors")


# Calls


def _open(ctx: IterationT, call: object, verb: str) -> tuple[IterationT, ToolCall]:
    """The context with its calls parsed, and a call that has not run."""
    if not ctx.is_asked:
        raise OptionError(
            f"{verb}: the model was not asked yet; put the stage {ctx.stage!r} after ask_model"
        )
    ctx = with_parsed_calls(ctx)
    found = _found(ctx, call, verb)
    if ctx.result_messages:
        raise OptionError(
            f"{verb}: call {found.id!r} is in the history; put the stage {ctx.stage!r} before inject_results"
        )
    if has_run(ctx, found):
        raise OptionError(
            f"{verb}: call {found.id!r} has run; ctx.edit_result(call, text) changes its result"
        )
    return ctx, found


def _found(ctx: Iteration, call: object, verb: str) -> ToolCall:
    for made, parsed in zip(ctx.response.tool_calls, ctx.tool_calls, strict=False):
        if made is call:  # as the model made it, whose id may not be unique
            return parsed
    call_id = call.id if isinstance(call, ToolCall) else call
    expect(isinstance(call_id, str), verb, "a call of ctx.tool_calls or its id", call)
    for one in ctx.tool_calls:
        if one.id == call_id:
            return one
    known = ", ".join(one.id for one in ctx.tool_calls) or "none"
    raise OptionError(
        f"{verb}: no call of this iteration has the id {call_id!r}; its calls: {known}"
    )


def drop(ctx: IterationT, call: ToolCall | str, why: str) -> IterationT:
    """Take a call out before it runs; see `treadle.Context.drop`."""
    check_text("drop: why", why)
    ctx, found = _open(ctx, call, "drop")
    return _refused(ctx, found, NotRun.REMOVED, why=why.strip())


def answer(ctx: IterationT, call: ToolCall | str, value: Any, *, is_error: bool) -> IterationT:
    """Answer a call in place of its tool; see `treadle.Context.answer`."""
    ctx, found = _open(ctx, call, "answer")
    result = tool_result(found.id, value, is_error=is_error)
    if _is_dispatcher(ctx) and not provides(ctx, "plan"):  # a planner answers what does not run
        return with_reported_results(ctx, {found.id: result})
    return _answered(ctx, found, result)


def _refused(ctx: IterationT, call: ToolCall, reason: NotRun, **values: Any) -> IterationT:
    ctx.run.ledger.notes.append(Note(call, reason))
    ctx = _answered(ctx, call, not_run(call, reason, **values))
    plan = dataclasses.replace(ctx.plan, not_run={**ctx.plan.not_run, call.id: reason})
    return ctx.evolve(plan=plan)


def _answered(ctx: IterationT, call: ToolCall, result: ToolResult) -> IterationT:
    """The context with the answer to a call, which does not run."""
    ctx.run.release(call)
    return ctx.evolve(
        tool_results={**ctx.tool_results, call.id: result},
        validation_errors=_without(ctx.validation_errors, call.id),
        plan=_plan_without(ctx.plan, call),
    )


def _plan_without(plan: Plan, call: ToolCall) -> Plan:
    if plan.calls:
        kept = (tuple(one for one in batch if one.id != call.id) for batch in plan.batches)
        plan = dataclasses.replace(plan, batches=tuple(filter(None, kept)))
    if call.id in plan.duplicates or call.id in plan.not_run or call.id in plan.approvals:
        plan = dataclasses.replace(
            plan,
            not_run=_without(plan.not_run, call.id),
            duplicates=_without(plan.duplicates, call.id),
            approvals=_without(plan.approvals, call.id),
        )
    return plan


def _without(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return {name: one for name, one in values.items() if name != key} if key in values else values


def edit_call(
    ctx: IterationT, call: ToolCall | str, arguments: Mapping[str, Any] | str
) -> IterationT:
    """Change the arguments of a call before it runs; see `treadle.Context.edit_call`."""
    ctx, known = _open(ctx, call, "edit_call")
    is_invalid = known.id in ctx.validation_errors and not _is_planned(ctx)
    if known.id in ctx.tool_results and not is_invalid:
        raise OptionError(
            f"edit_call: call {known.id!r} was answered: {ctx.tool_results[known.id].content!r}"
        )
    text = _as_json("edit_call", arguments)
    # The stage gives all of the arguments, also of a call that was cut.
    edited = dataclasses.replace(known, arguments=text, input=None, fingerprint="", is_whole=None)
    was_checked = bool(known.fingerprint)
    ctx = _with_call(ctx, edited).evolve(
        tool_results=_without(ctx.tool_results, known.id),
        validation_errors=_without(ctx.validation_errors, known.id),
    )
    return checked_again(ctx, edited, "edit_call") if was_checked else ctx


def _as_json(verb: str, arguments: Mapping[str, Any] | str) -> str:
    if isinstance(arguments, str):
        return arguments
    expect(is_mapping(arguments), f"{verb}: arguments", "a mapping or JSON text", arguments)
    try:
        return json.dumps(dict(arguments))
    except (TypeError, ValueError, RecursionError) as error:
        raise OptionError(f"{verb}: arguments: {error}") from error


def _with_call(ctx: IterationT, call: ToolCall) -> IterationT:
    """The context with another call of the same id, in its plan as well."""

    def same(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        return tuple(call if one.id == call.id else one for one in calls)

    if call.id in ctx.run.ledger.reserved:
        ctx.run.ledger.reserved[call.id] = call
    plan = ctx.plan
    if plan.batches:
        plan = dataclasses.replace(plan, batches=tuple(map(same, plan.batches)))
    return ctx.evolve(tool_calls=same(ctx.tool_calls), plan=plan)


def checked_again(ctx: IterationT, call: ToolCall, verb: str) -> IterationT:
    """Check a call that was added or changed like those of the model, also whether it needs approval."""
    checked, problems = check_call(ctx, call)
    ctx = _with_call(ctx, checked)
    if problems:
        ctx = _answered(ctx, call, invalid_answer(call, problems))
        return ctx.evolve(validation_errors={**ctx.validation_errors, call.id: problems})
    tool = ctx.tools.get(checked.name)
    if tool is not None and tool.terminal and has_passed(ctx, "output"):
        raise OptionError(
            f"{verb}: {checked.id!r} calls the terminal tool {checked.name!r}, which is only possible before "
            "loop_decision"
        )
    if checked.id in {one.id for one in ctx.plan.calls}:
        questions = _without(ctx.plan.approvals, checked.id)
        questions = {**questions, **approval_questions(ctx, (checked,))}
        ctx = ctx.evolve(plan=dataclasses.replace(ctx.plan, approvals=questions))
    return _without_duplicates_of(ctx, checked)


def _without_duplicates_of(ctx: IterationT, call: ToolCall) -> IterationT:
    """Defer the calls that were identical to one that a stage changed."""
    by_id = {one.id: one for one in ctx.tool_calls}
    for twin_id, first_id in ctx.plan.duplicates.items():
        twin, first = by_id[twin_id], by_id[first_id]
        if call.id in {twin_id, first_id} and twin.fingerprint != first.fingerprint:
            why = f"{ctx.stage} changed an identical call"
            ctx = _refused(ctx, twin, NotRun.DEFERRED, why=why)
    return ctx


def add_call(
    ctx: IterationT, name: str, arguments: Mapping[str, Any] | str, call_id: str | None
) -> IterationT:
    """Add a call, as if the model had made it; see `treadle.Context.add_call`."""
    if not ctx.is_asked or ctx.result_messages:
        where = "before inject_results" if ctx.is_asked else "after ask_model"
        raise OptionError(f"add_call: a call can only be added {where}")
    check_text("add_call: name", name)
    ctx = with_parsed_calls(ctx)
    if any(has_run(ctx, one) for one in ctx.tool_calls):
        raise OptionError("add_call: the calls of this iteration have run; add it before they do")
    wanted = call_id or f"added_{ctx.iteration}_{len(ctx.tool_calls) + 1}"
    taken = {one.id: 1 for one in ctx.tool_calls}
    made = ToolCall(ctx.messages.unused_id(wanted, taken), name, _as_json("add_call", arguments))
    if call_id is not None and made.id != call_id:
        raise OptionError(
            f"add_call: expected an id that is unique in the history, not {call_id!r}"
        )
    is_validated, is_planned = _are_validated(ctx), _is_planned(ctx)
    ctx = ctx.evolve(tool_calls=(*ctx.tool_calls, made), parsed=ctx.response)
    if is_validated or is_planned:
        ctx = checked_again(ctx, made, "add_call")
    if is_planned and made.id not in ctx.tool_results:
        [made] = (one for one in ctx.tool_calls if one.id == made.id)
        plan = dataclasses.replace(ctx.plan, batches=(*ctx.plan.batches, (made,)))
        ctx = with_plan(ctx, plan)
    return ctx


def edit_result(ctx: IterationT, call: ToolCall | str, text: str) -> IterationT:
    """Change the text of a result; see `treadle.Context.edit_result`."""
    expect(isinstance(text, str), "edit_result", "a text", text)  # pyright: ignore[reportUnnecessaryIsInstance]
    found = _found(ctx, call, "edit_result")
    result = ctx.tool_results.get(found.id)
    if result is None:
        raise OptionError(f"edit_result: call {found.id!r} has no result yet")
    if ctx.result_messages:
        raise OptionError(
            f"edit_result: the result of {found.id!r} is in the history, which ctx.replace(messages=...) rewrites"
        )
    edited = dataclasses.replace(result, content=text, parts=None)
    return ctx.evolve(tool_results={**ctx.tool_results, found.id: edited})


# The response


def with_response(ctx: IterationT, given: Any) -> IterationT:
    """Replace the response; see `treadle.Context.with_response`."""
    response = _checked_response(given)
    if not ctx.is_asked:
        if ctx.run.provides and provides(ctx, "response"):
            _count_response(ctx, response)
            return ctx.evolve(response=response, parsed=None, is_asked=True, guidance=None)
        return ctx.evolve(response=response, parsed=None)
    if ctx.result_messages:
        raise OptionError(
            f"with_response: the response is in the history; put the stage {ctx.stage!r} before inject_results, "
            "or end the run with ctx.done(output)"
        )
    ran = [call.id for call in ctx.tool_calls if has_run(ctx, call)]
    if ran:
        raise OptionError(
            f"with_response: calls {', '.join(ran)} of the response have run; ctx.done(output) ends the run with "
            "another answer"
        )
    is_validated, is_planned = _are_validated(ctx), _is_planned(ctx)
    ctx.run.release(*ctx.plan.calls)
    is_parsed = bool(ctx.tool_calls) or has_passed(ctx, "tool_calls")
    ctx = ctx.evolve(
        response=response,
        parsed=None,
        tool_calls=(),
        tool_results={},
        plan=Plan(),
        validation_errors={},
    )
    ctx = with_parsed_calls(ctx) if is_parsed else ctx
    for call in ctx.tool_calls:
        if is_planned:
            ctx = _refused(ctx, call, NotRun.RESPONSE_REPLACED, stage=ctx.stage)
        elif is_validated:
            ctx = checked_again(ctx, call, "with_response")
    return ctx


def with_second_response(ctx: IterationT, response: Response) -> IterationT:
    """Set the response of a second request; its calls are parsed and checked where those of the first were."""
    ctx = ctx.evolve(response=response, parsed=None, guidance=None)
    if provides(ctx, "response") or not has_passed(ctx, "tool_calls"):
        return ctx
    ctx = with_parsed_calls(ctx)
    if has_passed(ctx, "validation_errors"):
        for call in ctx.tool_calls:
            ctx = checked_again(ctx, call, "ask_model")
    return ctx


def _checked_response(given: Any) -> Response:
    try:
        return to_response(given)
    except NotAResponseError as error:
        text = str(error).removeprefix("llm_send_fn: ")
        raise OptionError(f"with_response: {text}") from None


def _count_response(ctx: Iteration, response: Response) -> None:
    """Count a response that a stage made in place of `ask_model`, as a request of the run."""
    ctx.run.budget.count_request()
    ctx.run.count_response(response)
    ctx.run.ledger.notes.append(Note(ctx.request.messages, response))


# The plan and the results of a stage that provides them


def with_plan(ctx: IterationT, plan: Any) -> IterationT:
    """Set the plan of a stage: each call is valid, within the budget, planned once, and asks for its approval."""
    expect(isinstance(plan, Plan), "replace: plan", "a Plan", plan)
    placed: set[str] = set()
    over_budget: dict[str, NotRun] = {}
    batches: list[tuple[ToolCall, ...]] = []
    for batch in plan.batches:
        expect(isinstance(batch, (tuple, list)), "replace: plan", "batches of calls", batch)
        fitting: list[ToolCall] = []
        for given in batch:
            call = _found(ctx, given, "replace: plan")
            if not call.fingerprint:
                ctx = checked_again(ctx, call, "replace: plan")
                call = _found(ctx, call, "replace: plan")
            if call.id in placed or call.id in ctx.tool_results:
                continue
            refused = None if call.id in ctx.run.ledger.reserved else admitted(ctx, call)
            if refused is None:
                placed.add(call.id)
                fitting.append(call)
            else:
                over_budget[call.id] = NotRun(refused.status)
                ctx = ctx.evolve(tool_results={**ctx.tool_results, call.id: refused})
        if fitting:
            batches.append(tuple(fitting))
    for call_id in ctx.run.ledger.reserved.keys() - placed - ctx.tool_results.keys():
        ctx.run.release(ctx.run.ledger.reserved[call_id])
    calls = [call for batch in batches for call in batch]
    # An approval cannot be left out.
    questions = {**plan.approvals, **approval_questions(ctx, calls)}
    made = dataclasses.replace(
        plan,
        batches=tuple(batches),
        not_run={**plan.not_run, **over_budget},
        approvals=questions,
    )
    return ctx.evolve(plan=made)


def with_calls(ctx: IterationT, given: Any) -> IterationT:
    """The context with the calls of a stage that parses or validates them."""
    expect(isinstance(given, (tuple, list)), "replace: tool_calls", "a tuple of ToolCalls", given)
    known = {call.id for call in ctx.tool_calls}
    calls: list[ToolCall] = []
    ids: set[str] = set()
    for call in given:  # pyright: ignore[reportUnknownVariableType]
        expect(isinstance(call, ToolCall), "replace: tool_calls", "ToolCall objects", call)
        _checked_response(Response(tool_calls=(call,)))
        if not call.id or call.id in ids:
            raise OptionError(f"replace: tool_calls: the id {call.id!r} is used twice, or empty")
        if call.id not in known and ctx.messages.has_call(call.id):
            raise OptionError(
                f"replace: tool_calls: expected an id that is unique in the history, not {call.id!r}"
            )
        ids.add(call.id)
        if call.input is not None and not call.fingerprint:
            tool = ctx.tools.get(call.name)
            key = call.input if tool is None else tool.dedupe_key(call.input)
            made = fingerprint(call.name, key)
            calls.append(dataclasses.replace(call, fingerprint=made))
        else:
            calls.append(call)
    lost = [call.id for call in ctx.tool_calls if call.id not in ids]
    if lost:
        raise OptionError(
            f"replace: tool_calls: calls {', '.join(lost)} are missing; ctx.drop(call, why) takes a call out"
        )
    return ctx.evolve(tool_calls=tuple(calls), parsed=ctx.response)


def with_results(ctx: IterationT, given: Any) -> IterationT:
    """The context with the results of a stage that provides them."""
    expect(is_mapping(given), "replace: tool_results", "a mapping of ToolResults by id", given)
    results = {call_id: _checked_result(ctx, call_id, one) for call_id, one in given.items()}
    dropped = [call_id for call_id in ctx.tool_results if call_id not in results]
    if dropped:
        raise OptionError(
            f"replace: tool_results: the results of {', '.join(dropped)} are missing; "
            "ctx.edit_result(call, text) changes a result"
        )
    if ctx.run.provides and _is_dispatcher(ctx):
        return with_reported_results(ctx, results)
    return ctx.evolve(tool_results=results)


def _checked_result(ctx: Iteration, call_id: str, result: Any) -> ToolResult:
    where = f"replace: tool_results[{call_id!r}]"
    expect(isinstance(result, ToolResult), where, "a ToolResult", result)
    expect(call_id in {c.id for c in ctx.tool_calls}, where, "the id of a call", call_id)
    expect(isinstance(result.content, str), f"{where}.content", "a text", result.content)
    parts: Any = result.parts
    if parts is not None:
        is_many = issubclass(type(parts), (list, tuple))
        is_right = is_many and bool(parts) and all(map(is_content_part, parts))
        expect(is_right, f"{where}.parts", "content parts or None", parts)
        # A stage changed the text alone, as one does that redacts it: the model must not see the parts.
        parts = parts if text_of_parts(parts) == result.content else None
    return dataclasses.replace(result, tool_call_id=call_id, parts=parts)


def with_reported_results(ctx: IterationT, results: Mapping[str, ToolResult]) -> IterationT:
    """Set the results of calls that a stage ran itself: each is counted, and noted as an event.

    Raises:
        OptionError: a result of a call that was not allowed to run. The history says so; the result is emitted.
    """
    run, refused = ctx.run, list[str]()
    for call in ctx.tool_calls:
        result = results.get(call.id)
        if result is None or result == ctx.tool_results.get(call.id) or has_run(ctx, call):
            continue
        why = _why_not_allowed(ctx, call)
        if why is not None and "plan" in run.provides.get(ctx.stage, ()):
            continue  # the answer of a planner to a call that it did not plan
        _count_call(ctx, call, result)
        if why is not None:
            result = not_run(call, NotRun.NOT_ALLOWED, stage=ctx.stage, why=why)
            refused.append(f"{call.name!r} ({call.id}): {why}")
        run.in_flight.results[call.id] = result
    if refused:
        raise OptionError(
            f"{ctx.stage!r} reported a result for a call that was not allowed to run: {'; '.join(refused)}; "
            "run_calls(ctx, calls) of treadle.stages asks for approvals and keeps limits"
        )
    return ctx.evolve(tool_results={**ctx.tool_results, **results})


def _why_not_allowed(ctx: Iteration, call: ToolCall) -> str | None:
    if call.id in ctx.validation_errors:
        return "it is invalid"
    if call.id not in ctx.run.ledger.reserved:
        reason = ctx.plan.not_run.get(call.id)
        return "it is not in the plan" if reason is None else f"the plan refuses it ({reason})"
    decided = ctx.approvals.get(call.id)
    if call.id in ctx.plan.approvals and not (decided is not None and decided.runs):
        return "a person has to approve it"
    return None


def _count_call(ctx: Iteration, call: ToolCall, result: ToolResult) -> None:
    run, iteration = ctx.run, ctx.run.state.current_node
    if call.id not in run.ledger.reserved:
        run.budget.reserve_calls(1)
    run.repeats.count(call)
    run.in_flight.calls_run += 1
    run.ledger.unsettled.append(call)
    run.ledger.notes.append(Note(call, result))
    if iteration is not None:
        node = RunNode(
            iteration.agent_name,
            iteration.step_index,
            "tool",
            call.name,
            call.id,
            created_at=run.ledger.clock,
        )
        node.start(run.ledger.clock)
        if result.is_error:
            node.fail(result.content, run.ledger.clock)
        else:
            node.succeed(at=run.ledger.clock)
        iteration.tool_calls.append(node)


def refuse_field(ctx: Iteration, field: str, verb: str) -> NoReturn:
    """Raise the error of a field that the current stage may not replace."""
    raise OptionError(
        f"replace: {field}: stage {ctx.stage!r} does not provide it; use {verb}, or declare that the stage does: "
        f"@stage(replaces=...) or @stage(provides=({field!r},))"
    )


def calls_to_check(ctx: Iteration, before: Iteration) -> Sequence[ToolCall]:
    """The open calls that were checked with another tool than the context now has."""
    return [
        call
        for call in ctx.tool_calls
        if call.fingerprint
        and before.tools.get(call.name) is not ctx.tools.get(call.name)
        and call.id not in ctx.tool_results
        and not has_run(ctx, call)
    ]
