"""`output=`: the run ends with a valid output, or with `OutputMissing`."""

import dataclasses
import itertools
import json

import pytest
from pydantic import BaseModel
from tests.loop.conftest import SYNC, answers
from typing_extensions import TypedDict

from treadle import (
    Chunk,
    Err,
    Limits,
    Loop,
    Ok,
    OptionError,
    Output,
    OutputMissing,
    PartialOutput,
    PipelineError,
    PipelineFailed,
    Retry,
    Tool,
    ToolFinished,
    default_stages,
    tool,
)
from treadle.messages import CallChunk
from treadle.testing import ScriptedLLM, call, calls, check_history


class Invoice(BaseModel):
    """What is to be paid."""

    total: float
    currency: str = "EUR"


class Refusal(BaseModel):
    why: str


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class City(TypedDict):
    name: str


@tool
def look(place: str) -> str:
    """Look."""
    return f"nothing in {place}"


class Part(BaseModel):
    """A part, which has parts."""

    parts: list["Part"] = []


INVOICE = Invoice(total=9)
SCHEMA = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}


def run(way, *script, **options):
    with ScriptedLLM(*script) as model:
        result = way.run(Loop(**options), model)
    check_history(result.messages)
    return result, model


FORMS = [
    (Invoice, ("Invoice", {"total": 9}), INVOICE),
    (Point, ("Point", {"x": 1}), Point(1)),
    (City, ("City", {"name": "Rome"}), {"name": "Rome"}),
    (int, ("final_answer", {"value": 5}), 5),
    (bool, ("final_answer", {"value": False}), False),
    (list[Invoice], ("final_answer", {"value": [{"total": 9}]}), [INVOICE]),
    (list[int], ("final_answer", {"value": []}), []),
    (dict[str, int], ("final_answer", {"a": 1}), {"a": 1}),
    (SCHEMA, ("final_answer", {"total": 9}), {"total": 9}),
    ({**SCHEMA, "title": "Total sum"}, ("Total_sum", {"total": 9}), {"total": 9}),
    (Part, ("Part", {"parts": [{"parts": []}]}), Part(parts=[Part()])),
    ({"type": "array", "items": {"type": "integer"}}, ("final_answer", {"value": [1]}), [1]),
    (Invoice | Refusal, ("Refusal", {"why": "no"}), Refusal(why="no")),
    ([Invoice, Refusal], ("Invoice", {"total": 9}), INVOICE),
    ((Invoice, int), ("final_answer", {"value": 5}), 5),
    (int | None, ("final_answer", {"value": None}), None),
    ([Invoice, "look"], ("look", {"place": "Rome"}), {"place": "Rome"}),
    (Tool("end", input_schema=SCHEMA), ("end", {"total": 9}), {"total": 9}),
    ({"name": "end", "parameters": SCHEMA}, ("end", {"total": 9}), {"total": 9}),
    ("look", ("look", {"place": "Rome"}), {"place": "Rome"}),
]


