"""Locks around a subagent: it may use the keys of its call; for other keys it waits, or fails."""

import time

import anyio
import pytest

from treadle import Locks, Loop, Ok, approve, tool
from treadle.testing import ScriptedLLM, call, calls

from .children import asked_each, subagent_run
from .conftest import SYNC, answers


class Shop:
    """A tool that records how many of its calls run at the same time, for each key."""

    def __init__(self):
        self.now, self.most, self.log = {}, {}, []

        @tool(lock=lambda given: given["key"])
        async def work(key: str, n: int = 0):
            self.now[key] = self.now.get(key, 0) + 1
            self.most[key] = max(self.most.get(key, 0), self.now[key])
            self.log.append(f"{key}{n}")
            await anyio.sleep(0.02)
            self.now[key] -= 1
            return f"worked {key}{n}"

        self.work = work

    def helper(self, model, **options):
        """A subagent that has the tool."""
        return Loop(tools=[self.work]).as_tool("helper", "h", model, **options)


@pytest.fixture
def shop():
    return Shop()


def works(*keys):
    return calls(*(call("work", f"w{n}", key=key, n=n) for n, key in enumerate(keys)))


@pytest.mark.timeout(20)
class TestLockedByTheParent:
    """A key that the call of the subagent has."""

    def test_calls_of_the_subagent_that_share_it_do_not_overlap(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L", "L", "L", "M"), "in"), lock="L")
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert shop.most == {"L": 1, "M": 1}
        assert len(shop.log) == 4
        assert answers(result.messages) == {"k": "in"}

    def test_no_other_call_gets_it_during_the_run(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L", "L"), "in"), lock="L")
        more = [call("work", "o", key="L", n=9)]
        result = way.run(
            Loop(tools=[subagent, shop.work]), ScriptedLLM(asked_each(more=more), "outer")
        )
        assert shop.most == {"L": 1}
        assert answers(result.messages) == {"k": "in", "o": "worked L9"}

    def test_a_nested_subagent_may_use_it_as_well(self, shop, way):
        nested = shop.helper(ScriptedLLM(works("L", "L"), "three"), lock="L")
        middle = Loop(tools=[nested, shop.work])
        more = [call("work", "m", key="L", n=5)]
        model = ScriptedLLM(asked_each("g", more=more), "two")
        subagent = middle.as_tool("helper", "h", model, lock="L")
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages) == {"k": "two"}
        assert shop.most == {"L": 1}
        assert len(shop.log) == 3

    def test_it_is_acquired_again_after_a_pause(self, shop, way):
        @tool(requires_approval=True)
        def sign():
            return "signed"

        inner = Loop(tools=[shop.work, sign])
        model = ScriptedLLM(calls(call("sign", "s")), works("L"), "in")
        subagent = inner.as_tool("helper", "h", model, lock="L")
        locks = Locks()
        loop = Loop(tools=[subagent], locks=locks)
        outer = ScriptedLLM(asked_each(), "outer")
        paused = way.run(loop, outer)
        ticket = locks.enter("L")
        assert ticket.is_set  # a paused run has no keys
        locks.leave("L", ticket)
        result = way.resume(loop, paused, {"k/s": approve}, outer)
        assert answers(result.messages) == {"k": "in"}


@pytest.mark.timeout(20)
class TestLockedElsewhere:
    """A key that another call has."""

    def test_a_subagent_without_a_key_waits_for_it(self, shop, way):
        subagent = shop.helper(ScriptedLLM(works("L"), "in"))
        more = [call("work", f"o{n}", key="L", n=n + 5) for n in range(3)]
        result = way.run(
            Loop(tools=[subagent, shop.work]), ScriptedLLM(asked_each(more=more), "outer")
        )
        assert shop.most == {"L": 1}
        assert len(shop.log) == 4
        assert answers(result.messages)["k"] == "in"

    def test_a_subagent_with_another_key_fails_and_never_waits(self, shop, way):
        """Two subagents that wait for each other's key would wait forever."""
        locks = Locks()
        ticket = locks.enter("L")
        subagent = shop.helper(ScriptedLLM(works("L"), "in"), lock="mine")
        result = way.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
        text = answers(subagent_run(result).messages)["w0"]
        assert text == "Not run: 'L' is in use by another call; try again later"
        assert shop.log == []
        locks.leave("L", ticket)

    def test_two_subagents_that_need_each_others_key_both_end(self, shop, way):
        def model(messages):
            if len(messages) > 1:
                return "in"
            time.sleep(0.02)
            mine = messages[0]["content"]
            return works({"A": "B", "B": "A"}[mine])

        subagent = shop.helper(model, lock=lambda given: given["task"])
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each("A", "B"), "outer"))
        assert isinstance(result, Ok)
        assert answers(result.messages) == {"A": "in", "B": "in"}
        assert all(most == 1 for most in shop.most.values())

    def test_the_lock_table_of_the_subagent_is_used(self, shop, way):
        """It was given to the loop to share with other runs, so it applies in every run."""
        shared = Locks()
        ticket = shared.enter("L")
        loop = Loop(tools=[shop.work], locks=shared, max_seconds=0.1)
        subagent = loop.as_tool("helper", "h", ScriptedLLM(works("L"), "in"))
        result = way.run(Loop(tools=[subagent]), ScriptedLLM(asked_each(), "outer"))
        assert answers(result.messages)["k"].endswith("took longer than max_seconds=0.1")
        assert shop.log == []
        shared.leave("L", ticket)

    def test_a_lock_is_released_however_the_subagent_ends(self, shop, way):
        locks = Locks()
        subagent = shop.helper(ScriptedLLM(TypeError("no")), lock="L")
        way.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
        ticket = locks.enter("L")
        assert ticket.is_set

    def test_a_step_of_a_recipe_that_is_a_subagent_may_use_the_key_of_the_recipe(self, shop, way):
        class Resolver:
            def resolve(self, made):
                return "resolved"

            def dispatch_recipe(self, name):
                steps = {"parallel": [("helper", {"task": "t"})] * 2}
                return (lambda given: steps) if name == "both" else None

        model = lambda messages: works("L") if len(messages) == 1 else "in"  # noqa: E731
        subagent = shop.helper(model)
        both = tool({"name": "both"}, lock="L")
        loop = Loop(tools=[both, subagent], resolve_tool=Resolver(), max_seconds=5)
        result = way.run(loop, ScriptedLLM(calls(call("both", "b")), "outer"))
        assert isinstance(result, Ok)
        assert shop.most == {"L": 1}
        assert len(shop.log) == 2


def test_a_lock_that_is_in_use_is_not_a_failure_of_the_tool():
    """The call was not made, so the circuit breaker ignores it."""
    locks = Locks()
    locks.enter("L")

    @tool(lock="L")
    def work(n: int):
        return n

    script = [calls(call("work", n=n)) for n in range(4)]
    subagent = Loop(tools=[work]).as_tool("helper", "h", ScriptedLLM(*script, "in"), lock="mine")
    result = SYNC.run(Loop(tools=[subagent], locks=locks), ScriptedLLM(asked_each(), "outer"))
    assert answers(result.messages) == {"k": "in"}
