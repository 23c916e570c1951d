"""Tool search: what is offered, found and called, and that a call through `call_tool` is the call of the tool."""

import dataclasses
import json
import logging
import threading

import anyio
import pytest
from tests.deciding import on
from tests.samples import add

from treadle import (
    Limits,
    Loop,
    OptionError,
    Paused,
    PendingCall,
    Response,
    RunHandle,
    ToolCall,
    ToolSearch,
    approve,
    default_stages,
    deny,
    edit,
    stage,
    tool,
)
from treadle.events import RunStarted
from treadle.stages import parse_tool_calls, validate_calls
from treadle.testing import ScriptedLLM, call, calls, check_history


@tool
def weather_forecast(city: str, days: int = 1) -> str:
    """The temperature and rain of the next days in a city."""
    return f"{days} sunny days in {city}"


@tool(requires_approval=True)
def delete_file(path: str) -> str:
    """Remove a file from the disk."""
    return f"deleted {path}"


TOOLS = [add, weather_forecast, delete_file]


def through(name, call_id=None, /, **arguments):
    """A call of a tool by `call_tool`."""
    return call("call_tool", call_id, name=name, arguments=arguments)


def searching(*steps, search=None, **options):
    """The result of a scripted run with tool search, and the model."""
    model = ScriptedLLM(*steps)
    options = {"tools": TOOLS, "tool_search": search or ToolSearch(), **options}
    result = Loop.run_sync("Go.", model, **options)
    check_history(result.messages)
    return result, model


def offered(sent):
    return [made["function"]["name"] for made in sent.opts.get("tools", ())]


def answers(result):
    return [message["content"] for message in result.messages if message["role"] == "tool"]


def wrote(result):
    """The name and the arguments of each call in the history."""
    made = [one for message in result.messages for one in message.get("tool_calls", ())]
    return [(one["function"]["name"], one["function"]["arguments"]) for one in made]


# What is offered


def test_tools_that_end_the_run_and_those_of_always_are_offered_too():
    @tool(terminal=True)
    def finish(answer: str) -> None:
        """Finish."""

    _, model = searching(
        calls(call("finish", answer="x")), search=ToolSearch(always=["add"]), tools=[*TOOLS, finish]
    )
    assert offered(model.sent[0]) == ["search_tools", "call_tool", "add", "finish"]
    _, model = searching(calls(call("final_answer", value=3)), output=int)
    assert offered(model.sent[0]) == ["search_tools", "call_tool", "final_answer"]


def test_tools_that_were_found_are_offered_from_then_on_in_native_mode():
    steps = (
        calls(call("search_tools", query="rain", limit=1)),
        calls(call("weather_forecast", city="Oslo")),
        calls(call("search_tools", query="remove a file", limit=1)),
        "Done.",
    )
    result, model = searching(*steps, search=ToolSearch(mode="native"))
    first, second = ["search_tools"], ["search_tools", "weather_forecast"]
    assert list(map(offered, model.sent)) == [first, second, second, [*second, "delete_file"]]
    assert answers(result)[1] == "1 sunny days in Oslo"


def test_runs_of_a_loop_do_not_share_what_they_found():
    loop = Loop(tools=TOOLS, tool_search=ToolSearch(mode="native"))
    loop.run_sync("Go.", ScriptedLLM(calls(call("search_tools", query="rain")), "Done."))
    model = ScriptedLLM("Done.")
    loop.run_sync("Go.", model)
    assert offered(model.sent[0]) == ["search_tools"]


def test_a_stage_that_chooses_the_tools_has_the_last_word():
    @stage
    def choose(ctx):
        return ctx.with_request(tools=["add"])

    steps = (calls(call("add", a=1, b=1), through("add", a=2, b=2)), "Done.")
    result, model = searching(*steps, stages=[choose, *default_stages()])
    assert offered(model.sent[0]) == ["add"]
    assert answers(result)[0] == "2"
    assert "'call_tool' is not offered in this request" in answers(result)[1]


