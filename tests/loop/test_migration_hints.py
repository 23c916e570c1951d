"""Options that users know from other frameworks and from SDKs: the error leads to the right place in treadle."""

import dataclasses
import re
import typing

import pytest

from treadle import (
    Limits,
    Loop,
    LoopOptions,
    OptionError,
    Output,
    Pauses,
    Telemetry,
    default_stages,
    presets,
    tool,
)
from treadle.context import RequestChanges
from treadle.loop.migration_hints import HINTS
from treadle.loop.options import OPTIONS
from treadle.testing import ScriptedLLM
from treadle.tools import ToolBehaviour
from treadle.tools.conversion import HINTS as TOOL_HINTS


def error_of(make, *args, **options):
    with pytest.raises(OptionError) as caught:
        make(*args, **options)
    return str(caught.value)


def run(**options):
    return Loop.run_sync("Hi", ScriptedLLM("Hello"), **options)


def test_each_known_option_leads_to_the_right_place():
    assert len(HINTS) > 300
    for name, hint in HINTS.items():
        assert error_of(Loop, **{name: 1}) == f"there is no option {name!r}; {hint}"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_steps", "use max_iterations"),
        ("system_prompt", "use instructions"),
        ("output_type", "use output"),
        ("timeout", "use max_seconds"),
        ("output_guardrails", "use output=Output(type, validators=...)"),
        ("temperature", "it is an option of the request: llm_opts={'temperature': ...}"),
        ("tool_choice", "ctx.with_request(tool_choice=...)"),
        ("model", "the model is the second argument of a run, or llm_send_fn="),
        ("api_key", "the client of your SDK"),
        ("prompt", "as the first argument of the run; the system message is instructions="),
        ("retries", "use max_retries= for the model, Output(type, max_retries=...) for the output"),
        ("usage_limits", "limits=Limits(...)"),
        ("memory", "pass session=SQLiteSessions(path).session(id)"),
        ("compaction", "stages=[compact_history(model), ...]"),
        ("state_schema", "deps="),
        ("handoffs", "other.as_tool(name, description)"),
        ("guardrails", "write a stage before ask_model"),
        ("mcp_servers", "tools=, and resolve_tool="),
        ("stream", "Loop.stream(...)"),
        ("verbose", "on_event="),
        ("description", "loop.as_tool(name, description, ...)"),
        ("max_uses", "it is an option of a tool: tool(fn, ...)"),
        ("pause_secret", "use pauses=Pauses(secret=...)"),
        ("on_limit", "use limits=Limits(on_limit=...)"),
        ("tracer_provider", "use telemetry=Telemetry(tracer_provider=...)"),
        ("restart_streams", "use stages=[ask_model(restart_streams=...), ...]"),
    ],
)
def test_an_option_of_another_framework_leads_to_the_right_place(name, text):
    for use in (Loop, Loop().with_options, run):
        error = error_of(use, **{name: 1})
        assert error.startswith(f"there is no option {name!r}; ")
        assert text in error


def test_the_hints_name_only_options_that_exist():
    options = (
        set(OPTIONS) | set(ToolBehaviour.__annotations__) | set(RequestChanges.__annotations__)
    )
    options |= {"model", "threshold"}  # of OpenAI's client and of circuit_breaker
    for kind in (Limits, Output, Pauses, Telemetry):
        options |= {spec.name for spec in dataclasses.fields(kind)}
    for made in default_stages():
        options |= (made.fn.__kwdefaults__ or {}).keys()
    for name, hint in HINTS.items():
        named = set(re.findall(r"\b([a-z_]+)=", hint))
        assert named - {"stream"} <= options, f"{name}: {hint}"
        renamed = re.fullmatch(r"use ([a-z_]+)", hint)
        assert renamed is None or renamed[1] in options


def test_no_hint_hides_an_option_of_treadle():
    assert not HINTS.keys() & OPTIONS.keys()
    hinted = {name for names in TOOL_HINTS.values() for name in names.split()}
    assert not hinted & (ToolBehaviour.__annotations__.keys() | {"name", "description"})
    assert typing.get_type_hints(LoopOptions).keys() <= OPTIONS.keys()


@pytest.mark.parametrize("name", ["zzz", "max", "frobnicate", "colour"])
def test_an_option_that_resembles_none_suggests_none(name):
    error = error_of(Loop, **{name: 1})
    assert "did you mean" not in error
    assert "; known are " in error


def test_a_run_without_messages_leads_to_the_first_argument():
    for use in (Loop.run_sync, Loop().run, Loop.steps):
        assert error_of(use).startswith("messages: there are none; pass a text")
        assert "as the first argument of the run" in error_of(use, input="Hi")


def test_a_loop_takes_no_positional_arguments():
    assert error_of(Loop, "gpt-5-mini").startswith("Loop takes options by name")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max_iterations", "it is an option of the loop: loop.with_options(max_iterations=...)"),
        ("max_steps", "use max_iterations"),
        ("needs_approval", "use requires_approval="),
        ("max_retries", "it is an option of the loop: "),
        ("timeuot", "did you mean 'timeout'?"),
    ],
)
def test_an_unknown_option_of_as_tool_leads_to_the_loop_or_to_the_tool(name, text):
    error = error_of(Loop().as_tool, "ask", "Ask.", ScriptedLLM(), **{name: 1})
    assert error.startswith(f"as_tool: unknown option {name!r}; {text}")


def test_a_subagent_without_a_model_is_an_error():
    assert "llm_send_fn: there is no model" in error_of(Loop().as_tool, "ask", "Ask.", None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retires", "did you mean 'retries'?"),
        ("max_retries", "use retries="),
        ("return_direct", "use terminal="),
        ("needs_approval", "use requires_approval="),
        ("name_override", "use name="),
        ("args_schema", "the schema comes from the type hints"),
        ("strict", "schemas are sent as they are"),
    ],
)
def test_an_unknown_option_of_a_tool_leads_to_the_right_one(name, text):
    error = error_of(tool, **{name: 1})
    assert error.startswith(f"tool: unknown option {name!r}; {text}")


def test_a_preset_takes_no_options():
    error = error_of(presets.runax, max_steps=3)
    assert error == (
        "runax: a preset takes no options; change those of a loop: "
        "Loop(**presets.runax()).with_options(...)"
    )