class TestForms:
    """What `output` may be, and what the model is offered and gives."""

    @pytest.mark.parametrize(("output", "made", "expected"), FORMS, ids=lambda one: str(one)[:30])
    def test_by_the_call_of_a_tool(self, output, made, expected):
        name, arguments = made
        result, model = run(SYNC, calls(call(name, **arguments)), tools=[look], output=output)
        assert isinstance(result, Ok)
        assert (result.output, type(result.output)) == (expected, type(expected))
        assert (result.stop_reason, result.has_data) == ("output", True)
        assert name in {offered["function"]["name"] for offered in model.sent[0].opts["tools"]}
        assert (result.tool_calls_count, look.terminal) == (0, False)

    @pytest.mark.parametrize(
        ("output", "text", "expected"),
        [
            (Invoice, '{"total": 9}', INVOICE),
            (Invoice, '```json\n{"total": 9}\n```', INVOICE),
            (list[Invoice], '{"value": [{"total": 9}]}', [INVOICE]),
            (Part, '{"parts": [{"parts": []}]}', Part(parts=[Part()])),
            (int, '{"value": 5}', 5),
            (SCHEMA, '{"total": 9}', {"total": 9}),
            ([Invoice, Refusal], '{"value": {"why": "no"}}', Refusal(why="no")),
        ],
        ids=lambda one: str(one)[:30],
    )
    def test_as_json_text(self, output, text, expected):
        result, model = run(SYNC, text, output=Output(output, mode="json"))
        assert (result.output, type(result.output)) == (expected, type(expected))
        asked = model.sent[0].opts["response_format"]
        assert (asked["type"], asked["json_schema"]["schema"]["type"]) == ("json_schema", "object")
        assert "tools" not in model.sent[0].opts

    def test_strict_mode_is_asked_for_where_the_schema_allows_it(self):
        class Open(BaseModel, extra="allow"):
            why: str

        text = '{"why": "no", "total": 9}'
        for output, strict in ((Refusal, True), (Open, False), (Invoice, False), (SCHEMA, False)):
            _, model = run(SYNC, text, output=Output(output, mode="json"))
            asked = model.sent[0].opts["response_format"]["json_schema"]
            assert asked["strict"] is strict
            assert asked["schema"].get("additionalProperties", True) is not strict

    def test_what_is_sent_as_closed_accepts_what_the_type_accepts(self):
        result, _ = run(SYNC, '{"why": "no", "more": 1}', output=Output(Refusal, mode="json"))
        assert result.output == Refusal(why="no")

    @pytest.mark.parametrize(
        "text", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000, "[" * 200]
    )
    @pytest.mark.parametrize("output", [Invoice, SCHEMA, float, list[float]], ids=str)
    def test_text_that_is_not_json_is_no_output(self, output, text):
        body = f'{{"total": {text}, "value": {text}}}'
        result, _ = run(SYNC, body, output=Output(output, mode="json", max_retries=0))
        assert isinstance(result.reason, OutputMissing)
        assert "the reply is not JSON: " in str(result.reason)

    @pytest.mark.parametrize(
        ("text", "total"),
        [("-0", 0), ("1.0", 1), ("1E2", 100), ("1e-400", 0), ('1, "total": 2', 2)],
    )
    def test_odd_but_legal_json_is_an_output(self, text, total):
        result, _ = run(SYNC, f'{{"total": {text}}}', output=Output(SCHEMA, mode="json"))
        assert result.output == {"total": total}

    def test_text_may_be_one_of_the_alternatives(self):
        result, _ = run(SYNC, "I cannot.", output=[Invoice, str])
        found = (result.output, result.stop_reason, result.has_data)
        assert found == ("I cannot.", "output", False)

    def test_without_it_the_output_is_the_text(self):
        result, _ = run(SYNC, "Hello")
        assert (result.output, result.stop_reason) == ("Hello", "answered")

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"output": []}, "output: expected at least one type, got an empty list"),
            ({"output": 5}, "output: expected a type, .* got 5"),
            ({"output": str.upper}, "output: expected a type, .* got .*: a function that checks"),
            ({"output": "lok", "tools": [look]}, "output: there is no tool 'lok'; did you mean"),
            ({"output": [Invoice, Invoice]}, "output: there are two tools named 'Invoice'"),
            ({"output": Output("look", mode="json"), "tools": [look]}, "it has no tools"),
            ({"output": Output([Invoice, SCHEMA], mode="json")}, "or one JSON Schema"),
            ({"output": Invoice, "tools": [tool(look, terminal=True)]}, "terminal tool 'look'"),
        ],
    )
    def test_what_it_may_not_be(self, options, problem):
        with pytest.raises(OptionError, match=problem):
            Loop(**options)

    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ({"form": None}, "output: Output takes the type of the output, got None"),
            ({"mode": "text"}, "mode: expected 'tool' or 'json', got 'text'"),
            ({"max_retries": -1}, "max_retries: expected a whole number of at least 0, got -1"),
            ({"validators": 5}, "validators: expected a callable, or a list of callables, got int"),
        ],
    )
    def test_what_its_options_may_not_be(self, options, problem):
        with pytest.raises(OptionError, match=f"^{problem}$"):
            Output(**{"form": Invoice, **options})

    def test_the_same_output_can_be_given_with_its_options(self):
        wanted = Output([Invoice, str], max_retries=0)
        assert run(SYNC, "Hello", output=wanted)[0].output == "Hello"
        assert Loop(output=wanted).settings.output == Output((Invoice, str), max_retries=0)

    def test_a_list_of_stages_needs_one_that_takes_it(self):
        stages = [stage for stage in default_stages() if stage.name != "loop_decision"]
        with pytest.raises(PipelineError, match="has no loop_decision, which takes the output"):
            Loop(stages=stages, output=Invoice)


