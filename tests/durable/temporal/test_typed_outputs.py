"""A typed output on Temporal is what it was in the workflow, also that of a subagent."""

import pytest
from tests.durable.typed_outputs import CASES, Price

from treadle import Loop
from treadle.testing import ScriptedLLM, call, calls

from . import running


@pytest.mark.parametrize("name", ["a converting validator", "many classes", "hidden fields"])
def test_a_typed_output_is_read_as_it_was(temporal_server, name):
    kind, tool_name, arguments = CASES[name]

    def loop_of():
        llm = ScriptedLLM(calls(call(tool_name, "c1", **arguments)))
        return Loop(llm_send_fn=llm, output=kind, name="agent")

    result = running.run(temporal_server, running.result_of, loop_of())
    assert result.output == loop_of().run_sync("Hello.").output


def test_the_output_of_a_subagent_is_read_as_it_was(temporal_server):
    inner = ScriptedLLM(calls(call("Price", "d1", cents=5)))
    sub = Loop(output=Price, llm_send_fn=inner, name="sub").as_tool("sub", "Price it.")
    outer = ScriptedLLM(calls(call("sub", "c1", task="Price it.")), "Done.")
    result = running.run(
        temporal_server, running.result_of, Loop(tools=[sub], llm_send_fn=outer, name="agent")
    )
    [content] = [one["content"] for one in result.messages if one["role"] == "tool"]
    assert "500" in content
    assert "50000" not in content
