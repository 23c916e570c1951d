"""A call of a terminal tool that needs approval pauses the run before it can end it."""

import re

import pytest
from pydantic import BaseModel

from treadle import (
    Err,
    Limits,
    Loop,
    Ok,
    Output,
    OutputMissing,
    Paused,
    Retry,
    approve,
    deny,
    edit,
    tool,
)
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, answers, stored


class Transfer(BaseModel):
    """A transfer of money."""

    amount: int


ENDS = calls(call("transfer", "t", amount=500))


def transfer_tool(rule=True):
    return tool(
        {
            "name": "transfer",
            "input_schema": {
                "type": "object",
                "properties": {"amount": {"type": "integer"}},
                "required": ["amount"],
            },
        },
        terminal=True,
        requires_approval=rule,
    )


def typed_tool(rule=True):
    return tool(Transfer, name="transfer", requires_approval=rule)


def terminal_options():
    """The ways to have a terminal tool that needs approval."""
    return [
        pytest.param({"tools": [transfer_tool()]}, {"amount": 500}, id="a terminal tool"),
        pytest.param({"output": transfer_tool()}, {"amount": 500}, id="the output"),
        pytest.param({"output": typed_tool()}, Transfer(amount=500), id="a model as the output"),
    ]


def decided(paused, decision):
    """The same decision on every pending call."""
    return {one.id: decision for one in paused.pending}


class TestDeciding:
    """The person decides whether the call ends the run."""

    @pytest.mark.parametrize(
        ("decision", "amount", "note"),
        [(approve, 500, ""), (edit({"amount": 7}), 7, 'changed the arguments.*{"amount": 7}')],
    )
    @pytest.mark.parametrize(("options", "output"), terminal_options())
    def test_the_run_pauses_and_once_approved_ends_with_the_output(
        self, way, options, output, decision, amount, note
    ):
        loop, model = Loop(**options), ScriptedLLM(ENDS)
        paused = way.run(loop, model)
        assert isinstance(paused, Paused)
        [pending] = paused.pending
        assert (pending.name, pending.arguments) == ("transfer", {"amount": 500})
        assert pending.question == "'transfer' needs approval"
        assert answers(paused.messages)["t"].startswith("No result yet")
        result = way.resume(loop, stored(paused), decided(paused, decision), model)
        assert isinstance(result, Ok)
        expected = type(output)(amount=amount)
        assert (result.output, result.stop_reason) == (expected, "output")
        text, _, more = answers(result.messages)["t"].partition("\n\n")
        assert text == "Accepted: this is the final output."
        assert re.search(note, more) if note else not more

    @pytest.mark.parametrize(("options", "output"), terminal_options())
    def test_once_denied_the_model_reads_the_reason_and_the_run_goes_on(self, way, options, output):
        del output
        less = calls(call("transfer", "u", amount=5))
        loop, model = Loop(**options), ScriptedLLM(ENDS, less)
        paused = way.run(loop, model)
        again = way.resume(loop, stored(paused), decided(paused, deny("too much")), model)
        assert isinstance(again, Paused)
        assert answers(model.sent[1].messages)["t"] == (
            "Not run: a person did not approve this call: too much. Do without it, or ask."
        )
        assert again.pending[0].arguments == {"amount": 5}
        result = way.resume(loop, stored(again), decided(again, approve), model)
        assert result.output in ({"amount": 5}, Transfer(amount=5))

    def test_a_denial_is_no_failed_attempt_at_the_output(self):
        loop = Loop(output=Output(typed_tool(), max_retries=0))
        model = ScriptedLLM(ENDS, ENDS, ENDS)
        result = SYNC.run(loop, model)
        for _ in range(2):
            result = SYNC.resume(loop, result, decided(result, deny()), model)
        assert isinstance(result, Paused)


