"""How a response ended, for each adapter, whole and streamed, and what the run does; see docs/providers.md."""

import itertools
import json
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.wire.speaking import APIS, COMPLETE, JSON, WORDS, Said, Scripted, body, sse

from treadle import (
    Err,
    Loop,
    ModelRetried,
    Ok,
    Output,
    OutputMissing,
    Plan,
    Response,
    ResponseIncomplete,
    ToolCall,
    ToolStarted,
    stage,
    tool,
)
from treadle.stages import ask_model, loop_decision, validate_calls
from treadle.testing import ScriptedLLM, check_history

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"
CALL = ("c1", "act", '{"folder": "/x"}')
CUT = ("c1", "act", None)
FORMS = {False: "whole", True: "streamed"}


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def streamed(request):
    return request.param


@pytest.fixture(params=APIS)
def api(request):
    return request.param


class Outcome:
    """What a run did after a response of the model, and after a second one, ``Done.``."""

    def __init__(self, api, streamed, *said, **options):
        self.ran, self.events = [], []

        @tool
        def act(folder: str = "/", recursive: bool = True) -> str:
            """Act."""
            self.ran.append((folder, recursive))
            return "acted"

        bodies = [one if isinstance(one, tuple) and len(one) == 2 else None for one in said]
        bodies = [
            made or body(api, one, streamed=streamed)
            for made, one in zip(bodies, said, strict=True)
        ]
        done = body(api, Said("Done.", (), COMPLETE[api]), streamed=streamed)
        with Scripted(*bodies, *[done] * 4) as server:
            model = server.model(api, streamed=streamed)
            options = {"tools": [act], "retry_delay": 0.001, **options}
            self.result = Loop.run_sync("q", model, on_event=self.events.append, **options)
            model.close()
        self.requests = server.requests
        check_history(self.result.messages)

    @property
    def answers(self):
        return [one["content"] for one in self.result.messages if one["role"] == "tool"]

    @property
    def in_words(self):
        """The outcome as a cell of the table."""
        has_retried = any(isinstance(event, ModelRetried) for event in self.events)
        if isinstance(self.result, Err):
            assert not self.ran
            return f"`{type(self.result.reason).__name__}`"
        if has_retried:
            return "tried again"
        if len(self.requests) == 1:
            return "the answer"
        if self.answers:
            return "runs" if self.ran else "does not run"
        return "asked again"


CUT_WORDS = {api: words[1] for api, words in WORDS.items()}
CASES = {
    "a text": Said("It is so."),
    "a call": Said("", (CALL,)),
    "a call without arguments": Said("", (CUT,)),
    "nothing": Said(),
}


def row(api, word, streamed):
    said = (case._replace(word=word) for case in CASES.values())
    return [Outcome(api, streamed, one).in_words for one in said]


def rows(api):
    """The rows of the table for one adapter; equal rows of both forms are one."""
    for word in WORDS[api]:
        made = {form: row(api, word, streamed) for streamed, form in FORMS.items()}
        shown = "none" if word is None else f"`{word}`"
        forms = {"both": made["whole"]} if made["whole"] == made["streamed"] else made
        for form, cells in forms.items():
            yield f"| `{api}` | {shown} | {form} | {' | '.join(cells)} |"


def test_the_table_of_the_page_is_what_the_runs_do(api):
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## How a response ends\n")
    found = [line for line in section.splitlines() if line.startswith(f"| `{api}` |")]
    assert found == list(rows(api))


