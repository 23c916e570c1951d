"""Which calls are valid, and how invalid ones are answered."""

import json
import threading
from typing import Annotated

import anyio
import pytest
from pydantic import AfterValidator
from tests.growth import is_linear
from tests.samples import add

from treadle import Loop, labels
from treadle.context.calls import MAX_HINTS, MAX_LISTED
from treadle.messages import Response, ToolCall
from treadle.messages.json_text import MAX_VIOLATIONS
from treadle.stages import parse_tool_calls, validate_calls
from treadle.stages._validate_calls import MAX_INLINE
from treadle.testing import ScriptedLLM
from treadle.tools import Tool, fingerprint, tool


@tool
def address(street: str): ...


@pytest.fixture
def check(context, through):
    """Validate calls; return the context and the answer to each call, None if it is valid."""

    def check(*calls, stage=validate_calls, **more):
        more.setdefault("tools", [add, address])
        ctx = through(context(*calls, **more), parse_tool_calls, stage)
        texts = [ctx.tool_results.get(call.id) for call in ctx.tool_calls]
        return ctx, [result.content if result else None for result in texts]

    return check


def test_a_valid_call_gets_its_input_and_fingerprint_and_no_result(check):
    ctx, texts = check(("add", '{"b": 2,  "a": 1}'))
    assert texts == [None]
    (call,) = ctx.tool_calls
    assert call.input == {"a": 1, "b": 2}
    assert call.fingerprint == fingerprint("add", {"a": 1, "b": 2})
    assert call.arguments == '{"b": 2,  "a": 1}'
    assert ctx.validation_errors == {}


def test_every_violation_of_a_call_is_reported_with_its_path(check):
    ctx, texts = check(("add", {"a": "x", "c": 1}))
    assert texts[0].splitlines() == [
        "Error: the call of 'add' was not run:",
        '- a: expected integer, got string "x"',
        "- arguments: missing required field 'b'",
        "- arguments: unknown field 'c'; the fields are a, b",
    ]
    result = ctx.tool_results["c1"]
    assert (result.is_error, result.status) == (True, "invalid")
    assert len(ctx.validation_errors["c1"]) == 3


def test_malformed_json_never_becomes_an_empty_object(check):
    ctx, (texts,) = check(("add", '{"a": 1,'))
    assert texts.startswith(
        "Error: the call of 'add' was not run:\n- the arguments are not valid JSON: "
    )
    assert "at character 8" in texts
    assert ctx.tool_calls[0].input is None
    assert ctx.tool_calls[0].arguments == '{"a": 1,'


def test_arguments_that_the_length_limit_cut_off_are_reported_as_such(check):
    calls = (ToolCall("c1", "add", '{"a": 1'),)
    _, (texts,) = check(response=Response(tool_calls=calls, finish_reason="length"))
    assert "; the response was cut off" in texts
    assert texts.endswith("(finish reason 'length')")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ad", "there is no tool named 'ad'. Did you mean 'add'? Available tools: add, address."),
        ("zzz", "there is no tool named 'zzz'. Available tools: add, address."),
        ("", "there is no tool named ''. Available tools: add, address."),
    ],
)
def test_an_unknown_name_is_answered_with_the_names_and_the_closest(check, name, text):
    _, (texts,) = check((name, {}))
    assert texts == f"Error: the call of {name!r} was not run:\n- {text}"


def test_nothing_is_coerced(check):
    _, texts = check(("add", {"a": "1", "b": 2}), ("add", {"a": 1.5, "b": True}))
    assert texts[0].endswith('- a: expected integer, got string "1"')
    assert "- a: expected integer, got number 1.5\n- b: expected integer, got boolean" in texts[1]


def test_text_of_the_model_is_shortened_in_the_answer(check):
    huge = "x" * 1_000_000
    _, texts = check((huge, {}), ("add", {huge: huge}), ("add", huge), ("add", {"a": huge, "b": 1}))
    assert max(map(len, texts)) < 1000


def test_of_many_violations_the_first_are_reported_and_the_rest_counted(check):
    names = [f"n{index:02}" for index in range(50)]
    fields = {name: {"type": "integer"} for name in names}
    wide = {"name": "wide", "input_schema": {"type": "object", "properties": fields}}
    ctx, (texts,) = check(
        ("wide", dict.fromkeys(names, "x")), tools=[wide], resolve_tool=lambda call: "x"
    )
    lines = texts.splitlines()
    assert len(lines) == 1 + MAX_VIOLATIONS + 1
    assert lines[-1] == "- and 30 more"
    assert len(ctx.validation_errors["c1"]) == 50


def test_an_invalid_call_has_the_fingerprint_of_its_arguments_or_of_their_text(check):
    ctx, _ = check(("add", "{"), ("add", "{{"), ("add", "{"), ("add", '{"b": 1, "a": "x"}'))
    one, other, again, parsed = [call.fingerprint for call in ctx.tool_calls]
    assert one == again
    assert len({one, other, parsed}) == 3
    assert parsed == fingerprint("add", {"a": "x", "b": 1})
    assert [call.input for call in ctx.tool_calls] == [None] * 4


