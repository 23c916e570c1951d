"""Spans in a real Phoenix: runs within runs, runs that are resumed, and whatever happens in a run."""

from __future__ import annotations

import json

import pytest

from .looking import events_of, of, tokens_of

pytestmark = [pytest.mark.phoenix, pytest.mark.timeout(400)]


class TestSeveralRuns:
    """Subagents, resumed runs, runs of one conversation."""

    @of("nested")
    def test_a_subagent_is_below_its_call(self, project):
        parent = ("invoke_agent parent",)
        kid = ("invoke_agent kid", "execute_tool ask", *parent)
        chat = "chat gpt-4o-mini-2024-07-18"
        one = [kid, (chat, *kid), ("execute_tool double", *kid), (chat, *kid)]
        asked = [("execute_tool ask", *parent)]
        assert project.paths == sorted(
            [parent, (chat, *parent), (chat, *parent), *2 * (asked + one)]
        )

    @of("nested")
    def test_each_subagent_is_below_its_own_call(self, project):
        by_id = {span["context"]["span_id"]: span for span in project.spans}
        for kid in project.named("invoke_agent kid"):
            around = by_id[kid["parent_id"]]["attributes"]["tool.id"]
            within = [s for s in project.spans if s["parent_id"] == kid["context"]["span_id"]]
            read = sum(tokens_of(span)[0] or 0 for span in within)
            assert read == {"k1": 110, "k2": 11_000}[around]

    @of("nested")
    def test_tokens_of_subagents_count_once(self, project):
        assert project.tokens == [(111_111, 222_222, 333_333)]

    @of("resumed")
    def test_a_resumed_run_is_another_trace_with_the_same_run_id(self, project):
        """Phoenix keeps no links: the id of the run is what the two have in common there."""
        before, after = project.of_kind("AGENT")
        assert before["context"]["trace_id"] != after["context"]["trace_id"]
        run_ids = [span["attributes"]["treadle.run.id"] for span in (before, after)]
        assert run_ids[0] == run_ids[1]
        assert before["attributes"]["treadle.stop_reason"] == "paused"
        assert "treadle.run.resumed" not in before["attributes"]
        assert after["attributes"]["treadle.run.resumed"] is True
        (link,) = [span["links"] for span in project.sent if span["links"]]
        assert link == [before["context"]["span_id"]]

    @of("resumed")
    def test_tokens_of_a_resumed_run_count_once(self, project):
        assert project.tokens == [(1, 2, 3), (10, 20, 30)]

    @of("sessions")
    def test_runs_of_a_conversation_are_a_session(self, project):
        (session,) = project.sessions
        assert session["session_id"] == "conversation-7"
        assert len(session["traces"]) == 2
        assert (session["token_count_prompt"], session["token_count_completion"]) == (11, 22)
        assert project.paths[-2:] == [("request",)] * 2
        roots = project.named("request")
        assert [root["attributes"]["user.id"] for root in roots] == ["ada"] * 2
        assert len(project.of_kind("AGENT")) == 2
        for agent in project.of_kind("AGENT"):
            assert project.path(agent) == ("invoke_agent", "request")


