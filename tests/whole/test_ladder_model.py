"""Random scripts of calls climb the ladder as its model does: what runs, is skipped, nudged, and stopped."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from treadle import Loop, LoopDetected, ToolContext, tool
from treadle.events import CallNotRun, RepeatWarned, ToolStarted
from treadle.stages import circuit_breaker
from treadle.testing import ScriptedLLM, call, calls, check_history
from treadle.tools import NotRun

from .ladder_model import WHITE, WRITES, Key, LadderModel

TOOLS = {
    "look": None,
    "poll": None,
    "patient": "evidence",
    "strict": "strict",
    "off": "off",
    "clock": None,
    "write": None,
}

keys = st.tuples(st.sampled_from([name for name in TOOLS if name not in WRITES]), st.integers(0, 1))
batches = st.lists(keys, min_size=1, max_size=3) | st.tuples(
    st.just("write"), st.integers(0, 1)
).map(lambda key: [key])
patterns = st.tuples(st.lists(batches, min_size=1, max_size=3), st.integers(1, 5)).map(
    lambda made: made[0] * made[1]
)
scripts = st.lists(patterns, min_size=1, max_size=3).map(
    lambda made: [batch for pattern in made for batch in pattern]
)
plays = st.fixed_dictionaries(
    {
        "dedupe": st.sampled_from(["evidence", "strict", "off"]),
        "threshold": st.sampled_from([None, 1, 2, 3, 3, 4]),
        "results": st.fixed_dictionaries(
            {
                name: st.sampled_from(["a", "a", "ab", "aab", "abb", "!", "a!", "abcdefg"])
                for name in TOOLS
            }
        ),
    }
)


def tools_of(results: dict[str, str]) -> list[Any]:
    def made(name: str) -> Any:
        def work(n: int, context: ToolContext) -> str:
            text = results[name][context.iteration % len(results[name])]
            if text == "!":
                raise OSError("no")
            return text

        is_safe = name not in WRITES
        options = {"dedupe": TOOLS[name], "volatile": name in WHITE, "parallel_safe": is_safe}
        return tool(name=name, **options)(work)

    return [made(name) for name in TOOLS]


def climb(script: list[list[Key]], play: dict[str, Any]) -> tuple[Any, list[Any]]:
    events: list[Any] = []
    model = ScriptedLLM(
        *(calls(*(call(name, n=n) for name, n in batch)) for batch in script), "Done."
    )
    result = Loop.run_sync(
        "Go.",
        model,
        tools=tools_of(play["results"]),
        dedupe=play["dedupe"],
        loop_threshold=play["threshold"],
        stages=[circuit_breaker(threshold=99), ...],
        max_iterations=99,
        on_event=events.append,
    )
    check_history(result.messages)
    return result, events


def found(events: list[Any], kind: type, reason: Any = None) -> list[tuple[int, Key]]:
    return sorted(
        (event.iteration, (event.call.name, event.call.input["n"]))
        for event in events
        if isinstance(event, kind) and reason in {None, getattr(event, "reason", None)}
    )


def expected(past: list[Any], name: str) -> list[tuple[int, Key]]:
    positions = [(number, made, getattr(made, name)) for number, made in enumerate(past, 1)]
    return sorted((number, made.batch[at]) for number, made, places in positions for at in places)


@settings(max_examples=300)
@given(scripts, plays)
def test_a_random_script_climbs_as_the_model_of_the_ladder(script, play):
    result, events = climb(script, play)
    model = LadderModel(TOOLS, play["dedupe"], play["threshold"], play["results"])
    loop = model.play(script)
    ran = sorted((number, key) for number, made in enumerate(model.past, 1) for key, *_ in made.ran)
    assert found(events, ToolStarted) == ran
    for reason, name in (
        (NotRun.NO_NEW_EVIDENCE, "skipped"),
        (NotRun.DUPLICATE_IN_BATCH, "twins"),
    ):
        assert found(events, CallNotRun, reason) == expected(model.past, name)
    assert found(events, RepeatWarned) == expected(model.past, "nudged")
    if loop is None:
        assert result.stop_reason == "answered"
    else:
        assert isinstance(result.reason, LoopDetected)
        assert (result.reason.iterations, result.reason.period) == loop
        assert result.iterations == len(model.past)


@settings(max_examples=200)
@given(scripts, plays)
def test_with_evidence_a_call_is_skipped_only_after_it_returned_the_same_twice_in_a_row(
    script, play
):
    """From the events alone: its last two executions succeeded, with the same result."""
    _, events = climb(script, play | {"dedupe": "evidence"})
    executions: dict[Key, list[int]] = {}
    for event in events:
        key = (event.call.name, event.call.input["n"]) if hasattr(event, "call") else None
        if isinstance(event, ToolStarted):
            executions.setdefault(key, []).append(event.iteration)
        elif isinstance(event, CallNotRun) and event.reason is NotRun.NO_NEW_EVIDENCE:
            if event.call.name == "strict":
                continue
            texts = play["results"][event.call.name]
            last = [texts[number % len(texts)] for number in executions[key][-2:]]
            assert len(last) == 2
            assert last[0] == last[1] != "!"


@settings(max_examples=200)
@given(scripts, plays)
def test_no_run_is_stopped_in_the_iteration_of_the_first_skip_of_its_loop(script, play):
    """If the calls of the last iteration were skipped there, the model had seen a skip before."""
    result, events = climb(script, play)
    if result.stop_reason == "loop_detected":
        skips = found(events, CallNotRun, NotRun.NO_NEW_EVIDENCE)
        if any(number == result.iterations for number, _ in skips):
            looped = result.reason.period * result.reason.iterations
            first = result.iterations - looped + 1
            assert any(first <= number < result.iterations for number, _ in skips)


def test_the_examples_reach_every_rung():
    """Otherwise the properties above could hold vacuously."""
    reached: set[Any] = set()

    @settings(max_examples=150, database=None)
    @given(scripts, plays)
    def look(script, play):
        result, events = climb(script, play)
        reached.update({type(event) for event in events} & {CallNotRun, RepeatWarned})
        if result.stop_reason == "loop_detected":
            reached.add((play["dedupe"], result.reason.period))

    look()
    loops = {(dedupe, 1) for dedupe in ("evidence", "strict", "off")}
    assert reached >= {CallNotRun, RepeatWarned, *loops}
    assert {made[1] for made in reached - {CallNotRun, RepeatWarned}} >= {1, 2}
