"""The handle: watching, steering and ending a run from outside it."""

import itertools
import sys
import threading

import anyio
import pytest

from treadle import (
    BudgetExhausted,
    Err,
    Limits,
    Loop,
    Ok,
    OptionError,
    Output,
    OutputMissing,
    RunCancelled,
    RunHandle,
    UserMessageAdded,
    approve,
    default_stages,
    tool,
)
from treadle.events import ToolFinished, ToolStarted
from treadle.loop import handle as handle_module
from treadle.stages import circuit_breaker, loop_decision
from treadle.testing import ScriptedLLM, call, calls

from .conftest import SYNC, USER, answers, of, stored


def said(text):
    return {"role": "user", "content": text}


def saying(handle, *messages, then):
    """A step of a script: the user sends messages during the model call."""

    def answer(asked):
        for message in messages:
            assert handle.steer(message)
        return then

    return answer


def test_before_a_run_it_is_empty():
    handle = RunHandle()
    assert (handle.state, handle.result, handle.messages, handle.in_flight) == (None, None, [], ())
    assert handle.cancel_all() == ()


def test_after_a_run_it_has_the_result_the_state_and_the_messages():
    handle = RunHandle()
    result = Loop.run_sync(USER, lambda m: "Hello", handle=handle)
    assert handle.result is result
    assert handle.state is result.run
    assert handle.messages == result.messages
    handle.messages[0]["content"] = "broken"
    assert handle.messages == result.messages


def test_it_belongs_to_one_run():
    loop = Loop(handle=RunHandle())
    loop.run_sync(USER, lambda m: "x")
    with pytest.raises(OptionError, match="a RunHandle belongs to one run"):
        loop.run_sync(USER, lambda m: "x")


def test_a_stream_is_its_own_handle():
    async def main():
        async with Loop.stream(USER, lambda m: "x", handle=RunHandle()):
            pass

    with pytest.raises(OptionError, match="a stream is the handle of its run"):
        anyio.run(main)


def test_while_a_tool_runs_it_is_in_flight(way):
    handle, seen = RunHandle(), []

    @tool
    def look():
        seen.append((handle.in_flight, handle.state.is_running, handle.messages))

    way.run(Loop(tools=[look]), ScriptedLLM(calls(call("look", "a")), "done"), handle=handle)
    ((in_flight, running, messages),) = seen
    assert [one.id for one in in_flight] == ["a"]
    assert running
    assert messages == USER
    assert handle.in_flight == ()


def test_cancel_ends_the_run_with_an_err_and_a_valid_history(way):
    handle = RunHandle()

    @tool
    async def hang():
        handle.cancel()
        await anyio.sleep(10)

    script = ScriptedLLM(calls(call("hang"), call("hang")))
    result = way.run(Loop(tools=[hang]), script, handle=handle)
    assert isinstance(result, Err)
    assert result.reason == RunCancelled()
    assert result.messages[-1]["content"].startswith("Cancelled: ")
    assert handle.result is result


def test_a_run_that_is_cancelled_before_it_starts_does_not_call_the_model():
    handle = RunHandle()
    handle.cancel()
    with ScriptedLLM() as model:
        result = Loop.run_sync(USER, model, handle=handle)
    assert result.reason == RunCancelled()
    assert result.messages == USER


def test_cancel_all_stops_the_tools_and_the_run_continues(way):
    handle, events, stopped = RunHandle(), [], []

    @tool
    async def hang():
        stopped.extend(handle.cancel_all())
        await anyio.sleep(10)

    with ScriptedLLM(calls(call("hang", "a")), "then not") as script:
        result = way.run(Loop(tools=[hang], on_event=events.append), script, handle=handle)
    assert result.unwrap().content == "then not"
    assert [one.id for one in stopped] == ["a"]
    assert script.sent[1].messages[-1]["content"].startswith("Cancelled: ")
    assert len(of(events, ToolStarted)) == 1
    (finished,) = of(events, ToolFinished)
    assert finished.result.status == "cancelled"


