"""Programs that resume one paused run in several processes: the tool appends a line to a file."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from treadle import Loop, Ok, OptionError, PausedStateError, Pauses, SQLiteClaims, approve, tool
from treadle.testing import ScriptedLLM, call, calls

PROGRAM = Path(__file__)
PACE = 0.005
"""How often a waiting program looks, in seconds."""


def make(folder, *, claims=None):
    """A loop whose tool leaves a line in a file, and waits while there is a file that says so."""
    folder = Path(folder)

    @tool(requires_approval=True)
    def pay(amount: int):
        with (folder / "paid").open("a", encoding="utf-8") as file:
            file.write(f"{amount}\n")
        while (folder / "hold").exists():
            time.sleep(PACE)
        return "paid"

    return Loop(tools=[pay], pauses=Pauses(secret="s3cret", claims=claims))


def paused_in(folder):
    """A run that waits for the approval of a payment."""
    return make(folder).run_sync("Hi", ScriptedLLM(calls(call("pay", "a", amount=5))))


def paid(folder):
    """The lines that the tool has left."""
    with contextlib.suppress(FileNotFoundError):
        return (Path(folder) / "paid").read_text(encoding="utf-8").splitlines()
    return []


def job(folder, given, *, decisions, claims=None, take_over=False):
    """What a process does, as JSON."""
    facts = {"folder": str(folder), "given": str(given), "claims": claims and str(claims)}
    return json.dumps(facts | {"decisions": decisions, "take_over": take_over})


def started(count, text):
    """Start processes, and let them go at the same time once all are ready."""
    made = [
        subprocess.Popen(
            [sys.executable, PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(count)
    ]
    for each in made:
        assert each.stdout.readline() == "ready\n"
    for each in made:
        each.stdin.write(f"{text}\n")
        each.stdin.flush()
    return made


def outcomes(processes):
    """What each process printed when it had ended, in alphabetical order."""
    return sorted(each.communicate()[0].strip() for each in processes)


def until(condition):
    """Wait for another process."""
    while not condition():
        time.sleep(PACE)


def main():
    print("ready", flush=True)  # noqa: T201
    facts = json.loads(sys.stdin.readline())
    store = SQLiteClaims(facts["claims"]) if facts["claims"] else None
    decisions = dict.fromkeys(facts["decisions"], approve)
    loop, model = make(facts["folder"], claims=store), ScriptedLLM("done")
    try:
        result = loop.resume_sync(facts["given"], decisions, model, take_over=facts["take_over"])
        text = "ok" if isinstance(result, Ok) else result.stop_reason
    except (PausedStateError, OptionError) as error:
        text = f"refused: {error}"
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