@pytest.mark.parametrize(
    "choice", ["add", {"type": "function", "function": {"name": "add"}}], ids=["name", "form"]
)
def test_a_tool_that_is_forced_is_offered(choice):
    @stage
    def force(ctx):
        return ctx.with_request(tool_choice=choice) if ctx.iteration == 1 else ctx

    result, model = searching(
        calls(call("add", a=1, b=1)), "Done.", stages=[force, *default_stages()]
    )
    assert offered(model.sent[0]) == ["search_tools", "call_tool", "add"]
    assert model.sent[0].opts["tool_choice"]["function"] == {"name": "add"}
    assert offered(model.sent[1]) == ["search_tools", "call_tool"]
    assert answers(result) == ["2"]


def test_the_start_of_a_run_reports_what_is_offered_and_what_there_is():
    events = []
    searching("Done.", on_event=events.append)
    [started] = [event for event in events if isinstance(event, RunStarted)]
    assert [made["function"]["name"] for made in started.tools] == ["search_tools", "call_tool"]
    assert started.available == ("search_tools", "call_tool", *(one.name for one in TOOLS))


# Searches


def test_a_search_returns_what_a_call_needs():
    result, _ = searching(calls(call("search_tools", query="will it rain?", limit=1)), "Done.")
    [found] = json.loads(answers(result)[0])["tools"]
    assert found == {
        "name": "weather_forecast",
        "description": "The temperature and rain of the next days in a city.",
        "input_schema": weather_forecast.input_schema,
    }
    assert result.tool_calls_count == 1


def test_the_limit_is_that_of_the_configuration_unless_the_model_asks_for_another():
    many = [tool(name=f"add_{n}", description="Add numbers.")(lambda: 0) for n in range(30)]
    queries = [call("search_tools", query="add"), call("search_tools", query="add", limit=7)]
    result, _ = searching(calls(*queries), "Done.", search=ToolSearch(limit=3), tools=many)
    assert [len(json.loads(answer)["tools"]) for answer in answers(result)] == [3, 7]


def test_a_name_finds_its_tool_first():
    queries = [call("search_tools", query="delete_file", limit=1)]
    queries.append(call("search_tools", query="the tool `Delete_File`, please", limit=1))
    result, _ = searching(calls(*queries), "Done.")
    assert all('"tools":[{"name":"delete_file"' in answer for answer in answers(result))


def test_a_search_that_finds_nothing_says_what_there_is():
    result, _ = searching(calls(call("search_tools", query="xyzzy")), "Done.")
    [answer] = answers(result)
    assert answer == (
        "No tool matches 'xyzzy'. The names of the tools start with these words, each with the number of tools: "
        "add (1), weather (1), delete (1). Search for one of them, or in other words."
    )


def test_a_search_is_checked_like_any_call():
    result, _ = searching(calls(call("search_tools", query="", limit=99)), "Done.")
    assert "query: " in answers(result)[0]
    assert "limit: " in answers(result)[0]


def test_schemas_that_do_not_fit_into_a_result_are_left_to_another_search():
    long = "An addition of numbers. " * 600
    many = [tool(name=f"add_{n}", description=long)(lambda: 0) for n in range(4)]
    result, _ = searching(calls(call("search_tools", query="add")), "Done.", tools=many)
    found = json.loads(answers(result)[0])
    assert [one["name"] for one in found["tools"]] == ["add_0"]
    assert found["more"] == ["add_1", "add_2", "add_3"]


def test_a_search_follows_the_tools_of_the_run():
    @tool
    def multiply(a: int, b: int) -> int:
        """Multiply two numbers."""
        return a * b

    @stage
    def swap(ctx):
        return ctx.with_tools(add=[multiply], remove=["add"]) if ctx.iteration == 2 else ctx

    search = [calls(call("search_tools", query="two numbers")) for _ in range(2)]
    made = calls(through("multiply", a=2, b=3), through("add", a=2, b=3))
    result, model = searching(*search, made, "Done.", stages=[swap, *default_stages()])
    found = [json.loads(answer)["tools"] for answer in answers(result)[:2]]
    assert [[one["name"] for one in tools] for tools in found] == [["add"], ["multiply"]]
    assert answers(result)[2] == "6"
    assert "no tool named 'add'" in answers(result)[3]
    assert offered(model.sent[1]) == ["search_tools", "call_tool"]


