"""`loop_decision`: an answer ends the run, an empty response is retried, calls continue it."""

import pytest
from pydantic import BaseModel

from treadle.context import Decision
from treadle.messages import Response
from treadle.results import EmptyResponse
from treadle.stages import loop_decision, parse_tool_calls, validate_calls
from treadle.tools import tool

BLANK = Response(" ", finish_reason="stop", model="m1", extra={"provider": "acme"})


@tool
def add(a: int): ...


class Answer(BaseModel):
    text: str


@pytest.fixture
def decide(context, through):
    def decide(*calls, **more):
        more.setdefault("tools", [add, tool(Answer, terminal=True)])
        return through(context(*calls, **more), parse_tool_calls, validate_calls, loop_decision)

    return decide


@pytest.mark.parametrize("response", [Response("Hi"), Response(None, refusal="No.")])
def test_text_without_a_call_is_the_answer(decide, response):
    ctx = decide(response=response)
    assert (ctx.decision, ctx.output, ctx.guidance) == (Decision.DONE, None, None)


def test_calls_continue_the_run_whether_valid_or_not(decide):
    ctx = decide(("add", {"a": 1}), ("nope", {}))
    assert (ctx.decision, ctx.guidance) == (None, None)


def test_a_blank_response_continues_the_run_with_guidance(decide):
    ctx = decide(response=BLANK)
    assert ctx.decision is None
    assert "Your last reply was empty" in ctx.guidance


def test_consecutive_blanks_are_tolerated_up_to_the_limit(context, through):
    ctx = context(response=BLANK, iteration=7)
    stage = loop_decision(max_blank_stops=2)
    for _ in range(2):
        ctx = through(ctx, stage)
        assert ctx.decision is None
    ctx = through(ctx, stage)
    assert ctx.decision is Decision.STOP
    assert ctx.error == EmptyResponse(7, 3, ("stop",) * 3, "acme", "m1")


def test_three_blanks_are_tolerated_by_default(context, through):
    ctx = context(response=BLANK)
    for _ in range(3):
        ctx = through(ctx, loop_decision)
        assert ctx.decision is None
    assert through(ctx, loop_decision).decision is Decision.STOP


def test_with_a_limit_of_zero_no_blank_is_tolerated(context, through):
    stage = loop_decision(max_blank_stops=0)
    assert through(context(response=BLANK), stage).decision is Decision.STOP


def test_a_call_resets_the_count(context, through):
    stage = loop_decision(max_blank_stops=1)
    ctx = through(context(response=BLANK), stage)
    calling = context(("add", {"a": 1}), tools=[add]).response
    ctx = through(ctx.replace(response=calling, guidance=None), parse_tool_calls, stage)
    ctx = through(ctx.replace(response=BLANK, tool_calls=()), stage)
    assert ctx.decision is None


class TestATerminalTool:
    """A valid call of one ends the run; its arguments are the output."""

    def test_its_arguments_are_the_output_as_an_instance_of_its_model(self, decide):
        ctx = decide(("Answer", {"text": "42"}))
        assert (ctx.decision, ctx.output) == (Decision.DONE, Answer(text="42"))
        assert ctx.tool_results["c1"].content == "Accepted: this is the final output."
        assert not ctx.tool_results["c1"].is_error

    def test_its_siblings_are_answered_and_not_run(self, decide):
        ctx = decide(("add", {"a": 1}), ("Answer", {"text": "x"}), ("nope", {}), ("Answer", "{}"))
        texts = {i: result.content for i, result in ctx.tool_results.items()}
        assert texts["c1"] == "Not run: the call of 'Answer' ended the run."
        assert "there is no tool named 'nope'" in texts["c3"]
        assert "missing required field 'text'" in texts["c4"]
        assert ctx.tool_results["c1"].status == "ended_run"

    def test_the_first_of_two_counts(self, decide):
        ctx = decide(("Answer", {"text": "1"}), ("Answer", {"text": "2"}))
        assert ctx.output == Answer(text="1")
        assert ctx.tool_results["c2"].is_error
