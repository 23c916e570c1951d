"""Runs whose stages edit the context, and the invariants that hold for every edit."""

import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Generator

from tests.deciding import on

from treadle import Err, Loop, Ok, Paused, PipelineFailed, RunHandle, stage, tool
from treadle.events import CallNotRun, HistoryRepaired, IterationFinished, IterationStarted
from treadle.messages import Response, ToolCall
from treadle.results import (
    BudgetExhausted,
    CircuitBroken,
    DeadlineExceeded,
    EmptyResponse,
    LoopDetected,
    MaxIterationsReached,
    OutputMissing,
    StoppedByStage,
)
from treadle.stages import (
    ask_model,
    default_stages,
    dispatch_tools,
    inject_results,
    parse_tool_calls,
    plan_calls,
    run_calls,
    validate_calls,
)
from treadle.testing import call, calls, check_history
from treadle.tools import NotRun, Plan

USER = {"role": "user", "content": "Add it up"}
SCRIPTS = {
    "one call": (calls(call("note", "a", n=1)), "Done."),
    "several calls": (
        calls(call("note", "a", n=1), call("note", "b", n=2), call("note", "c", n=3)),
        calls(call("note", "a", n=4), text="Again"),
        "Done.",
    ),
    "a text": ("Done.",),
}
ENDS = (
    CircuitBroken,
    DeadlineExceeded,
    MaxIterationsReached,
    BudgetExhausted,
    LoopDetected,
    EmptyResponse,
    OutputMissing,
    StoppedByStage,
)
"""Reasons that end a run whose edits are all valid."""


_runs = []  # the tools run for the latest: making tools for each would take most of the time


@tool
def note(n: int):
    return _runs[-1].returns("noted", n)


@tool(requires_approval=True)
def wipe(n: int):
    return _runs[-1].returns("wiped", n)


@tool
def other(n: int):
    return _runs[-1].returns("other", n)


