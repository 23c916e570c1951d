"""Without capture_content, no content of models, tools or users is reported, on any exit."""

import anyio
import pytest

from treadle import (
    Chunk,
    CircuitBreaker,
    Err,
    Limits,
    Loop,
    Paused,
    Recipe,
    RecipeStep,
    RunHandle,
    deny,
    tool,
)
from treadle.stages import validate_calls
from treadle.telemetry.content import captures_content
from treadle.testing import ScriptedLLM, call, calls

from .watching import Watch, go

CANARY = "canary"
USER = [
    {"role": "system", "content": f"{CANARY} system"},
    {"role": "user", "content": [{"type": "text", "text": f"{CANARY} user"}]},
]


@tool
def double(n: int):
    return f"{CANARY} result"


@tool
def take(text: str):
    return f"{CANARY} {text}"


@tool
def fail(text: str = ""):
    raise ValueError(f"{CANARY} error")


@tool(retries=1)
def flaky():
    raise OSError(f"{CANARY} error")


@tool
def refuse():
    return Err(f"{CANARY} refusal")


@tool(requires_approval=lambda arguments: f"{CANARY} question")
def sign(text: str):
    return f"{CANARY} signed"


@tool(timeout=0.01)
async def hang(text: str = ""):
    await anyio.sleep(60)


@tool
async def wait():
    await anyio.sleep(60)


def stage_that_fails(ctx):
    raise ValueError(f"{CANARY} stage")


def taking(name="take", **arguments):
    return calls(call(name, text=f"{CANARY} argument", **arguments), text=f"{CANARY} thought")


class Overloaded(Exception):
    status_code = 503


def broken_stream(messages):
    yield Chunk(f"{CANARY} piece")
    raise ConnectionError(f"{CANARY} lost")


class Library:
    def available_tools(self):
        return ["page", "summary"]

    def resolve(self, asked):
        raise LookupError(f"{CANARY} lookup")

    def dispatch_recipe(self, name):
        step = RecipeStep("page", {"text": f"{CANARY} step"})
        return (lambda _: Recipe(serial=[step], parallel=[step])) if name == "summary" else None


def child():
    loop = Loop(tools=[take, fail], name="kid", max_iterations=2)
    model = ScriptedLLM(taking(), taking("fail"))
    return loop.as_tool("helper", "Helps.", model, instructions=f"{CANARY} instructions")


def repaired(bad, problems):
    raise ValueError(f"{CANARY} repair")


INVALID = calls(call("double", n=f"{CANARY} invalid"), call(f"{CANARY}_tool"), call("double"))
INVALID["tool_calls"][2]["function"]["arguments"] = f'{{"n": "{CANARY} broken'
RICH = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": f"{CANARY} part"},
        {"type": "audio", "data": f"{CANARY} sound"},
    ],
    "reasoning_content": f"{CANARY} reasoning",
    "annotations": [f"{CANARY} annotation"],
}

RUNS = {
    "answered": ([taking(), taking("fail"), f"{CANARY} answer"], {}),
    "streamed": ([broken_stream, [Chunk(f"{CANARY} piece"), Chunk(f"{CANARY} more")]], {}),
    "retried": ([Overloaded(f"{CANARY} busy"), "x"], {}),
    "rich": ([RICH], {}),
    "refused": ([{"role": "assistant", "content": None, "refusal": f"{CANARY} refusal"}], {}),
    "llm_error": ([ValueError(f"{CANARY} wrong")], {"max_retries": 0}),
    "no_response": ([lambda messages: object()], {}),
    "output": ([taking()], {"output": "take"}),
    "invalid_calls": ([INVALID, "x"], {"stages": [validate_calls(repair_call=repaired), ...]}),
    "tools_that_fail": ([calls(call("flaky"), call("refuse"), call("fail")), "x"], {}),
    "duplicates": ([calls(*(call("take", f"c{n}", text=CANARY) for n in range(3))), taking(), "x"], {}),
    "nudged": ([taking() for _ in range(4)], {"loop_threshold": None, "dedupe": "off", "max_iterations": 4}),
    "loop_detected": ([taking() for _ in range(4)], {}),
    "circuit_broken": ([taking("fail") for _ in range(4)], {"dedupe": "off", "loop_threshold": None}),
    "breaker": ([taking("fail"), taking("fail"), "x"], {"breaker": CircuitBreaker(1, 60)}),
    "max_iterations": ([taking()], {"max_iterations": 1}),
    "finished": ([taking(), f"{CANARY} so far"], {"max_iterations": 1, "limits": Limits(on_limit="finish")}),
    "budget": ([taking()], {"max_tool_calls": 0, "limits": Limits(show_budget=True)}),
    "deadline": ([calls(call("wait"))], {"max_seconds": 0.03}),
    "timeout": ([taking("hang"), "x"], {}),
    "pipeline_failed": (["x"], {"stages": [stage_that_fails]}),
    "blank": (["", f"{CANARY} answer"], {}),
    "child": ([calls(call("helper", task=f"{CANARY} task")), "x"], {}),
    "recipe": ([calls(call("summary"), call("page", text=CANARY)), "x"], {"resolve_tool": Library()}),
    "invalid_input": ([], {"messages": [{"role": "user", "content": CANARY, "x": object()}, {"role": CANARY}]}),
    "repaired": (["x"], {"messages": [{"role": "tool", "tool_call_id": CANARY, "content": CANARY}, *USER]}),
    "paused": ([taking("sign"), f"{CANARY} answer"], {}),
    "unpriced": ([taking(), "x"], {"limits": Limits(cost_of=lambda response: 1 / 0)}),
}  # fmt: skip