@pytest.mark.parametrize("mode", ["tool", "json"])
@pytest.mark.parametrize("reference", ["#", "#/properties/first"])
def test_references_within_a_schema_lead_to_its_own_parts(mode, reference):
    node = {"type": "object", "properties": {"v": {"type": "integer"}}, "required": ["v"]}
    more = {"first": node, "rest": {"type": "array", "items": {"$ref": reference}}}
    schema = {**node, "title": "Tree", "properties": {**node["properties"], **more}}
    tree = {"v": 1, "rest": [{"v": 2}]}
    said = json.dumps(tree) if mode == "json" else calls(call("Tree", "t", **tree))
    options = {"output": Output(schema, mode=mode, max_retries=0)}
    assert Loop.run_sync("q", ScriptedLLM(said), **options).output == tree
    wrong = {"v": 1, "rest": [{"value": {"v": 2}}]}
    said = json.dumps(wrong) if mode == "json" else calls(call("Tree", "t", **wrong))
    assert isinstance(Loop.run_sync("q", ScriptedLLM(said), **options), Err)


class TestRetries:
    """Anything else is answered with the reason; the last request forces the call."""

    def test_a_text_is_not_an_output(self, way):
        result, model = run(way, "It is 9 euros.", calls(call("Invoice", total=9)), output=Invoice)
        assert result.output == INVOICE
        asked = model.sent[1].messages[-1]["content"]
        assert "- it was plain text" in asked
        assert "Call 'Invoice' with your final answer." in asked
        assert [one["content"] for one in result.messages[1:3]] == ["It is 9 euros.", asked]

    def test_an_invalid_call_is_answered_with_its_violations(self, way):
        wrong, right = calls(call("Invoice", "a", total="x")), calls(call("Invoice", total=9))
        result, _ = run(way, wrong, right, output=Invoice)
        assert result.output == INVOICE
        assert "total: " in answers(result.messages)["a"]

    def test_an_invalid_text_is_answered_with_its_violations(self, way):
        script = ["nine", '{"total": "x"}', '{"total": 9}']
        result, model = run(way, *script, output=Output(Invoice, mode="json"))
        assert result.output == INVOICE
        assert "the reply is not JSON" in model.sent[1].messages[-1]["content"]
        assert "- total: " in model.sent[2].messages[-1]["content"]

    @pytest.mark.parametrize(
        ("output", "forced"),
        [
            (Invoice, {"type": "function", "function": {"name": "Invoice"}}),
            ([Invoice, Refusal], "required"),
        ],
    )
    def test_the_last_request_forces_the_call(self, way, output, forced):
        _, model = run(way, "a", "b", calls(call("Invoice", total=9)), output=output)
        assert [sent.opts.get("tool_choice") for sent in model.sent] == [None, None, forced]

    @pytest.mark.parametrize("retries", [0, 2])
    def test_after_the_last_one_the_run_ends(self, way, retries):
        result, _ = run(way, *["9"] * (retries + 1), output=Output(Invoice, max_retries=retries))
        assert result.reason == OutputMissing(retries + 1, ("it was plain text",))
        assert result.stop_reason == "output_missing"

    def test_calls_of_other_tools_do_not_count(self, way):
        looks = [calls(call("look", place=place)) for place in "abcd"]
        script = ["x", *looks, "y", calls(call("Invoice", total=9))]
        result, _ = run(way, *script, output=Invoice, tools=[look])
        assert (result.output, result.tool_calls_count) == (INVOICE, 4)

    def test_a_stage_may_end_the_run_with_a_value_of_the_type_only(self, way):
        for given, expected in (({"total": 9}, INVOICE), (INVOICE, INVOICE), ("nine", None)):
            stages = [lambda ctx, given=given: ctx.done(given), *default_stages()]
            result, _ = run(way, stages=stages, output=Invoice)
            if expected is None:
                assert isinstance(result.reason, PipelineFailed)
                assert "not of the type that output= requires" in str(result.reason)
            else:
                assert result.output == expected


