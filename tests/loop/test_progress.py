"""Tools that report their progress: through their context, and as generators."""

import functools
import logging
import threading

import anyio
import pytest

from treadle import Loop, Ok, Recipe, RecipeStep, RunHandle, ToolContext, ToolProgress, tool
from treadle.testing import ScriptedLLM, call, calls


def answers(name="work", **arguments):
    return ScriptedLLM(calls(call(name, "c1", **arguments)), "Done.")


def reports(events):
    return [
        (event.innermost.message, event.innermost.progress, event.innermost.data)
        for event in events
        if isinstance(event.innermost, ToolProgress)
    ]


def run(way, given, model=None, **options):
    """Run a loop with a tool; return the events and the content of its message."""
    seen = []
    result = way.run(Loop(tools=[given], on_event=seen.append, **options), model or answers())
    return seen, result.messages[2]["content"]


class TestReport:
    """`ToolContext.report` emits `ToolProgress` while the tool runs."""

    def test_an_async_tool_reports(self, way):
        @tool
        async def work(context: ToolContext):
            context.report("start")
            await anyio.sleep(0)
            context.report("half", 0.5, {"done": 1})
            return "all"

        seen, content = run(way, work)
        assert reports(seen) == [("start", None, None), ("half", 0.5, {"done": 1})]
        assert content == "all"
        kinds = [type(event).__name__ for event in seen if type(event).__name__.startswith("Tool")]
        assert kinds == ["ToolStarted", "ToolProgress", "ToolProgress", "ToolFinished"]
        assert [event.seq for event in seen] == list(range(1, len(seen) + 1))

    def test_a_sync_tool_reports_also_from_a_thread_of_its_own(self, way):
        @tool
        def work(context: ToolContext):
            context.report("start")
            thread = threading.Thread(target=context.report, args=("in a thread",))
            thread.start()
            thread.join()

        assert [message for message, _, _ in reports(run(way, work)[0])] == ["start", "in a thread"]

    def test_an_async_tool_reports_from_a_thread(self, way):
        @tool
        async def work(context: ToolContext):
            await anyio.to_thread.run_sync(context.report, "in a thread")
            thread = threading.Thread(target=context.report, args=("while the loop waits",))
            thread.start()
            thread.join()

        seen, _ = run(way, work)
        assert [one[0] for one in reports(seen)] == ["in a thread", "while the loop waits"]
        assert type(seen[-1]).__name__ == "RunFinished"

    def test_async_listeners_receive_reports_while_the_tool_runs(self, way):
        received = threading.Event()

        async def listen(event):
            await anyio.sleep(0)
            if isinstance(event, ToolProgress):
                received.set()

        @tool
        async def work(context: ToolContext):
            context.report("start")
            with anyio.fail_after(60):
                while not received.is_set():
                    await anyio.sleep(0.001)
            return "received"

        result = way.run(Loop(tools=[work], on_event=listen), answers())
        assert result.messages[2]["content"] == "received"

    @pytest.mark.parametrize(
        ("given", "shown"),
        [(-1, 0.0), (7, 1.0), (1, 1.0), (float("nan"), None), ("half", None)],
    )
    def test_progress_is_a_number_from_0_to_1(self, way, given, shown):
        @tool
        def work(context: ToolContext):
            context.report("x", given)

        assert reports(run(way, work)[0]) == [("x", shown, None)]

    def test_after_the_end_of_the_call_and_without_listeners_it_does_nothing(self, way):
        kept = []

        @tool
        def work(context: ToolContext):
            kept.append(context)
            context.report("in time")

        seen, _ = run(way, work)
        kept[0].report("too late")
        assert len(reports(seen)) == 1
        assert isinstance(way.run(Loop(tools=[work]), answers()), Ok)
        kept[1].report("nobody listens")

    def test_in_a_context_that_a_test_makes_it_does_nothing(self):
        ToolContext("c1", "work", 1).report("x", 0.5, {})

    def test_a_step_of_a_recipe_and_a_subagent_report(self, way):
        @tool
        def work(context: ToolContext):
            context.report(f"by {context.call_id}")

        class Resolver:
            def resolve(self, one):
                raise AssertionError(one.name)

            def dispatch_recipe(self, name):
                return lambda _: Recipe(serial=(RecipeStep("work"),)) if name == "plan" else None

        plan = {"name": "plan", "input_schema": {"type": "object"}}
        seen = []
        loop = Loop(tools=[work, plan], resolve_tool=Resolver(), on_event=seen.append)
        way.run(loop, answers("plan"))
        assert [one[0] for one in reports(seen)] == ["by c1/work"]

        agent = Loop(tools=[work]).as_tool("agent", "Ask.", answers())
        seen, _ = run(way, agent, answers("agent", task="Go."))
        (event,) = (one for one in seen if isinstance(one.innermost, ToolProgress))
        assert event.path == ("c1",)