class TestRules:
    """The option is a function of the arguments, as for every tool."""

    def test_a_rule_is_asked_once_for_a_call(self):
        """Otherwise a call that a person has not decided yet would end the run."""
        asked = []

        def rule(given):
            asked.append(given)
            return len(asked) == 1

        loop, model = Loop(tools=[transfer_tool(rule)]), ScriptedLLM(ENDS)
        paused = SYNC.run(loop, model)
        assert isinstance(SYNC.resume(loop, paused, {}, model), Paused)
        assert len(asked) == 1

    def test_a_denied_call_does_not_end_the_run_although_its_rule_no_longer_asks(self):
        asks = [True]
        loop = Loop(tools=[transfer_tool(lambda given: bool(asks) and asks.pop())])
        model = ScriptedLLM(ENDS, "as you wish")
        paused = SYNC.run(loop, model)
        result = SYNC.resume(loop, paused, decided(paused, deny()), model)
        assert result.output == "as you wish"


class TestOtherCalls:
    """Calls beside the one that ends the run."""

    def test_they_do_not_run_if_it_is_approved(self, recorded, way):
        loop = recorded.loop(tools=[*recorded.tools, transfer_tool()])
        model = ScriptedLLM(calls(call("note", "n", n=1), call("transfer", "t", amount=500)))
        paused = way.run(loop, model)
        assert [one.name for one in paused.pending] == ["transfer"]
        result = way.resume(loop, stored(paused), decided(paused, approve), model)
        assert (result.output, recorded.done) == ({"amount": 500}, [])
        assert answers(result.messages)["n"] == "Not run: the call of 'transfer' ended the run."

    @pytest.mark.parametrize("sequential", ["defer", "in_step"])
    def test_they_run_if_it_is_denied_and_wait_for_their_own_approval(
        self, recorded, way, sequential
    ):
        loop = recorded.loop(tools=[*recorded.tools, transfer_tool()], sequential=sequential)
        batch = calls(
            call("note", "n", n=1),
            call("transfer", "t", amount=500),
            call("wipe", "w", path="/"),
        )
        model = ScriptedLLM(batch, "done")
        paused = way.run(loop, model)
        again = way.resume(loop, stored(paused), decided(paused, deny("no")), model)
        assert (recorded.done, [one.name for one in again.pending]) == (["note 1"], ["wipe"])
        result = way.resume(loop, stored(again), decided(again, approve), model)
        assert recorded.done == ["note 1", "wipe /"]
        assert (result.output, result.tool_calls_count) == ("done", 2)

    def test_of_two_such_calls_the_second_is_asked_for_once_the_first_is_denied(self, way):
        loop = Loop(tools=[transfer_tool()])
        two = calls(call("transfer", "t", amount=1), call("transfer", "u", amount=2))
        model = ScriptedLLM(two)
        paused = way.run(loop, model)
        assert [one.arguments for one in paused.pending] == [{"amount": 1}]
        again = way.resume(loop, stored(paused), decided(paused, deny()), model)
        assert [one.arguments for one in again.pending] == [{"amount": 2}]
        result = way.resume(loop, stored(again), decided(again, approve), model)
        assert result.output == {"amount": 2}
        assert answers(result.messages)["t"].startswith("Not run: a person did not approve")


class TestOutput:
    """With ``output``, what was approved is checked like every output."""

    def test_validators_run_on_what_was_approved(self, way):
        seen = []
        loop = Loop(output=Output(typed_tool(), validators=seen.append))
        model = ScriptedLLM(ENDS)
        paused = way.run(loop, model)
        assert seen == []
        way.resume(loop, stored(paused), decided(paused, edit({"amount": 7})), model)
        assert seen == [Transfer(amount=7)]

    def test_a_validator_may_refuse_what_was_approved(self, way):
        def check(value):
            if value.amount > 100:
                raise Retry("at most 100")

        less = calls(call("transfer", "u", amount=5))
        loop = Loop(output=Output(typed_tool(), validators=check))
        model = ScriptedLLM(ENDS, less)
        paused = way.run(loop, model)
        again = way.resume(loop, stored(paused), decided(paused, approve), model)
        assert "at most 100" in answers(model.sent[1].messages)["t"]
        result = way.resume(loop, stored(again), decided(again, approve), model)
        assert result.output == Transfer(amount=5)