def test_what_is_offered_follows_the_tools_of_the_run():
    @tool(terminal=True)
    def finish(answer: str) -> None:
        """Finish."""

    @stage
    def swap(ctx):
        return ctx.with_tools(add=[finish], remove=["add"]) if ctx.iteration == 2 else ctx

    steps = (calls(call("add", a=1, b=2)), calls(call("finish", answer="3")))
    search = ToolSearch(always=["add"])
    _, model = searching(*steps, search=search, stages=[swap, *default_stages()])
    assert offered(model.sent[0]) == ["search_tools", "call_tool", "add"]
    assert offered(model.sent[1]) == ["search_tools", "call_tool", "finish"]


def test_the_index_is_made_once_for_all_runs_of_a_loop():
    loop = Loop(tools=TOOLS, tool_search=ToolSearch())
    query = calls(call("search_tools", query="rain"))
    loop.run_sync("Go.", ScriptedLLM(query, "Done."))
    index = loop.catalog.index(loop.tools)
    loop.run_sync("Go.", ScriptedLLM(query, "Done."), on_event=lambda _: None, max_iterations=3)
    assert loop.catalog.index(loop.tools) is index


# Calls through `call_tool`


def test_a_tool_without_arguments_needs_none():
    @tool
    def ping() -> str:
        """Ping."""
        return "pong"

    made = [call("call_tool", name="ping"), call("call_tool", name="ping", arguments=None)]
    result, _ = searching(*(calls(one) for one in made), "Done.", tools=[ping])
    assert answers(result) == ["pong", "pong"]


def test_a_text_of_arguments_that_is_not_json_is_an_invalid_call():
    result, _ = searching(calls(call("call_tool", name="add", arguments='{"a": 1')), "Done.")
    assert answers(result)[0].startswith(
        "Error: the call of 'add' was not run:\n- the arguments are not valid JSON"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"name": "add", "arg', "the arguments are not valid JSON"),
        ({"arguments": {}}, "missing required field 'name'"),
        ({"name": 5, "arguments": {}}, "name: expected string, got integer 5"),
        ({"name": "add", "arguments": [1]}, "arguments: expected object, got array [1]"),
        ({"name": "add", "a": 1, "b": 2}, "unknown field 'a', 'b'; the fields are name, arguments"),
    ],
)
def test_a_call_that_names_no_tool_properly_is_a_call_of_call_tool(arguments, problem):
    made = calls(call("call_tool"))
    made["tool_calls"][0]["function"]["arguments"] = (
        arguments if isinstance(arguments, str) else json.dumps(arguments)
    )
    result, _ = searching(made, "Done.")
    [answer] = answers(result)
    assert answer.startswith("Error: the call of 'call_tool' was not run:")
    assert wrote(result)[0][0] == "call_tool"
    assert problem in answer


def test_an_unknown_name_is_answered_with_the_closest_and_the_advice_to_search():
    made = [through("wether_forecast"), through("forecast"), call("wether_forecast")]
    result, _ = searching(calls(*made), "Done.")
    expected = "Did you mean 'weather_forecast'? Search for it with 'search_tools'."
    assert [expected in answer for answer in answers(result)] == [True, True, True]


def test_call_tool_calls_the_fixed_tools_as_well():
    made = [
        through("call_tool", name="add", arguments={"a": 1, "b": 1}),
        through("search_tools", query="rain"),
        through("call_tool", query="add"),
    ]
    result, _ = searching(calls(*made), "Done.")
    found, invalid = answers(result)[1:]
    assert answers(result)[0] == "2"
    assert '"name":"weather_forecast"' in found
    assert "the call of 'call_tool' was not run" in invalid
    assert wrote(result) == [tuple(one["function"].values()) for one in calls(*made)["tool_calls"]]


@pytest.mark.parametrize("mode", ["call", "native"])
def test_a_tool_of_the_catalog_also_runs_if_it_is_called_by_its_own_name(mode):
    result, _ = searching(calls(call("add", a=1, b=2)), "Done.", search=ToolSearch(mode=mode))
    assert answers(result) == ["3"]
    assert wrote(result)[0][0] == "add"


def test_an_invalid_output_through_call_tool_is_asked_for_again():
    steps = (calls(through("final_answer", value="x")), calls(call("final_answer", value=4)))
    result, model = searching(*steps, output=int)
    assert result.output == 4
    assert len(model.sent) == 2


