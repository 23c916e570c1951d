"""`loop_decision`: an answer ends the run, an empty response is retried, calls continue it."""

import pytest
from pydantic import BaseModel

from treadle.context import Decision
from treadle.messages import Response
from treadle.stages import loop_decision, parse_tool_calls, validate_calls
from treadle.tools import tool


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


class TestATerminalTool:
    """A valid call of one ends the run; its arguments are the output."""

    def test_its_arguments_are_the_output_as_an_instance_of_its_model(self, decide):
        ctx = decide(("Answer", {"text": "42"}))
        assert (ctx.decision, ctx.output) == (Decision.DONE, Answer(text="42"))
        assert ctx.tool_results["c1"].content == "Accepted: this is the final output."
        assert not ctx.tool_results["c1"].is_error

    def test_the_first_counts_and_its_siblings_are_answered_and_not_run(self, decide):
        first, second = ("Answer", {"text": "1"}), ("Answer", {"text": "2"})
        ctx = decide(("add", {"a": 1}), first, ("nope", {}), ("Answer", "{}"), second)
        assert ctx.output == Answer(text="1")
        texts = {i: result.content for i, result in ctx.tool_results.items()}
        assert texts["c1"] == texts["c5"] == "Not run: the call of 'Answer' ended the run."
        assert "there is no tool named 'nope'" in texts["c3"]
        assert "missing required field 'text'" in texts["c4"]
        assert ctx.tool_results["c1"].status == "ended_run"