class TestLastAnswer:
    """At a limit with ``on_limit="finish"``, the last answer may be such a call."""

    OPTIONS = {"max_iterations": 1, "limits": Limits(on_limit="finish")}  # noqa: RUF012

    def paused(self, recorded, way, *script, **options):
        options = {"tools": [*recorded.tools, transfer_tool()], **self.OPTIONS, **options}
        loop = Loop(**options)
        model = ScriptedLLM(calls(call("note", "n", n=1)), ENDS, *script)
        result = way.run(loop, model)
        assert isinstance(result, Paused)
        return loop, model, result

    def test_once_approved_the_run_is_finished(self, recorded, way):
        loop, model, paused = self.paused(recorded, way)
        result = way.resume(loop, stored(paused), decided(paused, approve), model)
        assert (result.output, result.stop_reason) == ({"amount": 500}, "finished")
        assert str(result.limit) == "no answer within max_iterations=1"

    def test_once_denied_the_model_is_asked_one_more_time(self, recorded, way):
        loop, model, paused = self.paused(recorded, way, "I may not transfer it.")
        result = way.resume(loop, stored(paused), decided(paused, deny("no")), model)
        assert (result.output, result.stop_reason) == ("I may not transfer it.", "finished")
        assert model.sent[2].opts["tool_choice"] == "none"
        assert model.left == 0

    def test_a_call_denied_twice_ends_it_without_an_output(self, recorded, way):
        loop, model, result = self.paused(recorded, way, ENDS, output="transfer")
        for _ in range(2):
            result = way.resume(loop, stored(result), decided(result, deny("no")), model)
        assert isinstance(result, Err)
        assert isinstance(result.reason, OutputMissing)
        assert result.reason.problems == ("a person did not approve it",)
        assert model.left == 0

    def test_no_call_that_was_made_beside_it_runs_after_the_pause(self, recorded, way):
        both = calls(call("transfer", "t", amount=500), call("wipe", "w", path="/"))
        loop = Loop(tools=[*recorded.tools, transfer_tool()], **self.OPTIONS)
        model = ScriptedLLM(calls(call("note", "n", n=1)), both, "done")
        paused = way.run(loop, model)
        result = way.resume(loop, stored(paused), decided(paused, deny()), model)
        assert recorded.done == ["note 1"]
        assert "the budget for this task is spent" in answers(result.messages)["w"]


class TestSubagent:
    """A subagent whose terminal tool needs approval pauses its parent."""

    def test_its_output_is_the_result_of_the_call_once_approved(self, way):
        inner = ScriptedLLM(ENDS)
        child = Loop(tools=[transfer_tool()]).as_tool("child", "Transfers.", inner)
        loop, model = Loop(tools=[child]), ScriptedLLM(calls(call("child", "k", task="t")), "done")
        paused = way.run(loop, model)
        assert [one.name for one in paused.pending] == ["transfer"]
        result = way.resume(loop, stored(paused), decided(paused, edit({"amount": 9})), model)
        assert result.output == "done"
        assert answers(result.messages)["k"] == '{"amount":9}'


class TestStages:
    """Custom stages cannot get around the approval."""

    def test_a_stage_that_edits_the_denial_does_not_end_the_run_with_the_call(self):
        def shorten(ctx):
            return ctx.edit_result("t", "Denied.") if ctx.tool_results else ctx

        stages = list(default_stages())
        stages.insert(4, shorten)
        loop = Loop(stages=stages, tools=[transfer_tool()])
        model = ScriptedLLM(ENDS, "done")
        paused = SYNC.run(loop, model)
        result = SYNC.resume(loop, paused, decided(paused, deny("no")), model)
        assert result.output == "done"
        assert answers(result.messages)["t"] == "Denied."

    def test_a_tool_from_a_stage_needs_approval_too(self):
        stages = [lambda ctx: ctx.with_tools(add=[transfer_tool()]), *default_stages()]
        loop, model = Loop(stages=stages), ScriptedLLM(ENDS)
        assert isinstance(SYNC.run(loop, model), Paused)
