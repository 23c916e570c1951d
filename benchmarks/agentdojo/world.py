"""AgentDojo's tools as tools of a loop, and a record of what was run in the environment of a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment

from treadle import Tool

CHANGING = frozenset({
    "add_calendar_event_participants",
    "add_user_to_channel",
    "append_to_file",
    "cancel_calendar_event",
    "create_calendar_event",
    "create_file",
    "delete_email",
    "delete_file",
    "get_unread_emails",  # marks them as read
    "get_webpage",  # is noted in the environment
    "invite_user_to_slack",
    "post_webpage",
    "remove_user_from_slack",
    "reschedule_calendar_event",
    "reserve_car_rental",
    "reserve_hotel",
    "reserve_restaurant",
    "schedule_transaction",
    "send_channel_message",
    "send_direct_message",
    "send_email",
    "send_money",
    "share_file",
    "update_password",
    "update_scheduled_transaction",
    "update_user_info",
})  # fmt: skip
"""The tools that change the environment; AgentDojo does not mark them. They must not run beside others.
The plain loop looks after each call whether the list is right."""


def is_changing(call: str) -> bool:
    """Whether a call, of which the first word is the tool's name, changes the environment."""
    return call.split(" ", 1)[0] in CHANGING


def tools_of(runtime: FunctionsRuntime) -> list[Tool]:
    """The functions of a suite, under their own schemas; a resolver has to run them."""
    return [
        Tool(
            function.name,
            function.description,
            function.parameters.model_json_schema(),
            parallel_safe=not is_changing(function.name),
        )
        for function in runtime.functions.values()
    ]


class World:
    """Runs calls in the environment of a task, and remembers those that ran.

    Attributes:
        ran: the results, as text, by id of the call, in the order in which they came.
        failed: the ids of the calls that the environment refused.
        changed: the ids of the calls that changed it; only where `watch` is set, for it takes its time.
    """

    def __init__(
        self, runtime: FunctionsRuntime, env: TaskEnvironment, *, watch: bool = False
    ) -> None:
        self.ran: dict[str, str] = {}
        self.failed: set[str] = set()
        self.changed: set[str] = set()
        self._runtime = runtime
        self._env = env
        self._watch = watch

    def run(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> str:
        """Run a call. Returns its result, or its error, as text."""
        before = self._env.model_dump_json() if self._watch else ""
        value, error = self._runtime.run_function(self._env, name, dict(arguments))
        if error is not None:
            self.failed.add(call_id)
        if self._watch and self._env.model_dump_json() != before:
            self.changed.add(call_id)
        self.ran[call_id] = tool_result_to_str(value) if error is None else error
        return self.ran[call_id]
