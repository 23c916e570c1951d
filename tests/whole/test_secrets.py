"""No secret is in a repr, a recording, an event, a log or telemetry: only where it was meant to go."""

import dataclasses
import functools
import json
import logging

import pytest

from treadle import (
    ClaimStore,
    Context,
    LLMError,
    Loop,
    OptionError,
    Paused,
    RunHandle,
    SQLiteClaims,
    ToolContext,
    approve,
    default_stages,
    tool,
)
from treadle.messages import History
from treadle.providers.openai import OpenAIModel
from treadle.reports import Recorder
from treadle.testing import ScriptedLLM, call, calls

SECRET = "canary-5f1d2c"  # noqa: S105 - what the tests look for
HEADERS = {"Authorization": f"Bearer {SECRET}"}
OPTIONS = {"api_key": SECRET, "extra_headers": HEADERS, "temperature": 0.5}


class Deps:
    def __init__(self):
        self.token = SECRET

    def __repr__(self):
        return f"Deps({self.token})"


class Resolver:
    key = SECRET

    def __repr__(self):
        return f"Resolver({self.key})"

    def __call__(self, asked):
        return "resolved"


def pay(amount: int, key: str) -> str:
    return f"paid {amount}"


def answer(messages, key, **opts):
    return "Done."


def secretive(**options):
    """A loop with a secret in every option that may have one."""
    paying = tool(functools.partial(pay, key=SECRET), name="pay", requires_approval=True)
    return Loop(
        tools=[paying, {"name": "other", "input_schema": {"type": "object"}}],
        resolve_tool=Resolver(),
        deps=Deps(),
        llm_opts=OPTIONS,
        pause_secret=SECRET,
        llm_send_fn=functools.partial(answer, key=SECRET),
        **options,
    )


def reachable(start):
    """The objects of treadle that are reachable from one of them."""
    seen, open_ = {}, [start]
    while open_:
        one = open_.pop()
        if id(one) in seen:
            continue
        if isinstance(one, (list, tuple, set, frozenset)):
            open_.extend(one)
        elif isinstance(one, dict):
            open_.extend(one.values())
        if not type(one).__module__.startswith("treadle"):
            continue
        seen[id(one)] = one
        names = set(getattr(one, "__dict__", ()))
        for cls in type(one).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            names.update([slots] if isinstance(slots, str) else slots)
        if dataclasses.is_dataclass(one):
            names.update(spec.name for spec in dataclasses.fields(one))
        open_.extend(getattr(one, name, None) for name in names)
    return seen.values()


def paused_run(**options):
    """The paused run of such a loop, and the contexts that its stages saw."""
    contexts = []

    def keep(ctx):
        contexts.append(ctx)
        return ctx

    loop = secretive(stages=[keep, *default_stages()], **options)
    paused = loop.run_sync("Pay.", ScriptedLLM(calls(call("pay", amount=5)), "Done."))
    assert isinstance(paused, Paused)
    return loop, paused, contexts


def test_no_object_of_a_loop_or_a_run_shows_a_secret():
    loop, paused, contexts = paused_run()
    resumption = loop.resumption(paused, {paused.pending[0].id: approve})
    handle = RunHandle()
    made = [loop, loop.settings, loop.pipeline, paused, contexts, contexts[0].request, resumption]
    made += [loop.as_tool("sub", "s"), handle, ToolContext("c", "pay", 1, deps=Deps())]
    found = list(reachable(made))
    assert len(found) > 50
    leaks = {type(one).__name__ for one in found if SECRET in f"{one!r} {one!s}"}
    # The options themselves, as a dict, and what the scripted model of this test was sent.
    assert leaks <= {"ReadOnlyDict", "Sent"}


def test_the_objects_of_a_provider_show_no_key():
    model = OpenAIModel(
        "m", base_url="http://127.0.0.1:9/v1", api_key=SECRET, extra_headers=HEADERS
    )
    loop = Loop(llm_send_fn=model)
    leaks = [one for one in reachable([model, loop]) if SECRET in f"{one!r} {one!s}"]
    assert leaks == []


def test_no_recording_event_or_log_has_a_secret(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    seen = []
    with Recorder(tmp_path / "run.jsonl") as recorder:
        loop, paused, _ = paused_run(on_event=[recorder, seen.append])
        decisions = {paused.pending[0].id: approve}
        result = loop.resume_sync(paused, decisions, ScriptedLLM("Done."))
    assert result.unwrap().content == "Done."
    written = (tmp_path / "run.jsonl").read_text()
    written += json.dumps([event.to_json() for event in seen]) + repr(seen) + repr(result)
    assert '"name": "pay"' in written
    assert SECRET not in written
    assert SECRET not in caplog.text


def test_the_state_of_a_pause_has_no_secret():
    _, paused, _ = paused_run()
    assert SECRET not in json.dumps(paused.state)


@pytest.mark.parametrize(
    "options",
    [
        {"pause_secret": [SECRET]},
        {"llm_opts": [SECRET]},
        {"llm_send_fn": SECRET},
        {"claim_store": SECRET},
        {"resolve_tool": SECRET},
    ],
)
def test_the_error_about_an_option_does_not_show_its_value(options):
    with pytest.raises(OptionError) as caught:
        Loop(**options)
    assert SECRET not in str(caught.value)


def test_the_objects_outside_of_a_run_show_no_secret(tmp_path):
    store: ClaimStore = SQLiteClaims(tmp_path / "claims.db")
    context = Context(History([{"role": "user", "content": "Hi"}]))
    assert SECRET not in f"{store!r} {context!r}"


def test_the_failure_of_a_model_has_the_text_of_the_provider_only():
    """The text of an exception is the provider's, and content; the options of the request are not added to it."""

    def fails(messages, **opts):
        raise ValueError("it failed")

    result = Loop.run_sync("Hi", fails, llm_opts=OPTIONS)
    assert isinstance(result.reason, LLMError)
    assert SECRET not in f"{result!r} {result.reason!r} {result.reason}"