def test_the_dedupe_fields_of_a_tool_make_the_fingerprint(check):
    search = Tool("search", dedupe_fields=["q"])
    calls = [{"q": 1, "why": "a"}, {"why": "b", "q": 1}, {"q": 2}, {"why": "a"}]
    ctx, _ = check(*[("search", arguments) for arguments in calls], tools=[search])
    first, second, third, fourth = [call.fingerprint for call in ctx.tool_calls]
    assert first == second == fingerprint("search", {"q": 1})
    assert len({first, third, fourth}) == 3
    assert ctx.tool_calls[0].input == {"q": 1, "why": "a"}


class TestRepair:
    """`repair_call` is called for invalid calls, and the calls that it returns are validated."""

    def test_it_is_called_once_for_each_invalid_call_with_its_problems(self, check):
        asked = []

        def repair(call, problems):
            asked.append((call.id, problems))

        _, texts = check(
            ("add", {"a": 1, "b": 2}), ("add", "{"), stage=validate_calls(repair_call=repair)
        )
        assert [call_id for call_id, _ in asked] == ["c2"]
        assert asked[0][1][0].startswith("the arguments are not valid JSON")
        assert texts[1] is not None

    @pytest.mark.parametrize(
        ("extra", "kept"), [({}, {"signature": "x"}), ({"signature": "y"}, {"signature": "y"})]
    )
    def test_the_repaired_call_keeps_the_id_and_the_keys_of_its_provider(self, check, extra, kept):
        def repair(call, problems):
            return ToolCall("other", "add", json.dumps({"a": 1, "b": 2}), extra=extra)

        given = ToolCall("c1", "ad", "{", extra={"signature": "x"})
        ctx, texts = check(given, stage=validate_calls(repair_call=repair))
        assert texts == [None]
        assert (ctx.tool_calls[0].id, ctx.tool_calls[0].name) == ("c1", "add")
        assert ctx.tool_calls[0].extra == kept
        assert ctx.tool_calls[0].input == {"a": 1, "b": 2}
        assert ctx.validation_errors == {}

    def test_an_invalid_repair_keeps_the_first_problems(self, check):
        def repair(call, problems):
            return ToolCall(call.id, "add", "[]")

        ctx, (texts,) = check(("ad", "{}"), stage=validate_calls(repair_call=repair))
        assert "there is no tool named 'ad'" in texts
        assert ctx.tool_calls[0].name == "ad"


def test_a_resolver_that_lists_its_tools_is_used_for_these_only(check):
    class Resolver:
        def resolve(self, call): ...

        def available_tools(self):
            return ["search", {"name": "look"}, {"function": {"name": "find"}}, add]

    calls = [(name, {}) for name in ("search", "look", "find", "add", "serch")]
    _, texts = check(*calls, tools=[], resolve_tool=Resolver())
    assert texts[:4] == [None] * 4
    assert texts[4].endswith("Did you mean 'search'? Available tools: add, find, look, search.")


def test_a_resolver_without_a_list_is_used_for_any_name_if_there_are_no_tools(check):
    assert check(("whatever", {"x": 1}), tools=[], resolve_tool=lambda call: 1)[1] == [None]
    assert check(("whatever", {"x": 1}), resolve_tool=lambda call: 1)[1] != [None]


class TestToolsOfTheRequest:
    """A call of a tool that this request does not offer is invalid, whatever the run has."""

    @pytest.fixture
    def check_offered(self, context, through):
        def check_offered(name, offered, **more):
            ctx = context((name, {"street": "x"}), tools=[add, address], **more)
            ctx = through(ctx.with_request(tools=offered), parse_tool_calls, validate_calls)
            return ctx, ctx.tool_results.get("c1")

        return check_offered

    def test_a_tool_that_is_not_offered_is_answered_with_those_that_are(self, check_offered):
        ctx, result = check_offered("address", ["add"])
        assert result.content == (
            "Error: the call of 'address' was not run:\n"
            "- 'address' is not offered in this request. Available tools: add."
        )
        assert (result.is_error, result.status) == (True, "invalid")
        assert ctx.tool_calls[0].input is None

    def test_if_no_tool_is_offered_the_answer_lists_none(self, check, check_offered):
        assert check_offered("address", [])[1].content.endswith("Available tools: none.")
        _, (text,) = check(("add", {}), tools=[])
        assert text.endswith("there is no tool named 'add'. Available tools: none.")

    def test_an_unknown_name_is_answered_with_the_offered_tools_only(self, check_offered):
        _, result = check_offered("nope", ["address"])
        assert result.content.endswith("there is no tool named 'nope'. Available tools: address.")

    def test_a_tool_that_is_removed_later_is_not_listed(self, context, through):
        ctx = context(("nope", {}), tools=[add, address]).with_request(tools=["add", "address"])
        ctx = through(ctx.with_tools(remove=["add"]), parse_tool_calls, validate_calls)
        assert ctx.tool_results["c1"].content.endswith("Available tools: address.")