class TestCalls:
    # The items of the Responses API say whether they are complete.
    @pytest.mark.parametrize("api", sorted(CUT_WORDS.keys() - {"openai-responses"}))
    def test_the_last_of_a_cut_body_does_not_run_and_those_before_it_do(self, api):
        calls = (("c1", "act", '{"folder": "/a"}'), ("c2", "act", '{"folder": "/b"}'))
        made = Outcome(api, False, Said("", calls, CUT_WORDS[api]))
        assert made.ran == [("/a", True)]
        assert "cut off" in made.answers[1]

    @pytest.mark.parametrize(("status", "ran"), [("incomplete", 0), ("completed", 1)])
    def test_an_incomplete_item_of_a_complete_response_does_not_run(self, status, ran):
        kind, text = body("openai-responses", Said("", (CALL,), "completed"), streamed=False)
        text = text.replace('"status": "completed"}]', f'"status": "{status}"}}]')
        assert len(Outcome("openai-responses", False, (kind, text)).ran) == ran

    @pytest.mark.parametrize(
        ("arguments", "runs"),
        [('{"folder": "/x"}', 1), ('{"folder": "/x"', 0), ("{", 0), ("", 0), ('{"folder": ', 0)],
    )
    def test_a_streamed_one_is_whole_if_its_arguments_are_closed(self, arguments, runs):
        made = Outcome("openai", True, Said("", (("c", "act", arguments),), "length"))
        assert len(made.ran) == runs

    def test_a_refusal_beside_calls_keeps_them_from_running(self, streamed):
        kind, text = body("openai", Said("", (CALL,), "stop"), streamed=streamed)
        text = text.replace('"content": null', '"content": null, "refusal": "No."')
        text = text.replace('"content": ""', '"content": "", "refusal": "No."')
        made = Outcome("openai", streamed, (kind, text))
        assert (made.ran, type(made.result.reason)) == ([], ResponseIncomplete)
        assert made.result.reason.refusal == "No."

    def test_two_cut_responses_with_calls_in_a_row_end_the_run(self, api, streamed):
        cut = Said("", (("c1", "act", None),), CUT_WORDS[api])
        made = Outcome(api, streamed, cut, cut._replace(calls=(("c2", "act", None),)))
        assert made.ran == []
        assert isinstance(made.result.reason, ResponseIncomplete)
        assert len(made.requests) == 2
        whole = Said("", (CALL,), COMPLETE[api])
        between = Outcome(api, streamed, cut, whole, cut)
        assert isinstance(between.result, Ok)

    def test_a_repair_does_not_make_a_call_whole(self):
        repaired = ToolCall("c1", "act", '{"folder": "/y"}')
        made = Outcome(
            "openai",
            True,
            Said("", (CUT,), "length"),
            stages=[validate_calls(repair_call=lambda *_: repaired), ...],
        )
        assert made.ran == []

    def test_a_tool_of_the_last_word_is_not_taken_from_a_cut_call(self):
        class Answer(BaseModel):
            value: int = 0

        made = Outcome("openai", True, Said("", (("c1", "Answer", None),), "length"), output=Answer)
        assert isinstance(made.result, Err)  # the next response is a text

    def test_a_stage_that_plans_a_cut_call_does_not_run_it(self):
        made = []

        @tool
        def act() -> str:
            """Act."""
            made.append(1)
            return "acted"

        cut = Response(None, (ToolCall("c", "act", ""),), finish_reason="length")

        @stage(provides=("plan",))
        def plan(ctx):
            return ctx.replace(plan=Plan((ctx.tool_calls,)))

        stages = Loop().pipeline.insert_before("dispatch_tools", plan)
        result = Loop.run_sync("q", ScriptedLLM(cut, "Done."), tools=[act], stages=stages)
        assert (made, result.unwrap().text) == ([], "Done.")


