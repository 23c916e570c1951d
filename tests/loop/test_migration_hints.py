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
    tool,
)
from treadle.context import RequestChanges
from treadle.errors import migration_hints
from treadle.loop.options import OPTIONS
from treadle.testing import ScriptedLLM
from treadle.tools import ToolBehaviour, tool_hint

HINTS = migration_hints("treadle.loop")

FRAMEWORKS = {
    # 2.68: Agent, Agent.run, ModelSettings and UsageLimits
    "pydantic-ai": """
        cache cancellation_token capabilities citations conversation conversation_id cost_limit
        count_tokens_before_request defer_model_check deferred_tool_results deps deps_type
        description end_strategy event_stream_handler extra_body extra_headers first_event_timeout
        framing_announcement frequency_penalty infer_name input_tokens_limit instructions
        logit_bias max_concurrency max_retries max_tokens message_history metadata model
        model_settings name output_tokens_limit output_type parallel_tool_calls
        per_request_input_tokens_limit presence_penalty request_limit request_timeout retries
        run_id seed service_tier spec stop_sequences system_prompt temperature thinking timeout
        tool_calls_limit tool_choice tool_timeout tools toolsets top_k top_p total_tokens_limit
        usage usage_limits user_prompt validation_context workspace
    """,
    # 0.24: Agent, Runner.run and ModelSettings
    "openai-agents": """
        auto_previous_response_id context context_management conversation_id error_handlers
        extra_args extra_body extra_headers extra_query frequency_penalty handoff_description
        handoffs hooks include_usage input input_guardrails instructions max_tokens max_turns
        mcp_config mcp_servers metadata model model_settings name output_guardrails output_type
        parallel_tool_calls presence_penalty preserve_raw_usage previous_response_id prompt
        prompt_cache_options prompt_cache_retention reasoning reset_tool_choice response_include
        retry run_config session starting_agent store temperature timeout tool_choice
        tool_use_behavior tools top_logprobs top_p truncation verbosity
    """,
    # 3.54: chat.completions.create
    "openai": """
        audio extra_body extra_headers extra_query frequency_penalty function_call functions
        logit_bias logprobs max_completion_tokens max_tokens messages metadata modalities model
        moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
        prompt_cache_options prompt_cache_retention reasoning_effort response_format
        safety_identifier seed service_tier stop store stream stream_options temperature timeout
        tool_choice tools top_logprobs top_p user verbosity web_search_options
    """,
    # 1.4.7, langgraph 1.2.22: create_agent, create_react_agent and RunnableConfig
    "langchain": """
        cache callbacks checkpointer configurable context_schema debug interrupt_after
        interrupt_before max_concurrency metadata middleware model name post_model_hook
        pre_model_hook prompt recursion_limit response_format run_id run_name state_schema store
        system_prompt tags tools transformers version
    """,
    # 3.1.10: Agent and Agent.run
    "agno": """
        add_datetime_to_context add_dependencies_to_context add_history_to_context
        add_knowledge_to_context add_learnings_to_context add_location_to_context
        add_memories_to_context add_name_to_context add_search_knowledge_instructions
        add_session_state_to_context add_session_summary_to_context additional_context
        additional_input audio build_context build_user_context cache_callables cache_session
        callable_knowledge_cache_key callable_tools_cache_key checkpoint compaction
        compress_tool_results compression_manager datetime_format db debug_level debug_mode
        delay_between_retries dependencies description enable_agentic_knowledge_filters
        enable_agentic_memory enable_agentic_state enable_session_summaries events_to_skip
        expected_output exponential_backoff fallback_config fallback_models files filesystem
        followup_model followups id images input input_schema instructions introduction knowledge
        knowledge_filters knowledge_retriever learning markdown max_tool_calls_from_history
        media_storage memory_manager metadata model name num_followups num_history_messages
        num_history_runs num_past_session_runs_in_search num_past_sessions_to_search
        offload_tool_results output_model output_model_prompt output_schema
        overwrite_db_session_state parse_response parser_model parser_model_prompt post_hooks
        pre_hooks read_chat_history read_tool_call_history reasoning_agent reasoning_model
        references_format resolve_in_context retries role run_context run_id sandbox
        save_response_to_file search_knowledge search_past_sessions send_media_to_model session_id
        session_state session_summary_manager skills store_events store_history_messages
        store_media store_tool_messages stream stream_events structured_outputs system_message
        system_message_role telemetry timezone_identifier tool_call_limit tool_choice tool_hooks
        tools update_knowledge update_memory_on_run use_instruction_tags use_json_mode user_id
        user_message_role videos yield_run_output
    """,
    # 1.23: Agent, Agent.run and ChatOptions
    "agent-framework": """
        additional_properties allow_multiple_tool_calls client client_kwargs compaction_strategy
        context_providers conversation_id default_options description frequency_penalty
        function_invocation_kwargs id instructions logit_bias max_tokens messages metadata
        middleware model name options presence_penalty
        require_per_service_call_history_persistence response_format seed session stop store
        stream temperature tokenizer tool_choice tools top_p user
    """,
    # 1.26: the agents and their run
    "smolagents": """
        add_base_tools additional_args additional_authorized_imports code_block_tags description
        executor executor_kwargs executor_type final_answer_checks images instructions logger
        managed_agents max_print_outputs_length max_steps max_tool_threads model name
        planning_interval prompt_templates provide_run_summary reset return_full_result
        step_callbacks stream stream_outputs task tools use_structured_outputs_internally
        verbosity_level
    """,
    # 0.14.25: FunctionAgent and its run
    "llama-index": """
        allow_parallel_tool_calls can_handoff_to description early_stopping_method initial_state
        initial_tool_choice llm name output_cls scratchpad_key state_prompt streaming
        structured_output_fn system_prompt timeout tool_retriever tools verbose
    """,
}
"""The parameters of the public functions and classes of each framework, read from their signatures."""

TAKES_MESSAGES = {"messages"}
"""Options that a run takes, under the same name."""


def error_of(make, *args, **options):
    with pytest.raises(OptionError) as caught:
        make(*args, **options)
    return str(caught.value)


def run(**options):
    return Loop.run_sync("Hi", ScriptedLLM("Hello"), **options)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_option_of_a_framework_exists_here_or_leads_to_the_right_place(framework):
    names = set(FRAMEWORKS[framework].split()) - OPTIONS.keys() - TAKES_MESSAGES
    unknown = [name for name in sorted(names) if name not in HINTS]
    assert unknown == []
    for name in names:
        assert error_of(Loop, **{name: 1}) == f"there is no option {name!r}; {HINTS[name]}"


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
    assert not any(map(tool_hint, (*ToolBehaviour.__annotations__, "name", "description")))
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
