"""Parity with RunaxAI: budgets, and the last answer when they are exhausted."""

import threading

import pytest

from treadle import BudgetExhausted, Limits, Loop, MaxIterationsReached, Ok, presets, tool
from treadle.events import CallsPlanned, LimitReached, ToolStarted
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers
from .places import look, looks

GUIDANCE = "Do not call any more tools. Give your final answer now"


STEPS = [looks("a"), looks("b"), looks("c")]
"""Three steps of one call each: RunaxAI's strict policy has no more."""


def guidance_of(request):
    """The guidance of a request."""
    last = request.messages[-1]
    return last["content"] if last["role"] == "user" else ""


# The presets


@pytest.mark.parametrize(
    ("preset", "limits"),
    [
        (
            presets.runax(),
            Limits(max_iterations=3, max_tool_calls=6, max_parallel_calls=3, on_limit="finish"),
        ),
        (
            presets.runax_project(),
            Limits(max_iterations=3, max_tool_calls=4, max_parallel_calls=3, on_limit="finish"),
        ),
    ],
    ids=["strict", "project"],
)
def test_the_presets_have_the_numbers_of_runax(preset, limits):
    """Strict: 3 reasoning steps, 6 tool calls in all, 3 in parallel per step; for projects 3 and 4."""
    settings = Loop(**preset).settings
    assert settings.limits == limits
    assert (settings.limits.on_limit, settings.sequential, settings.dedupe) == (
        "finish",
        "defer",
        "strict",
    )


PRESETS = ["runax", "runax_project", "llmcore", "orbiter", "planck", "recommended"]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_and_ends(run, name):
    """Whatever its limits, a run whose model never stops calling ends with a valid history."""
    preset = getattr(presets, name)()

    def call_on(messages):
        return looks(f"{len(messages)}", f"{len(messages)} too")

    result = run("?", call_on, **preset, tools=[look])
    limits = Loop(**preset).settings.limits
    assert result.stop_reason != "answered"
    assert result.iterations <= limits.max_iterations + 2
    assert limits.max_tool_calls is None or result.tool_calls_count <= limits.max_tool_calls


# Steps and calls


def test_at_most_three_calls_run_at_the_same_time(run):
    """Of five in one response three run together; two are answered that they may be made again."""
    together = threading.Barrier(3)

    @tool
    def meet(n: int) -> str:
        together.wait(timeout=5)
        return f"met {n}"

    batch = calls(*(call("meet", n=n) for n in range(5)))
    again = calls(*(call("meet", n=n) for n in (3, 4, 5)))
    result = run("?", ScriptedLLM(batch, again, "Met."), **presets.runax(), tools=[meet])
    met = [text for text in answers(result) if text.startswith("met")]
    assert sorted(met) == [f"met {n}" for n in range(6)]
    assert result.tool_calls_count == 6