class EditedRun:
    """One run with custom stages, and the checks of its invariants.

    It records which calls ran, compares each request with the context just before it, and looks for these calls
    in the history of each iteration and of each result.

    Args:
        script: the answers of the model, in order; the last answer is repeated.
        rewrites: whether a stage may rewrite contents of the history: texts are not compared then.
        trims: whether a stage may change the first of several exchanges of an iteration in the history.
    """

    def __init__(self, script, *, rewrites=False, trims=False):
        self.script = script
        self.rewrites = rewrites or trims
        self.trims = trims
        self.numbers = itertools.count(100)  # arguments of calls that a stage changed or added
        self.ran = []
        self.requests = []
        self.events = []
        self.faults = []
        self.taken_out = set()
        self.view = None  # the context before the request, until it is sent
        self.requested = {}  # what a stage put into the request, by iteration
        self.returned = []  # by the tools, in the latest iteration
        self.note, self.wipe, self.other = note, wipe, other
        self.tools = [note, wipe]

    def returns(self, what, n):
        self.ran.append(n)
        self.returned.append(f"{what} {n}")
        return self.returned[-1]

    def run(self, stages, **options):
        """Run, and check the invariants of every run; return the result."""
        return self._checked(self._loop(stages, options).run_sync([USER], self.model))

    def resume(self, paused, stages, decisions, **options):
        """Continue after a pause, and check the invariants of every run; return the result."""
        loop = self._loop(stages, options)
        return self._checked(loop.resume_sync(paused, on(paused, decisions), self.model))

    def receive_calls(self):
        """Have the tools, which all runs share, report to this run."""
        _runs[:] = [self]

    def _loop(self, stages, options):
        self.receive_calls()
        stages = list(stages)
        asks = next((i for i, one in enumerate(stages) if one.name == "ask_model"), None)
        if asks is not None:
            stages.insert(asks, stage(name="look")(self._look))
        given = {"tools": self.tools, "max_iterations": 5, **options}
        return Loop(stages=stages, on_event=self._see, **given)

    def _look(self, ctx):
        self.view = None if ctx.is_asked else ctx
        return ctx

    # The requests

    def model(self, messages, **options):
        self.requests.append(messages)
        self._check(self._check_request, messages, options)
        self.view = None
        return self.script[min(len(self.requests), len(self.script)) - 1]

    def _check(self, check, *given):
        """Check in a callback, whose exceptions the loop would handle."""
        try:
            check(*given)
        except AssertionError as error:
            self.faults.append(error)

    def _check_request(self, messages, options):
        check_history(messages)
        ctx = self.view
        if ctx is None:  # a stage called the model
            return
        changes = self.requested.get(ctx.iteration)
        expected = [dict(m) for m in (ctx.messages if changes is None else changes["messages"])]
        if ctx.guidance is not None and expected[-1]["role"] == "user":
            expected[-1]["content"] += f"\n\n{ctx.guidance}"
        elif ctx.guidance is not None:
            expected.append({"role": "user", "content": ctx.guidance})
        assert messages == expected, "the request is not what the context says"
        offered = [one["function"]["name"] for one in options.get("tools", ())]
        assert offered == list(ctx.tools if changes is None else changes["tools"])
        assert options.get("temperature") == (None if changes is None else 1)

    # The history

    def _see(self, event):
        self.events.append(event)
        if isinstance(event, IterationStarted):
            self.returned = []
            self.view = None  # the limit of model calls may have forbidden the request
        if isinstance(event, IterationFinished):
            self._check(check_history, event.context.messages)
            self._check(self._check_calls, event.context)
            self._check(self._check_results, event.context.messages)

    def _check_calls(self, context):
        """Every call of this iteration that ran is in the history once, with its result."""
        node = context.run.state.current_node
        ran = {call.group_id for call in node.tool_calls}
        if self.trims:
            ran &= {call.id for call in context.tool_calls}
        made = Counter(one["id"] for m in context.messages for one in m.get("tool_calls") or ())
        answered = Counter(m["tool_call_id"] for m in context.messages if m["role"] == "tool")
        for call_id in ran:
            assert made[call_id] == 1, f"{call_id} ran and is {made[call_id]} times in the history"
            assert answered[call_id] == 1

    def _check_results(self, messages):
        """The results of the latest iteration are in the history once."""
        if self.rewrites:
            return
        results = Counter(m["content"].split("\n\n")[0] for m in messages if m["role"] == "tool")
        for content in self.returned:
            assert results[content] == 1, f"{content!r} is {results[content]} times in the history"

    def _checked(self, result):
        check_history(result.messages)
        assert isinstance(result, (Ok, Err, Paused))
        if isinstance(result, Err):
            assert isinstance(result.reason, (PipelineFailed, *ENDS)), result.reason
        twice = [n for n, times in Counter(self.ran).items() if times > 1]
        assert not twice, f"ran twice: {twice}"
        assert not self.taken_out & set(self.ran), "a call ran that was taken out"
        assert result.tool_calls_count == len(self.ran)
        assert not self.faults, self.faults
        self._check_results(result.messages)
        if isinstance(result, Ok) and result.response.content:
            self._check_answer(result)
        return result

    def _check_answer(self, result):
        texts = [m["content"] or "" for m in result.messages if m["role"] == "assistant"]
        answer = result.response.content
        assert any(answer in text or (self.rewrites and text == "[gone]") for text in texts)


def at(position, edit, of=None):
    """The default stages with a custom one, called ``edit``, at a position."""
    stages = list(default_stages())
    stages.insert(position, custom(edit, "edit", of))
    return stages


def custom(edit, name, of=None):
    """A stage that edits; one that plans says so."""
    provides = ("plan",) if (of or edit) in OF_PLANS.values() else ()
    return stage(edit, name, provides=provides)


def performed(made):
    """The return value of an edit, or of the steps that it returned."""
    return (yield from made) if isinstance(made, Generator) else made


def through(ctx, *stages):
    """The steps that apply some stages to a context."""
    for one in stages:
        ctx = yield from performed(one.fn(ctx))
    return ctx


def with_handle(options):
    """The options of one run: a handle is for one run only."""
    return {**options, "handle": RunHandle()} if "handle" in options else options


# Edits: each takes the run and the context, and returns a context


def _take_out(run, ctx, ids):
    done = set(ctx.tool_results) | {n.group_id for n in _nodes(ctx)}
    run.taken_out |= {
        c.input["n"] for c in ctx.tool_calls if c.id in ids and c.id not in done and c.input
    }


def _nodes(ctx):
    node = ctx.run.state.current_node
    return () if node is None else node.tool_calls


def calls_of(ctx):
    """The calls of an iteration, whether or not they are parsed."""
    return ctx.tool_calls or ctx.response.tool_calls


def _each_call(edit):
    """An edit of each call of the iteration, which does not run as the model made it."""

    def edit_all(run, ctx):
        _take_out(run, ctx, {c.id for c in ctx.tool_calls})
        for one in calls_of(ctx):
            ctx = edit(ctx, one)
        return ctx

    return edit_all


