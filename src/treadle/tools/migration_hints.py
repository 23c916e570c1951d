"""Where the options that other frameworks give to tools belong in treadle, for errors about unknown options.

It is imported when an option is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

_NAMES: Mapping[str, str] = {
    "use description=": "description_override doc",
    "use dedupe=": "cache_results cache use_cache",
    "use max_uses=": "max_usage_count max_invocations max_calls usage_limit tool_call_limit",
    "use name=": "name_override tool_name func_name",
    "use parallel_safe=": "sequential parallel concurrent",
    "use requires_approval=": (
        "approval approval_mode ask_user confirm external_execution human_in_the_loop needs_approval "
        "require_approval require_confirmation requires_confirmation requires_user_input"
    ),
    "use retries=": "attempts max_attempts max_retries num_retries retry",
    "use terminal=": "return_direct result_as_answer stop_after_tool_call ends_run is_final",
    "use timeout=": "deadline max_seconds seconds time_limit timeout_seconds tool_timeout",
    "the function itself is the first argument": "func function callable coroutine async_fn",
    "the schema comes from the type hints; give one as tool({'name': ..., 'input_schema': ...})": (
        "args_schema fn_schema input_model input_schema inputs parameters params_json_schema schema json_schema"
    ),
    "the descriptions of arguments come from the docstring, in Google's, NumPy's or Sphinx's style": (
        "docstring_format docstring_style docstring_processor parse_docstring require_parameter_descriptions "
        "arg_descriptions use_docstring_info"
    ),
    "schemas are sent as they are; arguments are always validated": (
        "strict strict_mode handle_validation_error error_on_invalid_docstring infer_schema"
    ),
    "an exception becomes an error result; raise treadle.Retry('...') to ask the model for another call": (
        "failure_error_function handle_tool_error error_function include_detail_in_error max_invocation_exceptions"
    ),
    "offer tools step by step with a stage: ctx.with_request(tools=[...])": (
        "is_enabled enabled prepare defer_loading"
    ),
    "annotate a parameter with ToolContext": "takes_ctx takes_context pass_context context",
    "the tool of an agent is loop.as_tool(name, description)": "agent handoff",
    "check arguments in the function, and raise treadle.Retry('...')": (
        "args_validator tool_input_guardrails tool_output_guardrails pre_hook post_hook tool_hooks"
    ),
    "annotations= has MCP's annotations": "hints metadata kind tags extras additional_properties",
    "a result may be any value, which is rendered as text or JSON": (
        "response_format result_parser show_result return_schema output_schema"
    ),
}
HINTS: Mapping[str, str] = {name: hint for hint, names in _NAMES.items() for name in names.split()}
"""The hint for each known name."""