class TestTexts:
    def test_a_cut_text_is_in_the_history_and_the_reason_names_the_option_that_helps(
        self, api, streamed
    ):
        word = CUT_WORDS[api]
        option = {
            "openai": "max_completion_tokens",
            "openai-responses": "max_output_tokens",
            "anthropic": "max_tokens",
            "gemini": "max_output_tokens",
            "ollama": "num_predict",
        }[api]
        made = Outcome(api, streamed, Said("It is", (), word))
        assert made.result.reason == ResponseIncomplete("cut", word)
        assert f"raise {option};" in str(made.result.reason)
        assert made.result.messages[-1]["content"] == "It is"

    def test_a_cut_text_is_the_answer_on_request_and_a_filtered_one_is_not(self, streamed):
        def result_of(text, word):
            stages = [loop_decision(accept_cut=True), ...]
            return Outcome("openai", streamed, Said(text, (), word), stages=stages).result

        assert result_of("It is", "length").unwrap().text == "It is"
        filtered = result_of("It", "content_filter")
        assert filtered.reason == ResponseIncomplete("filtered", "content_filter")
        assert result_of("", "length").reason == ResponseIncomplete("cut", "length")

    def test_a_full_context_window_gets_other_advice(self, streamed):
        word = "model_context_window_exceeded"
        made = Outcome("anthropic", streamed, Said("It is", (), word))
        assert "raise" not in str(made.result.reason)
        assert "compact_history" in str(made.result.reason)

    def test_a_cut_typed_answer_spends_the_retries_of_the_output(self, streamed):
        class Answer(BaseModel):
            value: int

        cut = Said('{"value": 1}', (), "length")
        whole = Said('{"value": 2}', (), "stop")
        output = Output(Answer, mode="json")
        made = Outcome("openai", streamed, cut, whole, output=output, tools=())
        assert made.result.output == Answer(value=2)
        output = Output(Answer, mode="json", max_retries=1)
        never = Outcome("openai", streamed, cut, cut, cut, output=output, tools=())
        assert isinstance(never.result.reason, OutputMissing)
        assert "cut off" in str(never.result.reason)

    @pytest.mark.parametrize(
        ("answer", "reason"),
        [
            ("It is", None),
            (
                {"choices": [{"message": {"content": "It"}, "finish_reason": "max_new_tokens"}]},
                ResponseIncomplete("cut", "max_new_tokens"),
            ),
            (
                {"role": "assistant", "content": "It is", "finish_reason": "length"},
                ResponseIncomplete("cut", "length"),
            ),
            (  # of Anthropic
                {"content": "It is", "stop_reason": "max_tokens"},
                ResponseIncomplete("cut", "max_tokens"),
            ),
            (
                Response("It is", finish_reason="CONTENT-FILTER"),
                ResponseIncomplete("filtered", "CONTENT-FILTER"),
            ),
        ],
    )
    def test_the_response_of_any_callable_is_classified(self, answer, reason):
        made = Loop.run_sync("q", lambda messages: answer)
        assert getattr(made, "reason", None) == reason

    def test_a_stage_cannot_make_a_filtered_text_the_answer(self):
        def accept(ctx):
            return ctx.done()

        filtered = Response("secret", finish_reason="content_filter")
        stages = Loop().pipeline.replace("loop_decision", accept)
        made = Loop.run_sync("q", ScriptedLLM(filtered), stages=stages)
        assert made.reason == ResponseIncomplete("filtered", "content_filter")

    def test_no_text_of_the_assistant_is_made_up(self, api, streamed):
        word = {"gemini": "SAFETY", "anthropic": "refusal"}.get(api, "content_filter")
        made = Outcome(api, streamed, Said("", (CALL,), word))
        assert made.ran == []
        assert [one.get("content") or one.get("refusal") for one in made.result.messages[1:2]] == [
            None
        ]
        assert "filtered" in made.answers[0]

    def test_an_unknown_word_is_logged_once(self, caplog):
        for _ in range(3):
            Outcome("openai", False, Said("Hi", (), "a_word_of_this_test"))
        (logged,) = (one for one in caplog.messages if "a_word_of_this_test" in one)
        assert logged.startswith("the finish reason 'a_word_of_this_test' is unknown")


SEARCH = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}


class TestPaused:
    def paused(self, streamed, text=""):
        """A response that paused while a tool runs at the provider."""
        kind, made = body("anthropic", Said(text, (), "pause_turn"), streamed=streamed)
        if not streamed:
            message = json.loads(made)
            return kind, json.dumps({**message, "content": [*message["content"], SEARCH]})
        index = 1 if text else 0
        begun = {"type": "content_block_start", "index": index, "content_block": SEARCH}
        ended = {"type": "content_block_stop", "index": index}
        events = "".join(f"event: {one['type']}\n{sse(one)}" for one in (begun, ended))
        head, tail = made.split("event: message_delta")
        return kind, f"{head}{events}event: message_delta{tail}"

    @pytest.mark.parametrize("text", ["", "Let me look."])
    def test_the_response_goes_back_as_it_came(self, streamed, text):
        made = Outcome("anthropic", streamed, self.paused(streamed, text))
        assert made.result.unwrap().text == "Done."
        (_, said) = made.requests[1]["messages"]
        assert said["role"] == "assistant"
        expected = [{"type": "text", "text": text}] if text else []
        assert said["content"] == [*expected, SEARCH]
        assert len(made.requests) == 2

    def test_a_later_turn_has_all_of_it(self, streamed):
        done = body("anthropic", Said("Done.", (), "end_turn"), streamed=streamed)
        with Scripted(self.paused(streamed, "Let me look."), done, done) as server:
            model = server.model("anthropic", streamed=streamed)
            first = Loop.run_sync("q", model)
            Loop.run_sync([*first.messages, {"role": "user", "content": "And?"}], model)
            model.close()
        said = server.requests[-1]["messages"][1]
        assert SEARCH in said["content"]
        assert said["content"][-1] == {"type": "text", "text": "Done."}

    def test_it_ends_within_the_limit_of_iterations(self, streamed):
        paused = itertools.repeat(self.paused(streamed), 3)
        made = Outcome("anthropic", streamed, *paused, max_iterations=3)
        assert made.result.stop_reason == "max_iterations_reached"
        assert len(made.requests) == 3


