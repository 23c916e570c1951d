"""Parity with LlmCore: validation and resolution of calls, and terminal tools."""

import pytest

from treadle import Err, Ok, tool
from treadle.testing import ScriptedLLM, call, calls

from .conftest import answers

ORDER = {
    "name": "order",
    "input_schema": {
        "type": "object",
        "properties": {
            "item": {"type": "string"},
            "count": {"type": "integer"},
            "size": {"enum": ["small", "large"]},
        },
        "required": ["item", "count"],
    },
}


def raw_call(name, arguments):
    """A call with arguments as text, which may be malformed."""
    return {"id": "raw", "type": "function", "function": {"name": name, "arguments": arguments}}


def recorder(value="resolved"):
    """A resolver, and the list of the calls that reached it."""
    resolved = []

    def resolve(call):
        resolved.append((call.name, dict(call.input)))
        return value

    return resolve, resolved


def test_an_unknown_tool_is_answered_with_the_available_names(run):
    """The answer lists the tools and suggests the closest; nothing is dispatched."""
    resolve, resolved = recorder()
    tools = [ORDER, {"name": "refund"}]
    llm = ScriptedLLM(calls(call("odrer", item="rope", count=1)), "Sorry.")
    result = run("Rope, please.", llm, tools=tools, resolve_tool=resolve)
    (answer,) = answers(result)
    assert "no tool named 'odrer'" in answer
    assert "Did you mean 'order'?" in answer
    assert "Available tools: order, refund." in answer
    assert (resolved, result.tool_calls_count) == ([], 0)


def test_the_names_that_a_resolver_offers_are_available_too(run):
    """With ``available_tools()`` a resolver lists the tools that it resolves."""

    class Shop:
        def available_tools(self):
            return ["close_shop"]

        def resolve(self, call):
            return f"did {call.name}"

    llm = ScriptedLLM(calls(call("close_shop"), call("open_shop")), "Closed.")
    first, second = answers(run("Close.", llm, tools=[ORDER], resolve_tool=Shop()))
    assert first == "did close_shop"
    assert "Available tools: close_shop, order." in second


def test_invalid_arguments_are_answered_with_every_violation(run):
    """A missing field, a wrong type with the value, a value not in the enumeration: all at once."""
    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(call("order", count="two", size="huge")), "Sorry.")
    result = run("Two huge ones.", llm, tools=[ORDER], resolve_tool=resolve)
    (answer,) = answers(result)
    assert "missing required field 'item'" in answer
    assert 'count: expected integer, got string "two"' in answer
    assert 'size: expected one of "small", "large", got "huge"' in answer
    assert (resolved, result.tool_calls_count) == ([], 0)


@pytest.mark.parametrize("arguments", ['{"item": "rope", "count": 2', "[1]", "null", "NaN"])
def test_arguments_that_are_not_a_json_object_are_answered_and_never_dispatched(run, arguments):
    """Malformed arguments are answered with the problem; they never become ``{}``."""
    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(raw_call("order", arguments)), "Sorry.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert "not valid JSON" in answers(result)[0]
    assert resolved == []


def test_an_invalid_call_does_not_fail_its_siblings(run):
    """Only the invalid call is answered as invalid; the calls next to it are dispatched."""
    resolve, resolved = recorder("ordered")
    bad, good = call("order", item="rope"), call("order", item="sail", count=1)
    llm = ScriptedLLM(calls(bad, good), "Half of it.")
    first, second = answers(run("Rope and sail.", llm, tools=[ORDER], resolve_tool=resolve))
    assert "missing required field 'count'" in first
    assert second == "ordered"
    assert resolved == [("order", {"item": "sail", "count": 1})]


def test_an_exception_of_the_resolver_becomes_a_tool_error(run):
    """The run continues, and the result has the exception."""

    def resolve(call):
        raise LookupError("out of stock")

    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "None left.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert isinstance(result, Ok)
    assert answers(result) == ["Error: LookupError: out of stock"]
    assert llm.sent[1].messages[-1]["content"] == "Error: LookupError: out of stock"


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (Ok("two left"), "two left"),
        ("two left", "two left"),
        (Ok({"left": 2}), '{"left":2}'),
        (Err("out of stock"), "Error: out of stock"),
    ],
)
def test_ok_and_error_results_both_reach_the_model(run, value, content):
    """The model receives what a resolver returns, whether in `Ok`, in `Err` or bare."""
    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "So it is.")
    run("Rope.", llm, tools=[ORDER], resolve_tool=lambda call: value)
    assert llm.sent[1].messages[-1]["role"] == "tool"
    assert llm.sent[1].messages[-1]["content"] == content


def test_a_call_of_the_terminal_tool_ends_the_run_with_its_arguments(run):
    """Its arguments are the output; nothing is dispatched, and all calls are answered."""
    resolve, resolved = recorder()
    tools = [ORDER, {"name": "look", "input_schema": {"type": "object"}}]
    final = call("order", item="rope", count=2)
    llm = ScriptedLLM(calls(call("look"), final, call("look")))
    result = run("Rope.", llm, tools=tools, resolve_tool=resolve, output="order")
    assert isinstance(result, Ok)
    assert (result.output, result.stop_reason) == ({"item": "rope", "count": 2}, "output")
    assert (resolved, result.tool_calls_count) == ([], 0)
    before, accepted, after = answers(result)
    assert "final" in accepted
    assert before == after == "Not run: the call of 'order' ended the run."


def test_invalid_arguments_of_the_terminal_tool_do_not_end_the_run(run):
    """They are answered as for any tool, and the model may try again."""
    bad, good = call("order", item="rope"), call("order", item="rope", count=1)
    result = run("Rope.", ScriptedLLM(calls(bad), calls(good)), tools=[], output=ORDER)
    assert (result.output, result.iterations) == ({"item": "rope", "count": 1}, 2)


def test_plain_text_still_ends_a_run_that_has_a_terminal_tool(run):
    """A terminal tool is optional, unlike an `output`: a text answer is an answer too."""
    result = run("Rope.", ScriptedLLM("Which one?"), tools=[tool(ORDER, terminal=True)])
    assert result.output == result.response.content == "Which one?"
    assert result.stop_reason == "answered"


def test_a_tool_of_the_same_name_without_the_option_is_dispatched_as_usual(run):
    """No name is special: only the option makes a tool terminal."""
    resolve, resolved = recorder("ordered")
    llm = ScriptedLLM(calls(call("order", item="rope", count=1)), "Done.")
    result = run("Rope.", llm, tools=[ORDER], resolve_tool=resolve)
    assert (answers(result), result.stop_reason) == (["ordered"], "answered")
    assert resolved == [("order", {"item": "rope", "count": 1})]


def test_a_tool_with_a_function_needs_no_resolver(run):
    """A tool with a function is called directly; the resolver receives the other calls."""

    @tool
    def greet(name: str) -> str:
        return f"Hello {name}"

    resolve, resolved = recorder()
    llm = ScriptedLLM(calls(call("greet", name="Ada"), call("order", item="a", count=1)), "Done.")
    result = run("Greet.", llm, tools=[greet, ORDER], resolve_tool=resolve)
    assert answers(result) == ["Hello Ada", "resolved"]
    assert [name for name, _ in resolved] == ["order"]
