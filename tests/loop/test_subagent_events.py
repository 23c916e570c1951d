"""The events, states and middleware of a subagent."""

import asyncio
import threading

import anyio
import pytest

from treadle import (
    Limits,
    Loop,
    LoopDetected,
    ModelResponded,
    Ok,
    RunFinished,
    RunHandle,
    RunStarted,
    SubagentEvent,
    TextDelta,
    ToolFinished,
    Usage,
)
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import add, asked, helper
from .conftest import SYNC, answers, of


class TestState:
    """Its state is in the node of its call."""

    def test_it_has_a_name_an_id_and_all_nodes(self, way):
        subagent, _ = helper(
            calls(call("add", "i", a=1, b=2)), "in", loop=Loop(tools=[add], name="adder")
        )
        result = way.run(Loop(tools=[subagent], name="outer"), ScriptedLLM(asked(), "outer"))
        node = result.run.nodes[0].tool_calls[0]
        assert node.run.agent_name == "adder"
        assert node.run.run_id == f"{result.run.run_id}/k"
        assert [len(one.tool_calls) for one in node.run.nodes] == [1, 0]
        assert node.run.nodes[0].tool_calls[0].name == "add"
        assert node.run.messages[-1] == {"role": "assistant", "content": "in"}
        assert (node.run.status, node.status) == ("success", "success")
        assert result.run.nodes[1].tool_calls == []

    def test_without_a_name_it_has_that_of_the_tool(self):
        subagent, _ = helper("in", loop=Loop())
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert result.run.nodes[0].tool_calls[0].run.agent_name == "helper"

    def test_its_tokens_count_for_the_parent_at_every_exit(self):
        def answer(made, tokens):
            message = made if isinstance(made, dict) else {"role": "assistant", "content": made}
            usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
            return {"choices": [{"message": message}], "usage": usage}

        for most, ended in ((2, "budget_exhausted"), (9, "answered")):
            subagent, _ = helper(answer("in", 10))
            model = ScriptedLLM(answer(asked(), 1), answer("outer", 1))
            result = SYNC.run(Loop(tools=[subagent]), model, limits=Limits(max_requests=most))
            assert result.stop_reason == ended
            assert result.usage == Usage(11 + (ended == "answered"), 11 + (ended == "answered"))
            assert result.run.nodes[0].tool_calls[0].run.total_usage == Usage(10, 10)


class TestNested:
    """A subagent may have subagents."""

    def nest(self, depth, *script, **options):
        """Nested subagents; the innermost follows the script."""
        inner = ScriptedLLM(*script)
        loop, model = Loop(tools=[add], name=f"level{depth}", **options), inner
        for level in reversed(range(depth)):
            made = loop.as_tool("helper", "Helps.", model)
            loop = Loop(tools=[made], name=f"level{level}")
            model = ScriptedLLM(asked(call_id=f"k{level}"), f"answer {level}")
        return loop, model

    def test_answers_events_and_states_are_nested(self, way):
        events = []
        loop, model = self.nest(3, calls(call("add", "i", a=1, b=2)), "three")
        result = way.run(loop, model, on_event=events.append)
        assert answers(result.messages) == {"k0": "answer 1"}
        state, ids = result.run, []
        while state.nodes[0].tool_calls:
            ids.append(state.run_id)
            check_history(state.messages)
            run = state.nodes[0].tool_calls[0].run
            if run is None:
                break
            state = run
        base = ids[0]
        assert ids == [base, f"{base}/k0", f"{base}/k0/k1", f"{base}/k0/k1/k2"]
        depths = {0: 0, 1: 0, 2: 0, 3: 0}
        for event in events:
            depth = 0
            while isinstance(event, SubagentEvent):
                event, depth = event.event, depth + 1  # noqa: PLW2901
            depths[depth] += isinstance(event, RunStarted)
        assert depths == {0: 1, 1: 1, 2: 1, 3: 1}


