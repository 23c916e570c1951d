"""Spans in a real Phoenix, sent over OTLP and read with its HTTP API: rules for all runs, and a plain run."""

from __future__ import annotations

import json

import pytest

from .looking import events_of, of, tokens_of

pytestmark = [pytest.mark.phoenix, pytest.mark.timeout(400)]

KINDS = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL", "request": "CHAIN"}


class TestEveryRun:
    """Rules for all runs."""

    def test_each_span_arrives_once_and_unchanged(self, runs):
        assert len(runs) > 10
        for project in runs.values():
            sent = [(s["trace_id"], s["span_id"], s["parent_id"], s["name"]) for s in project.sent]
            arrived = [
                (s["context"]["trace_id"], s["context"]["span_id"], s["parent_id"], s["name"])
                for s in project.spans
            ]
            assert sorted(arrived, key=str) == sorted(sent, key=str)
            assert len(sent) == len(set(sent)) >= 2

    def test_each_has_its_kind(self, runs):
        for project in runs.values():
            for span in project.spans:
                assert span["span_kind"] == KINDS[span["name"].split()[0]]

    def test_each_parent_exists_and_encloses_its_children(self, runs):
        for project in runs.values():
            by_id = {span["context"]["span_id"]: span for span in project.spans}
            for span in project.spans:
                assert span["start_time"] <= span["end_time"]
                if span["parent_id"] is not None:
                    around = by_id[span["parent_id"]]
                    assert around["start_time"] <= span["start_time"]
                    assert span["end_time"] <= around["end_time"]
                    assert around["context"]["trace_id"] == span["context"]["trace_id"]

    def test_only_model_calls_have_tokens(self, runs):
        for project in runs.values():
            for span in project.spans:
                if span["span_kind"] != "LLM":
                    assert tokens_of(span) == (None, None, None)

    def test_each_agent_has_one_completion_event(self, runs):
        for project in runs.values():
            for span in project.of_kind("AGENT"):
                assert events_of(span).count("treadle.loop.complete") == 1
                assert span["attributes"]["treadle.stop_reason"]


@of("without-content")
class TestPlainRun:
    """Two tool calls, one of which fails."""

    def test_all_spans_are_below_the_agent(self, project):
        assert [project.path(span) for span in project.spans] == [
            ("invoke_agent helper",),
            ("chat gpt-4o-mini", "invoke_agent helper"),
            ("execute_tool double", "invoke_agent helper"),
            ("chat gpt-4o-mini", "invoke_agent helper"),
            ("execute_tool broken", "invoke_agent helper"),
            ("chat gpt-4o-mini", "invoke_agent helper"),
        ]

    def test_each_model_call_has_its_tokens(self, project):
        chats = project.of_kind("LLM")
        assert [tokens_of(chat) for chat in chats] == [(1, 2, 3), (10, 20, 30), (100, 200, 300)]
        cached = "llm.token_count.prompt_details.cache_read"
        assert [chat["attributes"].get(cached) for chat in chats] == [None, 5, 50]
        assert project.tokens == [(111, 222, 333)]

    def test_the_model_and_its_options_are_shown(self, project):
        for chat in project.of_kind("LLM"):
            assert chat["attributes"]["llm.model_name"] == "gpt-4o-mini"
            assert json.loads(chat["attributes"]["llm.invocation_parameters"]) == {
                "temperature": 0.5
            }
        reasons = [chat["attributes"]["llm.finish_reason"] for chat in project.of_kind("LLM")]
        assert reasons == ["tool_calls", "tool_calls", "stop"]

    def test_the_tokens_are_priced(self, project, runs):
        """By the model that was asked for; where that cannot be seen, Phoenix has no price."""
        assert project.cost > 0
        assert runs["with-content"].cost == pytest.approx(project.cost)
        assert runs["streamed"].cost > 0
        assert runs["nested"].cost == 0

    def test_only_the_failed_tool_is_an_error(self, project):
        broken = project.one("execute_tool broken")
        assert broken["status_code"] == "ERROR"
        assert broken["attributes"]["error.type"] == broken["status_message"] == "tool_error"
        others = [span for span in project.spans if span is not broken]
        assert {span["status_code"] for span in others} == {"UNSET"}

    def test_tools_are_shown_with_their_attributes(self, project):
        shown = project.one("execute_tool double")["attributes"]
        assert shown["tool.name"] == "double"
        assert shown["tool.description"] == "Double a number."
        assert shown["tool.id"] == "c1"

    def test_no_content_is_shown(self, project):
        shown = json.dumps([project.spans, project.traces])
        assert "confidence" not in shown
        assert "Let me see" not in shown
        assert "llm.input_messages" not in shown
        assert "tool.parameters" not in shown


@of("with-content")
class TestContent:
    """The same run, with content."""

    def messages(self, span, direction):
        prefix = f"llm.{direction}_messages."
        found = {}
        for key, value in span["attributes"].items():
            if key.startswith(prefix):
                number, _, rest = key.removeprefix(prefix).partition(".message.")
                found.setdefault(int(number), {})[rest] = value
        return [found[number] for number in sorted(found)]

    def test_the_conversation_is_shown_as_it_was_sent(self, project):
        last = project.of_kind("LLM")[-1]
        function = "tool_calls.0.tool_call.function"
        assert self.messages(last, "input") == [
            {"role": "system", "content": "You are brief."},
            {"role": "user", "content": "What is twice 21, in confidence?"},
            {
                "role": "assistant",
                "tool_calls.0.tool_call.id": "c1",
                f"{function}.name": "double",
                f"{function}.arguments": '{"n": 21}',
            },
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "tool_calls.0.tool_call.id": "c2",
                f"{function}.name": "broken",
                f"{function}.arguments": '{"n": 4}',
            },
            {
                "role": "tool",
                "tool_call_id": "c2",
                "content": "Error: ValueError: no 4 in confidence",
            },
        ]

    def test_answers_are_shown(self, project):
        (first,) = self.messages(project.of_kind("LLM")[0], "output")
        assert first["role"] == "assistant"
        assert first["tool_calls.0.tool_call.function.name"] == "double"
        (last,) = self.messages(project.of_kind("LLM")[-1], "output")
        assert last["content"] == "It is 42."

    def test_the_agent_shows_the_question_and_the_answer(self, project):
        (agent,) = project.of_kind("AGENT")
        asked = self.messages(agent, "input")
        assert [message["content"] for message in asked] == [
            "You are brief.",
            "What is twice 21, in confidence?",
        ]
        (answered,) = self.messages(agent, "output")
        assert answered["content"] == "It is 42."

    def test_tools_are_shown_with_their_arguments_and_results(self, project):
        double = project.one("execute_tool double")["attributes"]
        assert (double["tool.parameters.n"], double["output.value"]) == (21, "42")
        broken = project.one("execute_tool broken")["attributes"]
        assert broken["output.value"] == "Error: ValueError: no 4 in confidence"

    def test_the_offered_tools_are_shown(self, project):
        for chat in project.of_kind("LLM"):
            first = json.loads(chat["attributes"]["llm.tools.0.tool.json_schema"])
            assert first["function"]["name"] == "double"
            assert first["function"]["parameters"]["required"] == ["n"]

    def test_it_has_the_same_tokens(self, project):
        assert project.tokens == [(111, 222, 333)]
