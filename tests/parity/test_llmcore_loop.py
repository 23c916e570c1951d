"""Parity with LlmCore: the iterations of a run, and its end."""

import anyio
import pytest
from tests.samples import add

from treadle import (
    CircuitBroken,
    Decision,
    EmptyResponse,
    Err,
    LLMError,
    MaxIterationsReached,
    Ok,
    PipelineFailed,
    ToolCall,
    default_stages,
    presets,
    tool,
)
from treadle.stages import loop_decision
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers

STAGES = [
    "ask_model",
    "parse_tool_calls",
    "validate_calls",
    "loop_decision",
    "plan_calls",
    "dispatch_tools",
    "inject_results",
    "budget_guard",
    "circuit_breaker",
]


def failing(*errors):
    """A tool `search` that fails with the error of the page that it is asked for, if it has one."""

    @tool
    def search(page: int) -> str:
        if errors[page] is not None:
            raise RuntimeError(errors[page])
        return f"page {page}"

    return search


def searches(count):
    """Iterations that call `search`, each with other arguments, so that they are not a loop."""
    return [calls(call("search", page=page)) for page in range(count)]


def blank(finish_reason="stop", content=""):
    message = {"role": "assistant", "content": content}
    return {
        "model": "model-1",
        "provider": "Acme",
        "choices": [{"message": message, "finish_reason": finish_reason}],
    }


def test_a_text_answer_is_ok_with_the_whole_history(run):
    """A text answer ends the run with `Ok`, and is in the history.

    LlmCore leaves the final answer out of the history; here it is the last message.
    """
    asked = {"role": "user", "content": "Who are you?"}
    result = run([asked], ScriptedLLM("A loom."))
    assert isinstance(result, Ok)
    assert result.response.content == "A loom."
    assert result.messages == [asked, {"role": "assistant", "content": "A loom."}]
    assert (result.iterations, result.tool_calls_count, result.stop_reason) == (1, 0, "answered")


def test_tool_results_are_sent_to_the_model_until_it_answers(run):
    """Calls are dispatched, their results appended, and the model is called again with both."""
    llm = ScriptedLLM(calls(call("add", "c1", a=1, b=2)), calls(call("add", "c2", a=3, b=4)), "10")
    result = run("What is 1 + 2 + 3 + 4?", llm, tools=[add])
    assert result.unwrap().content == "10"
    assert answers(result) == ["3", "7"]
    assert llm.sent[2].messages == result.messages[:-1]
    assert llm.sent[0].opts["tools"][0]["function"]["name"] == "add"


def test_an_async_model_with_async_tools_has_the_same_result(run):
    """Sync or async, model and tools are called as they are, under every driver."""

    @tool
    async def double(n: int) -> int:
        await anyio.sleep(0)
        return 2 * n

    llm = ScriptedLLM(calls(call("double", n=4)), "8", is_async=True)
    result = run("Twice four?", llm, tools=[double])
    assert (result.response.content, answers(result)) == ("8", ["8"])


def test_max_iterations_without_an_answer_is_max_iterations_reached(run):
    """The last iteration's tools run, their results are kept, and no further model call is made.

    In LlmCore the last iteration's tools never run, so that this cannot be reached.
    """
    llm = ScriptedLLM(calls(call("add", a=1, b=1)), calls(call("add", a=2, b=2)))
    result = run("Add on.", llm, tools=[add], max_iterations=2)
    assert isinstance(result, Err)
    assert result.reason == MaxIterationsReached(2)
    assert answers(result) == ["2", "4"]
    assert result.tool_calls_count == 2


def test_ten_iterations_are_the_default(run):
    """Without a limit there are ten iterations, as in LlmCore."""
    llm = ScriptedLLM(*(calls(call("add", a=n, b=n)) for n in range(10)))
    assert run("Add on.", llm, tools=[add]).reason == MaxIterationsReached(10)


def test_with_the_preset_every_call_runs_in_the_order_of_the_calls(run):
    """``presets.llmcore()``: no suppression, no loop detection, no deferral; iterations are the limit.

    By default the repeated call would be suppressed, and calls that run alone deferred.
    """
    ran = []

    @tool(parallel_safe=False)
    def note(n: int) -> str:
        ran.append(n)
        return f"noted {n}"

    llm = ScriptedLLM(
        *(calls(call("note", n=1), call("note", n=1), call("note", n=2)) for _ in range(10))
    )
    result = run("Note it.", llm, **presets.llmcore(), tools=[note])
    assert result.reason == MaxIterationsReached(10)
    assert ran == [1, 1, 2] * 10
    assert result.tool_calls_count == 30


