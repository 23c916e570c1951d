"""What a tool or a model traces itself has the right parent, wherever it runs."""

import anyio
from opentelemetry import trace

from treadle import Loop, tool
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

USER = [{"role": "user", "content": "Hi"}]


@tool
def double(n: int):
    return n * 2


class TestNesting:
    """What a tool or a model traces itself has the right parent, wherever it runs."""

    def traced(self, telemetry, name):
        return telemetry.tracers.get_tracer("mine").start_as_current_span(name)

    def test_in_a_sync_tool_in_an_async_one_and_side_by_side(self, run, telemetry):
        @tool
        def sync(n: int):
            with self.traced(telemetry, f"within {n}"):
                return n

        @tool
        async def later(n: int):
            await anyio.sleep(0)
            with self.traced(telemetry, f"within {n}"):
                await anyio.sleep(0)
                return n

        run(
            calls(*(call(name, f"c{n}", n=n) for n, name in enumerate(["sync", "later"] * 2))),
            "done",
            tools=[sync, later],
        )
        parents = {
            span.context.span_id: span.attributes[names.TOOL_CALL_ID]
            for span in telemetry.spans
            if span.name.startswith("execute_tool")
        }
        for n in range(4):
            assert parents[telemetry.one(f"within {n}").parent.span_id] == f"c{n}"

    def test_in_the_model_at_once_and_streamed(self, run, telemetry):
        def plain(messages):
            with self.traced(telemetry, "plain"):
                return "x"

        def streamed(messages):
            with self.traced(telemetry, "streamed"):
                pass
            yield "x"

        for fn in (plain, streamed):
            run(fn)
            telemetry_span = telemetry.one(fn.__name__)
            chats = {span.context.span_id for span in telemetry.named("chat")}
            assert telemetry_span.parent.span_id in chats

    def test_the_run_is_under_what_the_caller_traces(self, run, telemetry):
        with self.traced(telemetry, "outer"):
            run("x")
        agent, outer = telemetry.one("invoke_agent"), telemetry.one("outer")
        assert agent.parent.span_id == outer.context.span_id

    def test_no_span_of_the_run_is_current_for_the_user(self, run, telemetry):
        """Not in observers, not between the events of a stream, not after the run."""
        seen = []
        run(
            calls(call("double", n=1)),
            "done",
            on_event=lambda e: seen.append(trace.get_current_span()),
        )

        async def main():
            model = ScriptedLLM(calls(call("double", n=1)), "done")
            async with Loop.stream(USER, model, tools=[double], **telemetry.options) as events:
                seen.extend([trace.get_current_span() async for _ in events])

        anyio.run(main)
        seen.append(trace.get_current_span())
        assert len(seen) > 15
        assert all(not span.get_span_context().is_valid for span in seen)
