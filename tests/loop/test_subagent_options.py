"""A loop as a tool has the options of a tool, and keeps those of the loop."""

import asyncio
import contextlib
import threading

import anyio
import pytest

from treadle import (
    Loop,
    tool,
)
from treadle.effects import map_effects
from treadle.errors import OptionError
from treadle.events import RunFinished
from treadle.testing import ScriptedLLM, call, calls, check_history

from .children import add, asked, helper
from .conftest import SYNC, answers


class TestOptions:
    """It is a tool like any other, with the same options."""

    def test_max_uses_limits_its_calls(self):
        subagent, inner = helper("a", "b", max_uses=1)
        script = asked("1", "k1"), asked("2", "k2")
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(*script, "outer"))
        assert answers(result.messages)["k2"].startswith(
            "Not run: 'helper' has reached its maximum number of uses in a run, 1"
        )
        assert len(inner.sent) == 1

    def test_a_repeated_task_is_suppressed(self):
        subagent, inner = helper("a", "a")
        script = [asked("1"), asked("1", "k2"), asked("1", "k3"), "outer"]
        result = SYNC.run(Loop(tools=[subagent]), ScriptedLLM(*script))
        texts = answers(result.messages)
        assert [texts[key][:13] for key in ("k", "k2", "k3")] == ["a", "a", "Not run again"]
        assert len(inner.sent) == 2

    def test_it_is_retried_after_its_time_limit(self, way, clock):
        attempts = []

        async def slow_once(messages):
            attempts.append(messages)
            if len(attempts) == 1:
                clock.limit.strike()
                await anyio.sleep(30)
            return "in time"

        subagent = Loop().as_tool("helper", "Helps.", slow_once, timeout=9, retries=1)
        loop = Loop(tools=[subagent], middleware=[clock.middleware])
        result = way.run(loop, ScriptedLLM(asked(), "outer"))
        assert answers(result.messages) == {"k": "in time"}
        node = result.run.nodes[0].tool_calls[0]
        assert (node.status, node.run.status) == ("success", "success")

    @pytest.mark.parametrize("bound", ["of its call", "of the parent"])
    def test_its_time_limit_applies_even_if_its_tools_ignore_cancellation(self, way, clock, bound):
        """As for any tool: one that ignores its cancellation is abandoned."""
        over = threading.Event()

        @tool
        async def stubborn():
            clock.limit.strike()
            while not over.is_set():
                with anyio.CancelScope(shield=True), contextlib.suppress(asyncio.CancelledError):
                    await anyio.sleep(0.01)

        def observe(event):
            if isinstance(event, RunFinished):
                over.set()  # only now, so that the run cannot have waited for the tool

        options = {"timeout": 9} if bound == "of its call" else {}
        subagent, _ = helper(calls(call("stubborn")), loop=Loop(tools=[stubborn]), **options)
        parent_options = {"middleware": [clock.middleware], "on_event": observe}
        loop = Loop(tools=[subagent], max_seconds=None if options else 9, **parent_options)
        result = way.run(loop, ScriptedLLM(asked(), "outer"))
        text = "Error: 'helper' took longer than 9 s." if options else "Cancelled: the run's time"
        assert answers(result.messages)["k"].startswith(text)
        check_history(result.run.nodes[0].tool_calls[0].run.messages)

    def test_options_of_the_subagent_apply_to_it_only(self):
        """Its limits, the options of its model, its retries."""
        loop = Loop(tools=[add], max_iterations=1, llm_opts={"temperature": 1}, max_retries=0)
        subagent, inner = helper(calls(call("add", a=1, b=1)), loop=loop)
        model = ScriptedLLM(asked(), "outer")
        result = SYNC.run(Loop(tools=[subagent], max_iterations=9), model)
        assert "no answer within max_iterations=1" in answers(result.messages)["k"]
        assert inner.sent[0].opts["temperature"] == 1
        assert "temperature" not in model.sent[0].opts

    def test_middleware_of_the_subagent_sees_only_its_effects(self, way):
        seen, seen_by_parent = [], []

        def middleware(into):
            return lambda steps: map_effects(steps, lambda e: into.append(e) or e)

        subagent, _ = helper(
            calls(call("add", "i", a=1, b=1)),
            "in",
            loop=Loop(tools=[add], middleware=[middleware(seen)]),
        )
        way.run(
            Loop(tools=[subagent], middleware=[middleware(seen_by_parent)]),
            ScriptedLLM(asked(), "outer"),
        )

        def made(effects):
            return [(e.label, e.key) for e in effects if getattr(e, "label", None) in LABELS]

        assert made(seen) == [("chat", "1"), ("execute_tool", "i"), ("chat", "2")]
        assert made(seen_by_parent) == [
            ("chat", "1"),
            ("chat", "k/1"),
            ("execute_tool", "k/i"),
            ("chat", "k/2"),
            ("chat", "2"),
        ]

    def test_an_unknown_option_is_an_error_with_a_suggestion(self):
        with pytest.raises(
            OptionError, match=r"^as_tool: unknown option 'retrys'; did you mean 'retries'"
        ):
            Loop().as_tool("helper", "Helps.", len, retrys=2)

    def test_one_subagent_may_run_concurrently(self, way):
        def model(messages):
            return f"did {messages[0]['content']}"

        subagent = Loop().as_tool("helper", "Helps.", model)
        batch = calls(*(call("helper", f"k{n}", task=f"t{n}") for n in range(5)))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(batch, "outer"))
        assert answers(result.messages) == {f"k{n}": f"did t{n}" for n in range(5)}


LABELS = {"chat", "execute_tool"}