def test_the_same_tool_error_in_three_iterations_breaks_the_circuit(run):
    """Three iterations in a row with the same error of the same tool end the run.

    In LlmCore this is dead code: errors are in the content, which is not checked for them.
    """
    options = {**presets.llmcore(), "tools": [failing(*["down"] * 3)]}
    result = run("Find it.", ScriptedLLM(*searches(3)), **options)
    assert result.reason == CircuitBroken("search", "Error: RuntimeError: down", 3)
    assert answers(result) == ["Error: RuntimeError: down"] * 3


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param(["down", "down", "slow", "down", "down"], id="another error"),
        pytest.param(["down", "down", None, "down", "down"], id="no error"),
    ],
)
def test_another_error_or_none_resets_the_circuit_breaker(run, errors):
    """Only the same error in consecutive iterations counts: another one, or a success, resets the count."""
    llm = ScriptedLLM(*searches(5), "Not found.")
    assert isinstance(run("Find it.", llm, tools=[failing(*errors)]), Ok)


def test_success_of_another_tool_does_not_reset_the_circuit_breaker(run):
    """The count is per tool: it continues although other tools succeed.

    LlmCore counts iterations that had an error, whichever tool it came from.
    """
    together = calls(call("search", page=1), call("add", a=1, b=1))
    between = calls(call("add", a=2, b=2))
    llm = ScriptedLLM(together, between, *searches(2))
    result = run("Find it.", llm, tools=[failing(*["down"] * 3), add])
    assert result.reason == CircuitBroken("search", "Error: RuntimeError: down", 3)


def test_a_failing_model_is_an_llm_error_with_the_reason(run):
    """The exception of the backend is the reason, and earlier results are kept."""
    refused = PermissionError("no key")
    llm = ScriptedLLM(calls(call("add", a=1, b=2)), refused)
    result = run("What is 1 + 2?", llm, tools=[add], max_retries=0)
    assert result.reason == LLMError("no key", "PermissionError", 1)
    assert result.reason.cause is refused
    assert answers(result) == ["3"]


def test_a_failing_stage_is_a_pipeline_error_with_the_stage_and_the_cause(run):
    """A stage that raises ends the run; nothing after it runs, and its calls are answered."""
    ran = []

    def later(ctx):
        ran.append(ctx)
        return ctx

    stages = default_stages()
    llm = ScriptedLLM(calls(call("add", a=1, b=2)))
    result = run("1 + 2?", llm, tools=[add], stages=[*stages[:4], broken, later, *stages[4:]])
    assert result.reason == PipelineFailed("broken", "'rates'", "KeyError")
    assert isinstance(result.reason.cause, KeyError)
    assert ran == []
    assert len(answers(result)) == 1


def test_on_iteration_receives_the_context_after_each_iteration(run):
    """It receives the context after the last stage of each iteration."""
    seen = []
    llm = ScriptedLLM(calls(call("add", a=1, b=2)), "3")
    run("1 + 2?", llm, tools=[add], on_iteration=seen.append)
    assert [ctx.iteration for ctx in seen] == [1, 2]
    assert [ctx.status for ctx in seen] == ["continue", "ok"]
    assert [len(ctx.messages) for ctx in seen] == [3, 4]


def test_the_context_has_the_input_of_the_iteration(run):
    """The stage after the model finds messages, tools, response, resolve_tool, iteration, max_iterations."""
    seen = []

    def look(ctx):
        seen.append(ctx)
        return ctx

    def resolve(call):
        return "resolved"

    shown = calls(call("add", a=1, b=2))
    llm = ScriptedLLM(shown, "3")
    ask, *rest = default_stages()
    stages = [ask, look, *rest]
    run("1 + 2?", llm, tools=[add], resolve_tool=resolve, stages=stages, max_iterations=7)
    first, second = seen
    assert [message["role"] for message in first.messages] == ["user"]
    assert [message["role"] for message in second.messages] == ["user", "assistant", "tool"]
    assert list(first.tools) == ["add"]
    assert (first.response.tool_calls[0].name, second.response.content) == ("add", "3")
    assert first.resolve_tool is not None
    assert (first.iteration, second.iteration, first.max_iterations) == (1, 2, 7)
    assert (first.tool_calls, first.tool_results, first.decision) == ((), {}, None)


