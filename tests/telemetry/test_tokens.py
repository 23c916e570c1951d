"""No token is counted twice or lost: the exported counts add up to those of the model."""

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.samples import OverloadedError

from treadle import Chunk, Limits, Loop, Paused, Response, ToolCall, Usage, approve, deny, tool
from treadle.messages import CallChunk
from treadle.stages import circuit_breaker
from treadle.telemetry import names
from treadle.testing import ScriptedLLM

from .watching import DRIVERS, Watch

GUARDS = {
    "loop_threshold": None,
    "stages": [circuit_breaker(threshold=99), ...],
    "dedupe": "off",
    "retry_delay": 0,
}


@tool
async def work(n: int):
    await anyio.sleep(0)
    return n


@tool(requires_approval=True)
def sign(n: int):
    return f"signed {n}"


@dataclass(frozen=True)
class Answer:
    """One response of the model.

    Args:
        usage: what it takes; None where the model does not say.
        calls: the tools that it calls, a script for each call of a loop.
        before: how the tries before it fail.
        is_streamed: whether it comes in pieces.
    """

    usage: Usage | None = None
    calls: tuple = ()
    before: tuple[str, ...] = ()
    is_streamed: bool = False


@dataclass(frozen=True)
class Script:
    """The responses of the model in one run, the last one repeated; and the options of the run."""

    answers: tuple[Answer, ...]
    max_iterations: int = 10
    on_limit: str = "stop"
    is_priced: bool = False


USAGES = st.builds(
    Usage,
    st.integers(0, 5_000),
    st.integers(0, 500),
    cached_tokens=st.integers(0, 50),
    reasoning_tokens=st.integers(0, 50),
    cache_write_tokens=st.integers(0, 50),
    cost=st.none() | st.integers(0, 64).map(lambda n: n / 1024),
)


def answers(calls):
    return st.builds(
        Answer,
        st.none() | USAGES,
        st.lists(calls, max_size=3).map(tuple),
        st.lists(st.sampled_from(["raises", "breaks"]), max_size=2).map(tuple),
        st.booleans(),
    )


def scripts(depth):
    calls = st.sampled_from(["work", "sign"])
    if depth:
        calls |= scripts(depth - 1)
    return st.builds(
        Script,
        st.lists(answers(calls), min_size=1, max_size=3).map(tuple),
        st.sampled_from([1, 2, 10]),
        st.sampled_from(["stop", "finish"]),
        st.booleans(),
    )


def priced(response):
    return None if response.usage is None else response.usage.output_tokens / 1024


def within(script):
    """All scripts in a script, recursively."""
    for answer in script.answers:
        for made in answer.calls:
            if isinstance(made, Script):
                yield made
                yield from within(made)


@dataclass
class Play:
    """Plays a script and those in it, and stores the responses."""

    script: Script
    said: list = field(default_factory=list)
    scripts: dict = field(default_factory=dict)
    priced: dict = field(default_factory=dict)
    found: Counter = field(default_factory=Counter)
    ids: itertools.count = field(default_factory=itertools.count)

    def __post_init__(self):
        self.scripts["root"] = self.script
        self.priced["root"] = self.script.is_priced

    def model(self, messages):
        """Which run is asked is in its first message."""
        key = messages[0]["content"]
        script, at = self.scripts[key], self.found[key]
        tries = [(a, t) for a in script.answers for t in (*a.before, "answers")]
        # After the end of its script it answers, and reports tokens as well.
        answer, then = tries[at] if at < len(tries) else (Answer(Usage(7, 3)), "answers")
        self.found[key] += 1
        if then == "raises":
            raise OverloadedError
        chunks = self.chunks(answer, key)
        if then == "breaks":
            return self.broken(chunks)
        self.said.append((answer.usage, self.priced[key]))
        return iter(chunks) if answer.is_streamed else self.whole(chunks)

    def broken(self, chunks):
        yield from chunks[:1]
        raise OverloadedError

    def chunks(self, answer, key):
        calls = []
        for n, made in enumerate(answer.calls):
            call_id = f"c{next(self.ids)}"
            name, arguments = made, {"n": next(self.ids)}
            if isinstance(made, Script):
                self.scripts[call_id] = made
                # A subagent without `cost_of` has that of its parent.
                self.priced[call_id] = made.is_priced or self.priced[key]
                name, arguments = self.tool_name(made), {"task": call_id}
            calls.append(CallChunk(n, call_id, name, json.dumps(arguments)))
        return [Chunk("Hm. "), Chunk("So.", tool_calls=tuple(calls)), Chunk(usage=answer.usage)]

    @staticmethod
    def whole(chunks):
        calls = tuple(ToolCall(c.id, c.name, c.arguments) for c in chunks[1].tool_calls)
        return Response("Hm. So.", calls, usage=chunks[2].usage)

    @staticmethod
    def tool_name(script):
        return f"kid_{script.max_iterations}_{script.on_limit}_{'priced' if script.is_priced else 'free'}"

    def options(self, script, depth):
        return {
            "tools": [work, sign, *(self.kids(depth - 1) if depth else ())],
            "max_iterations": script.max_iterations,
            "limits": Limits(
                on_limit=script.on_limit, cost_of=priced if script.is_priced else None
            ),
            **GUARDS,
        }

    def kids(self, depth):
        """A tool for each kind of script that there is."""
        for name, script in {self.tool_name(each): each for each in within(self.script)}.items():
            yield Loop(name="kid", **self.options(script, depth)).as_tool(name, "", self.model)

    def run(self, driver, watch):
        """Run it, however often it is paused, to the end."""
        loop = Loop(name="root", **self.options(self.script, 2), **watch.options)
        start = [{"role": "user", "content": "root"}]
        if driver == "sync":
            result = loop.run_sync(start, self.model)
        else:
            result = anyio.run(lambda: loop.run(start, self.model), backend=driver)
        for decision in itertools.cycle((approve, deny("No."))):
            if not isinstance(result, Paused):
                return result
            state = json.dumps(result.state)
            decisions = {result.pending[0].id: decision}
            if driver == "sync":
                result = loop.resume_sync(state, decisions, self.model)
            else:
                result = anyio.run(
                    lambda s=state, d=decisions: loop.resume(s, d, self.model), backend=driver
                )
        raise AssertionError("unreachable: there is always another decision")

    def cost(self):
        known = [
            u.cost if u.cost is not None else p * u.output_tokens / 1024 for u, p in self.said if u
        ]
        return sum(known)


