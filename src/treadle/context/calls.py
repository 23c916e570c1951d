"""What the built-in stages and the verbs of a context do to calls: parse, check, answer and admit them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from treadle.context.iteration import Iteration
from treadle.context.services import Note, uses_of
from treadle.errors import OptionError, closest
from treadle.messages import (
    Ending,
    NotAResponseError,
    Response,
    ToolCall,
    ToolResult,
    describe,
    is_mapping,
    parse_object,
    short_name,
)
from treadle.messages.decode import to_response
from treadle.messages.json_text import MAX_COUNTED, MAX_VIOLATIONS, MalformedJSONError
from treadle.messages.parts import is_content_part, text_of_parts
from treadle.messages.sanitizing import sendable
from treadle.tools import Approval, NotRun, Plan, PlanReason, as_made, fingerprint, marked, not_run

IterationT = TypeVar("IterationT", bound=Iteration)

MAX_HINTS, MAX_LISTED = 10, 100
"""How many unknown names in a response are answered with the available tools, and how many tools are listed."""


def expect(is_right: bool, where: str, expected: str, value: object) -> None:
    """Raise `OptionError` unless a value is right."""
    if not is_right:
        raise OptionError(f"{where}: expected {expected}, got {describe(value)}")


def check_text(where: str, value: object) -> None:
    """Raise `OptionError` unless a value is a text that is not empty."""
    expect(isinstance(value, str) and bool(value.strip()), where, "a text that is not empty", value)


def check_new_id(where: str, ctx: Iteration, call_id: Any) -> None:
    """Raise `OptionError` unless a new call may have an id: it is like that of a parsed call, and not in use."""
    is_id = isinstance(call_id, str) and bool(call_id) and _clean_id(call_id) == call_id
    if not is_id or call_id in {one.id for one in ctx.tool_calls} or ctx.messages.has_call(call_id):
        wanted = "an id that is unique in the history, a text without '/'"
        raise OptionError(f"{where}: expected {wanted}, not {describe(call_id)}")


# Where the current stage stands


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


def reports_results(ctx: Iteration, stage: str) -> bool:
    """Whether the results that a stage sets may be those of calls that it ran."""
    provided = ctx.run.provides.get(stage, frozenset())
    return "tool_results" in provided and provided.isdisjoint(("validation_errors", "output"))


def is_dispatcher(ctx: Iteration) -> bool:
    """Whether all results that the current stage sets are of calls that it ran; a planner may also set answers."""
    plans = {name: "plan" in provided for name, provided in ctx.run.provides.items()}
    reporting = [name for name in plans if reports_results(ctx, name)]
    return ctx.stage in reporting and (not plans[ctx.stage] or all(map(plans.get, reporting)))


def is_planned(ctx: Iteration) -> bool:
    """Whether the calls were planned."""
    plan = ctx.plan  # the reasons alone may be those of a stage that took calls out before
    return bool(plan.batches) or plan.reason is not PlanReason.NO_CALLS or has_passed(ctx, "plan")


def are_validated(ctx: Iteration) -> bool:
    """Whether the calls were checked."""
    is_checked = any(call.fingerprint for call in ctx.tool_calls)
    return is_checked or has_passed(ctx, "validation_errors")


# Calls are parsed and checked


def with_parsed_calls(ctx: IterationT) -> IterationT:
    """Take the calls out of the response, each with an id that is unique in the history."""
    calls = ctx.response.tool_calls
    if not calls or ctx.response is ctx.parsed:  # a stage may have edited or run them since
        return ctx
    taken: dict[str, int] = {}
    made: list[ToolCall] = []
    for index, call in enumerate(calls):
        call_id = _clean_id(call.id) or f"call_{ctx.iteration}_{index + 1}"
        unique = ctx.messages.unused_id(call_id, taken)
        taken.setdefault(unique, 1)
        made.append(call if unique == call.id else dataclasses.replace(call, id=unique))
    if ctx.run.catalog is not None:
        made = [ctx.run.catalog.unwrapped(one, ctx.tools) for one in made]
    return ctx.evolve(tool_calls=tuple(made), parsed=ctx.response)


def _clean_id(call_id: str) -> str:
    """An id that can be sent, without the slash that separates it from ids of steps and subagents."""
    return sendable(call_id).replace("/", "_")


def check_call(
    ctx: Iteration, call: ToolCall, hints: dict[str, str], *, is_ours: bool = False
) -> tuple[ToolCall, tuple[str, ...]]:
    """Check a call; return it, with its input if it is valid, and the problems.

    The hints for unknown names are shared by the calls of a response. The tool of a call of ours, a step of a
    recipe, need not be offered to the model, and the resolver also runs names that it does not list.
    """
    catalog, resolver = ctx.run.catalog, ctx.run.resolver
    if catalog is not None:
        call = catalog.unwrapped(call, ctx.tools)  # one that a stage made
    tool, problem = ctx.tools.get(call.name), None
    offered = None if is_ours else ctx.request_changes.get("tools")
    if tool is None:
        if resolver is None or not (is_ours or resolver.knows(call.name, bool(ctx.tools))):
            problem = _why_unavailable(ctx, call.name, offered, hints, is_known=False)
    elif offered is not None and (name := as_made(catalog, call)[0]) not in offered:
        problem = _why_unavailable(ctx, name, offered, hints, is_known=True)
    if problem is None and call.is_whole is False:
        problem = _why_not_whole(ctx.response)
    if problem is not None:
        return marked(call), (problem,)
    try:
        arguments: Mapping[str, Any] = parse_object(call.arguments)
    except MalformedJSONError as error:
        is_cut = ctx.response.ending is Ending.CUT
        hint = f"; {_why_not_whole(ctx.response)}" if is_cut else ""
        return marked(call), (f"the arguments are not valid JSON: {error}{hint}",)
    problems: list[str] = []
    if tool is not None:
        problems, arguments = tool.validate(arguments)
    made, name = None if problems else arguments, call.name
    mark = fingerprint(name, arguments if tool is None else tool.dedupe_key(arguments))
    checked = ToolCall(
        call.id, name, call.arguments, made, mark, call.extra, call.raw_arguments, call.is_whole
    )
    return checked, tuple(problems)


def _why_not_whole(response: Response) -> str:
    """Why a call of a response did not run, although it may look complete."""
    ended = _ENDED.get(response.ending, "the provider marked the call as incomplete")
    return f"{ended} (finish reason {response.finish_reason!r})"


_ENDED = {
    Ending.CUT: "the response was cut off before the call was known to be complete; make the call again, with "
    "shorter arguments",
    Ending.PAUSED: "the response paused before the call was known to be complete; make the call again",
    Ending.FILTERED: "the response was filtered or refused",
}


def _why_unavailable(
    ctx: Iteration, name: str, offered: Any, hints: dict[str, str], *, is_known: bool
) -> str:
    """The problem of a call of a tool that is not offered, or not known; only a few list the available tools."""
    catalog, resolver = ctx.run.catalog, ctx.run.resolver
    is_hinted = len(hints) < MAX_HINTS
    if name in hints:
        return hints[name]
    if catalog is not None and not is_known:
        hints[name] = catalog.on_unknown(name, ctx.tools, suggests=is_hinted)
        return hints[name]
    text = f"there is no tool named {short_name(name)!r}."
    text = f"{name!r} is not offered in this request." if is_known else text
    if not is_hinted:
        return f"{text} The answers above list the available tools."
    present = set(ctx.tools).intersection(ctx.tools if offered is None else offered)
    names = sorted({*present, *((resolver and resolver.names) or ())})
    close = None if is_known else closest(name, names)
    hint = "" if close is None else f" Did you mean {close!r}?"
    more = f", and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    hints[name] = f"{text}{hint} Available tools: {', '.join(names[:MAX_LISTED]) or 'none'}{more}."
    return hints[name]


def invalid_answer(call: ToolCall, problems: tuple[str, ...]) -> ToolResult:
    """The answer to an invalid call: its violations."""
    lines = [f"- {problem}" for problem in problems[:MAX_VIOLATIONS]]
    if len(problems) > MAX_VIOLATIONS:
        least = "at least " if len(problems) >= MAX_COUNTED else ""
        lines.append(f"- and {least}{len(problems) - MAX_VIOLATIONS} more")
    text = "\n".join(lines)
    return not_run(call, NotRun.INVALID, name=short_name(call.name), problems=text)


def with_calls(ctx: IterationT, given: Any) -> IterationT:
    """Set the calls of a stage that parses or validates them."""
    where = "replace: tool_calls"
    expect(isinstance(given, (tuple, list)), where, "a tuple of ToolCalls", given)
    known = [call.id for call in ctx.tool_calls]
    calls: dict[str, ToolCall] = {}
    for call in given:  # pyright: ignore[reportUnknownVariableType]
        expect(isinstance(call, ToolCall), where, "ToolCall objects", call)
        checked_response(Response(tool_calls=(call,)))
        if not call.id or call.id in calls:
            raise OptionError(f"{where}: the id {call.id!r} is used twice, or empty")
        if call.id not in known:
            check_new_id(where, ctx, call.id)
        calls[call.id] = call
        if call.input is not None and not call.fingerprint:
            tool = ctx.tools.get(call.name)
            key = call.input if tool is None else tool.dedupe_key(call.input)
            calls[call.id] = dataclasses.replace(call, fingerprint=fingerprint(call.name, key))
    lost = [call_id for call_id in known if call_id not in calls]
    if lost:
        raise OptionError(
            f"{where}: calls {', '.join(lost)} are missing; ctx.drop(call, why) takes a call out"
        )
    return ctx.evolve(tool_calls=tuple(calls.values()), parsed=ctx.response)


# Calls are edited before they run


def check_open(ctx: Iteration, verb: str, waiting: Iterable[ToolCall] = ()) -> None:
    """Raise `OptionError` unless there is a response, not in the history yet, and some calls have not run."""
    problem, position = "the model was not asked yet", "after ask_model"
    if ctx.is_asked:
        ran = ", ".join(call.id for call in waiting if ctx.run.has_run(call))
        problem, position = f"calls {ran} of the response have run", "before dispatch_tools"
        if ctx.result_messages:
            problem = "the response is in the history, which ctx.replace(messages=...) rewrites"
            position = "before inject_results"
        elif not ran:
            return
    raise OptionError(f"{verb}: {problem}; put the stage {ctx.stage!r} {position}")


def opened(ctx: IterationT, call: object, verb: str) -> tuple[IterationT, ToolCall]:
    """The context with its calls parsed, and a call that has not run; raises `OptionError` if there is none."""
    check_open(ctx, verb)
    ctx = with_parsed_calls(ctx)
    found = found_call(ctx, call, verb)
    if ctx.run.has_run(found):
        raise OptionError(
            f"{verb}: call {found.id!r} has run; ctx.edit_result(call, text) changes its result"
        )
    return ctx, found


def found_call(ctx: Iteration, call: object, verb: str) -> ToolCall:
    """The call of the iteration that is given as an object or by its id; raises `OptionError` if there is none."""
    calls = {one.id: one for one in ctx.tool_calls}
    made = zip(ctx.response.tool_calls, ctx.tool_calls, strict=False)
    # As the model made it, its id may not be unique.
    found = next((parsed for one, parsed in made if one is call), call)
    call_id: Any = found.id if isinstance(found, ToolCall) else found
    expect(isinstance(call_id, str), verb, "a call of ctx.tool_calls or its id", call)
    if call_id not in calls:
        text = f"no call of this iteration has the id {call_id!r}"
        raise OptionError(f"{verb}: {text}; its calls: {', '.join(calls) or 'none'}")
    return calls[call_id]


def answered(ctx: IterationT, call: ToolCall, result: ToolResult) -> IterationT:
    """The context with the answer to a call, which does not run; the status of the answer is the reason."""
    ctx.run.release(call)
    plan, reason = ctx.plan, NotRun(result.status)
    reasons = without(plan.not_run, call.id)
    if reason is not NotRun.INVALID:  # which is no decision of a plan
        reasons = {**reasons, call.id: reason}
    kept = (tuple(one for one in batch if one.id != call.id) for batch in plan.batches)
    plan = dataclasses.replace(
        plan,
        batches=tuple(filter(None, kept)),
        not_run=reasons,
        duplicates=without(plan.duplicates, call.id),
        approvals=without(plan.approvals, call.id),
    )
    return ctx.evolve(
        tool_results={**ctx.tool_results, call.id: result},
        validation_errors=without(ctx.validation_errors, call.id),
        plan=plan,
    )


def refused(ctx: IterationT, call: ToolCall, reason: NotRun, **values: Any) -> IterationT:
    """The context in which a call does not run, for a reason that the model reads."""
    return answered(ctx, call, not_run(call, reason, **values))


def without(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A mapping without a key."""
    return {name: one for name, one in values.items() if name != key} if key in values else values