ERRORS = [
    ({"code": 429, "message": "slow down"}, True),
    ({"code": "429", "message": "slow down"}, True),
    ({"code": 502, "message": "bad gateway"}, True),
    ({"code": 529, "message": "busy"}, True),
    ({"code": "rate_limit_exceeded", "message": "slow down"}, True),
    ({"code": "overloaded", "message": "busy"}, True),
    ({"type": "overloaded_error", "message": "busy"}, True),
    ({"code": 503, "status": "UNAVAILABLE", "message": "busy"}, True),
    ({"code": 400, "message": "no such field"}, False),
    ({"code": "400", "message": "no such field"}, False),
    ({"code": 1302, "message": "an odd number"}, False),
    ({"code": "insufficient_quota", "message": "pay first"}, False),
    ({"message": "just a text"}, False),
]


class TestErrorsInASuccess:
    @pytest.mark.parametrize(
        ("api", "streamed", "error", "is_temporary"),
        [
            (api, streamed, error, is_temporary)
            for api in APIS
            for streamed in (False, True)
            for error, is_temporary in ERRORS
            # Google's SDK reads errors in streams only if the code is a number, as Google sends it.
            if (api, streamed) != ("gemini", True) or isinstance(error.get("code"), int)
        ],
    )
    def test_its_text_is_kept_and_its_code_decides(self, api, streamed, error, is_temporary):
        bad = body(api, Said(error=error), streamed=streamed)
        if not streamed:
            bad = JSON, json.dumps({"error": error})
        made = Outcome(api, streamed, bad)
        if is_temporary:
            assert made.result.unwrap().text == "Done."
            (retried,) = (one for one in made.events if isinstance(one, ModelRetried))
            assert error["message"] in retried.error
        else:
            assert error["message"] in made.result.reason.message
            assert len(made.requests) == 1

    @pytest.mark.parametrize("place", ["choice", "top", "text"])
    def test_an_error_beside_a_choice_is_the_error_of_the_provider(self, streamed, place):
        kind, text = body("openai", Said("Half", (CALL,), "error"), streamed=streamed)
        error = '"error": {"code": 502, "message": "upstream broke"}'
        if place == "choice":
            text = text.replace('"finish_reason": "error"', f'"finish_reason": "error", {error}')
        elif place == "top":
            text = text.replace('"model": "m"', f'"model": "m", {error}')
        made = Outcome(
            "openai", streamed, (kind, text), stages=[ask_model(restart_streams=True), ...]
        )
        assert made.result.unwrap().text == "Done."
        assert made.ran == []
        (retried,) = (one for one in made.events if isinstance(one, ModelRetried))
        assert ("upstream broke" if place != "text" else "'error'") in retried.error

    @pytest.mark.parametrize("has_call", [False, True])
    def test_a_stream_without_an_end_or_anything_is_tried_again(self, api, has_call):
        nothing = body(api, Said(), streamed=True)[0], ""
        made = Outcome(api, True, Said("", (CALL,), None) if has_call else nothing)
        assert made.ran == []
        assert made.result.unwrap().text == "Done."
        assert any(isinstance(one, ModelRetried) for one in made.events)

    def test_a_call_beside_a_malformed_one_does_not_run(self, streamed):
        made = Outcome("gemini", streamed, Said("", (CALL,), "MALFORMED_FUNCTION_CALL"))
        assert made.ran == []
        assert not [one for one in made.events if isinstance(one, ToolStarted)]