class TestValidators:
    """Functions that check or replace a valid output."""

    def test_retry_is_feedback_for_the_model(self, way):
        def is_positive(invoice):
            if invoice.total <= 0:
                raise Retry("the total has to be positive")

        wrong, right = (calls(call("Invoice", f"c{n}", total=n)) for n in (0, 9))
        result, _ = run(way, wrong, right, output=Output(Invoice, validators=is_positive))
        assert result.output == INVOICE
        assert answers(result.messages)["c0"] == (
            "Error: the output was not accepted: the total has to be positive"
        )

    def test_they_run_in_order_and_may_replace_it(self, way):
        async def rounded(invoice):
            return invoice.model_copy(update={"total": round(invoice.total)})

        def doubled(ctx, invoice):
            assert ctx.iteration == 1
            return invoice.model_copy(update={"total": invoice.total * 2})

        ending = calls(call("Invoice", total=4.4))
        result, _ = run(way, ending, output=Output(Invoice, validators=[rounded, doubled]))
        assert result.output == Invoice(total=8)

    def test_any_other_exception_is_a_failure_of_the_stage(self, way):
        def broken(invoice):
            raise ValueError("oh")

        ending = calls(call("Invoice", total=9))
        result, _ = run(way, ending, output=Output(Invoice, validators=broken))
        assert isinstance(result.reason, PipelineFailed)
        assert (result.reason.error_type, result.reason.message) == ("ValueError", "oh")


class TestRetryOfATool:
    """A tool that raises `Retry` talks to the model: nothing has failed."""

    def test_its_text_is_the_result(self, way, caplog):
        events = []

        @tool(retries=3)
        def book(day: str) -> str:
            """Book a table."""
            if day == "Monday":
                raise Retry("closed on Mondays; take another day")
            return "booked"

        script = [calls(call("book", day=day)) for day in ("Monday", "Tuesday")]
        result, _ = run(way, *script, "Done.", tools=[book], on_event=events.append)
        texts = [m["content"] for m in result.messages if m["role"] == "tool"]
        assert texts == ["closed on Mondays; take another day", "booked"]
        first = next(event for event in events if isinstance(event, ToolFinished))
        found = (first.result.status, first.result.is_error, first.exception)
        assert found == ("retry", True, None)
        assert "raised" not in caplog.text