def _drop(ctx, one):
    return ctx.drop(one, "it is not needed.")


def drop_first_call(run, ctx):
    _take_out(run, ctx, {c.id for c in ctx.tool_calls[:1]})
    return _drop(ctx, calls_of(ctx)[0]) if calls_of(ctx) else ctx


def drop_from_plan(run, ctx):
    _take_out(run, ctx, {c.id for c in ctx.plan.calls[:1]})
    return _drop(ctx, ctx.plan.calls[0].id) if ctx.plan.calls else ctx


def redact_in_place(_run, ctx):
    for message in ctx.messages:
        message["content"] = "[gone]"
    return ctx


def edit_arguments(run, ctx):
    for one in calls_of(ctx):
        if one.id not in ctx.tool_results or _nodes(ctx):
            ctx = ctx.edit_call(one, {"n": next(run.numbers)})
    return ctx


def edit_results(_run, ctx):
    for call_id in ctx.tool_results:
        ctx = ctx.edit_result(call_id, f"edited {call_id}")
    return ctx


def replace_response(run, ctx, response=None):
    if ctx.is_asked:
        _take_out(run, ctx, {c.id for c in ctx.tool_calls})
    return ctx.with_response(response or Response(f"Replaced {ctx.iteration}."))


def replace_response_by_call(run, ctx):
    arguments = json.dumps({"n": next(run.numbers)})
    made = Response(None, tool_calls=(ToolCall("new", "note", arguments),))
    return replace_response(run, ctx, made)


def change_request(run, ctx):
    changes = {"messages": [{"role": "user", "content": "In short"}], "tools": ()}
    changed = ctx.with_request(**changes, options={"temperature": 1})
    run.requested[ctx.iteration] = changes
    return changed


def pause_once(_run, ctx):
    if ctx.memo.get("paused") == ctx.iteration:
        return ctx
    return ctx.remember("paused", ctx.iteration).pause(())


def _planned(ctx, batches):
    return ctx.replace(plan=dataclasses.replace(ctx.plan, batches=tuple(batches)))


def _planned_otherwise(reason=None):
    def plan(run, ctx):
        _take_out(run, ctx, {c.id for c in ctx.plan.calls})
        refused = {} if reason is None else {c.id: reason for c in ctx.plan.calls}
        return ctx.replace(plan=Plan(not_run=refused))

    return plan


MORE = {"role": "user", "content": "More"}
SYSTEM = {"role": "system", "content": "Be brief"}
OTHERWISE = {"role": "user", "content": "Something else"}
STRANGER = ToolCall("stranger", "note", '{"n": 9}', {"n": 9}, "x")

OF_MESSAGES = {
    "append_list": lambda given: [*given, MORE],
    "prepend": lambda given: [SYSTEM, *given],
    "trim": lambda given: given[-1:],
    "trim_to_first": lambda given: given[:1],
    "rewrite": lambda given: [OTHERWISE],
    "redact": lambda given: [
        {**one, "content": (one["content"] or "") and "[gone]"} for one in given
    ],
    "same_as_list": lambda given: given,
    "reverse_messages": lambda given: given[::-1],
    "repeat_messages": lambda given: given * 2,
    "no_messages": lambda given: [],
}
"""Edits of the list of messages."""

OF_PLANS = {
    "empty_plan": _planned_otherwise(),
    "refuse_by_plan": _planned_otherwise(NotRun.DEFERRED),
    "plan_twice": lambda _run, ctx: _planned(ctx, ctx.plan.batches * 2),
    "plan_all": lambda _run, ctx: _planned(ctx, [(c,) for c in ctx.tool_calls]),
    "plan_unknown_call": lambda _run, ctx: ctx.replace(plan=Plan(((STRANGER,),))),
}
"""Edits of a stage that provides the plan."""

