"""The steps of a recipe: spans below that of their call."""

import anyio

from treadle import Loop, Recipe, RecipeStep, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER
from .watching import go


class Library:
    """A resolver with a recipe ``summary`` of pages and other steps."""

    def __init__(self, watch, *more):
        self.mine = watch.tracers.get_tracer("mine")
        self.more = more

    def available_tools(self):
        return ["page", "summary"]

    async def resolve(self, asked):
        facts = {names.OPERATION_NAME: "mine"}
        with self.mine.start_as_current_span(f"read {asked.input.get('n')}", attributes=facts):
            await anyio.sleep(0)
        if asked.input.get("n") == 13:
            raise LookupError("no such page")
        return asked.name

    def dispatch_recipe(self, name):
        steps = [RecipeStep("page", {"n": n}) for n in (1, 2, 13)]
        recipe = Recipe(serial=[RecipeStep("page", {"n": 0})], parallel=[*steps, *self.more])
        return (lambda _: recipe) if name == "summary" else None


def test_steps_are_below_their_call_and_their_own_spans_below_them(driver, watch):
    model = ScriptedLLM(calls(call("summary", "c1"), call("page", "c2", n=9)), "done")
    go(driver, USER, model, resolve_tool=Library(watch), **watch.options)
    places = {span.attributes[names.TOOL_CALL_ID]: span for span in watch.kind(names.EXECUTE_TOOL)}
    steps = {"c1/page", "c1/page 2", "c1/page 3", "c1/page 4"}
    assert places.keys() == {"c1", "c2", *steps}
    for step in steps:
        assert places[step].parent.span_id == places["c1"].context.span_id
    agent = watch.one("invoke_agent")
    assert {places[each].parent.span_id for each in ("c1", "c2")} == {agent.context.span_id}
    read = [span.name for span in watch.spans if span.name.startswith("read")]
    assert sorted(read) == ["read 0", "read 1", "read 13", "read 2", "read 9"]
    for name in read:
        depth = 2 if name == "read 9" else 3
        assert len(watch.names_around(watch.one(name))) == depth + 1


def test_a_step_has_a_duration_and_is_not_counted_as_a_call(driver, watch):
    model = ScriptedLLM(calls(call("summary", "c1"), call("page", "c2", n=9)), "done")
    result = go(driver, USER, model, resolve_tool=Library(watch), **watch.options)
    assert result.tool_calls_count == 2
    assert watch.total(names.AGENT_TOOL_CALLS) == 2
    counts = {
        (point.attributes[names.TOOL_NAME], point.attributes.get(names.ERROR_TYPE)): point.count
        for point in watch.points(names.TOOL_DURATION)
    }
    assert counts == {("summary", None): 1, ("page", None): 4, ("page", "tool_error"): 1}


def test_a_subagent_in_a_step_is_below_the_step(driver, watch):
    @tool
    def double(n: int):
        return n * 2

    kid = Loop(tools=[double], name="kid")
    script = ScriptedLLM(calls(call("double", "i", n=1)), "in")
    helper = kid.as_tool("helper", "Helps.", script)
    library = Library(watch, RecipeStep("helper", {"task": "a"}))
    model = ScriptedLLM(calls(call("summary", "c1")), "done")
    go(driver, USER, model, name="bot", tools=[helper], resolve_tool=library, **watch.options)
    around = ("execute_tool helper", "execute_tool summary", "invoke_agent bot")
    assert watch.names_around(watch.one("invoke_agent kid")) == ("invoke_agent kid", *around)
    assert watch.names_around(watch.one("execute_tool double"))[1:3] == (
        "invoke_agent kid",
        around[0],
    )
    assert watch.one("invoke_agent kid").attributes[names.RUN_ID].endswith("/c1/helper")


def test_steps_at_the_deadline_end_with_the_run_and_are_not_counted(driver, watch, limit):
    @tool
    async def hang():
        limit.strike()
        await anyio.sleep(60)

    library = Library(watch, RecipeStep("hang", {}))
    model = ScriptedLLM(calls(call("summary", "c1")))
    options = {"max_seconds": 9, "middleware": [limit.middleware], **watch.options}
    go(driver, USER, model, tools=[hang], resolve_tool=library, **options)
    hanging = watch.one("execute_tool hang")
    assert hanging.attributes[names.ERROR_TYPE] == "deadline_exceeded"
    assert hanging.parent.span_id == watch.one("execute_tool summary").context.span_id
    assert watch.total(names.AGENT_TOOL_CALLS) == 1
    assert watch.one("invoke_agent").attributes[names.TOOL_CALLS_COUNT] == 1