class TestGenerators:
    """A generator tool reports each value, and its last value is the result."""

    def test_each_value_is_reported_and_the_last_is_the_result(self, way):
        @tool
        def work(n: int):
            for number in range(n):
                yield f"step {number}"

        seen, content = run(way, work, answers(n=3))
        assert reports(seen) == [(f"step {number}", None, None) for number in range(3)]
        assert content == "step 2"
        assert run(way, work, answers(n=0))[1] == "(no output)"

    def test_a_value_that_it_returns_is_the_result(self, way):
        @tool
        def work():
            yield "halfway"
            return {"n": 1}

        seen, content = run(way, work)
        assert (reports(seen), content) == ([("halfway", None, None)], '{"n":1}')

    def test_an_async_generator_does_the_same_and_data_are_copied(self, way):
        @tool
        async def work():
            state = {"done": 0}
            for number in (1, 2):
                await anyio.sleep(0)
                state["done"] = number
                yield state

        seen, content = run(way, work)
        assert reports(seen) == [(f'{{"done":{n}}}', None, {"done": n}) for n in (1, 2)]
        assert content == '{"done":2}'

    def test_every_form_of_callable_is_recognized(self, way):
        class Worker:
            def method(self):
                yield 1
                yield 2

            def __call__(self):
                yield 1
                yield 2

        def steps(start):
            yield start
            yield 2

        forms = [Worker().method, Worker(), functools.partial(steps, 1)]
        for form in forms:
            seen, content = run(way, tool(form, name="work"))
            assert ([one[2] for one in reports(seen)], content) == ([1, 2], "2")

        resolver = Loop(tools=[{"name": "work"}], resolve_tool=resolve_in_steps)
        assert way.run(resolver, answers()).messages[2]["content"] == "work 2"

    def test_a_tool_that_returns_an_iterator_returns_its_items(self, way):
        @tool
        def work():
            return (number for number in range(3))

        seen, content = run(way, work)
        assert (reports(seen), content) == ([], "[0,1,2]")

    def test_one_that_raises_is_closed_and_its_error_is_the_result(self, way, caplog):
        @tool
        async def work():
            yield "start"
            raise ValueError("no")

        with caplog.at_level(logging.CRITICAL):
            seen, content = run(way, work)
        assert (reports(seen), content) == ([("start", None, None)], "Error: ValueError: no")

    def test_an_image_is_reported_as_its_placeholder(self, way):
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}

        @tool
        def work():
            yield image

        seen, content = run(way, work)
        ((message, _, data),) = reports(seen)
        assert message.startswith("[image/png, 3 bytes, ")
        assert (data, content) == (image, [image])

    def test_a_sync_one_is_closed_after_its_time_limit(self, way):
        closed, may_go_on = threading.Event(), threading.Event()

        @tool(timeout=0.05)
        def work():
            try:
                yield "start"
                may_go_on.wait(60)
                yield "late"
                yield "never"
            finally:
                closed.set()

        seen, content = run(way, work)
        may_go_on.set()
        assert closed.wait(60)
        assert "took longer than 0.05 s" in content
        assert [one[0] for one in reports(seen)] == ["start"]

    @pytest.mark.parametrize("listens", [True, False])
    def test_an_async_one_that_never_waits_is_closed_at_its_time_limit(self, way, listens):
        closed = []

        @tool(timeout=0.05)
        async def work():
            try:
                while True:
                    yield None
            finally:
                closed.append(True)

        loop = Loop(tools=[work], on_event=(lambda _: None) if listens else None)
        content = way.run(loop, answers()).messages[2]["content"]
        assert "took longer than 0.05 s" in content
        assert closed == [True]

    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
    def test_it_is_closed_when_the_handle_cancels(self, way, is_async):
        closed, handle = threading.Event(), RunHandle()

        async def wait():
            try:
                yield "start"
                handle.cancel()
                await anyio.sleep(60)
            finally:
                closed.set()

        def go_on():
            try:
                yield "start"
                handle.cancel()
                yield "too late"
            finally:
                closed.set()

        work = tool(wait if is_async else go_on, name="work")
        result = way.run(Loop(tools=[work], handle=handle), answers())
        assert result.stop_reason == "cancelled"
        assert closed.wait(60)


def resolve_in_steps(one):
    yield "start"
    yield f"{one.name} 2"
