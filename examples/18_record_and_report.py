"""Record a run, read the recording, and render it as a report."""

import tempfile
from pathlib import Path

from treadle import Loop, tool
from treadle.reports import Recorder, read_recording, render_report
from treadle.testing import ScriptedLLM, call, calls


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    if word == "tredle":
        raise LookupError(f"there is no {word!r}; did you mean 'treadle'?")
    return f"{word}: a lever worked by the foot"


model = ScriptedLLM(
    calls(call("look_up", word="tredle")),
    calls(call("look_up", word="treadle"), call("look_up", word="treadle")),
    calls(call("look_up", word="treadle")),
    calls(call("look_up", word="treadle")),
    "A treadle is a lever worked by the foot.",
)
question = [{"role": "user", "content": "What is a treadle?"}]

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(name="dictionary", tools=[look_up], on_event=recorder).run_sync(question, model)

    (run,) = read_recording(path).runs
    print(f"{run.agent_name}: {run.stop_reason}, {run.total_iterations} iterations")
    for made in run.calls:
        how = "failed" if made.is_error else made.not_run or made.status
        print(f"  iteration {made.iteration}: {made.name} {made.arguments}: {how}")
    print("the conversation has", len(run.messages), "messages; the last:")
    print(" ", run.messages[-1]["content"])

    page = Path(folder) / "run.html"
    page.write_text(render_report(path), encoding="ascii")
    print(page.name, "is one file:", page.read_text(encoding="ascii").startswith("<!doctype html>"))
