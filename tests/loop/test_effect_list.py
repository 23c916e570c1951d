"""The effects of a run are as docs/effects.md lists them; middleware and journals rely on that list."""

import re
from pathlib import Path

from treadle import CircuitBreaker, Loop, RunHandle, default_stages, effects, labels, stage, tool
from treadle.effects import Call, Effect, map_effects
from treadle.testing import ScriptedLLM, call, calls

PAGE = Path(__file__).parents[2] / "docs" / "effects.md"


def rows():
    """The effects and the label of each row of the list."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            cells = [re.findall(r"`(\w+)`", cell) for cell in line.strip("|").split("|")]
            yield cells[0], cells[1]


def test_the_list_has_every_effect_and_every_label():
    public = {
        name
        for name in effects.__all__
        if isinstance(kind := getattr(effects, name), type) and issubclass(kind, Effect)
    }
    assert {name for names, _ in rows() for name in names} == public - {"Effect"}
    values = [
        value for name, value in vars(labels).items() if name.isupper() and isinstance(value, str)
    ]
    assert sorted(label for _, found in rows() for label in found) == sorted(values)


def test_the_calls_of_a_run_have_the_labels_and_keys_of_the_list():
    seen = []

    def see(effect):
        if isinstance(effect, Call):
            seen.append((effect.label, effect.key))
        return effect

    @tool(lock="disk")
    def write(n: int):
        return n

    @stage
    async def look(ctx):
        return ctx

    Loop.run_sync(
        "Go.",
        ScriptedLLM(calls(call("write", "c", n=1)), "Done."),
        tools=[write],
        stages=[look, *default_stages()],
        handle=RunHandle(),
        breaker=CircuitBreaker(),
        middleware=[lambda steps: map_effects(steps, see)],
    )
    expected = [
        "steer 1", "stage look", "chat 1", "breaker c", "lock disk", "execute_tool c", "breaker c",
        "steer 2", "stage look", "chat 2", "steer 3", "steer end",
    ]  # fmt: skip
    assert [f"{label} {key}" for label, key in seen] == expected