@pytest.mark.parametrize("sequential", ["defer", "in_step"])
def test_calls_that_did_not_start_because_of_cancel_all_are_not_counted(sequential):
    handle, ran = RunHandle(), []

    @tool(parallel_safe=False)
    def stop(n: int):
        ran.append(n)
        handle.cancel_all()

    several = calls(*(call("stop", f"a{n}", n=n) for n in range(3)))
    script = ScriptedLLM(several, calls(call("stop", n=5)), calls(call("stop", n=6)), "done")
    options = {"handle": handle, "sequential": sequential, "max_tool_calls": 3}
    result = Loop.run_sync(USER, script, tools=[stop], **options)
    assert result.unwrap().content == "done"
    assert ran == [0, 5, 6]


def test_a_call_that_waits_for_a_person_stays_counted_when_others_are_cancelled():
    handle, ran = RunHandle(), []

    @tool
    def stop():
        handle.cancel_all()

    @tool(requires_approval=True)
    def sign(n: int):
        ran.append(n)

    signed = call("sign", "s", n=1)
    script = ScriptedLLM(calls(call("stop", "a"), signed), calls(call("sign", n=2)), "done")
    loop = Loop(tools=[stop, sign], max_tool_calls=2)
    paused = loop.run_sync(USER, script, handle=handle)
    result = loop.resume_sync(paused, {one.id: approve for one in paused.pending}, script)
    assert isinstance(result.reason, BudgetExhausted)
    assert (ran, result.tool_calls_count) == ([1], 2)


@pytest.fixture
def speak(handle):
    """A tool that steers the run while it runs."""

    @tool(dedupe="off")
    def speak(text: str):
        assert handle.steer(text)
        return "spoke"

    return speak


