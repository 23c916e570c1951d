"""A steered message that was accepted is used, and no message is lost."""

import anyio
import pytest

from treadle import (
    Limits,
    Loop,
    Ok,
    OptionError,
    RunHandle,
    approve,
    default_stages,
    tool,
)
from treadle.stages import circuit_breaker, loop_decision
from treadle.testing import ScriptedLLM, call, calls, check_history

from .conftest import SYNC, USER, stored
from .speaking import said, saying


class TestTooLate:
    """A message that `steer` accepts reaches the model."""

    def test_after_the_end_it_is_refused(self, way, handle):
        way.run(Loop(), ScriptedLLM("x"), handle=handle)
        assert handle.steer("hello?") is False
        assert handle.messages[-1]["content"] == "x"

    @pytest.mark.parametrize(
        ("script", "options"),
        [
            ([TypeError("no")], {}),
            ([""], {"stages": [loop_decision(max_blank_stops=0), ...]}),
            ([calls(call("nope"))], {"max_iterations": 1}),
            ([], {"max_seconds": 0}),
        ],
    )
    def test_after_every_other_end_it_is_refused(self, way, handle, script, options):
        result = way.run(Loop(**options), ScriptedLLM(*script), handle=handle)
        assert not isinstance(result, Ok)
        assert handle.steer("hello?") is False

    @pytest.mark.parametrize(
        ("then", "options", "reason"),
        [
            (calls(call("nope", "n")), {"max_iterations": 1}, "max_iterations_reached"),
            (
                calls(call("nope", "n")),
                {"stages": [circuit_breaker(threshold=1), ...]},
                "circuit_broken",
            ),
            ("", {"stages": [loop_decision(max_blank_stops=0), ...]}, "empty_response"),
        ],
    )
    def test_a_message_to_a_run_that_ends_is_the_last_of_its_messages(
        self, way, handle, then, options, reason
    ):
        """The model does not receive it; a caller that continues from there does not lose it."""
        model = ScriptedLLM(saying(handle, "stop", then=then))
        result = way.run(Loop(**options), model, handle=handle)
        assert result.stop_reason == reason
        assert result.messages[-1]["content"].endswith("stop")
        assert handle.messages == result.messages

    def test_during_the_call_for_the_last_answer_it_is_refused(self, handle):
        """The model is not called again."""
        accepted = []

        def last(messages):
            accepted.append(handle.steer("too late"))
            return "so far"

        loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
        result = SYNC.run(loop, ScriptedLLM(calls(call("nope")), last), handle=handle)
        assert (accepted, result.messages[-1]["content"]) == ([False], "so far")

    def test_a_message_before_the_last_answer_is_in_its_request(self, handle):
        loop = Loop(max_iterations=1, limits=Limits(on_limit="finish"))
        first = saying(handle, "in French", then=calls(call("nope")))
        with ScriptedLLM(first, "bref") as model:
            result = SYNC.run(loop, model, handle=handle)
        assert model.sent[1].messages[-1]["content"].startswith("in French\n\nThe budget for ")
        assert [m["content"] for m in result.messages[-2:]] == ["in French", "bref"]

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_a_message_to_a_task_that_is_cancelled_is_kept(self, handle, backend):
        async def main():
            with anyio.CancelScope() as scope:

                async def model(messages):
                    handle.steer("stop")
                    scope.cancel()
                    await anyio.sleep(30)

                await Loop.run(USER, model, handle=handle)

        anyio.run(main, backend=backend)
        check_history(handle.messages)
        assert handle.messages == [said("Hi\n\nstop")]
        assert handle.steer("more") is False


class TestPauses:
    """Pending messages are kept in the state of a paused run."""

    @pytest.fixture
    def sign(self):
        @tool(requires_approval=True)
        def sign(n: int):
            return "signed"

        return sign

    def paused(self, sign, handle, *script, **options):
        first = saying(handle, "hurry", then=calls(call("sign", "s", n=1)))
        loop, model = Loop(tools=[sign], **options), ScriptedLLM(first, *script)
        return loop, model, SYNC.run(loop, model, handle=handle)

    def test_over_several_pauses_in_order(self, sign, handle):
        batch = calls(call("sign", "s", n=1), call("sign", "t", n=2))
        loop, model = Loop(tools=[sign]), ScriptedLLM(saying(handle, "one", then=batch), "done")
        paused, handle = SYNC.run(loop, model, handle=handle), RunHandle()
        handle.steer("two")
        paused = SYNC.resume(loop, stored(paused), {"s": approve}, model, handle=handle)
        handle = RunHandle()
        handle.steer("three")
        result = SYNC.resume(loop, stored(paused), {"t": approve}, model, handle=handle)
        assert result.messages[-2] == said("one\n\ntwo\n\nthree")

    @pytest.mark.parametrize("with_handle", [False, True])
    def test_a_resumed_run_that_ends_before_the_next_model_call_keeps_it(
        self, sign, handle, with_handle
    ):
        loop, model, paused = self.paused(sign, handle, max_iterations=1)
        options = {"handle": RunHandle()} if with_handle else {}
        result = SYNC.resume(loop, stored(paused), {"s": approve}, model, **options)
        assert result.stop_reason == "max_iterations_reached"
        assert result.messages[-1] == said("hurry")

    def test_a_run_that_cannot_be_paused_keeps_it(self, sign, handle):
        stages = [lambda ctx: ctx.remember("mine", object()), *default_stages()]
        _, _, result = self.paused(sign, handle, stages=stages)
        assert result.stop_reason == "pipeline_failed"
        assert result.messages[-1] == said("hurry")


class TestInvalidMessages:
    """A user message, and nothing else."""

    @pytest.mark.parametrize(
        ("message", "text"),
        [
            ({"role": "assistant", "content": "x"}, "role: expected 'user', got 'assistant'"),
            ({"role": "system", "content": "x"}, "role: expected 'user', got 'system'"),
            ({"role": "tool", "tool_call_id": "a", "content": "x"}, "got 'tool'"),
            ({"content": "x"}, "role"),
            ({"role": "user"}, "content"),
            ({"role": "user", "content": 5}, "content"),
            ("", "content"),
            (" \n", "content"),
            ({"role": "user", "content": ""}, "content"),
            ({"role": "user", "content": []}, "content"),
        ],
    )
    def test_anything_else_is_refused(self, handle, message, text):
        with pytest.raises(OptionError, match=f"^steer: expected text or a user message: .*{text}"):
            handle.steer(message)
        with ScriptedLLM("x") as model:
            assert isinstance(SYNC.run(Loop(), model, handle=handle), Ok)
        assert model.sent[0].messages == USER