class TestCourseOfARun:
    """Retries, streams, recipes, failures, cancellations."""

    @of("retried")
    def test_retries_are_events_without_tokens(self, project):
        busy, done = project.of_kind("LLM")
        assert events_of(busy) == ["treadle.model.retry"] * 2
        assert [event["attributes"]["error.type"] for event in busy["events"]] == ["Busy"] * 2
        assert (tokens_of(busy), tokens_of(done)) == ((1, 2, 3), (10, 20, 30))
        assert events_of(project.one("execute_tool flaky")) == ["treadle.tool.retry"]
        assert project.tokens == [(11, 22, 33)]
        assert {span["status_code"] for span in project.spans} == {"UNSET"}

    @of("streamed")
    def test_a_streamed_response_is_one_model_call(self, project):
        chat = project.one("chat gpt-4o-mini")
        assert tokens_of(chat) == (1, 2, 3)
        assert json.loads(chat["attributes"]["llm.invocation_parameters"])["stream"] is True
        assert chat["attributes"]["gen_ai.response.time_to_first_chunk"] >= 0
        assert project.tokens == [(1, 2, 3)]

    @of("recipe")
    def test_the_steps_of_a_recipe_are_below_their_call(self, project):
        call = ("execute_tool report", "invoke_agent")
        steps = [(f"execute_tool {name}", *call) for name in ("count", "fetch", "sort")]
        tools = [project.path(span) for span in project.of_kind("TOOL")]
        assert sorted(tools) == sorted([call, *steps])
        assert project.tokens == [(11, 22, 33)]

    @of("failed")
    def test_a_failed_model_call_and_its_run_are_errors(self, project):
        good, bad = project.of_kind("LLM")
        (agent,) = project.of_kind("AGENT")
        assert (good["status_code"], bad["status_code"]) == ("UNSET", "ERROR")
        assert bad["status_message"] == "TypeError"
        assert (agent["status_code"], agent["status_message"]) == ("ERROR", "llm_error")
        assert project.tokens == [(1, 2, 3)]
        assert "confidence" not in json.dumps(project.spans)

    @of("cancelled")
    def test_a_cancelled_run_is_complete(self, project):
        parent = ("invoke_agent parent",)
        kid = ("invoke_agent kid", "execute_tool ask", *parent)
        chat = "chat gpt-4o-mini-2024-07-18"
        hang = ("execute_tool hang", *kid)
        expected = [parent, (chat, *parent), kid[1:], kid, (chat, *kid), hang]
        assert project.paths == sorted(expected)
        failed = {span["name"]: span["attributes"].get("error.type") for span in project.spans}
        assert failed == {
            "invoke_agent parent": "cancelled",
            "execute_tool ask": "cancelled",
            "invoke_agent kid": "cancelled",
            "execute_tool hang": "cancelled",
            chat: None,
        }
        assert project.tokens == [(11, 22, 33)]


class TestUnusualContent:
    """Content other than plain text."""

    @of("pictures")
    def test_images_are_shown_as_images(self, project):
        (chat,) = project.of_kind("LLM")
        shown, parts = chat["attributes"], "llm.input_messages.0.message.contents"
        kinds = [shown[f"{parts}.{n}.message_content.type"] for n in range(3)]
        assert kinds == ["text", "image", "image"]
        assert shown[f"{parts}.0.message_content.text"] == "What is it?"
        urls = [shown[f"{parts}.{n}.message_content.image.image.url"] for n in (1, 2)]
        assert urls == ["data:image/png;base64,iVBORw0KGgo=", "https://example.org/cat.jpg"]
        assert shown["llm.input_messages.0.message.name"] == "ada"

    @of("pictures")
    def test_reasoning_is_separate_from_the_answer(self, project):
        (chat,) = project.of_kind("LLM")
        shown, parts = chat["attributes"], "llm.output_messages.0.message.contents"
        shown_parts = [
            (
                shown[f"{parts}.{n}.message_content.type"],
                shown[f"{parts}.{n}.message_content.text"],
            )
            for n in range(2)
        ]
        assert shown_parts == [("reasoning", "It has whiskers."), ("text", "A cat.")]

    @of("hostile")
    def test_text_that_cannot_be_sent_does_not_hide_other_text(self, project):
        for span in project.spans:
            if span["span_kind"] != "TOOL":
                shown = span["attributes"]
                question = shown["llm.input_messages.0.message.content"]
                assert question == "? \x00 \u202e </script> \U0001f9f5"
                assert shown["llm.output_messages.0.message.role"] == "assistant"
        last = project.of_kind("LLM")[-1]["attributes"]
        assert last["llm.output_messages.0.message.content"].startswith("done ? \x00")


@of("guide")
class TestGuide:
    """The samples of `docs/guide-phoenix.md`."""

    def test_it_makes_two_traces(self, project):
        agent = ("invoke_agent adder",)
        inner = [("chat gpt-4o-mini", *agent)] * 2 + [("execute_tool add", *agent)]
        alone, request = [agent, *inner], ("request",)
        within = [(*path, *request) for path in alone]
        assert project.paths == sorted([*alone, *within, request])

    def test_the_second_is_in_a_session_and_has_input_and_output(self, project):
        (session,) = project.sessions
        root = project.one("request")
        assert session["session_id"] == "conversation-1"
        (trace,) = session["traces"]
        assert trace["trace_id"] == root["context"]["trace_id"]
        assert root["span_kind"] == "CHAIN"
        assert root["attributes"]["user.id"] == "ada"
        assert root["attributes"]["input.value"] == "2 + 3?"
        assert root["attributes"]["output.value"] == "It is 5."