def test_a_last_answer_at_a_limit_is_asked_for():
    steps = (calls(through("add", a=1, b=1)), calls(through("add", a=1, b=2)), "Three.")
    result, model = searching(*steps, max_iterations=1, limits=Limits(on_limit="finish"))
    assert (result.stop_reason, result.output) == ("finished", "Three.")
    assert answers(result)[0] == "2"
    assert answers(result)[1].startswith("Not run: the budget")
    assert [offered(sent) for sent in model.sent] == [["search_tools", "call_tool"]] * 3


def test_a_resolver_runs_the_tools_that_have_no_function():
    seen = []

    def resolve(made):
        seen.append((made.name, dict(made.input)))
        return "resolved"

    remote = {"name": "remote_add", "description": "Add.", "inputSchema": {"type": "object"}}
    steps = (calls(call("search_tools", query="add"), through("remote_add", a=1)), "Done.")
    result, _ = searching(*steps, tools=[remote], resolve_tool=resolve)
    assert '"name":"remote_add"' in answers(result)[0]
    assert answers(result)[1] == "resolved"
    assert seen == [("remote_add", {"a": 1})]


def test_a_name_that_only_the_resolver_has_can_be_called():
    class Resolver:
        def resolve(self, made):
            return f"resolved {made.name}"

        def available_tools(self):
            return ["extra"]

    result, _ = searching(calls(through("extra")), "Done.", resolve_tool=Resolver())
    assert answers(result) == ["resolved extra"]


# Pauses


def paused_and_resumed(loop, model, decision):
    paused = loop.run_sync("Go.", model)
    assert isinstance(paused, Paused)
    check_history(paused.messages)
    state = json.loads(json.dumps(paused.state))
    result = loop.resume_sync(state, on(paused, {"c1": decision}), model)
    check_history(result.messages)
    return paused, result


@pytest.mark.parametrize(
    ("decision", "answer"),
    [
        (approve, "deleted /a"),
        (deny("no"), "Not run: a person did not approve this call: no. Do without it, or ask."),
        (edit({"path": "/b"}), "deleted /b"),
    ],
    ids=["approve", "deny", "edit"],
)
def test_a_call_through_call_tool_waits_for_approval_and_is_resumed(decision, answer):
    made = calls(through("delete_file", "c1", path="/a"))
    loop = Loop(tools=TOOLS, tool_search=ToolSearch())
    paused, result = paused_and_resumed(loop, ScriptedLLM(made, "Done."), decision)
    [pending] = paused.pending
    assert isinstance(pending, PendingCall)
    assert (pending.name, pending.arguments) == ("delete_file", {"path": "/a"})
    assert answers(result)[0].startswith(answer)
    assert wrote(paused) == wrote(result)
    assert wrote(result) == [("call_tool", '{"name": "delete_file", "arguments": {"path": "/a"}}')]


def test_what_was_found_natively_is_offered_after_a_pause():
    search, made = (
        calls(call("search_tools", query="rain", limit=1)),
        call("delete_file", "c1", path="/a"),
    )
    loop = Loop(tools=TOOLS, tool_search=ToolSearch(mode="native"))
    model = ScriptedLLM(search, calls(made), "Done.")
    paused_and_resumed(loop, model, approve)
    assert offered(model.sent[-1]) == ["search_tools", "weather_forecast"]


def test_a_subagent_that_was_called_through_call_tool_is_resumed():
    child = Loop(tools=[delete_file], tool_search=ToolSearch())
    inner = ScriptedLLM(calls(through("delete_file", "d1", path="/a")), "Gone.")
    loop = Loop(tools=[child.as_tool("helper", "Cleans up.", inner)], tool_search=ToolSearch())
    model = ScriptedLLM(calls(through("helper", "c1", task="clean")), "Done.")
    paused = loop.run_sync("Go.", model)
    [pending] = paused.pending
    result = loop.resume_sync(paused.state, {pending.id: approve}, model)
    assert answers(result) == ["Gone."]


# Custom stages


def edited_run(change, *, before=None):
    """A run of one call through call_tool, with a stage that changes the calls before they are planned."""

    @stage
    def editing(ctx):
        return change(ctx) if ctx.tool_calls and ctx.iteration == 1 else ctx

    stages = default_stages()
    place = next(n for n, one in enumerate(stages) if one.name == (before or "plan_calls"))
    stages.insert(place, editing)
    return searching(calls(through("add", "c1", a=1, b=2)), "Done.", stages=stages)[0]