def with_call(ctx: IterationT, call: ToolCall) -> IterationT:
    """The context with another call of the same id, in its plan as well."""

    def same(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        return tuple(call if one.id == call.id else one for one in calls)

    plan = dataclasses.replace(ctx.plan, batches=tuple(map(same, ctx.plan.batches)))
    return ctx.evolve(tool_calls=same(ctx.tool_calls), plan=plan)


def checked_again(ctx: IterationT, call: ToolCall, verb: str) -> IterationT:
    """Check a call that was added or changed like those of the model, also whether it needs approval."""
    checked, problems = check_call(ctx, call, {})
    ctx = with_call(ctx, checked)
    if problems:
        ctx = answered(ctx, call, invalid_answer(call, problems))
        return ctx.evolve(validation_errors={**ctx.validation_errors, call.id: problems})
    tool = ctx.tools.get(checked.name)
    if tool is not None and tool.terminal and has_passed(ctx, "output"):
        raise OptionError(
            f"{verb}: {checked.id!r} calls the terminal tool {checked.name!r}, which is only possible before "
            "loop_decision"
        )
    if checked in ctx.plan.calls:
        others = without(ctx.plan.approvals, checked.id)
        questions = {**others, **approval_questions(ctx, (checked,))}
        ctx = ctx.evolve(plan=dataclasses.replace(ctx.plan, approvals=questions))
    return ctx


# The response


def checked_response(given: Any) -> Response:
    """The response in any form that a model may return; raises `OptionError`."""
    try:
        return to_response(given)
    except NotAResponseError as error:
        text = str(error).removeprefix("llm_send_fn: ")
        raise OptionError(f"with_response: {text}") from None
    except RecursionError:
        raise OptionError(
            "with_response: expected JSON, got a response that contains itself"
        ) from None


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


# The plan


def over_budget(ctx: Iteration, call: ToolCall, *, is_step: bool = False) -> ToolResult | None:
    """The answer to a call that exceeds a budget; None if it may run. A step of a recipe only uses its tool."""
    tool, budget = ctx.tools.get(call.name), ctx.run.budget
    most = None if tool is None else tool.max_uses
    if most is not None and not budget.uses_left(call.name, most):
        return not_run(call, NotRun.MAX_USES, most=most)
    if is_step or budget.calls_left() != 0:
        return None
    spent, then = "for this task", "Give your final answer"
    if not budget.is_finishing:
        spent, then = f"of {budget.calls_exhausted().limit} tool calls", "Answer"
    return not_run(call, NotRun.OVER_BUDGET, budget=spent, then=then)


def approval_questions(ctx: Iteration, calls: Iterable[ToolCall]) -> Mapping[str, str]:
    """The questions of the calls that need approval, by id of the call."""
    questions: dict[str, str] = {}
    for call in calls:
        tool = ctx.tools.get(call.name)
        question = None if tool is None else tool.approval_question(call.input or {})
        if question is not None:
            questions[call.id] = question
    return questions


def with_plan(ctx: IterationT, plan: Any) -> IterationT:
    """Set the plan of a stage: each call is valid, within the budget, planned once, and asks for its approval."""
    where = "replace: plan"
    expect(isinstance(plan, Plan), where, "a Plan", plan)
    expect(isinstance(plan.batches, (tuple, list)), where, "batches of calls", plan.batches)
    for name in ("not_run", "duplicates", "approvals"):
        by_id = getattr(plan, name)
        expect(is_mapping(by_id), f"{where}.{name}", "a mapping by id of the call", by_id)
    placed: dict[str, ToolCall] = {}
    batches: list[tuple[ToolCall, ...]] = []
    for batch in plan.batches:
        expect(isinstance(batch, (tuple, list)), where, "batches of calls", batch)
        fitting: list[ToolCall] = []
        for given in batch:
            call = found_call(ctx, given, where)
            if not call.fingerprint:
                ctx = checked_again(ctx, call, where)
                call = found_call(ctx, call.id, where)
            if call.id in placed or call.id in ctx.tool_results:
                continue
            placed[call.id] = call
            fitting.append(call)
        batches.append(tuple(fitting))
    kept = {key: one for key, one in ctx.plan.not_run.items() if key in ctx.tool_results}
    # An approval cannot be left out.
    questions = {**plan.approvals, **approval_questions(ctx, placed.values())}
    plan = dataclasses.replace(
        plan,
        batches=tuple(filter(None, batches)),
        not_run={**kept, **plan.not_run},
        approvals=questions,
    )
    return with_reservations(ctx.evolve(plan=plan))


def with_reservations(ctx: IterationT) -> IterationT:
    """Reserve the budget of the planned calls without a result, and of no other call that has not begun."""
    planned = () if ctx.result_messages else ctx.plan.calls
    waiting = {call.id: call for call in planned if call.id not in ctx.tool_results}
    reserved = ctx.run.ledger.reserved
    ctx.run.release(*[call for call, _ in reserved.values() if call.id not in waiting])
    return functools.reduce(admitted, waiting.values(), ctx)


def admitted(ctx: IterationT, call: ToolCall) -> IterationT:
    """Reserve the budget of a planned call, if it has none; answer the call if a limit forbids it."""
    if call.id in ctx.run.ledger.reserved or call.id in ctx.tool_results:
        return ctx
    answer = over_budget(ctx, call)
    if answer is not None:
        return answered(ctx, call, answer)
    ctx.run.reserve(call, uses_of(ctx.tools.get(call.name)))
    return ctx


# The results of a stage that provides them


def with_results(ctx: IterationT, given: Any) -> IterationT:
    """Set the results of a stage that provides them."""
    expect(is_mapping(given), "replace: tool_results", "a mapping of ToolResults by id", given)
    results = {call_id: _checked_result(ctx, call_id, one) for call_id, one in given.items()}
    dropped = [call_id for call_id in ctx.tool_results if call_id not in results]
    if dropped:
        raise OptionError(
            f"replace: tool_results: the results of {', '.join(dropped)} are missing; "
            "ctx.edit_result(call, text) changes a result"
        )
    if reports_results(ctx, ctx.stage):
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
    """Count and note the results of calls that a stage ran; `OptionError` if one was not allowed to run."""
    run, forbidden = ctx.run, list[str]()
    for call in ctx.tool_calls:
        result = results.get(call.id)
        if result is None or result == ctx.tool_results.get(call.id) or ctx.run.has_run(call):
            continue
        if call.id not in run.ledger.reserved and not is_dispatcher(ctx):
            continue  # the answer of a planner to a call that it did not plan
        why = _why_not_allowed(ctx, call)
        _count_call(ctx, call, result)
        if why is not None:
            result = not_run(call, NotRun.NOT_ALLOWED, stage=ctx.stage, why=why)
            forbidden.append(f"{call.name!r} ({call.id}): {why}")
        run.in_flight.results[call.id] = result
    if forbidden:
        raise OptionError(
            f"{ctx.stage!r} reported a result for a call that was not allowed to run: {'; '.join(forbidden)}; "
            "run_calls(ctx, calls) of treadle.stages asks for approvals and keeps limits"
        )
    return ctx.evolve(tool_results={**ctx.tool_results, **results})


def decision_on(ctx: Iteration, call: ToolCall) -> Approval | None:
    """The decision of a person on a call as it waited; None on one with another name, tool or other arguments."""
    decided = ctx.approvals.get(call.id)
    if decided is None or decided.about is None:  # on a question of a stage: the model chooses ids
        return decided
    is_same = decided.about == (call.name, call.arguments) and holds(ctx, call.id, decided)
    return decided if is_same else None


def holds(ctx: Iteration, call_id: str, decided: Approval) -> bool:
    """Whether no stage has replaced the tool of an open call since a person saw it, and decided on the call."""
    if not decided.about or call_id in ctx.tool_results:
        return True
    name = decided.about[0]
    return ctx.tools.get(name) == ctx.run.ledger.seen_tools.get(name)


def _why_not_allowed(ctx: Iteration, call: ToolCall) -> str | None:
    if call.id in ctx.validation_errors:
        return "it is invalid"
    if call.id not in ctx.run.ledger.reserved:
        reason = ctx.plan.not_run.get(call.id)
        return "it is not in the plan" if reason is None else f"the plan refuses it ({reason})"
    decided = decision_on(ctx, call)
    if call.id in ctx.plan.approvals and not (decided is not None and decided.runs):
        return "a person has to approve it"
    return None


def _count_call(ctx: Iteration, call: ToolCall, result: ToolResult) -> None:
    """Count a call that a stage ran."""
    run, at = ctx.run, ctx.run.ledger.clock
    if call.id not in run.ledger.reserved:
        run.reserve(call, uses_of(ctx.tools.get(call.name)))
    run.repeats.count(call)
    run.in_flight.calls_run += 1
    run.ledger.unsettled.append(call)
    run.ledger.notes.append(Note(call, result))
    node = run.new_node(call.name, call.id)
    node.start(at)
    run.record(call, node, result, at)
