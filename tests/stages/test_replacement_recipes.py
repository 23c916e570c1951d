"""The recipes of docs/guide-stages.md that replace a stage, each under every driver."""

import dataclasses
import re
from pathlib import Path

import pytest
from tests.ways import WAYS

from treadle import Context, Loop, tool
from treadle.messages import Usage
from treadle.messages.decode import to_response
from treadle.testing import ScriptedLLM, call, calls, check_history

PAGE = Path(__file__).parents[2] / "docs" / "guide-stages.md"
SECTION = PAGE.read_text().partition("## Replace a stage\n")[2].partition("\n## ")[0]
FOUND = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
BLOCKS = [block for block in FOUND if "\ndef " in f"\n{block}"]
NAMES = {"Context": Context, "Loop": Loop}
exec("\n".join(BLOCKS), NAMES)  # noqa: S102 - the code of the page

HOSTS = [call("ping", f"c{n}", host=f"http://{n}") for n in (1, 2, 3)]


@tool
def ping(host: str) -> str:
    """Ping a host."""
    return f"{host} is up" + "!" * 200


@tool
def pay(host: str) -> str:
    """Pay."""
    raise ValueError("no money")


RECIPES = {
    "ask_cheaply_first": ("ask_model", ["I am not sure.", "Paris"], "Paris", 0),
    "ask_a_table": ("ask_model", [], "I do not know.", 0),
    "parse_text": ("parse_tool_calls", ['<call>ping{"host": "a"}</call>', "Up"], "Up", 1),
    "strip_hosts": ("validate_calls", [calls(*HOSTS), "Up"], "Up", 3),
    "decide_by_marker": ("loop_decision", ["Well", "ANSWER: 4"], "ANSWER: 4", 0),
    "plan_in_order": ("plan_calls", [calls(*HOSTS), "Up"], "Up", 3),
    "dispatch_in_pairs": ("dispatch_tools", [calls(*HOSTS), "Up"], "Up", 3),
    "inject_short": ("inject_results", [calls(*HOSTS), "Up"], "Up", 3),
    "stop_when_expensive": (
        "budget_guard",
        [dataclasses.replace(to_response(calls(*HOSTS)), usage=Usage(20_000, 1)), "Up"],
        None,
        3,
    ),
    "stop_at_first_error": ("circuit_breaker", [calls(call("pay", host="a")), "Up"], None, 1),
}
"""For each recipe: the stage, the responses of the model, the answer, the number of calls that run."""


def test_each_function_of_the_section_is_a_recipe():
    assert list(RECIPES) == re.findall(r"^def (\w+)", "\n".join(BLOCKS), re.MULTILINE)
    stages = re.findall(r"^`(\w+)`:", SECTION, re.MULTILINE)
    assert stages == list(dict.fromkeys(stage for stage, *_ in RECIPES.values()))
    assert stages == list(Loop().pipeline.names)


def made_of(recipe):
    """The stages, the tools and the model of a recipe, as options of `Loop`."""
    name, script, *_ = RECIPES[recipe]
    stages = Loop().pipeline.replace(name, NAMES[recipe])
    return {"llm_send_fn": ScriptedLLM(*script), "tools": [ping, pay], "stages": stages}


def check_run(recipe, model, result):
    """The run of a recipe ended as its entry says, and did what the recipe is for."""
    _, _, answer, ran = RECIPES[recipe]
    check_history(result.messages)
    assert (result.output, result.tool_calls_count) == (answer, ran)
    if answer is None:
        assert result.stop_reason == "stopped_by_stage"
        assert result.reason.stage == recipe
    if recipe == "strip_hosts":
        assert result.messages[2]["content"].startswith("1 is up")
    if recipe == "inject_short":
        assert {len(m["content"]) for m in result.messages if m["role"] == "tool"} == {100}
    if recipe == "ask_cheaply_first":
        assert [sent.opts["model"] for sent in model.sent] == ["small", "large"]
    if recipe == "decide_by_marker":
        assert model.sent[1].messages[-1]["content"].startswith("Say ANSWER")


@pytest.mark.parametrize("way", WAYS, ids=repr)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_runs_under_every_driver(recipe, way):
    options = made_of(recipe)
    model = options.pop("llm_send_fn")
    check_run(recipe, model, way.run("Where?", model, **options).result)