class TestAccepted:
    """The message is in the next request, and in the history."""

    def test_a_message_during_a_tool_call_is_added_after_the_result(self, way, handle, speak):
        events = []
        loop = Loop(tools=[speak], on_event=events.append)
        with ScriptedLLM(calls(call("speak", "s", text="hurry")), "done") as model:
            result = way.run(loop, model, handle=handle)
        assert model.sent[1].messages[2:] == [
            {"role": "tool", "tool_call_id": "s", "content": "spoke"},
            said("hurry"),
        ]
        assert result.messages[:-1] == model.sent[1].messages
        assert of(events, UserMessageAdded) == [
            UserMessageAdded(iteration=2, messages=(said("hurry"),))
        ]

    def test_after_an_answer_of_the_model_the_run_continues_with_the_message(self, way, handle):
        with ScriptedLLM(saying(handle, "and why?", then="42"), "because") as model:
            result = way.run(Loop(), model, handle=handle)
        assert result.messages == [
            *USER,
            {"role": "assistant", "content": "42"},
            said("and why?"),
            {"role": "assistant", "content": "because"},
        ]
        assert (result.unwrap().content, result.iterations) == ("because", 2)
        assert [node.status for node in result.run.nodes] == ["success", "success"]

    def test_repeatedly(self, handle):
        steps = [saying(handle, str(n), then=f"a{n}") for n in range(4)]
        with ScriptedLLM(*steps, "end") as model:
            result = SYNC.run(Loop(), model, handle=handle)
        spoken = [m["content"] for m in result.messages]
        assert spoken == ["Hi", "a0", "0", "a1", "1", "a2", "2", "a3", "3", "end"]

    def test_an_earlier_output_is_discarded(self, handle):
        """The call of the terminal tool is answered; only the last output counts."""

        @tool
        def end(x: int): ...

        first = saying(handle, "no, 2", then=calls(call("end", "a", x=1)))
        with ScriptedLLM(first, calls(call("end", "b", x=2))) as model:
            result = SYNC.run(Loop(tools=[end], output="end"), model, handle=handle)
        assert (result.output, result.stop_reason) == ({"x": 2}, "output")
        assert answers(result.messages)["a"] == "Accepted: this is the final output."
        handle = RunHandle()
        first = saying(handle, "in words", then=calls(call("end", "a", x=1)))
        with ScriptedLLM(first, "two") as model:
            loop = Loop(tools=[end], output=Output("end", max_retries=0))
            result = SYNC.run(loop, model, handle=handle)
        assert isinstance(result.reason, OutputMissing)

    def test_before_the_first_request(self, way, handle):
        assert handle.steer("wait, Ho")
        with ScriptedLLM("x") as model:
            result = way.run(Loop(), model, handle=handle)
        assert model.sent[0].messages == [said("Hi\n\nwait, Ho")]
        assert result.messages[0] == said("Hi\n\nwait, Ho")
        assert [said("Hi")] == USER

    def test_several_at_once_are_one_message_in_order(self, way, handle):
        events = []
        loop = Loop(on_event=events.append)
        with ScriptedLLM(saying(handle, "one", "two", "three", then="a"), "b") as model:
            way.run(loop, model, handle=handle)
        assert model.sent[1].messages[-1] == said("one\n\ntwo\n\nthree")
        (steered,) = of(events, UserMessageAdded)
        assert steered.messages == (said("one"), said("two"), said("three"))

    def test_a_message_of_parts_and_with_unknown_keys_is_kept(self, handle):
        parts = {"role": "user", "content": [{"type": "text", "text": "look"}], "name": "bob"}
        with ScriptedLLM(saying(handle, parts, then="a"), "b") as model:
            SYNC.run(Loop(), model, handle=handle)
        assert model.sent[1].messages[-1] == parts

    def test_the_message_is_copied(self, handle):
        message = {"role": "user", "content": [{"type": "text", "text": "look"}]}
        handle.steer(message)
        message["content"][0]["text"] = "broken"
        message["role"] = "tool"
        with ScriptedLLM("x") as model:
            SYNC.run(Loop(), model, [{"role": "system", "content": "s"}], handle=handle)
        assert model.sent[0].messages[-1]["content"] == [{"type": "text", "text": "look"}]

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_through_a_stream(self, backend):
        async def main():
            async with Loop.stream(USER, ScriptedLLM(step, "because")) as events:
                seen.append(events)
                return [event async for event in events], events.result

        seen = []

        def step(messages):
            assert seen[0].steer("and why?")
            return "42"

        events, result = anyio.run(main, backend=backend)
        assert len(of(events, UserMessageAdded)) == 1
        assert result.messages[-2] == said("and why?")

    def test_a_listener_may_steer_again_when_a_message_is_added(self, way, handle):
        accepted = []

        def observe(event):
            if isinstance(event, UserMessageAdded) and not accepted:
                accepted.append(handle.steer("tell me"))

        loop = Loop(on_event=observe)
        with ScriptedLLM(saying(handle, "why?", then="42"), "because") as model:
            way.run(loop, model, handle=handle)
        assert accepted == [True]
        assert model.sent[1].messages[-1] == said("why?\n\ntell me")

    def test_the_guidance_after_a_blank_answer_is_replaced_by_it(self, handle):
        with ScriptedLLM(saying(handle, "well?", then=""), "x") as model:
            SYNC.run(Loop(), model, handle=handle)
        assert model.sent[1].messages == [said("Hi\n\nwell?")]

    def test_messages_from_other_threads_are_neither_lost_nor_duplicated(self, handle):
        def steer(name):
            for n in range(50):
                if not handle.steer(f"{name}.{n}"):
                    return

        threads = [threading.Thread(target=steer, args=(name,)) for name in "abcd"]

        def first(messages):
            for thread in threads:
                thread.start()
            return "going on"

        def second(messages):
            for thread in threads:
                thread.join()
            return "done"

        loop = Loop(max_iterations=1000)
        more = iter(lambda: "again", None)
        script = [first, second]
        result = SYNC.run(loop, lambda m: script.pop(0)(m) if script else next(more), handle=handle)
        received = [
            line
            for m in result.messages[1:]
            if m["role"] == "user"
            for line in m["content"].split("\n\n")
        ]
        for name in "abcd":
            assert [x for x in received if x.startswith(name)] == [f"{name}.{n}" for n in range(50)]