def test_after_three_steps_the_last_answer_is_requested(run):
    """The third step's calls run, their results are kept; the fourth request is for the answer."""
    llm = ScriptedLLM(*STEPS, "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[look])
    assert isinstance(result, Ok)
    assert (result.stop_reason, result.response.content) == ("finished", "All are empty.")
    assert result.limit == MaxIterationsReached(3)
    assert answers(result) == ["a is empty", "b is empty", "c is empty"]


@pytest.mark.parametrize(
    ("preset", "fits"), [(presets.runax, 6), (presets.runax_project, 4)], ids=["strict", "project"]
)
def test_the_budget_of_calls_is_shared_by_all_steps(run, preset, fits):
    """Calls are counted over the run, step after step, and none beyond the budget ever runs."""
    ran = []

    @tool
    def note(n: int) -> str:
        ran.append(n)
        return f"noted {n}"

    left = iter(range(9))
    steps = [calls(*(call("note", n=next(left)) for _ in range(3))) for _ in range(3)]
    asked = steps if fits == 6 else steps[:2]  # one call too many ends the steps
    result = run("?", ScriptedLLM(*asked, "Noted."), **preset(), tools=[note])
    assert sorted(ran) == list(range(fits))
    assert result.tool_calls_count == fits
    assert result.limit == BudgetExhausted("max_tool_calls", fits, fits)


def test_of_a_batch_larger_than_the_budget_calls_run_up_to_the_budget(run):
    """The rest is answered "over budget". (In RunaxAI the whole batch is abandoned.)"""
    events = []
    steps = [looks("a", "b", "c"), looks("d", "e"), looks("f", "g", "h")]
    llm = ScriptedLLM(*steps, "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[look], on_event=events.append)
    assert result.limit == BudgetExhausted("max_tool_calls", 6, 6)
    assert result.tool_calls_count == 6
    assert answers(result)[5:] == [
        "f is empty",
        *["Not run: the budget of 6 tool calls is spent. Answer with what you have."] * 2,
    ]
    plan = [event for event in events if isinstance(event, CallsPlanned)][-1]
    assert (plan.reason, plan.batches) == ("over_budget", (("f",),))
    assert dict(plan.not_run) == {"g": "over_budget", "h": "over_budget"}
    assert [event.reason for event in events if isinstance(event, LimitReached)] == [result.limit]
    assert len([event for event in events if isinstance(event, ToolStarted)]) == 6


def test_after_exactly_the_last_call_of_the_budget_the_model_may_still_answer(run):
    """No call was refused: the model answers as usual, without any instruction."""
    llm = ScriptedLLM(looks("a", "b", "c"), looks("d", "e", "f"), "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[look])
    assert (result.stop_reason, result.limit) == ("answered", None)
    assert result.tool_calls_count == 6
    assert GUIDANCE not in str(llm.sent[2].messages)


# When it is exhausted


def steps_spent():
    """Steps that exhaust the budget, in two ways."""
    yield "iterations", STEPS
    yield "tool calls", [looks("a", "b", "c"), looks("d", "e", "f"), looks("g")]


@pytest.fixture(params=[pytest.param(steps, id=name) for name, steps in steps_spent()])
def spending(request):
    return request.param


def test_an_instruction_requests_the_answer(run, spending):
    """It says that the budget is spent, not to call tools, and to answer with the results so far."""
    llm = ScriptedLLM(*spending, "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[look])
    assert (result.stop_reason, result.response.content) == ("finished", "All are empty.")
    asked = llm.sent[-1]
    assert guidance_of(asked).startswith("The budget for this task is spent (")
    assert guidance_of(asked).endswith(f"{GUIDANCE}, with what you have.")
    assert [GUIDANCE in guidance_of(sent) for sent in llm.sent[:-1]] == [False] * 3
    assert "tool_choice" not in asked.opts  # it is asked, not yet made to


def test_a_model_that_still_makes_calls_is_called_once_more_with_tools_disabled(run, spending):
    """Its calls do not run, and are answered as not run; the last request has ``tool_choice="none"``."""
    ran = []

    @tool(name="look")
    def watched_look(place: str) -> str:
        ran.append(place)
        return f"{place} is empty"

    llm = ScriptedLLM(*spending, looks("x", "y"), "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[watched_look])
    assert (result.stop_reason, result.response.content) == ("finished", "All are empty.")
    assert not {"x", "y"} & set(ran)
    assert (
        answers(result)[-2:]
        == [
            "Not run: the budget for this task is spent. Give your final answer with what you have."
        ]
        * 2
    )
    assert [sent.opts.get("tool_choice") for sent in llm.sent] == [None] * 4 + ["none"]
    assert GUIDANCE in guidance_of(llm.sent[-1])
    assert [m["role"] for m in result.messages[-4:]] == ["assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize("last", ["", " \n", looks("z"), {"role": "assistant", "content": None}])
def test_without_an_answer_even_then_the_text_is_a_fixed_sentence(run, spending, last):
    """Blank, or calls although tools are disabled: no call runs, and the answer is a text."""
    llm = ScriptedLLM(*spending, looks("x"), last)
    result = run("?", llm, **presets.runax(), tools=[look])
    assert isinstance(result, Ok)
    assert result.response.content == (
        f"I could not finish this within the limits I was given ({result.limit})."
    )
    assert result.messages[-1] == {"role": "assistant", "content": result.response.content}
    assert "z is empty" not in str(result.messages)


def test_a_blank_first_answer_is_replaced_by_the_sentence_at_once(run, spending):
    """Without calls there is nothing to disable: RunaxAI's second pass is for models that still make calls."""
    result = run("?", ScriptedLLM(*spending, ""), **presets.runax(), tools=[look])
    assert result.response.content.startswith("I could not finish this within the limits")


def test_the_instruction_is_not_in_the_history(run, spending):
    """It is only in the requests for the answer."""
    llm = ScriptedLLM(*spending, looks("x"), "All are empty.")
    result = run("?", llm, **presets.runax(), tools=[look])
    assert [GUIDANCE in guidance_of(sent) for sent in llm.sent] == [False] * 3 + [True] * 2
    assert GUIDANCE not in str(result.messages)
    assert [m["content"] for m in result.messages if m["role"] == "user"] == ["?"]
    again = ScriptedLLM("As I said.")
    run([*result.messages, {"role": "user", "content": "Sure?"}], again)
    assert GUIDANCE not in str(again.sent[0].messages)


def test_the_last_answer_may_be_a_call_of_a_terminal_tool(run, spending):
    """If answers are given by a tool, that call is the answer; the instruction names the tool."""

    @tool(terminal=True)
    def report(text: str) -> str:
        return text

    asked = calls(call("report", text="All are empty."))
    llm = ScriptedLLM(*spending, asked)
    result = run("?", llm, **presets.runax(), tools=[look, report])
    assert (result.stop_reason, result.output) == ("finished", {"text": "All are empty."})
    assert guidance_of(llm.sent[-1]).endswith("with what you have, by a call of report.")


def test_the_last_request_is_reported_and_counted(run, spending):
    """`LimitReached` is emitted once, before it; the requests are iterations, with their usage."""
    events = []

    def counted(answer):
        completion = {"choices": [{"message": answer}]}
        return {**completion, "usage": {"prompt_tokens": 10, "completion_tokens": 1}}

    last = [looks("x"), {"role": "assistant", "content": "All are empty."}]
    llm = ScriptedLLM(*map(counted, [*spending, *last]))
    result = run("?", llm, **presets.runax(), tools=[look], on_event=events.append)
    assert result.iterations == len(llm.sent) == len(result.run.nodes) == 5
    assert (result.usage.input_tokens, result.usage.output_tokens) == (50, 5)
    (reached,) = [event for event in events if isinstance(event, LimitReached)]
    assert (reached.iteration, reached.reason) == (3, result.limit)