def of_spans(watch, attribute):
    return sum(span.attributes.get(attribute, 0) for span in watch.kind(names.CHAT))


NESTED = Script(
    (
        Answer(
            Usage(10, 1),
            (Script((Answer(Usage(20, 2), ("sign", "work")), Answer(Usage(5, 5)))), "sign"),
        ),
        Answer(Usage(30, 3, cost=0.5), before=("raises", "breaks"), is_streamed=True),
    ),
    is_priced=True,
)


@pytest.mark.parametrize("driver", DRIVERS)
@given(script=scripts(2))
@example(script=NESTED)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_exported_tokens_add_up_to_those_of_the_model(driver, script):
    watch, play = Watch(), Play(script)
    result = play.run(driver, watch)
    usages = [usage for usage, _ in play.said if usage is not None]
    wanted = {
        "input": sum(usage.input_tokens for usage in usages),
        "output": sum(usage.output_tokens for usage in usages),
    }
    assert wanted == {
        "input": of_spans(watch, names.INPUT_TOKENS),
        "output": of_spans(watch, names.OUTPUT_TOKENS),
    }
    assert wanted == {
        kind: watch.total(names.TOKEN_USAGE, {names.TOKEN_TYPE: kind}) for kind in wanted
    }
    assert wanted == {"input": result.usage.input_tokens, "output": result.usage.output_tokens}
    assert of_spans(watch, names.CACHED_TOKENS) == sum(usage.cached_tokens for usage in usages)
    assert of_spans(watch, names.CACHE_WRITE_TOKENS) == sum(u.cache_write_tokens for u in usages)
    assert of_spans(watch, names.REASONING_TOKENS) == sum(u.reasoning_tokens for u in usages)
    assert watch.total(names.USAGE_COST) == pytest.approx(play.cost())
    assert result.usage.cost is None or result.usage.cost == pytest.approx(play.cost())
    assert len(watch.kind(names.CHAT)) == watch.total(names.AGENT_INFERENCE_CALLS) == len(play.said)
    for span in watch.kind(names.INVOKE_AGENT) + watch.kind(names.EXECUTE_TOOL):
        assert not any(key.startswith("gen_ai.usage") for key in span.attributes)
    watch.check_whole()


def test_the_scripts_cover_all_kinds_of_usage():
    """Pauses in runs and subagents, failed attempts, streams, reported and computed costs."""
    watch, play = Watch(), Play(NESTED)
    result = play.run("sync", watch)
    assert (result.stop_reason, result.usage.input_tokens) == ("answered", 10 + 20 + 5 + 30)
    assert play.cost() == (1 + 2 + 5) / 1024 + 0.5
    paused = [
        a for a in watch.kind(names.INVOKE_AGENT) if a.attributes[names.STOP_REASON] == "paused"
    ]
    assert {agent.name for agent in paused} == {"invoke_agent root", "invoke_agent kid"}
    assert watch.total(names.MODEL_RETRIES) == 2


@pytest.mark.parametrize(
    ("answer", "cost"),
    [("Hello", 0), (Response("Hello", usage=Usage(is_lower_bound=True, cost=0.5)), 0.5)],
    ids=["an estimate", "a cost alone"],
)
def test_tokens_that_no_provider_counted_are_not_exported(answer, cost):
    """Neither an estimate, nor the cost of one, nor a count that is only a lower bound."""
    watch = Watch()
    unmeasured = "stop" if cost else "estimate"
    options = {
        "limits": Limits(cost_of=lambda response: 0.25, unmeasured=unmeasured),
        **watch.options,
    }
    result = Loop.run_sync("Hi", ScriptedLLM(answer), **options)
    assert (result.usage.total_tokens > 0) is not bool(cost)
    (chat,) = watch.kind(names.CHAT)
    assert not any(key.startswith("gen_ai.usage") for key in chat.attributes)
    assert watch.total(names.TOKEN_USAGE) == 0
    assert watch.total(names.USAGE_COST) == cost