def test_a_stage_sees_the_tool_and_its_arguments():
    seen = []

    def look(ctx):
        seen.extend(ctx.tool_calls)
        return ctx

    edited_run(look, before="validate_calls")
    assert [(one.name, one.arguments) for one in seen] == [("add", '{"a": 1, "b": 2}')]


@pytest.mark.parametrize(
    "change",
    [
        lambda ctx: ctx.edit_call("c1", {"a": 5, "b": 5}),
        lambda ctx: ctx.with_response(Response(tool_calls=(CALL_OF_ADD,))),
    ],
    ids=["an edited call", "another response"],
)
def test_the_history_shows_a_change_by_a_stage_as_a_call_of_call_tool(change):
    result = edited_run(change)
    assert answers(result) == ["10"]
    assert wrote(result) == [(CALL_OF_ADD.name, CALL_OF_ADD.arguments)]


CALL_OF_ADD = ToolCall("n1", "call_tool", '{"name": "add", "arguments": {"a": 5, "b": 5}}')


def test_a_response_whose_text_a_stage_changes_keeps_its_calls():
    def change(ctx):
        return ctx.with_response(dataclasses.replace(ctx.response, content="Let me add."))

    result = edited_run(change)
    assert answers(result) == ["3"]
    assert result.messages[1]["content"] == "Let me add."
    assert [one["id"] for one in result.messages[1]["tool_calls"]] == ["c1"]


def test_calls_that_ran_are_not_parsed_again():
    seen = []

    def look(ctx):
        seen.append(ctx.tool_calls)
        return ctx

    stages = default_stages()
    place = next(n for n, one in enumerate(stages) if one.name == "inject_results")
    stages[place:place] = [
        look,
        stage(parse_tool_calls.fn, name="again"),
        stage(look, name="second"),
    ]
    made = calls(through("add", "c1", a=1, b=2))
    result, _ = searching(made, stages=stages, max_iterations=1)
    assert seen[0] is seen[1]
    assert answers(result) == ["3"]


def test_a_call_that_a_stage_removes_does_not_run():
    result = edited_run(lambda ctx: ctx.drop("c1", "it is not needed."))
    assert answers(result) == ["Not run: it is not needed."]
    assert wrote(result) == [("call_tool", '{"name": "add", "arguments": {"a": 1, "b": 2}}')]


def test_a_stage_may_remove_call_tool():
    @stage
    def remove(ctx):
        return ctx.with_tools(remove=["call_tool"]) if "call_tool" in ctx.tools else ctx

    steps = (calls(through("add", a=1, b=2)), "Done.")
    result, model = searching(*steps, stages=[remove, *default_stages()])
    assert offered(model.sent[0]) == ["search_tools"]
    assert "there is no tool named 'call_tool'" in answers(result)[0]


def test_a_repaired_call_is_shown_as_a_call_of_call_tool():
    def repair(made, problems):
        return ToolCall(made.id, "add", '{"a": 1, "b": 1}')

    steps = (calls(through("add", a="one", b=1)), "Done.")
    result, _ = searching(*steps, stages=[validate_calls(repair_call=repair), ...])
    assert answers(result) == ["2"]
    assert wrote(result) == [("call_tool", '{"name": "add", "arguments": {"a": 1, "b": 1}}')]


def test_a_cancelled_run_has_the_call_as_it_was_written():
    handle = RunHandle()

    @tool
    def stop() -> str:
        """Stop."""
        handle.cancel()
        return "late"

    result, _ = searching(calls(through("stop", "c1")), tools=[stop], handle=handle)
    assert result.stop_reason == "cancelled"
    assert wrote(result) == [("call_tool", '{"name": "stop", "arguments": {}}')]


# Embeddings


def letters(texts):
    """Vectors that tell the tools of these tests apart: tools of weather are near to umbrellas."""
    wet = ("rain", "umbrella")
    return [[0.1, float(any(word in text.lower() for word in wet))] for text in texts]


async def letters_later(texts):
    await anyio.sleep(0.005)
    return letters(texts)


