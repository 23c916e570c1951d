"""A text for the model is in one request, whatever else the run has to say there; user messages alternate."""

import itertools

import pytest

from treadle import Limits, Loop, Paused, RunHandle, approve, tool
from treadle.sessions import SQLiteSessions
from treadle.stages._loop_decision import BLANK_NUDGE
from treadle.testing import ScriptedLLM, call, calls

from .conftest import check_history
from .notes import note, notes

TEXT = "Take the short way."
FINISH = Limits(max_iterations=1, on_limit="finish")


def guided(place, **options):
    """A loop with a stage that gives guidance in the first iteration."""

    def guide(ctx):
        return ctx.guide(TEXT) if ctx.iteration == 1 else ctx

    stages = Loop().pipeline.insert_after(place, guide)
    return Loop(**{"tools": [note], "stages": stages, **options})


def counts(text, *models):
    """How often each request has a text; no request has two user messages in a row."""
    sent = [one.messages for model in models for one in model.sent]
    for messages in sent:
        check_history(messages)
        roles = [message["role"] for message in messages]
        assert ("user", "user") not in list(itertools.pairwise(roles))
    return [sum(str(one["content"]).count(text) for one in messages) for messages in sent]


class TestSteering:
    @pytest.mark.parametrize("place", ["ask_model", "circuit_breaker"])
    def test_a_message_that_arrives_while_tools_run(self, way, place):
        handle = RunHandle()

        @tool
        def steer():
            handle.steer("And quickly.")

        loop, model = guided(place, tools=[steer]), ScriptedLLM(calls(call("steer")), "done")
        result = way.run(loop, model, handle=handle)
        assert counts(TEXT, model) == counts("And quickly.", model) == [0, 1]
        assert TEXT not in str(result.messages)

    def test_a_message_that_arrives_before_a_pause(self, way, recorded):
        handle = RunHandle()

        @tool
        def steer():
            handle.steer("And quickly.")

        loop = guided("ask_model", tools=[steer, *recorded.tools])
        model = ScriptedLLM(calls(call("steer"), call("wipe", "w", path="/")))
        paused, again = way.run(loop, model, handle=handle), ScriptedLLM("done")
        assert isinstance(paused, Paused)
        way.resume(loop, paused, {"w": approve}, again)
        assert counts(TEXT, model, again) == counts("And quickly.", model, again) == [0, 1]


def test_a_message_that_arrives_with_the_answer(way):
    handle = RunHandle()

    def answer(messages):
        handle.steer("And quickly.")
        return "It is done."

    model = ScriptedLLM(answer, "done")
    way.run(guided("ask_model"), model, handle=handle)
    assert counts(TEXT, model) == counts("And quickly.", model) == [0, 1]


class TestOtherTexts:
    """Texts of the loop are joined to that of a stage."""

    def test_a_blank_response(self, way):
        model = ScriptedLLM("", "done")
        way.run(guided("ask_model"), model)
        assert counts(f"{TEXT}\n\n{BLANK_NUDGE}", model) == [0, 1]

    @pytest.mark.parametrize("first", [notes(1), ""])
    def test_the_last_answer_at_a_limit(self, way, first):
        """What was to be said after an empty response is not: the model is asked for something else."""
        model = ScriptedLLM(first, "done")
        result = way.run(guided("ask_model", limits=FINISH), model)
        assert counts(f"{TEXT}\n\nThe budget for this task is spent", model) == [0, 1]
        assert counts(BLANK_NUDGE, model) == [0, 0]
        assert TEXT not in str(result.messages)

    def test_an_output_that_was_not_accepted_at_a_limit(self, way):
        """The model reads why; the history keeps that, but not the text for the last answer."""
        model = ScriptedLLM("many", "more", "3")
        result = way.run(Loop(output=int, limits=FINISH), model)
        assert counts("The budget for this task is spent", model) == [0, 1, 1]
        assert counts("not accepted as the answer", model) == [
            0,
            1,
            2,
        ]  # after a text, it is stored
        assert "The budget for this task is spent" not in str(result.messages)

    def test_guidance_and_a_rejected_output(self, way):
        def guide(ctx):
            return ctx.guide(TEXT) if ctx.iteration == 1 else ctx

        model = ScriptedLLM("many", calls(call("final_answer", value=3)))
        loop = Loop(output=int, stages=Loop().pipeline.insert_before("loop_decision", guide))
        way.run(loop, model)
        assert counts(TEXT, model) == counts("not accepted as the answer", model) == [0, 1]


def test_a_turn_after_one_without_an_answer(way, tmp_path):
    """The next message of the user is joined to the one that got no answer, as one that steers a run is."""
    model = ScriptedLLM(ValueError("broken"), notes(1), "done", "fine")
    loop = Loop(tools=[note], session=SQLiteSessions(tmp_path / "s.db").session("s"))
    results = [way.run(loop, model, messages) for messages in ("First.", "Second.", "Third.")]
    assert [one.stop_reason for one in results] == ["llm_error", "answered", "answered"]
    assert counts("First.\n\nSecond.", model) == [0, 1, 1, 1]
    stored = loop.settings.session.messages()
    assert stored == results[-1].messages
    assert [one["role"] for one in stored] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
