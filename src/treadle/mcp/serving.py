"""`as_mcp_server`: tools and loops as a server of the Model Context Protocol."""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import treadle
from treadle.context import Context, RunServices
from treadle.effects import drive
from treadle.errors import OptionError
from treadle.events import Event, ToolProgress, ToolStarted
from treadle.limits import Budget, Limits
from treadle.loop import Loop
from treadle.loop.subagent import TASK_SCHEMA
from treadle.mcp.blocks import blocks_of
from treadle.mcp.targets import check_installed
from treadle.messages import History, ToolResult
from treadle.messages.sanitizing import valid_name
from treadle.results import Err, Ok, Paused
from treadle.stages import prepare_call
from treadle.tools import (
    Locks,
    NotRun,
    Tool,
    ToolContext,
    ToolLike,
    check_implementations,
    toolset,
)

if TYPE_CHECKING:
    from mcp.server import Server

_NO_LIMIT = 1_000_000_000
"""Of iterations of a subagent, whose loop has a separate limit."""


def as_mcp_server(
    served: Loop[Any] | ToolLike | Iterable[Loop[Any] | ToolLike],
    *,
    name: str = "treadle",
    version: str | None = None,
    instructions: str | None = None,
    description: str | None = None,
    deps: Any = None,
) -> Server[Any]:
    """Make an MCP server of tools and loops.

    Each request is a call as in a run: the arguments are checked, and time limits, retries, locks, `Retry` and
    `ToolContext` work. Its progress is sent to the client, and the client can cancel it. A call that needs
    approval is refused, since no person can be asked.

    Args:
        served: a loop or a tool, or a list of them. A loop is a tool that takes a ``task``; each call is a run.
            It needs its own model.
        name: the name of the server.
        version: its version; None means that of treadle.
        instructions: how to use the server, for the model of the client.
        description: what the loop does, for the model of the client, if one loop is served. For several, make
            tools of them with `Loop.as_tool`.
        deps: the object that tools find as ``deps`` in their `ToolContext`.

    Returns:
        A low-level ``Server`` of the SDK: `serve_stdio` serves it on stdin and stdout, and its method
        ``streamable_http_app()`` makes an ASGI application.

    Raises:
        ToolDefinitionError: a tool is invalid, or has no function.
        OptionError: a loop has no model.
        MissingExtraError: the MCP SDK is not installed.
    """
    check_installed()
    from mcp import types  # noqa: PLC0415 - an extra
    from mcp.server import Server  # noqa: PLC0415 - as above

    tools = _tools_of(served, description)
    locks = Locks()
    listed = [types.Tool.model_validate(_described(tool)) for tool in tools.values()]

    async def list_tools(_ctx: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        run = RunServices(
            budget=Budget(Limits(max_iterations=_NO_LIMIT)),
            locks=locks,
            has_listeners=True,
            deps=deps,
        )
        run.state.run_id = call_id = uuid.uuid4().hex
        context = Context(History(), tools, run=run)
        steps = prepare_call(context, params.name, call_id, params.arguments or {})
        result = await drive(steps, _progress_to(ctx.session.report_progress))
        return types.CallToolResult.model_validate(
            {"content": blocks_of(_answered(result)), "isError": result.is_error}
        )

    return Server(
        name,
        version=version or treadle.__version__,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tools_of(served: Any, description: str | None) -> Mapping[str, Tool]:
    is_many = isinstance(served, Iterable) and not isinstance(served, (Tool, Mapping, Loop))
    given: list[Any] = [*served] if is_many else [served]  # pyright: ignore[reportUnknownVariableType]
    if description is not None and not (len(given) == 1 and isinstance(given[0], Loop)):
        raise OptionError("as_mcp_server: description is that of a loop which is served alone")
    made = [_tool_of(one, description) if _is_loop(one) else one for one in given]
    tools = toolset(made, "as_mcp_server")
    for tool in tools.values():
        if tool.terminal:
            raise OptionError(f"as_mcp_server: {tool.name!r} ends a run, and there is none to end")
    check_implementations(tools.values(), None, "as_mcp_server: ")
    return tools


def _is_loop(given: Any) -> TypeGuard[Loop[Any]]:
    return isinstance(given, Loop)


def _tool_of(loop: Loop[Any], description: str | None) -> Tool:
    loop.model_for(None)
    name = loop.settings.name or "ask"
    text = description or f"Give a task to the agent {name!r}, which answers when it is done."
    return Tool(valid_name(name), text, TASK_SCHEMA, fn=_ServedLoop(loop))


class _ServedLoop:
    """The function of a loop that is served: each call is a run, with its own telemetry and observers."""

    def __init__(self, loop: Loop[Any]) -> None:
        self._loop = loop

    async def __call__(self, task: str) -> Any:
        """Run the loop."""
        return await self.call_in_context({"task": task}, None)

    async def call_in_context(
        self, arguments: Mapping[str, Any], context: ToolContext[Any] | None
    ) -> Any:
        """Run the loop, and report the tools that it starts, and their progress."""
        async with self._loop.stream(arguments["task"]) as stream:
            async for event in stream:
                if context is not None and isinstance(event.innermost, (ToolStarted, ToolProgress)):
                    context.report(_message_of(event.innermost))
        match stream.result:
            case Ok() as ok:
                return ok.output
            case Paused():
                return Err(
                    "the agent needs approval for a call, which cannot be requested over MCP"
                )
            case Err(reason):
                return Err(f"the agent gave no answer: {reason}")


def _message_of(event: ToolStarted | ToolProgress) -> str:
    said = event.message if isinstance(event, ToolProgress) else ""
    return f"{event.call.name}: {said}" if said else event.call.name


def _described(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations or None,
    }


def _answered(result: ToolResult) -> ToolResult:
    """The result of a call, in words that fit a client."""
    if result.status not in {NotRun.DENIED, "waiting"}:
        return result
    text = "Error: this call needs approval by a person, which cannot be requested over MCP."
    return ToolResult(result.tool_call_id, text, True, NotRun.DENIED)


def _progress_to(
    send: Callable[[float, float | None, str | None], Awaitable[None]],
) -> Callable[[Event], Awaitable[None] | None]:
    """Make the listener that sends the progress of a call to the client."""
    last = 0.0

    def listen(event: Event) -> Awaitable[None] | None:
        nonlocal last
        if not isinstance(event, ToolProgress):
            return None
        # The protocol requires that each number is greater than the one before.
        share = event.progress
        last = max(last + _STEP, share or 0.0)
        return send(last, None if share is None else 1.0, event.message or None)

    return listen


_STEP = 1e-6


async def _serve_stdio(server: Server[Any]) -> None:
    """As `serve_stdio`, on an event loop."""
    import anyio  # noqa: PLC0415 - slow to import
    from mcp.server.stdio import stdio_server  # noqa: PLC0415 - an extra

    # Python writes what was printed when its buffer is full, or at the exit. So stdout is stderr for good.
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    os.dup2(2, 1)
    async with stdio_server(stdout=anyio.wrap_file(wire)) as (read, write):
        await server.run(read, write, server.create_initialization_options())


def serve_stdio(server: Server[Any]) -> None:
    """Serve on stdin and stdout until the client closes them.

    What the program prints goes to stderr, also after the end: stdout has only messages of the protocol.

    Args:
        server: what `as_mcp_server` returns, or another low-level ``Server`` of the SDK.
    """
    import anyio  # noqa: PLC0415 - slow to import

    anyio.run(_serve_stdio, server)