class TestEvents:
    """Its events are within those of its call."""

    def test_they_are_nested_and_its_own_observers_receive_them_too(self, way):
        outer, inner, contexts = [], [], []
        loop = Loop(tools=[add], on_event=inner.append, on_iteration=contexts.append)
        subagent, _ = helper(calls(call("add", "i", a=1, b=2)), "in", loop=loop)
        way.run(Loop(tools=[subagent], on_event=outer.append), ScriptedLLM(asked(), "outer"))
        inner_events = [event.event for event in of(outer, SubagentEvent)]
        assert inner_events == inner
        assert {event.call_id for event in of(outer, SubagentEvent)} == {"k"}
        assert (type(inner[0]), type(inner[-1])) == (RunStarted, RunFinished)
        assert len(of(inner, ToolFinished)) == 1
        assert [one.iteration for one in contexts] == [1, 2]
        kinds = [type(event).__name__ for event in outer]
        assert kinds.index("ToolStarted") < kinds.index("SubagentEvent")
        assert kinds[::-1].index("ToolFinished") < kinds[::-1].index("SubagentEvent")

    @pytest.mark.parametrize("is_async", [False, True])
    def test_its_observers_are_called_where_those_of_the_outer_run_are(self, way, is_async):
        """Also with the events that a model emits in a worker thread."""
        threads, pieces = [], []

        def observe(event):
            if isinstance(event, TextDelta):
                threads.append(threading.get_ident())
                pieces.append(event.text)

        async def observe_later(event):
            await anyio.sleep(0)
            observe(event)

        def streaming(messages):
            yield "he"
            yield "llo"

        loop = Loop(on_event=observe_later if is_async else observe)
        inner = Loop(tools=[loop.as_tool("innermost", "", streaming)], on_event=lambda _: None)
        model = ScriptedLLM(calls(call("innermost", task="t")), "in")
        subagent = inner.as_tool("helper", "", model)
        way.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert pieces == ["he", "llo"]
        if not is_async or way.name != "sync":  # where async functions run on a background loop
            assert set(threads) == {threading.get_ident()}

    @pytest.mark.parametrize("kind", [ModelResponded, RunFinished])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_cancellation_that_an_observer_raises_changes_nothing(self, way, kind, is_async):
        def observe(event):
            if isinstance(event, kind):
                raise asyncio.CancelledError

        async def observe_later(event):
            observe(event)

        loop = Loop(on_event=observe_later if is_async else observe)
        subagent, _ = helper("42", loop=loop)
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert answers(result.messages)["k"] == "42"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_its_observers_receive_events_although_the_parent_has_no_listener(self, way, is_async):
        seen = []

        async def observe_later(event):
            await anyio.sleep(0)
            seen.append(event)

        observe = observe_later if is_async else seen.append
        subagent, _ = helper("in", loop=Loop(on_event=observe))
        way.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert [type(event).__name__ for event in seen][-1] == "RunFinished"

    def test_an_observer_of_it_that_raises_changes_nothing(self, way, caplog):
        def observe(event):
            raise ValueError("observer")

        subagent, _ = helper("in", loop=Loop(on_event=observe))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert answers(result.messages) == {"k": "in"}
        assert "an observer raised at RunStarted" in caplog.text

    def test_a_loop_in_it_is_not_a_loop_of_the_parent(self):
        """The subagent repeats a call; the parent calls the subagent once."""
        subagent, _ = helper(*[calls(call("add", a=1, b=1))] * 4)
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked(), "outer"))
        assert isinstance(result, Ok)
        reason = result.run.nodes[0].tool_calls[0].run.error
        assert reason == str(LoopDetected(('add({"a": 1, "b": 1})',), 4, "x"))


def test_a_handle_in_the_options_of_a_subagent_is_not_used():
    """A handle belongs to one run, and a subagent runs once for each call."""
    handle = RunHandle()
    subagent, _ = helper("a", "b", loop=Loop(handle=handle))
    result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(asked("1"), asked("2", "k2"), "outer"))
    assert isinstance(result, Ok)
    assert handle.state is None
