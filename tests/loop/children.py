"""Subagents: the calls of their parents, and the states of their runs."""

from tests.samples import add

from treadle import Loop
from treadle.testing import ScriptedLLM, call, calls


def asked(task="t", call_id="k"):
    """A response that calls the subagent ``helper`` once."""
    return calls(call("helper", call_id, task=task))


def asked_each(*ids, more=()):
    """A response that calls ``helper`` once for each id, with the id as its task, and makes other calls."""
    return calls(*(call("helper", call_id, task=call_id) for call_id in ids or ("k",)), *more)


def wipe(call_id, path="/"):
    """A call that needs approval."""
    return call("wipe", call_id, path=path)


def helper(*script, loop=None, **options):
    """A subagent named ``helper``, and its model."""
    model = ScriptedLLM(*script)
    return (loop or Loop(tools=[add])).as_tool("helper", "Helps.", model, **options), model


def nested(loop, depth, *script):
    """A loop around subagents of subagents, and its model; the innermost is a loop that follows a script."""
    model = ScriptedLLM(*script)
    for level in reversed(range(depth)):
        made = loop.as_tool("helper", "Helps.", model)
        loop = Loop(tools=[made], name=f"level{level}")
        model = ScriptedLLM(asked(call_id=f"k{level}"), f"answer {level}")
    return loop, model


def subagent_run(result, place=0):
    """The state of the subagent's run in a call of the first iteration."""
    return result.run.nodes[0].tool_calls[place].run