class TestPartialOutput:
    """The output as far as the model has streamed it."""

    def partials(self, *chunks, **options):
        seen = []
        options = {"output": Invoice, "on_event": seen.append, **options}
        result = Loop.run_sync("Go.", lambda messages, opts: iter(chunks), **options)
        return [event.output for event in seen if isinstance(event, PartialOutput)], result

    def pieces(self, text, name="Invoice"):
        yield Chunk(tool_calls=(CallChunk(0, "c1", name, ""),))
        for place in range(0, len(text), 4):
            yield Chunk(tool_calls=(CallChunk(0, "", "", text[place : place + 4]),))

    def test_of_a_call(self):
        text = '{"total": 9, "currency": "CHF"}'
        seen, result = self.partials(*self.pieces(text))
        assert seen[-1] == {"total": 9, "currency": "CHF"}
        assert {"total": 9, "currency": "CH"} in seen
        assert result.output == Invoice(total=9, currency="CHF")
        assert all(a != b for a, b in itertools.pairwise(seen))

    def test_of_a_text(self):
        chunks = [Chunk(part) for part in ('{"tot', 'al": 9, "cur', 'rency": "CHF"}')]
        seen, _ = self.partials(*chunks, output=Output(Invoice, mode="json"))
        assert seen == [{}, {"total": 9}, {"total": 9, "currency": "CHF"}]

    @pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
    def test_of_a_text_that_is_not_json(self, literal):
        chunks = [Chunk('{"total": 9, "x": '), Chunk(f"{literal}, "), Chunk('"y": [1, 2, 3, 4]}')]
        seen, _ = self.partials(*chunks, output=Output(Invoice, mode="json", max_retries=0))
        assert seen == [{"total": 9}]

    def test_of_a_value_that_is_no_object(self):
        seen, result = self.partials(
            *self.pieces('{"value": [1, 2, 3]}', "final_answer"), output=list[int]
        )
        assert seen[-1] == result.output == [1, 2, 3]
        assert [1] in seen

    def test_other_calls_and_texts_have_none(self):
        seen, _ = self.partials(
            Chunk("{"), *self.pieces('{"a": 1}', "other"), max_iterations=1, output=Invoice
        )
        assert seen == []

    def test_the_work_is_linear_in_the_length(self):
        """A text that is ten times as long is read few times more often."""
        counts = []
        for length in (2_000, 20_000):
            text = json.dumps({"total": 9, "currency": "x" * length})
            seen, _ = self.partials(*self.pieces(text))
            counts.append(len(seen))
        assert counts[1] - counts[0] < 60


REJECTED = [
    pytest.param({"output": Output(Invoice, mode="json")}, ['{"x": 1}', "no", '{"total": 9}'], id="json"),
    pytest.param({"output": Invoice}, ["Nine.", "So.", calls(call("Invoice", total=9))], id="tool"),
    pytest.param({"output": Output(Invoice, mode="json"), "limits": Limits(show_budget=True)},
                 ['{"x": 1}', "no", '{"total": 9}'], id="with the budget"),
    pytest.param({"output": Output(Invoice, mode="json"), "limits": Limits(1, on_limit="finish")},
                 ['{"x": 1}', '{"x": 2}', '{"total": 9}'], id="at a limit"),
    pytest.param({"output": Output(Invoice, mode="json"), "model_middleware": ()},
                 ['{"x": 1}', '{"total": "x"}', '{"x": 3}'], id="never accepted"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "script"), REJECTED)
def test_a_rejected_answer_stays_a_message_and_the_reason_follows_it(options, script):
    """So that roles alternate, and no answer is joined to another one."""
    result, model = run(SYNC, *script, **options)
    texts = [one for one in script if isinstance(one, str)]
    said = [one["content"] for one in result.messages if one["role"] == "assistant"]
    assert said[: len(texts)] == texts
    roles = [one["role"] for one in result.messages if one["role"] != "tool"]
    assert all(one != other for one, other in itertools.pairwise(roles))
    for sent in model.sent[1:]:
        assert sent.messages[-1]["role"] == "user"
        assert sent.messages[-2]["content"] in texts
    for before, sent in itertools.pairwise(model.sent):  # nothing that the model has seen changes
        assert sent.messages[: len(before.messages) - 1] == before.messages[:-1]


def test_a_request_that_a_stage_has_changed_has_the_reason_too():
    def last(ctx):
        return ctx.with_request(messages=ctx.messages[-1:])

    stages = [last, *default_stages()]
    script = ['{"x": 1}', '{"total": 9}']
    _, model = run(SYNC, *script, stages=stages, output=Output(Invoice, mode="json"))
    assert [one["role"] for one in model.sent[1].messages] == ["assistant", "user"]
