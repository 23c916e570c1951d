"""A paused state can be resumed once, by a loop with the tools and stages that it needs."""

import pytest

from treadle import (
    Loop,
    Ok,
    Pauses,
    RunState,
    approve,
    default_stages,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, RecordedTools, after_model, asking, paused_at, refused, stored


class Refusing:
    """A claim store for which every pause was resumed already."""

    def claim(self, pause_id, claimant, *, take_over):
        return False

    def release(self, pause_id, claimant, outcome): ...


def before_model(changed):
    """The default stages, and one that adds a tool, or replaces that of the same name."""
    return [lambda ctx: ctx.with_tools(add=[changed]), *default_stages()]


class TestStale:
    """A state can be resumed once, by a loop with the tools and stages that it needs."""

    def test_a_second_resumption_is_refused(self, recorded):
        loop, model, paused = paused_at(recorded)
        SYNC.resume(loop, paused, {"b": approve}, model)
        refused(loop, stored(paused), text="^the paused state is stale: '.*' was resumed already$")
        assert recorded.did == ["note 1", "note 3", "wipe /"]

    def test_a_refused_resumption_emits_nothing_and_does_not_call_the_model(self, recorded):
        events = []
        loop, _, paused = paused_at(recorded, pauses=Pauses(claims=Refusing()))
        with ScriptedLLM() as model:
            refused(loop, paused, model, "was resumed already", on_event=events.append)
        assert events == []

    def test_a_run_in_the_state_of_another_can_be_paused_again(self, recorded):
        """Each pause has its own id, although the runs share theirs."""
        state, loop = RunState("bot", "r1"), recorded.loop()
        for n in range(3):
            model = ScriptedLLM(calls(call("wipe", "b", path=f"/{n}")), "done")
            paused = SYNC.run(loop, model, state=state)
            state = SYNC.resume(loop, paused, {"b": approve}, model).run
        assert recorded.done == ["wipe /0", "wipe /1", "wipe /2"]

    def test_without_the_tool_it_is_refused(self, recorded):
        _, _, paused = paused_at(recorded)
        for name in ("note", "wipe"):
            others = [one for one in recorded.tools if one.name != name]
            refused(Loop(tools=others), paused, text=f"stale: tool '{name}' no longer exists, and")

    def test_with_another_schema_of_the_tool_it_is_refused(self, recorded):
        @tool(name="wipe", requires_approval=True)
        def other(path: str, force: bool = False): ...

        _, _, paused = paused_at(recorded)
        refused(Loop(tools=[recorded.tools[0], other]), paused, text="tool 'wipe' has changed")

    def test_a_tool_without_a_pending_call_may_change(self, recorded):
        _, model, paused = paused_at(recorded)
        loop = Loop(tools=[one for one in recorded.tools if one.name != "pay"])
        assert isinstance(SYNC.resume(loop, paused, {"b": approve}, model), Ok)

    def test_the_description_and_the_function_of_a_tool_may_change(self, recorded):
        later = RecordedTools()
        later.tools[1] = tool(later.tools[1], description="Wipes.")
        _, model, paused = paused_at(recorded)
        SYNC.resume(later.loop(), paused, {"b": approve}, model)
        assert (recorded.did, later.did) == (["note 1"], ["note 3", "wipe /"])

    @pytest.mark.parametrize("name", ["wipe", "erase"])
    def test_a_call_of_a_tool_from_a_stage_runs_only_with_that_tool(self, recorded, name):
        """Whether the stage replaced a tool of the loop or added one."""
        own = RecordedTools()
        restricted = tool(own.tools[1], name=name, description="Wipes test data.")
        script = calls(call(name, "b", path="/"))
        loop, model, paused = paused_at(recorded, script, stages=before_model(restricted))
        other = tool(recorded.tools[1], name=name)
        refused(
            loop.with_options(tools=[other]), paused, text=f"^a call of tool '{name}' waits, .*"
        )
        tools = [recorded.tools[0], restricted]
        SYNC.resume(loop, stored(paused), {"b": approve}, model, tools=tools)
        assert (recorded.done, own.done) == ([], ["wipe /"])

    def test_a_tool_that_looks_like_the_one_that_a_stage_replaced_is_refused(self, recorded):
        own = RecordedTools()
        loop, _, paused = paused_at(recorded, stages=before_model(own.tools[1]))
        for tools in (recorded.tools, own.tools):
            refused(loop.with_options(tools=tools), paused, text="give the tools different desc")

    def test_a_tool_from_a_stage_may_be_missing_if_no_call_of_it_waits(self, recorded):
        replaced = tool(recorded.tools[0], description="Notes.")
        script = calls(call("note", "a", n=1), call("wipe", "b", path="/"))
        loop, model, paused = paused_at(recorded, script, stages=before_model(replaced))
        assert isinstance(SYNC.resume(loop, stored(paused), {"b": approve}, model), Ok)
        assert recorded.done == ["note 1", "wipe /"]

    def test_without_the_stage_that_paused_it_is_refused(self, recorded):
        loop = recorded.loop(stages=after_model(asking))
        paused = SYNC.run(loop, lambda m: "Hello")
        refused(recorded.loop(), paused, text="stale: .*'asking'", decisions={"q": approve})
        assert isinstance(SYNC.resume(loop, paused, {"q": approve}, lambda m: "x"), Ok)

    def test_without_the_tool_of_a_subagent_it_is_refused(self, recorded):
        inner = ScriptedLLM(calls(call("wipe", "i", path="/")))
        loop = Loop(tools=[recorded.loop().as_tool("child", "c", inner)])
        paused = SYNC.run(loop, ScriptedLLM(calls(call("child", "k", task="t"))))
        without = Loop(tools=[Loop().as_tool("child", "c", inner)])
        refused(without, paused, text="tool 'wipe' no longer exists")
