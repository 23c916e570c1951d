"""Calls of models and tools as data, and back: a workflow writes it, and an activity on any worker reads it."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from treadle import labels
from treadle.codec import decode, encode
from treadle.durable.temporal.fitness import is_limit
from treadle.effects import Call, Steps
from treadle.messages import JSONDict, ToolCall
from treadle.model import ModelClient, ModelRequest, TimedResponse
from treadle.model.request import through
from treadle.stages import ProgressReporter, call_effect, events_of_chunks
from treadle.tools import ToolCallTable, ToolContext

if TYPE_CHECKING:
    from treadle.loop.loop import Loop


def request_as_data(sent: ModelRequest, tools: Mapping[str, Any]) -> JSONDict:
    """Write a request to the model of a loop; what the loop itself says is left out.

    Args:
        sent: the request.
        tools: the form in which each tool of the loop is offered, by name.

    Returns:
        Everything but its messages.
    """
    defaults = sent.model.options
    options = {
        name: value
        for name, value in sent.opts.items()
        if name != "tools" and (name not in defaults or defaults[name] != value)
    }
    offered = [
        one["function"]["name"] if tools.get(one["function"]["name"]) == one else one
        for one in sent.opts.get("tools", ())
    ]
    return {
        "options": encode(options, "options of the request"),
        "without": [name for name in defaults if name not in sent.opts],
        "tools": offered,
        "priced": sent.is_priced,
    }


def request_from_data(
    data: Mapping[str, Any],
    messages: list[JSONDict],
    loop: Loop[Any],
    iteration: int,
    *,
    has_listeners: bool,
) -> ModelRequest:
    """Make the request again, to the model of the loop as it is on this worker."""
    options: Mapping[str, Any] = {} if loop.output is None else loop.output.options
    client = ModelClient(loop.model_for(None), {**loop.settings.llm_opts, **options})
    opts = {name: value for name, value in client.options.items() if name not in data["without"]}
    opts |= decode(data["options"])
    tools = [loop.tools[one].as_openai() if isinstance(one, str) else one for one in data["tools"]]
    choice = opts.pop("tool_choice", None)
    events = None
    if has_listeners:
        names = [one["function"]["name"] for one in tools]
        events = functools.partial(events_of_chunks, iteration, loop.output, names)
    request = ModelRequest(client, messages, client.opts_of(opts, tools, choice), events)
    request.is_priced = data["priced"]
    return request


def tool_call_as_data(call: ToolCall, context: ToolContext | None) -> JSONDict:
    """Write a call of a tool, and what the tool may read about the run."""
    facts = None
    if context is not None:
        facts = {
            "iteration": context.iteration,
            "attempt": context.attempt,
            "agent_name": context.agent_name,
            "remaining": encode(context.remaining),
        }
    data = encode(call)
    is_parsed = "input" in data and encode(_parsed(call)) == data["input"]
    if is_parsed:  # arguments, which may be large, are sent once
        del data["input"]
    return {"call": data, "is_parsed": is_parsed, "context": facts}


def _parsed(call: ToolCall) -> Any:
    """The arguments as the model wrote them; None if they are no JSON."""
    try:
        return json.loads(call.arguments)
    except ValueError:
        return None


def tool_call_from_data(
    data: Mapping[str, Any],
    loop: Loop[Any],
    run_id: str,
    iteration: int,
    *,
    has_listeners: bool,
) -> tuple[Call, ToolCallTable]:
    """Make the effect of a call again, with the tool and the ``deps`` of the loop as they are on this worker.

    Returns:
        The effect, and the table in which its function records the result.
    """
    call: ToolCall = decode(data["call"])
    if data["is_parsed"]:
        call = dataclasses.replace(call, input=_parsed(call))
    tool, facts = loop.tools.get(call.name), data["context"]
    progress = ProgressReporter(
        iteration,
        call,
        has_listeners=has_listeners,
        is_generator=tool is None or tool.fn is None or tool.is_generator,
    )
    context = None
    if facts is not None:
        context = ToolContext[Any](
            call.id,
            call.name,
            facts["iteration"],
            facts["attempt"],
            run_id,
            facts["agent_name"],
            decode(facts["remaining"]),
            loop.settings.deps,
            progress.report,
        )
    in_flight = ToolCallTable()
    has_progress = tool is None or tool.is_generator or tool.takes_context
    effect = call_effect(
        call, tool, loop.resolver, context, in_flight, progress=progress if has_progress else None
    )
    return effect, in_flight


def chat_effect(request: ModelRequest, iteration: int) -> Call:
    """The effect that sends a request."""
    return Call(
        request.send, mode=request.model.mode, label=labels.CHAT, key=str(iteration), reporting=True
    )


def within_limits(call: Call, request: ModelRequest, loop: Loop[Any]) -> Steps[TimedResponse]:
    """Perform the call that sends a request when the limits allow it that the loop shares with others.

    They are those of ``model_middleware`` for which a workflow could not wait.
    """

    def send(_: ModelRequest) -> Steps[TimedResponse]:
        return (yield call)

    return through(filter(is_limit, loop.settings.model_middleware), send)(request)