@pytest.mark.parametrize("made", [5, "add", {"name": "add"}])
def test_a_repair_that_is_not_a_call_is_an_error_with_the_expected_type(check, made):
    text = f"^repair_call: expected a ToolCall or None, got {type(made).__name__}$"
    with pytest.raises(TypeError, match=text):
        check(("add", "{"), stage=validate_calls(repair_call=lambda call, problems: made))


# The check of calls is bounded: what may take long runs where time limits apply, and answers are short.


@tool
def note(text: str): ...


@tool
def points(n: Annotated[int, AfterValidator(lambda n: n)]): ...


def effects_of(ctx):
    """The keys of the effects that the check of a response needs, and the context after it."""
    found, steps = [], validate_calls(parse_tool_calls(ctx))
    try:
        effect = next(steps)
        while True:
            found.append((effect.label, effect.key, effect.mode.value))
            effect = steps.send(effect.fn(*effect.args))
    except StopIteration as stop:
        return found, stop.value


def test_short_arguments_are_checked_at_once(context):
    ctx = context(("note", {"text": "x"}), ("note", {"text": 1}), ("nope", {}), tools=[note])
    found, ctx = effects_of(ctx)
    assert found == []
    assert [call.input for call in ctx.tool_calls] == [{"text": "x"}, None, None]


def test_arguments_that_are_long_together_are_checked_in_a_thread(context):
    half = {"text": "x" * (MAX_INLINE // 2)}
    found, ctx = effects_of(context(("note", half), ("note", half), ("note", {}), tools=[note]))
    assert found == [(labels.VALIDATE, "c2", "thread"), (labels.VALIDATE, "c3", "thread")]
    assert [call.input for call in ctx.tool_calls] == [half, half, None]


def test_arguments_of_a_type_with_validators_are_checked_in_a_thread(context):
    found, ctx = effects_of(context(("points", {"n": 1}), tools=[points]))
    assert found == [(labels.VALIDATE, "c1", "thread")]
    assert ctx.tool_calls[0].input == {"n": 1}


class Hanging:
    """A validator that waits until a test releases it."""

    def __init__(self):
        self.release = threading.Event()

    def tool(self):
        def wait(n):
            self.release.wait()
            return n

        def take(n: Annotated[int, AfterValidator(wait)]): ...

        return tool(take)


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_validator_that_hangs_ends_with_the_time_limit_of_the_run(backend):
    hanging = Hanging()
    loop = Loop(tools=[hanging.tool()], max_seconds=0.2)
    model = ScriptedLLM(Response(None, (ToolCall("c1", "take", '{"n": 1}'),)), "Done.")

    async def run():
        result = await loop.run("Hi", model)
        hanging.release.set()  # before the event loop waits for its threads
        return result

    try:
        result = (
            loop.run_sync("Hi", model) if backend == "sync" else anyio.run(run, backend=backend)
        )
    finally:
        hanging.release.set()
    assert result.stop_reason == "deadline_exceeded"


# Names


def unknown_calls(number):
    return [ToolCall(f"c{n}", f"tool_{n:04}_{'abcde' * 20}", "{}") for n in range(number)]


def many_tools(number):
    return [Tool(f"tool{n:04}_{'abcdf' * 20}", fn=lambda: "x") for n in range(number)]


def test_many_unknown_names_get_few_suggestions_and_short_answers(context):
    ctx = context(*unknown_calls(250), tools=many_tools(200))
    _, ctx = effects_of(ctx)
    texts = [result.content for result in ctx.tool_results.values()]
    assert sum("Did you mean 'tool" in text for text in texts) == MAX_HINTS
    assert sum("Available tools" in text for text in texts) == MAX_HINTS
    assert f"and {200 - MAX_LISTED} more" in texts[0]
    assert texts[-1].endswith("The answers above list the available tools.")


def test_the_same_unknown_name_gets_the_same_answer_each_time(context):
    ctx = context(*[("ad", {})] * 2 * MAX_HINTS, tools=[Tool("add", fn=lambda: "x")])
    _, ctx = effects_of(ctx)
    texts = {result.content for result in ctx.tool_results.values()}
    assert len(texts) == 1
    assert "Did you mean 'add'?" in texts.pop()


def test_unknown_names_take_time_linear_in_their_number(context):
    tools = many_tools(100)

    def make(size):
        ctx = parse_tool_calls(context(*unknown_calls(size), tools=tools))
        return lambda: list(validate_calls(ctx))

    assert is_linear(make, 50)
