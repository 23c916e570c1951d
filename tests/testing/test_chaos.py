"""The chaotic model: every run with it ends well, and the same seed misbehaves alike."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from treadle import (
    Chunk,
    DeadlineExceeded,
    Err,
    Loop,
    Ok,
    OptionError,
    PipelineFailed,
    Response,
    RunFinished,
    RunState,
    Tool,
    ToolCall,
    ToolStarted,
    tool,
)
from treadle.testing import call, calls, check_history
from treadle.testing._chaos_checks import Facts, violations
from treadle.testing._chaos_dice import Dice, Table
from treadle.testing._chaos_errors import UnspeakableError
from treadle.testing._chaos_forms import Turn
from treadle.testing._chaos_mutations import MUTATIONS
from treadle.testing._chaos_options import _OPTIONS
from treadle.testing._chaos_play import Player
from treadle.testing._chaos_streams import BadEnd, Fault, Wait
from treadle.testing._chaos_trial import Trial
from treadle.testing._chaos_values import valid_arguments
from treadle.testing.chaos import ChaosLLM
from treadle.testing.chaos_tools import ChaosTools, ToolRun

USER = [{"role": "user", "content": "Go."}]


@tool
def add(a: int, b: int = 1) -> int:
    """Add two integers."""
    return a + b


# Every run ends, and ends well.


@pytest.mark.parametrize("seed", range(400))
def test_a_run_in_chaos_ends_as_it_should(seed):
    """Under any options and drivers: it returns, within its limits, with a valid history; see _chaos_checks."""
    verdict = Trial(seed).run()
    assert verdict.violations == [], verdict.story
    assert verdict.stop_reason != "none"


@pytest.mark.parametrize("seed", range(20))
def test_it_needs_no_limits(seed):
    """With nothing but the defaults, a run with it ends."""
    model = ChaosLLM(seed, [add], is_async=bool(seed % 2))
    result = Loop.run_sync(USER, model, tools=[add], retry_delay=0)
    assert isinstance(result, (Ok, Err))
    check_history(result.messages)


# It is the same every time.


def asked(model, messages=(), opts=None):
    """What it answers to one request: the answer itself, or the error that it raises."""
    try:
        return model([dict(message) for message in messages], opts)
    except BaseException as error:
        return error


def after(requests, seed, **options):
    """A model that was asked so often."""
    model = ChaosLLM(seed, [add], **options)
    for _ in range(requests):
        asked(model)
    return model


def shown(answer):
    """An answer as text that is the same for the same answer."""
    if not isinstance(answer, Iterator):
        return re.sub(r"0x[0-9a-f]+", "", f"{type(answer)} {vars_of(answer)}")
    pieces = []
    try:
        pieces.extend(map(shown, answer))
    except BaseException as error:
        pieces.append(type(error).__name__)
    return str(pieces)


def vars_of(answer):
    has_text = isinstance(answer, (str, dict, Response, Chunk))
    try:
        return repr(answer) if has_text else repr(getattr(answer, "__dict__", ""))
    except ValueError:
        return "a number beyond what Python shows"


@pytest.mark.parametrize("seed", range(40))
def test_the_same_seed_does_the_same(seed):
    one, other = ChaosLLM(seed, [add]), ChaosLLM(seed, [add])
    for _ in range(10):
        assert shown(asked(one)) == shown(asked(other))
    assert one.behaviours == other.behaviours
    assert one.sent == other.sent == 10


def test_another_seed_does_something_else():
    assert len({str(after(5, seed).behaviours) for seed in range(50)}) > 45


def test_what_it_does_does_not_depend_on_what_it_is_sent():
    one, other = ChaosLLM(3, [add]), ChaosLLM(3, [add])
    for place in range(8):
        assert shown(asked(one)) == shown(asked(other, USER * place, {"x": place}))


@pytest.mark.parametrize("seed", [2, 8, 11])
def test_a_run_with_it_is_the_same_whichever_way_it_is_driven(seed):
    def run(way):
        model = ChaosLLM(seed, [add], is_async=way != "sync")
        options = {"tools": [add], "retry_delay": 0, "max_iterations": 6}
        if way == "sync":
            result = Loop.run_sync(USER, model, **options)
        else:
            result = anyio.run(lambda: Loop.run(USER, model, **options), backend=way)
        return result.stop_reason, result.iterations, model.behaviours

    assert run("sync") == run("asyncio") == run("trio")


def test_its_text_makes_it_again():
    model = ChaosLLM(5, ChaosTools(5), turns=3, longest=500, most_calls=20)
    again = eval(repr(model))  # noqa: S307 - that is what it is for
    for _ in range(6):
        assert shown(asked(model)) == shown(asked(again))
    assert repr(ChaosLLM(5, [add])).startswith("ChaosLLM(5, [add], is_async=False")


# It does everything that it says it does.


def test_every_behaviour_occurs():
    """Bounded the first four hundred seeds, with twenty requests each; none is there in vain."""
    seen = set()
    for seed in range(400):
        model = ChaosLLM(seed, ChaosTools(seed), turns=19, most_calls=10, longest=100)
        for _ in range(20):
            asked(model, USER, {"tools": [add.as_openai()]})
        seen.update(name for name in model.behaviours if not name.startswith("request "))
        if seen == set(ChaosLLM.BEHAVIOURS):
            break
    assert seen == set(ChaosLLM.BEHAVIOURS)


def test_its_story_is_told_request_by_request():
    model = after(3, 0)
    assert model.behaviours[0].startswith("mood: ")
    requests = [name for name in model.behaviours if name.startswith("request ")]
    assert requests == ["request 1", "request 2", "request 3"]
    assert (model.seed, model.sent) == (0, 3)


@pytest.mark.parametrize("name", MUTATIONS.names)
def test_it_changes_what_it_is_handed(name):
    """Each mutation changes the messages or the options."""
    mutate = MUTATIONS.things[MUTATIONS.names.index(name)]
    call = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": [{"type": "text", "text": "a"}], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "a"}]},
    ]
    opts = {"tools": [add.as_openai()], "extra": {"a": [1]}}
    for seed in range(10):
        handed = copy.deepcopy((messages, opts))
        mutate(Dice(str(seed)), *handed)
        assert handed != (messages, opts)


def test_what_it_does_is_bounded():
    """Texts and calls stay as small as one says; what is above that is not theirs."""
    sizes = [
        len(shown(asked(model)))
        for model in (ChaosLLM(seed, [add], longest=10, most_calls=10) for seed in range(300))
        for _ in range(5)
    ]
    assert max(sizes) < 400_000  # the deepest nesting, in several calls
    for seed in range(300):
        answer = asked(ChaosLLM(seed, [add], most_calls=10))
        if isinstance(answer, dict) and isinstance(answer.get("tool_calls"), list):
            assert len(answer["tool_calls"]) <= 10


def test_after_its_turns_it_does_nothing_but_answer():
    model = ChaosLLM(7, [add], turns=2)
    answers = [asked(model) for _ in range(6)]
    assert answers[2:] == [{"role": "assistant", "content": "Done."}] * 4
    assert model.behaviours[-2:] == ["request 6", "tired: answers"]
    assert Loop.run_sync(USER, ChaosLLM(7, turns=0)).unwrap().content == "Done."


@pytest.mark.parametrize("option", ["longest", "most_calls"])
def test_bounds_too_small_to_do_anything_are_refused(option):
    with pytest.raises(OptionError, match="at least 10"):
        ChaosLLM(0, **{option: 9})


def test_without_tools_it_calls_those_that_the_first_request_offers():
    offered = {"tools": [add.as_openai(), "no tool", {"type": "other"}]}
    told = "".join(shown(asked(ChaosLLM(seed), USER, offered)) for seed in range(60))
    assert told.count("'name': 'add'") > 9


def test_an_async_one_has_to_be_awaited():
    async def main():
        return await ChaosLLM(0, [add], turns=0, is_async=True)(USER)

    assert asyncio.run(main()) == {"role": "assistant", "content": "Done."}


# Hanging.


def seed_that(behaviour, **options):
    """The first seed whose first request does something."""
    for seed in range(5_000):
        model = ChaosLLM(seed, [add], **options)
        model._player.play = lambda turn: turn
        model([])
        if behaviour in model.behaviours:
            return seed
    raise AssertionError(behaviour)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["sync", "asyncio", "trio"])
@pytest.mark.parametrize(
    "behaviour", ["does: hangs", "stream: falls silent", "stream: does not end"]
)
def test_where_it_hangs_it_hangs_for_ever(way, behaviour):
    """A time limit ends the run; a thread that is left over ends when it is let go."""
    seed = seed_that(behaviour, hangs=True)
    model = ChaosLLM(seed, [add], is_async=way != "sync", hangs=True)
    options = {"tools": [add], "max_seconds": 0.05, "max_retries": 0}
    if way == "sync":
        result = Loop.run_sync(USER, model, **options)
    else:
        result = anyio.run(lambda: Loop.run(USER, model, **options), backend=way)
    model.let_go()
    assert isinstance(result.reason, DeadlineExceeded)
    check_history(result.messages)


def test_where_it_may_not_hang_it_waits_some_milliseconds():
    assert ChaosLLM(seed_that("does: hangs"), [add])([]) == "late"


def test_one_that_was_let_go_does_not_hang():
    model = ChaosLLM(seed_that("does: hangs", hangs=True), [add], hangs=True)
    model.let_go()
    with pytest.raises(TimeoutError):
        model([])


# What it is made of.


SCHEMAS = {
    "types": {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 3, "maxLength": 5},
            "count": {"type": "integer", "minimum": -2, "maximum": 2},
            "even": {"type": "integer", "multipleOf": 2, "exclusiveMinimum": 4},
            "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "most": {"type": "number", "maximum": 3},
            "flag": {"type": "boolean"},
            "none": {"type": "null"},
            "either": {"type": ["string", "integer"]},
            "choice": {"enum": ["a", 1, None]},
            "one": {"const": {"a": 1}},
            "any": {},
            "date": {"type": "string", "format": "date"},
            "example": {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["ABC", "XYZ"]},
        },
        "required": ["text", "count", "even", "share", "flag", "none", "either", "choice", "one"],
        "additionalProperties": False,
    },
    "arrays": {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "string"}, {"type": "integer"}],
                "minItems": 2,
                "maxItems": 2,
            },
            "set": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
        },
        "required": ["list", "pair", "set"],
    },
    "alternatives": {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "b": {"oneOf": [{"const": 1}, {"const": 2}]},
            "c": {"allOf": [{"type": "integer"}, {"minimum": 5}]},
        },
        "required": ["a", "b", "c"],
    },
    "references": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/tree"}},
        "required": ["tree"],
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
    "a map": {"type": "object", "additionalProperties": {"type": "integer"}},
    "nothing": {"type": "object", "properties": {}},
    "more is required than described": {"type": "object", "required": ["x"]},
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_good_arguments_are_valid(schema):
    """Whatever the dice say, the schema accepts what was made for it."""
    made_for = Tool("t", "", schema, fn=lambda **_: None)
    made = [valid_arguments(Dice(str(seed)), schema) for seed in range(150)]
    assert [made_for.problems_of(arguments) for arguments in made] == [[]] * 150
    assert len({json.dumps(arguments) for arguments in made}) > 1 or not schema.get("properties")


def test_the_dice_choose_by_weight_and_tell_what():
    table = Table("it", {"often": (9, 1), "seldom": (1, 2), "never": (0, 3)})
    chosen = [Dice(str(seed)).pick(table) for seed in range(400)]
    assert 300 < chosen.count(1) < 395
    assert chosen.count(3) == 0
    dice = Dice("a")
    dice.pick(table), dice.pick(table)
    assert dice.told in (["it: often"], ["it: seldom"], ["it: often", "it: seldom"])


def test_a_stream_breaks_where_it_says():
    turn = Turn(pieces=("a", Wait(0.001), "b", Fault(KeyError("x")), "c"))
    read = []
    with pytest.raises(KeyError):
        read.extend(Player().play(turn))
    assert read == ["a", "b"]

    async def main():
        stream = await Player().play_async(turn)
        assert [await anext(stream), await anext(stream)] == ["a", "b"]
        with pytest.raises(KeyError):
            await anext(stream)

    asyncio.run(main())


def test_a_stream_that_cannot_be_closed_breaks_and_cannot_be_closed():
    turn = Turn(pieces=("a", BadEnd()))
    stream = Player().play(turn)
    assert next(stream) == "a"
    with pytest.raises(ConnectionResetError):
        next(stream)
    with pytest.raises(OSError, match="closed"):
        stream.close()

    async def main():
        stream = aiter(await Player().play_async(turn))
        assert await anext(stream) == "a"
        with pytest.raises(ConnectionResetError):
            await anext(stream)
        with pytest.raises(OSError, match="closed"):
            await stream.aclose()

    asyncio.run(main())


# What is looked at after a run, and the run that is made of it.


def facts(**changes):
    """A run in which nothing is wrong, but for what is changed."""
    state = changes.pop("state", None)
    if state is None:
        state = RunState("a", "b")
        state.start()
        state.succeed()
    tools, others = changes.pop("tools", having_run)(), changes.pop("others", list)()
    messages = changes.pop("messages", [*USER, {"role": "assistant", "content": "Done."}])
    of_result = {"iterations": 1, "tool_calls_count": 5, "run": state}
    of_result |= {key: changes.pop(key) for key in list(changes) if key in of_result}
    result = changes.pop("result", None) or Ok(Response("Done."), messages, **of_result)
    return Facts(
        **{
            "result": result,
            "given": USER,
            "options": {},
            "tools": tools,
            "others": others,
            **changes,
        }
    )


def running():
    state = RunState("a", "b")
    state.start()
    state.new_node().start()
    return state


def having_run(*runs, **options):
    """Tools of which some ran, each beside all before it."""
    tools = ChaosTools(0, count=9)
    plain = {"parallel_safe": True, "max_parallel": None, "lock": None, "timeout": None}
    plain |= {"max_uses": None, "retries": 0}
    tools._tools = tuple(
        dataclasses.replace(tool, **(plain | options if tool.name == "ping" else plain))
        for tool in tools
    )
    for name, arguments in runs:
        tools.runs.append(ToolRun(name, arguments, (), tuple(tools.runs)))
    return tools


CALM = {"role": "assistant", "content": "Calm."}
PING, FILE = ("ping", {}), ("read_file", {"path": "a"})
FINISHED = RunFinished(
    stop_reason="answered", total_iterations=1, tool_calls_count=0, result=None, at=0.0
)
STARTED = ToolStarted(iteration=1, call=ToolCall("a", "ping"), at=0.0)
WRONG = {
    "nothing": ({}, []),
    "a call without an answer": (
        {"messages": [*USER, calls(call("ping", "a"))], "result": None},
        [
            "history: messages: calls a have no answer at the end",
            "history: the answer is not its last message",
        ],
    ),
    "what was given is gone": (
        {"messages": [{"role": "user", "content": "Other"}, {"role": "assistant", "content": "x"}]},
        ["history: it does not begin with what was given"],
    ),
    "what was given was joined to": (
        {"messages": [{"role": "user", "content": "Go. And?"}, CALM], "is_meddled": True},
        [],
    ),
    "what was said too late": ({"messages": [*USER, CALM, *USER]}, []),
    "half a character": (
        {"messages": [*USER, {"role": "assistant", "content": "a", "x": "\ud83d"}]},
        ["history: it cannot be sent: UnicodeEncodeError"],
    ),
    "no number": (
        {"messages": [*USER, {"role": "assistant", "content": "a", "x": float("nan")}]},
        ["history: it cannot be sent: ValueError"],
    ),
    "a stage that fails of itself": (
        {"result": Err(PipelineFailed("plan_calls", "x", "KeyError"), [*USER])},
        ["stages: 'plan_calls' raised KeyError: x"],
    ),
    "a stage that is made to fail": (
        {"result": Err(PipelineFailed("plan_calls", "x", "UnspeakableError"), [*USER])},
        [],
    ),
    "too many iterations": ({"iterations": 11}, ["limits: 11 iterations, where 10 may be"]),
    "two more to finish": ({"iterations": 12, "options": {"on_limit": "finish"}}, []),
    "too many calls": ({"options": {"max_tool_calls": 4}}, ["limits: 5 tool calls"]),
    "too late": ({"seconds": 9.0, "options": {"max_seconds": 1}}, ["limits: it took 9.0 s"]),
    "a run that goes on": (
        {"state": running()},
        ["record: the run is running", "record: iteration  of iteration 0 still runs"],
    ),
    "arguments that the schema refuses": (
        {"tools": lambda: having_run(("read_file", {"path": 5}))},
        ["tools: 'read_file' was given what its schema refuses: path: expected string"],
    ),
    "more runs than calls": (
        {"tools": lambda: having_run(PING, PING), "tool_calls_count": 1},
        ["tools: 2 runs for 1 calls"],
    ),
    "more runs than uses": (
        {"tools": lambda: having_run(PING, PING, max_uses=1)},
        ["tools: 'ping' ran 2 times, where max_uses=1"],
    ),
    "beside what is not safe": (
        {"tools": lambda: having_run(PING, FILE, parallel_safe=False)},
        ["tools: 'read_file' ran beside 'ping'"],
    ),
    "too many of one": (
        {"tools": lambda: having_run(PING, PING, max_parallel=1)},
        ["tools: 2 calls of 'ping' at once"],
    ),
    "under one lock": (
        {"tools": lambda: having_run(PING, PING, lock="door")},
        ["tools: 'ping' ran beside 'ping' under one lock"],
    ),
    "too many at once": (
        {"tools": lambda: having_run(PING, FILE), "options": {"max_parallel_calls": 1}},
        ["tools: 2 calls at once, where 1 may be"],
    ),
    "beside what is not safe, after a handle stopped it": (
        {"tools": lambda: having_run(PING, FILE, parallel_safe=False), "is_meddled": True},
        [],
    ),
    "beside what is not safe, in a run that is a tool": (
        {"others": lambda: [having_run(PING, PING, parallel_safe=False, max_parallel=1)]},
        [],
    ),
    "under one lock, in a run that is a tool": (
        {"others": lambda: [having_run(PING, PING, lock="door")]},
        ["tools: 'ping' ran beside 'ping' under one lock"],
    ),
    "beside what is not safe, and may have been given up": (
        {"tools": lambda: having_run(PING, PING, parallel_safe=False, timeout=1)},
        [],
    ),
    "an end that is told": ({"events": [STARTED, FINISHED]}, []),
    "an end that is not told": ({"events": []}, ["events: 0 of RunFinished, or not at the end"]),
    "an end that is told twice": (
        {"events": [FINISHED, FINISHED]},
        ["events: 2 of RunFinished, or not at the end"],
    ),
    "a call that was started twice": (
        {"events": [STARTED, STARTED, FINISHED]},
        ["events: 'a' was started 2 times"],
    ),
    "a result that cannot be shown": (
        {"result": Err(UnspeakableError(), [*USER], iterations=1, tool_calls_count=0)},
        ["result: it cannot be shown: RuntimeError: no text"],
    ),
}


@pytest.mark.parametrize(("changes", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_run_is_seen(changes, expected):
    found = list(violations(facts(**changes)))
    assert len(found) == len(expected), found
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


def test_a_run_that_raises_and_one_that_changes_what_it_was_given_are_seen():
    trial = Trial(0)
    trial.messages.append({"role": "user", "content": "x"})

    def to_the_end(_verdict):
        trial.messages.clear()
        raise KeyError("x")

    trial._to_the_end = to_the_end
    (violation,) = trial.run().violations
    assert violation.startswith("raised: KeyError: 'x' (_chaos_trial.py:")

    trial = Trial(1)
    trial.options["llm_opts"] = {"a": {"b": 1}}
    run = trial._to_the_end

    def spoil(verdict):
        trial.options["llm_opts"]["a"].clear()
        return run(verdict)

    trial._to_the_end = spoil
    assert "what the caller gave was changed" in trial.run().violations


def test_trials_are_of_every_sort():
    trials = [Trial(seed) for seed in range(150)]
    assert {trial.way for trial in trials} == {"sync", "asyncio", "trio", "stream"}
    assert {option for trial in trials for option in trial.options} == set(_OPTIONS)
    said = " ".join(trial.story for trial in trials)
    for what in ("has_listeners", "with a handle", "with a child", "with a resolver", "hangs=True"):
        assert what in said
    assert "approvals=True" in said


def test_the_benchmark_tells_how_runs_ended():
    script = Path(__file__).parents[2] / "benchmarks" / "chaos.py"
    done = subprocess.run(
        [sys.executable, str(script), "--start", "0", "--seeds", "3", "--jobs", "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "| stop reason | runs |" in done.stdout, done.stderr
    assert "\n3 seeds in " in done.stdout
    assert "Violations: 0 in 0 seeds." in done.stdout
    assert done.returncode == 0
