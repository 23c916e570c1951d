"""Records every run of a program, and replays it when the program ends. A process imports it as `sitecustomize`.

For each run it adds a line to the file ``REPLAYS``: ``same``, or what is different.
"""

import atexit
import copy
import dataclasses
import io
import os
from pathlib import Path
from types import SimpleNamespace

from treadle.loop import loop as loop_module
from treadle.loop.subagent import Subagent
from treadle.recording.reader import read_lines
from treadle.recording.recorder import Recorder
from treadle.testing import replay
from treadle.tools import as_tool

STARTED = []
start_run = loop_module.start_run


def never(*_args, **_options):
    """Stand for a tool or a model of a replay."""
    raise AssertionError("a replay calls no tool and no model")


def lifeless(loop):
    """The loop with tools that cannot run, without a model, and with a resolver that cannot run calls."""
    options = {"tools": [_lifeless(as_tool(given)) for given in loop.settings.tools or ()]}
    options |= {"llm_send_fn": None, "on_event": None, "on_complete": None, "on_iteration": None}
    resolver = loop.settings.resolve_tool
    if hasattr(resolver, "resolve"):
        options["resolve_tool"] = SimpleNamespace(
            resolve=never,
            available_tools=resolver.available_tools,
            dispatch_recipe=resolver.dispatch_recipe,
        )
    elif resolver is not None:
        options["resolve_tool"] = never
    return loop.with_options(**options)


def _lifeless(one):
    if isinstance(one.steps, Subagent):
        child = copy.copy(one.steps)
        child.loop = lifeless(child.loop).with_options(llm_send_fn=never)
        return dataclasses.replace(one, steps=child)
    return dataclasses.replace(one, fn=never) if one.fn is not None else one


def started(loop, given, llm_send_fn, stream=None):
    """Make a run that is recorded, unless it has a journal, which has its log."""
    if loop.settings.journal is not None:
        return start_run(loop, given, llm_send_fn, stream)
    file, events, outcome = io.StringIO(), [], []
    observers = loop.settings.on_event or ()
    observers = [observers] if callable(observers) else list(observers)
    loop = loop.with_options(on_event=[Recorder(file), events.append, *observers])
    STARTED.append((loop, file, events, outcome))
    steps, deliver = start_run(loop, given, llm_send_fn, stream)
    return kept(steps, outcome), deliver


def kept(steps, outcome):
    """Note what a run returns or raises."""
    try:
        result = yield from steps
    except BaseException as error:
        outcome.append(error)
        raise
    outcome.append(result)
    return result


def compared(loop, file, events, outcome):
    """Replay a run; returns what is different."""
    lines = file.getvalue().encode("ascii").splitlines(keepends=True)
    recording = read_lines(lines, "example")
    seen = []
    try:
        again = replay(recording, lifeless(loop), on_event=seen.append)
    except Exception as error:
        again = error
    [first] = outcome
    if isinstance(first, BaseException):
        return "same" if isinstance(again, Exception) else f"{first!r}, then {again!r}"
    if again != first:
        return f"{first!r}, then {again!r}"
    return "same" if seen == events else f"{events!r}, then {seen!r}"


def replay_all():
    """Replay all runs, when the program has ended."""
    with Path(os.environ["REPLAYS"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{compared(*run)}\n" for run in STARTED)


loop_module.start_run = started
atexit.register(replay_all)