def test_the_context_has_the_results_of_the_stages(run):
    """After an iteration it has calls, results, result messages, violations, decision and trace."""
    seen = []
    good, bad = call("add", "good", a=1, b=2), call("add", "bad", a="one")
    run("1 + 2?", ScriptedLLM(calls(good, bad), "3"), tools=[add], on_iteration=seen.append)
    first, second = seen
    assert first.tool_calls == (
        ToolCall("good", "add", '{"a": 1, "b": 2}'),
        ToolCall("bad", "add", '{"a": "one"}'),
    )
    assert first.tool_results["good"].content == "3"
    assert first.tool_results["bad"].is_error
    assert list(first.validation_errors) == ["bad"]
    assert len(first.validation_errors["bad"]) == 2
    assert [message["role"] for message in first.result_messages] == ["assistant", "tool", "tool"]
    assert (first.decision, first.status, first.error) == (None, "continue", None)
    assert list(first.trace) == STAGES
    assert (second.decision, second.status, second.error) == (Decision.DONE, "ok", None)
    assert second.tool_results == {}
    assert list(second.trace) == STAGES[:4]


def broken(ctx):
    raise KeyError("rates")


@pytest.mark.parametrize(
    ("script", "options", "trace"),
    [
        ([calls(call("add", a=1, b=2))], {"max_iterations": 1}, STAGES[:8]),
        ([calls(call("add", a=1, b=2))] * 4, {}, STAGES),
        (searches(3), {"tools": [failing("e", "e", "e")]}, STAGES),
        (["3"], {"stages": [*default_stages()[:3], broken]}, [*STAGES[:3], "broken"]),
    ],
    ids=["limit", "loop", "circuit", "stage"],
)
def test_the_context_has_the_error_that_ended_the_run(run, script, options, trace):
    """If the run stops, decision, status and error are set, whichever stage decided it."""
    seen = []
    options = {"tools": [add], **options}
    result = run("1 + 2?", ScriptedLLM(*script), on_iteration=seen.append, **options)
    assert (seen[-1].decision, seen[-1].status) == (Decision.STOP, "error")
    assert seen[-1].error is result.reason
    assert list(seen[-1].trace) == trace


@pytest.mark.parametrize("content", ["", "  \n", None])
def test_a_transient_blank_answer_recovers(run, content):
    """Neither text nor calls: the model is called again with guidance, which is not in the history."""
    llm = ScriptedLLM(blank(content=content), "Here I am.")
    result = run("Hello?", llm)
    assert result.unwrap().content == "Here I am."
    assert "empty" in llm.sent[1].messages[-1]["content"]
    assert [message["content"] for message in result.messages] == ["Hello?", "Here I am."]


def test_persistent_blank_answers_are_an_error_with_all_details(run):
    """Three blanks are tolerated, the fourth ends the run: iteration, attempts, finish reasons."""
    llm = ScriptedLLM(blank(), blank("eos"), blank(None), blank("end_turn"))
    result = run("Hello?", llm, **presets.llmcore())
    assert isinstance(result.reason, EmptyResponse)
    assert (result.reason.iteration, result.reason.attempts) == (4, 4)
    assert result.reason.finish_reasons == ("stop", "eos", None, "end_turn")
    assert (result.reason.provider, result.reason.model) == ("Acme", "model-1")
    assert "provider: Acme; model: model-1" in str(result.reason)
    assert [message["role"] for message in result.messages] == ["user"]


def test_blank_answers_have_a_separate_limit(run):
    """``max_blank_stops`` counts consecutive blanks, wherever in the run they occur."""
    worked = calls(call("add", a=1, b=2))
    llm = ScriptedLLM(blank(), worked, blank(), "3")
    assert isinstance(
        run("1 + 2?", llm, tools=[add], stages=[loop_decision(max_blank_stops=1), ...]), Ok
    )
    result = run(
        "1 + 2?",
        ScriptedLLM(worked, blank(), blank()),
        tools=[add],
        stages=[loop_decision(max_blank_stops=1), ...],
    )
    assert (result.reason.iteration, result.reason.attempts) == (3, 2)
    assert (
        run(
            "Hello?", ScriptedLLM(blank()), stages=[loop_decision(max_blank_stops=0), ...]
        ).reason.attempts
        == 1
    )
