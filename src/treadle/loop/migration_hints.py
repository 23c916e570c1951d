"""Where the options of other frameworks, of SDKs and of requests belong, for errors about unknown options.

The table has the options of the agents and runs of pydantic-ai, openai-agents, langchain and langgraph, agno,
agent-framework, smolagents, llama-index and crewai, and those of OpenAI's client. It is imported when an option is
unknown.
"""

from __future__ import annotations

from treadle.errors import parsed_hints

_TABLE = """\
on_unknown -> use pauses=Pauses(<name>=...)
capture_content logger_provider meter_provider tracer_provider -> use telemetry=Telemetry(<name>=...)
max_retry_delay on_retry restart_streams -> use stages=[ask_model(<name>=...), ...]
accept_cut max_blank_stops -> use stages=[loop_decision(<name>=...), ...]
repair_call -> use stages=[validate_calls(<name>=...), ...]
include_data trace_include_sensitive_data -> use telemetry=Telemetry(capture_content=...)
chat_telemetry -> use telemetry=Telemetry(model_calls=...)
pause_secret -> use pauses=Pauses(secret=...)
claim_store -> use pauses=Pauses(claims=...)
breaker_threshold -> use stages=[circuit_breaker(threshold=...), ...]
max_backoff max_delay max_retry_after -> use stages=[ask_model(max_retry_delay=...), ...]
cache_tool_calls deduplicate -> use dedupe
additional_args context context_schema dependencies deps_type function_invocation_kwargs run_context scratchpad_key
    validation_context workspace -> use deps
cancellation_token -> use handle
additional_context additional_instructions backstory developer_message developer_prompt expected_output goal
    introduction preamble role spec state_modifier state_prompt system system_instruction system_message
    system_prompt system_prompts system_template -> use instructions
budget cost_limit max_budget max_budget_usd -> use max_cost
input_tokens_limit per_request_input_tokens_limit -> use limits=Limits(max_input_tokens=...)
agent_loop_limit iterations max_consecutive_auto_reply max_iter max_llm_calls max_loops max_model_calls max_rounds
    max_steps max_turns recursion_limit request_limit step_limit turn_limit -> use max_iterations
max_output_retries max_result_retries output_retries result_retries -> use output=Output(type, max_retries=...)
output_tokens_limit -> use limits=Limits(max_output_tokens=...)
concurrency max_concurrency max_concurrent_tools max_parallel_tool_calls max_tool_threads max_workers
    tool_concurrency -> use limits=Limits(max_parallel_calls=...)
max_attempts max_retry_limit model_retries num_retries retry retry_attempts retry_config retry_policy -> use
    max_retries
deadline first_event_timeout max_execution_time max_time request_timeout step_timeout time_limit timeout
    timeout_seconds -> use max_seconds
max_calls tool_call_limit tool_calls_limit -> use max_tool_calls
max_tokens_per_run token_budget token_limit total_tokens_limit -> use max_total_tokens
agent_id agent_name id run_name workflow_name -> use name
on_end on_finish result_callback -> use on_complete
callback callback_handler callback_manager callbacks event_handler event_handlers event_stream_handler hooks
    listeners observers on_chunk on_message run_hooks streaming_callback transformers -> use on_event
on_step on_turn step_callback step_callbacks -> use on_iteration
final_output_type output_cls output_json output_model output_pydantic output_schema output_type parser_model
    response_format response_model response_schema result_type structured_output -> use output
output_mode -> use output=Output(type, mode=...)
structured_outputs use_json_mode use_structured_outputs_internally -> use output=Output(type, mode='json')
final_answer_checks guardrail output_guardrails output_validator output_validators post_hooks result_validators ->
    use output=Output(type, validators=...)
backoff delay_between_retries exponential_backoff -> use retry_delay
capabilities graph history_processors nodes pipeline processors -> use stages
tool_retriever -> use tool_search
available_functions builtin_tools functions tool_list tool_names toolkits toolsets -> use tools
instrument instrumentation tracer tracing -> use telemetry=Telemetry(tracer_provider=...)
allow_multiple_tool_calls audio extra_body extra_headers extra_query frequency_penalty logit_bias logprobs
    max_completion_tokens max_tokens metadata modalities moderation n parallel_tool_calls prediction
    presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning reasoning_effort
    safety_identifier seed service_tier stop stop_sequences store stream_options temperature thinking top_k
    top_logprobs top_p truncation user verbosity web_search_options -> it is an option of the request:
    llm_opts={'<name>': ...}
agent backend chat_client chat_model client completion_fn defer_model_check function_calling_llm language_model llm
    llm_config lm model model_client model_id model_name model_provider provider reasoning_agent reasoning_model
    starting_agent -> the model is the second argument of a run, or llm_send_fn=: a name, such as
    'openai:gpt-5-mini', or a callable that takes messages, as functools.partial(client.chat.completions.create,
    model=...)
fallback_config fallback_model fallback_models -> pass another model in a retry: stages=[ask_model(on_retry=...),
    ...], which may change the request
api_base api_key api_version base_url default_headers headers http_client max_rpm organization -> it belongs to the
    client of your SDK, whose method is the model (llm_send_fn)
additional_input additional_messages chat_history history input inputs message message_history messages prompt_text
    query question starting_input task text user_input user_message user_msg user_prompt -> pass the text or the
    messages as the first argument of the run
prompt -> pass the text or the messages as the first argument of the run; the system message is instructions=
files images videos -> put it into the content of a message, as OpenAI's content parts
add_datetime_to_context add_dependencies_to_context add_location_to_context add_name_to_context
    add_session_state_to_context build_context build_user_context datetime_format markdown output_model_prompt
    parser_model_prompt prompt_template prompt_templates references_format resolve_in_context response_template
    system_message_role timezone_identifier use_instruction_tags user_message_role framing_announcement -> format
    the text yourself; instructions= may be a function of the context
additional_chat_options additional_properties chat_options client_kwargs config configurable default_options
    extra_args generation_config model_config model_kwargs model_parameters model_settings options request_params
    run_config -> options of the request go to llm_opts={'temperature': ...}, those of the run are passed by name,
    as max_iterations=
function_call initial_tool_choice reset_tool_choice tool_choice tool_config -> it is an option of one request: a
    stage calls ctx.with_request(tool_choice=...); llm_opts={'tool_choice': ...} sends it in each
count_tokens_before_request tokenizer usage_limits -> use the limits of the run: max_iterations=, max_tool_calls=,
    max_total_tokens=, or limits=Limits(...)
retries tool_retries -> use max_retries= for the model, Output(type, max_retries=...) for the output, tool(fn,
    retries=...) for a tool
tool_timeout -> use tool(fn, timeout=...) for a tool, max_seconds= for the run
add_history_to_context add_memories_to_context add_session_summary_to_context auto_previous_response_id
    cache_session chat_memory chat_message_store_factory checkpoint checkpointer context_providers conversation
    conversation_id db enable_agentic_memory enable_session_summaries enable_user_memories initial_state memory
    memory_manager num_history_messages num_history_runs num_past_session_runs_in_search
    num_past_sessions_to_search overwrite_db_session_state persistence previous_response_id read_chat_history
    read_tool_call_history require_per_service_call_history_persistence reset search_past_sessions session_id
    session_state session_summary_manager storage store_events store_history_messages store_media
    store_tool_messages thread thread_id update_memory_on_run -> pass session=SQLiteSessions(path).session(id) of
    treadle.sessions, which stores the conversation
enable_agentic_state state_schema -> pass an object as deps=; stages keep values with ctx.remember(name, value)
deferred_tool_results -> continue a paused run with Loop.resume(paused, decisions)
agents allow_delegation can_handoff_to handoff_description handoffs managed_agents members sub_agents subagents
    team transfer_to -> make a tool of the other loop: tools=[other.as_tool(name, description)]
guardrails input_guardrails pre_hooks safety_checks -> write a stage before ask_model, which may call
    ctx.stop(text): stages=[check, ...]; for outputs use Output(type, validators=...)
compaction compaction_strategy compression_manager context_management context_window_strategy -> put a stage before
    ask_model: stages=[compact_history(model), ...], from treadle.sessions
call_model_input_filter max_tool_calls_from_history message_filter messages_modifier pre_model_hook
    reduction_strategy respect_context_window send_media_to_model transforms -> write a stage before ask_model that
    calls ctx.with_request(messages=...): stages=[trim, ...]
followup_model followups num_followups parse_response planning_interval post_model_hook -> write a stage after
    ask_model: stages=Loop().pipeline.insert_after('ask_model', check)
cache cache_callables wrap_model_call wrap_tool_call -> write a middleware, which sees every effect of the run:
    middleware=[...]
approval_mode approvals human_in_the_loop human_input human_input_mode interrupt_after interrupt_before
    interrupt_on needs_approval require_confirmation requires_approval -> mark the tool: tool(fn,
    requires_approval=True); the run then returns Paused
return_direct terminal tool_use_behavior -> mark the tool: tool(fn, terminal=True); its call ends the run
dedupe_fields idempotent lock max_parallel max_uses parallel_safe requires_fresh_input tool_hooks volatile -> it is
    an option of a tool: tool(fn, ...)
description input_schema -> it is an option of as_tool: loop.as_tool(name, description, ...)
compress_tool_results events_to_skip max_print_outputs_length offload_tool_results -> results are truncated, and
    errors reported to the model; the function of a tool may do more
mcp mcp_config mcp_server mcp_servers mcps -> pass the tools that the server lists in tools=, and resolve_tool= to
    call them
add_base_tools add_knowledge_to_context add_learnings_to_context add_search_knowledge_instructions
    additional_authorized_imports callable_knowledge_cache_key callable_tools_cache_key code_block_tags
    enable_agentic_knowledge_filters executor executor_kwargs executor_type filesystem knowledge knowledge_filters
    knowledge_retriever learning media_storage sandbox search_knowledge skills update_knowledge -> there are no
    built-in tools; write one, and pass it in tools=
debug debug_level debug_mode log_level logger logging verbose verbosity_level -> log events with on_event=, or
    configure the logger 'treadle'
stream stream_events stream_intermediate_steps stream_mode stream_outputs stream_steps streaming -> let the model
    stream (stream=True in its request), and read the events of Loop.stream(...), or on_event=
early_stopping_method provide_final_answer -> use limits=Limits(on_limit='finish') for a last answer at a limit
allow_parallel_tool_calls parallel sequential_tool_calls -> use limits=Limits(max_parallel_calls=1) for one call at
    a time, or tool(fn, parallel_safe=False)
error_on_empty_response -> use stages=[loop_decision(max_blank_stops=0), ...]; the run then ends with
    Err(EmptyResponse)
threshold -> use loop_threshold=, or stages=[circuit_breaker(threshold=...), ...]
error_handlers raise_exceptions -> match the result: every end without an answer is Err(reason), and
    result.unwrap() raises the reason
handle_parsing_errors -> invalid calls are answered with every violation; stages=[validate_calls(repair_call=...),
    ...] may repair them
citations include_usage output_key preserve_raw_usage provide_run_summary response_include return_full_result
    return_intermediate_steps save_response_to_file usage yield_run_output -> read it from the result:
    result.messages, result.output, result.usage
result_tool_description result_tool_name structured_output_fn -> the output tool has the name and the docstring of
    its type
end_strategy -> calls next to the call of an output tool do not run
group_id trace_id -> use run_id
infer_name tags trace_metadata version -> only name= is in telemetry
user_id -> pass it in deps=, or to the model as llm_opts={'user': ...}
"""
"""Options, and the hint for them, in which the name of the option takes the place of ``<name>``."""

HINTS = parsed_hints(_TABLE)
"""The hint for each known name."""
