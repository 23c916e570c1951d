"""Concurrent runs in threads and tasks that share a loop and its providers have separate traces."""

import threading
from types import SimpleNamespace

import anyio
import pytest
from opentelemetry import trace

from treadle import Loop, Response, Usage, tool
from treadle.effects import Call, Now
from treadle.telemetry import names
from treadle.testing import ScriptedLLM, call, calls

from .watching import Watch

COUNT = 12


def loop_of(watch, seen):
    @tool
    async def work(n: int):
        await anyio.sleep(0.001 * (n % 3))
        seen.append((n, trace.get_current_span().get_span_context().trace_id))
        return n

    def model(messages):
        """The question is the number of the run."""
        n = int(messages[0]["content"])
        if len(messages) == 1:
            return calls(call("work", "c0", n=n), call("kid", "k", task=str(n)))
        return Response("x", usage=Usage(n, 1))

    def inner(messages):
        n = int(messages[0]["content"])
        return (
            calls(call("work", "c0", n=n))
            if len(messages) == 1
            else Response("in", usage=Usage(n, 1))
        )

    kid = Loop(tools=[work], name="kid").as_tool("kid", "", inner)
    return Loop(tools=[work, kid], name="bot", **watch.options), model


def question(n):
    return [{"role": "user", "content": str(n)}]


def check(watch, seen):
    watch.check_whole(runs=COUNT)
    assert len({span.context.trace_id for span in watch.spans}) == COUNT
    traces = {}
    for n, trace_id in seen:
        traces.setdefault(n, set()).add(trace_id)
    assert [len(each) for each in traces.values()] == [1] * COUNT
    assert len({trace_id for each in traces.values() for trace_id in each}) == COUNT
    for trace_id in {span.context.trace_id for span in watch.spans}:
        within = sorted(span.name for span in watch.spans if span.context.trace_id == trace_id)
        assert within == [
            *["chat"] * 4,
            "execute_tool kid",
            *["execute_tool work"] * 2,
            "invoke_agent bot",
            "invoke_agent kid",
        ]
    tokens = watch.total(names.TOKEN_USAGE, {names.TOKEN_TYPE: "input"})
    assert tokens == 2 * sum(range(COUNT))
    assert not trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_in_tasks(backend):
    watch, seen = Watch(), []
    loop, model = loop_of(watch, seen)

    async def main():
        async with anyio.create_task_group() as group:
            for n in range(COUNT):
                group.start_soon(loop.run, question(n), model)

    anyio.run(main, backend=backend)
    check(watch, seen)


def test_in_threads():
    watch, seen = Watch(), []
    loop, model = loop_of(watch, seen)
    threads = [
        threading.Thread(target=loop.run_sync, args=(question(n), model)) for n in range(COUNT)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(watch, seen)


def test_interleaved_steps():
    """Two runs in one thread, advanced in turns by a custom driver."""
    watch, seen = Watch(), []

    @tool
    def work(n: int):
        seen.append((n, trace.get_current_span().get_span_context().trace_id))

    loop = Loop(tools=[work], name="bot", **watch.options)
    answers = {n: iter([calls(call("work", n=n)), "x"]) for n in range(3)}
    runs = {n: loop.steps(question(n), lambda messages, n=n: next(answers[n])) for n in range(3)}
    given, clock = dict.fromkeys(runs), 1_700_000_000.0
    while runs:
        for n, steps in list(runs.items()):
            try:
                effect = steps.send(given[n])
            except StopIteration:
                del runs[n]
                continue
            clock += 0.01
            given[n] = clock if isinstance(effect, Now) else None
            if isinstance(effect, Call):
                reporter = (SimpleNamespace(now=lambda now=clock: now, emit=lambda event: None),)
                given[n] = effect.fn(*effect.args, *(reporter if effect.reporting else ()))
            assert not trace.get_current_span().get_span_context().is_valid
    watch.check_whole(runs=3)
    assert len({trace_id for _, trace_id in seen}) == len(seen) == 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_run_that_a_tool_starts_is_below_its_call(backend):
    watch = Watch()
    inner = Loop(name="inner", **watch.options)

    @tool
    async def awaited():
        return (await inner.run(question(1), lambda messages: "in")).unwrap().content

    @tool
    def in_a_thread():
        return inner.run_sync(question(1), lambda messages: "in").unwrap().content

    batch = calls(call("awaited"), call("in_a_thread"))
    model = ScriptedLLM(batch, "out")
    tools = [awaited, in_a_thread]
    anyio.run(lambda: Loop.run(question(0), model, tools=tools, **watch.options), backend=backend)
    around = {watch.names_around(span)[1:] for span in watch.named("invoke_agent inner")}
    assert around == {(f"execute_tool {each.name}", "invoke_agent") for each in tools}