EDITS = {
    "append": lambda _run, ctx: ctx.replace(messages=ctx.messages.append(MORE)),
    **{
        name: lambda _run, ctx, edit=edit: ctx.replace(messages=edit(list(ctx.messages)))
        for name, edit in OF_MESSAGES.items()
    },
    "redact_in_place": redact_in_place,
    "drop_calls": _each_call(_drop),
    "drop_first_call": drop_first_call,
    "drop_from_plan": drop_from_plan,
    "edit_arguments": edit_arguments,
    "add_call": lambda run, ctx: ctx.add_call(
        "note", {"n": next(run.numbers)}, call_id=f"extra_{ctx.iteration}"
    ),
    "add_call_that_waits": lambda run, ctx: ctx.add_call(
        "wipe", json.dumps({"n": next(run.numbers)})
    ),
    "edit_results": edit_results,
    "answer_calls": _each_call(lambda ctx, one: ctx.answer(one, "from the stage")),
    "replace_response": replace_response,
    "replace_response_by_call": replace_response_by_call,
    "replace_calls": lambda _run, ctx: ctx.replace(tool_calls=tuple(reversed(ctx.tool_calls))),
    "replace_results": lambda _run, ctx: ctx.replace(tool_results={}),
    "replace_plan": lambda _run, ctx: ctx.replace(plan=Plan()),
    **OF_PLANS,
    "replace_tools": lambda run, ctx: ctx.with_tools(
        remove=list(ctx.tools), add=[run.other, run.note]
    ),
    "remove_tools": lambda _run, ctx: ctx.with_tools(remove=list(ctx.tools)),
    "add_tools": lambda run, ctx: ctx.with_tools(add=[run.other]),
    "change_request": change_request,
    "pause": lambda _run, ctx: ctx.pause(()),
    "pause_once": pause_once,
    "decide_done": lambda _run, ctx: ctx.done(),
    "decide_stop": lambda _run, ctx: ctx.stop("too long"),
    "forget_injection": lambda _run, ctx: ctx.evolve(result_messages=()),
    "change_everything": lambda run, ctx: EDITS["drop_calls"](run, EDITS["rewrite"](run, ctx)),
}

# Edits whose stages call the model or dispatch calls themselves: each returns steps

TO_DISPATCH = (parse_tool_calls, validate_calls, plan_calls, dispatch_tools)


def dispatch_early(_run, ctx):
    if ctx.is_injected or not ctx.is_asked:
        return ctx
    # After a pause the calls have the arguments that a person gave.
    return through(ctx, *(TO_DISPATCH[2:] if ctx.plan.calls else TO_DISPATCH))


def dispatch_in_parts(_run, ctx):
    for batch in ctx.plan.batches:
        ctx = yield from run_calls(ctx, batch)
    return ctx


def respond_and_dispatch(run, ctx):
    if ctx.is_injected or not ctx.is_asked or _nodes(ctx):
        return ctx
    return through(replace_response_by_call(run, ctx), *TO_DISPATCH)


def _applying(*stages, then="returns"):
    """An edit that applies stages; then it returns the context, forgets it, or raises."""

    def apply(_run, ctx):
        made = yield from through(ctx, *stages)
        if then == "raises":
            raise ValueError("later")
        return ctx if then == "forgets" else made

    return apply


ASK_AND_DISPATCH = (ask_model, *TO_DISPATCH)
ASKING = {
    "dispatch_early": dispatch_early,
    "dispatch_twice": _applying(dispatch_tools, dispatch_tools),
    "dispatch_in_parts": dispatch_in_parts,
    "dispatch_and_forget": _applying(dispatch_tools, then="forgets"),
    "dispatch_and_raise": _applying(dispatch_tools, then="raises"),
    "ask": _applying(ask_model),
    "ask_and_dispatch": _applying(*ASK_AND_DISPATCH),
    "ask_and_dispatch_twice": _applying(*ASK_AND_DISPATCH * 2),
    "ask_and_forget": _applying(*ASK_AND_DISPATCH, then="forgets"),
    "ask_twice_and_forget": _applying(*ASK_AND_DISPATCH, ask_model, then="forgets"),
    "ask_and_raise": _applying(*ASK_AND_DISPATCH, ask_model, then="raises"),
    "ask_and_inject_and_forget": _applying(*ASK_AND_DISPATCH, inject_results, then="forgets"),
    "respond_and_dispatch": respond_and_dispatch,
}

REWRITES = {"redact", "edit_results"}
"""Edits after which the history has other texts than the model and the tools returned."""

TRIMS = {
    "trim",
    "trim_to_first",
    "rewrite",
    "no_messages",
    "reverse_messages",
    "repeat_messages",
    "change_everything",
}
"""Edits after which a finished exchange is missing from the history, or changed in it."""

REFUSED = {
    **dict.fromkeys(EDITS, range(0)),
    **dict.fromkeys(
        ("replace_calls", "replace_results", "replace_plan", "redact_in_place"), range(10)
    ),
    "plan_unknown_call": range(10),
    "decide_done": range(1),
    "add_call": [0, *range(6, 10)],
    "add_call_that_waits": [0, *range(6, 10)],
    "replace_response": [0, *range(6, 10)],
    "replace_response_by_call": [0, *range(6, 10)],
    "change_request": range(1, 10),
    "no_messages": range(7),
    "forget_injection": range(7, 10),
}
"""The positions at which an edit is refused."""
REFUSED_AFTER_CALLS = {
    **dict.fromkeys(
        ("drop_calls", "drop_first_call", "drop_from_plan", "edit_arguments", "answer_calls"),
        range(6, 10),
    ),
    "edit_results": range(7, 10),
    "change_everything": range(6, 10),
}
"""The positions at which an edit is refused if there are calls."""