class TestNewTurn:
    """A user message starts a new turn."""

    def test_earlier_calls_may_be_made_again(self, handle):
        looked = []

        @tool
        def look():
            looked.append(1)
            return "same"

        script = [
            calls(call("look", "a")),
            calls(call("look", "b")),
            saying(handle, "look again", then=calls(call("look", "c"))),
            calls(call("look", "d")),
        ]
        loop = Loop(tools=[look], loop_threshold=None, dedupe="strict")
        result = SYNC.run(loop, ScriptedLLM(*script, "done"), handle=handle)
        texts = answers(result.messages)
        assert len(looked) == 2
        assert texts["b"].startswith("Not run again")
        assert texts["c"].startswith("Not run again")  # the message arrived during the model call
        assert texts["d"] == "same"

    def test_the_same_answer_to_several_messages_is_not_a_loop(self, handle):
        steps = [saying(handle, "sure?", then="yes") for _ in range(6)]
        result = SYNC.run(Loop(), ScriptedLLM(*steps, "yes"), handle=handle)
        assert isinstance(result, Ok)

    def test_budgets_are_not_reset(self, handle):
        """Steering does not extend the limits of the run."""
        steps = [saying(handle, "more", then="a") for _ in range(9)]
        result = SYNC.run(Loop(max_iterations=3), ScriptedLLM(*steps), handle=handle)
        assert (result.stop_reason, result.iterations) == ("max_iterations_reached", 3)
        assert result.messages[-1] == said("more")
        assert len([m for m in result.messages if m["role"] == "assistant"]) == 3

    def test_the_uses_of_a_tool_are_not_reset(self, handle, speak):
        once = tool(speak, max_uses=1)
        script = [calls(call("speak", f"s{n}", text="x")) for n in range(2)]
        result = SYNC.run(Loop(tools=[once]), ScriptedLLM(*script, "done"), handle=handle)
        assert answers(result.messages)["s1"].startswith(
            "Not run: 'speak' has reached its maximum number of uses in a run, 1"
        )


class TestAtAnyMoment:
    """A message is either refused, or taken once, whenever it arrives."""

    @pytest.mark.parametrize("line", range(1, 10))
    def test_while_the_messages_are_being_taken_as_from_a_signal_handler(self, line):
        """A trace function adds a message before a line of the handle is executed, in the same thread."""
        handle, lines, accepted, taken = RunHandle(), itertools.count(1), [], []

        def each_line(frame, event, _arg):
            if (
                frame.f_code.co_filename != handle_module.__file__
                or frame.f_code.co_name == "steer"
            ):
                return None
            if event == "line" and next(lines) == line:
                accepted.append(handle.steer("now"))
            return each_line

        def work():
            sys.settrace(each_line)
            while given := handle.take(True):
                taken.extend(given)
                handle.taken = ()
            sys.settrace(None)

        thread = threading.Thread(target=work, daemon=True)  # a deadlock is a failure, not a hang
        thread.start()
        thread.join(10)
        assert not thread.is_alive()
        assert len(accepted) == 1
        assert taken == [said("now")] * accepted.count(True)

    def test_while_the_run_ends_in_another_thread(self):
        """Repeatedly, several threads steer a run that ends as soon as there is no message."""
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for _ in range(100):
                self.steer_while_it_ends()
        finally:
            sys.setswitchinterval(interval)

    @staticmethod
    def steer_while_it_ends():
        handle, accepted, taken = RunHandle(), [], []
        start = threading.Barrier(4)

        def speak(name):
            start.wait()
            accepted.extend(filter(handle.steer, [f"{name} {number}" for number in range(5)]))

        def end():
            start.wait()
            while given := handle.take(True):
                taken.extend(message["content"] for message in given)
                handle.taken = ()

        threads = [threading.Thread(target=speak, args=(name,)) for name in "abc"]
        threads.append(threading.Thread(target=end))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(accepted)
        assert handle.steer("too late") is False


# A steered message that was accepted is used, and no message is lost.


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

    def test_a_message_that_was_taken_as_the_run_was_cancelled_is_in_its_history(self, way):
        """The outcome of the effect that took it does not reach the run."""

        class Cancelled(RunHandle):
            def take(self, is_over):
                taken = super().take(is_over)
                if taken:
                    self.cancel()
                return taken

        handle = Cancelled()
        result = way.run(Loop(), ScriptedLLM(saying(handle, "and?", then="x")), handle=handle)
        assert result.reason == RunCancelled()
        assert result.messages == [*USER, {"role": "assistant", "content": "x"}, said("and?")]

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
