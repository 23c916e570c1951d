"""Tool search: a call through `call_tool` has the span and the metrics of the tool itself."""

from treadle import ToolSearch
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .exits import USER, double
from .watching import go


def test_the_span_of_a_call_has_the_name_of_its_tool(driver, watch):
    made = call("call_tool", "c2", name="double", arguments={"n": 4})
    model = ScriptedLLM(calls(call("search_tools", "c1", query="double")), calls(made), "done")
    go(driver, USER, model, tools=[double], tool_search=ToolSearch(), **watch.options)
    spans = {span.attributes[names.TOOL_CALL_ID]: span for span in watch.kind(names.EXECUTE_TOOL)}
    assert {key: span.name for key, span in spans.items()} == {
        "c1": "execute_tool search_tools",
        "c2": "execute_tool double",
    }
    assert spans["c2"].attributes[names.TOOL_NAME] == "double"
    assert watch.total(names.AGENT_TOOL_CALLS) == 2


def test_an_embedding_is_made_within_the_span_of_the_search(driver, watch):
    tracer = watch.tracers.get_tracer("mine")

    def embed(texts):
        with tracer.start_as_current_span("embed"):
            return [[1.0] for _ in texts]

    model = ScriptedLLM(calls(call("search_tools", "c1", query="double")), "done")
    search = ToolSearch(embed=embed)
    go(driver, USER, model, tools=[double], tool_search=search, **watch.options)
    span = watch.one("execute_tool search_tools")
    own = [span.parent.span_id for span in watch.spans if span.name == "embed"]
    assert own == [span.context.span_id] * 2