@pytest.mark.parametrize("embed", [letters, letters_later])
def test_embeddings_find_what_shares_no_word(embed):
    query = calls(call("search_tools", query="umbrella", limit=1))
    assert "No tool matches" in answers(searching(query, "Done.")[0])[0]
    result, _ = searching(query, "Done.", search=ToolSearch(embed=embed))
    [found] = json.loads(answers(result)[0])["tools"]
    assert found["name"] == "weather_forecast"


def test_a_name_is_first_with_embeddings_as_well():
    query = calls(call("search_tools", query="add the rain", limit=1))
    result, _ = searching(query, "Done.", search=ToolSearch(embed=letters))
    assert '"tools":[{"name":"add"' in answers(result)[0]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_tools_are_embedded_once_per_loop(is_async):
    asked = []

    def embed(texts):
        asked.append(len(texts))
        return letters(texts)

    async def embed_later(texts):
        await anyio.sleep(0.02)
        return embed(texts)

    loop = Loop(tools=TOOLS, tool_search=ToolSearch(embed=embed_later if is_async else embed))
    assert asked == []

    def run():
        both = calls(call("search_tools", query="rain"), call("search_tools", query="file"))
        loop.run_sync("Go.", ScriptedLLM(both, "Done."), handle=RunHandle())

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(asked) == [1] * 6 + [3]


@pytest.mark.parametrize(
    "embed", [lambda texts: 1 / 0, lambda texts: [[1.0]] * 9, lambda texts: None]
)
def test_embeddings_that_fail_leave_the_search_by_words(embed, caplog):
    query = calls(call("search_tools", query="rain", limit=1))
    with caplog.at_level(logging.WARNING, "treadle.tools"):
        result, _ = searching(query, "Done.", search=ToolSearch(embed=embed))
    assert '"name":"weather_forecast"' in answers(result)[0]
    assert "embed= failed" in caplog.text


# Options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "both"}, "mode: expected 'call' or 'native', got 'both'"),
        ({"always": "add"}, "always: expected a list of names of tools, got 'add'"),
        ({"always": [add]}, "always: expected a list of names of tools"),
        ({"limit": 0}, "limit: expected a whole number from 1 to 20, got 0"),
        ({"limit": True}, "limit: expected a whole number from 1 to 20, got True"),
        ({"embed": "model"}, "embed: expected a callable that takes a list of texts, got 'model'"),
    ],
)
def test_a_wrong_option_is_refused(options, text):
    with pytest.raises(OptionError) as raised:
        ToolSearch(**options)
    assert text in str(raised.value)


def test_the_configuration_cannot_be_changed():
    search = ToolSearch(always=["add"])
    assert search.always == ("add",)
    with pytest.raises(AttributeError):
        search.limit = 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (True, "tool_search: expected a ToolSearch, got bool"),
        (ToolSearch, "tool_search: expected a ToolSearch, got type"),
        (ToolSearch(always=["ad"]), "always: there is no tool 'ad'; did you mean 'add'"),
    ],
)
def test_an_option_that_does_not_fit_the_loop_is_refused(given, text):
    with pytest.raises(OptionError, match=text):
        Loop(tools=TOOLS, tool_search=given)


@pytest.mark.parametrize("name", ["search_tools", "call_tool"])
def test_a_tool_with_the_name_of_a_fixed_one_is_refused(name):
    own = tool(name=name)(lambda: 0)
    with pytest.raises(OptionError, match=f"tool_search: '{name}' is the name"):
        Loop(tools=[own], tool_search=ToolSearch())
    assert Loop(tools=[own]).tools[name] is own


def test_in_native_mode_the_name_of_call_tool_is_free():
    own = tool(name="call_tool", description="Phone a tool shop.")(lambda: "rang")
    search = ToolSearch(mode="native")
    result, _ = searching(calls(call("call_tool")), "Done.", tools=[own], search=search)
    assert answers(result) == ["rang"]


def test_an_option_of_a_run_makes_another_catalog():
    loop = Loop(tools=TOOLS, tool_search=ToolSearch())
    model = ScriptedLLM("Done.")
    loop.run_sync("Go.", model, tool_search=None)
    assert offered(model.sent[0]) == ["add", "weather_forecast", "delete_file"]