WRONG_KINDS = {
    "a call that does not exist": lambda ctx: ctx.drop("nobody", "why"),
    "a call that is a number": lambda ctx: ctx.answer(5, "text"),
    "a drop without a reason": lambda ctx: ctx.drop(next(iter(ctx.tool_calls), "a"), " "),
    "arguments that are a number": lambda ctx: ctx.add_call("note", 5),
    "arguments that are no data": lambda ctx: ctx.add_call("note", {"n": object()}),
    "a call whose name is a number": lambda ctx: ctx.add_call(5, {}),
    "an edit of a call that does not exist": lambda ctx: ctx.edit_call("nobody", {}),
    "a result of a call that does not exist": lambda ctx: ctx.edit_result("nobody", "text"),
    "a result that is a number": lambda ctx: ctx.edit_result("a", 5),
    "guidance as a number": lambda ctx: ctx.guide(5),
    "empty guidance": lambda ctx: ctx.guide(""),
    "messages as None": lambda ctx: ctx.replace(messages=None),
    "messages as a number": lambda ctx: ctx.replace(messages=5),
    "messages as texts": lambda ctx: ctx.replace(messages=["Hi"]),
    "a message with an unknown role": lambda ctx: ctx.replace(
        messages=[*ctx.messages, {"role": "nobody", "content": "x"}]
    ),
    "a message with content that is no text": lambda ctx: ctx.replace(
        messages=[*ctx.messages, {"role": "user", "content": 5}]
    ),
    "a tool that is a number": lambda ctx: ctx.with_tools(add=[42]),
    "tools as a number": lambda ctx: ctx.with_tools(add=42),
    "a tool that does not exist": lambda ctx: ctx.with_tools(remove=["nobody"]),
    "a stop with a number": lambda ctx: ctx.stop(5),
    "waiting as None": lambda ctx: ctx.pause(None),
    "waiting for texts": lambda ctx: ctx.pause(("a",)),
    **{
        f"a response whose {name} is {value!r}": lambda ctx, name=name, value=value: (
            ctx.with_response(dataclasses.replace(ctx.response, **{name: value}))
        )
        for name, value in (
            ("content", 5),
            ("content", [{"type": "text", "text": "x"}]),
            ("refusal", 5),
            ("extra", 5),
            ("extra", {"content": 5}),
            ("extra", {1: 2}),
            ("tool_calls", None),
            ("tool_calls", (5,)),
            ("usage", 5),
        )
    },
    "an unknown field": lambda ctx: ctx.replace(typo=1),
    "the run": lambda ctx: ctx.evolve(run=None),
    "the approvals": lambda ctx: ctx.evolve(approvals={"a": 1}),
    "nothing returned": lambda ctx: None,
    "a list of contexts": lambda ctx: [ctx],
}
"""Invalid edits and return values of a stage."""

POSITIONS = range(len(default_stages()) + 1)


# What a run did


ONE = SCRIPTS["one call"]
SEVERAL = SCRIPTS["several calls"]


def answer_to(result, call_id):
    """The one tool message that answers a call."""
    (message,) = [m for m in result.messages if m.get("tool_call_id") == call_id]
    return message["content"]


def refused(run):
    """The calls that were reported as refused, each with the reason, in order."""
    return [(event.call.id, event.reason) for event in run.events if isinstance(event, CallNotRun)]


def refused_by(result):
    """The stage whose edit was refused; None if none was."""
    failed = isinstance(result, Err) and isinstance(result.reason, PipelineFailed)
    return result.reason.stage if failed else None


def repairs(run):
    """The reported repairs of the history."""
    return [event for event in run.events if isinstance(event, HistoryRepaired)]


def first_only(edit):
    """An edit of the first iteration, or the steps of one."""
    return lambda ctx: edit(ctx) if ctx.iteration == 1 else ctx


def providing(field, edit, position):
    """The default stages with a stage that provides a field, called ``edit``, at a position."""
    stages = list(default_stages())
    stages.insert(position, stage(edit, "edit", provides=(field,)))
    return stages