def play(driver, name, **options):
    script, more = RUNS[name]
    more = dict(more)
    messages = more.pop("messages", USER)
    tools = [double, take, fail, flaky, refuse, sign, hang, wait, child()]
    options = {"tools": tools, "name": "bot", "retry_delay": 0, **more, **options}
    model = ScriptedLLM(*script)
    handle = RunHandle()
    result = go(driver, messages, model, handle=handle, **options)
    if isinstance(result, Paused):
        options.pop("stages", None)
        loop, decisions = Loop(**options), {c.id: deny(f"{CANARY} reason") for c in result.pending}
        if driver == "sync":
            return loop.resume_sync(result, decisions, model)
        return anyio.run(lambda: loop.resume(result, decisions, model), backend=driver)
    return result


@pytest.fixture
def quick(monkeypatch):
    from treadle.stages import _attempts as calling

    monkeypatch.setattr(calling, "RETRY_DELAY", 0)


@pytest.mark.parametrize("name", RUNS)
def test_content_is_not_reported_by_default(driver, name, quick, monkeypatch):
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", raising=False)
    watch = Watch()
    play(driver, name, **watch.options)
    found = watch.everything()
    assert len(found) > 1_000
    assert CANARY not in found
    watch.check_whole()


def test_the_same_runs_report_content_if_it_is_captured(driver, quick):
    """So the test above searches where content would be."""
    silent = []
    for name in RUNS:
        watch = Watch()
        play(driver, name, **watch.reporting(capture_content=True))
        if CANARY not in watch.everything():
            silent.append(name)
    assert silent == ["invalid_input"]


VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class TestOption:
    """The option overrides the environment, which is read for each run."""

    @pytest.mark.parametrize(
        "value",
        ["true", "True", "TRUE", "1", "yes", "span", "SPAN_ONLY", "span_and_event", " true "],
    )
    def test_turned_on_by_the_environment(self, monkeypatch, value):
        monkeypatch.setenv(VARIABLE, value)
        assert captures_content(None)
        assert not captures_content(False)

    @pytest.mark.parametrize("value", ["", "false", "0", "no", "no_content", "event_only", "maybe"])
    def test_not_turned_on_by_other_values(self, monkeypatch, value):
        monkeypatch.setenv(VARIABLE, value)
        assert not captures_content(None)
        assert captures_content(True)

    def test_off_by_default(self, monkeypatch):
        monkeypatch.delenv(VARIABLE, raising=False)
        assert not captures_content(None)

    @pytest.mark.parametrize(
        ("variable", "option", "is_told"),
        [
            ("true", None, True),
            ("true", False, False),
            ("false", True, True),
            ("false", None, False),
        ],
    )
    def test_of_a_run(self, driver, monkeypatch, variable, option, is_told):
        watch, loop = Watch(), Loop()
        monkeypatch.setenv(VARIABLE, variable)
        loop = loop.with_options(**watch.reporting(capture_content=option))
        loop.run_sync(USER, ScriptedLLM(f"{CANARY} answer"))
        assert (CANARY in watch.everything()) == is_told


def test_content_is_not_printed(driver, quick, capsys):
    for name in ("answered", "llm_error", "tools_that_fail"):
        play(driver, name, **Watch().options)
    assert CANARY not in "".join(capsys.readouterr())
