"""Resumes a paused run in a separate process: the job on stdin, the outcome on stdout, as JSON."""

import json
import sys

from treadle import Loop, Pauses, approve, deny, edit, tool
from treadle.testing import ScriptedLLM, call, calls, check_history

SCRIPT = (
    calls(
        call("look", "a", n=1),
        call("helper", "h", task="write to bob"),
        call("send", "b", to="eve"),
        call("look", "c", n=2),
    ),
)
INNER = (calls(call("look", "i", n=7), call("send", "j", to="bob")),)
"""The responses of the subagent's model: its second call needs approval."""

DECISIONS = {"approve": lambda: approve, "deny": deny, "edit": edit}


def make(ran, inner=()):
    """A loop with a subagent; the tools of both record their calls.

    Args:
        ran: receives a text for each call that ran.
        inner: the script of the subagent's model.
    """

    @tool
    def look(n: int):
        ran.append(f"look {n}")
        return f"saw {n}"

    @tool(requires_approval=lambda given: given["to"] != "me")
    def send(to: str):
        ran.append(f"send {to}")
        return f"sent to {to}"

    subagent = Loop(name="helper", tools=[look, send])
    helper = subagent.as_tool("helper", "Helps.", ScriptedLLM(*inner))
    return Loop(name="bot", tools=[look, send, helper], pauses=Pauses(secret="s3cret"))


def main():
    job, ran = json.load(sys.stdin), []
    model = ScriptedLLM(*job["script"])
    decisions = {
        call_id: DECISIONS[kind](*given) for call_id, (kind, *given) in job["decisions"].items()
    }
    result = make(ran, job["inner"]).resume_sync(job["state"], decisions, model)
    check_history(result.messages)
    json.dump(
        {
            "ran": ran,
            "stop_reason": result.stop_reason,
            "messages": result.messages,
            "run_id": result.run.run_id,
            "iterations": result.iterations,
            "tool_calls_count": result.tool_calls_count,
            "state": getattr(result, "state", None),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
