"""The tools of several servers together: clashing names, and changes of the lists during a run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from treadle.context import Context
from treadle.errors import ToolDefinitionError
from treadle.mcp.log import warn
from treadle.mcp.server import MCPServer, RemoteTool
from treadle.messages import valid_name
from treadle.pipeline import Stage, stage
from treadle.tools import Tool, ToolLike, toolset


def mcp_tools(*servers: MCPServer, tools: Iterable[ToolLike] = ()) -> list[Tool]:
    """The tools of several servers, and others, with names that do not clash.

    Args:
        *servers: connected servers.
        tools: other tools, which keep their names.

    Returns:
        The tools. Where two have the same name, that of a server gets the name of the server before its own:
        ``git_search``.

    Raises:
        ToolDefinitionError: the names of two servers clash as well; give one of them another ``name``.
        Exception: see `MCPServer.tools`.
    """
    found = [(server, tool) for server in servers for tool in server.tools()]
    return _unique(list(toolset(tools).values()), found)


def _unique(others: list[Tool], found: list[tuple[MCPServer, Tool]]) -> list[Tool]:
    counts = Counter(tool.name for tool in (*others, *(tool for _, tool in found)))
    made = [
        tool if counts[tool.name] == 1 else _named(f"{server.name}_{tool.name}", tool)
        for server, tool in found
    ]
    names = Counter(tool.name for tool in (*others, *made))
    double = sorted(name for name, count in names.items() if count > 1)
    if double:
        raise ToolDefinitionError(
            f"mcp_tools: there are two tools named {', '.join(map(repr, double))}; give one of the servers "
            f"another name= or prefix="
        )
    return [*others, *made]


def _named(name: str, tool: Tool) -> Tool:
    return dataclasses.replace(tool, name=valid_name(name))


def refresh_tools(*servers: MCPServer) -> Stage[..., Any]:
    """Make a stage that brings the changed lists of servers into a run; put it before `ask_model`.

    New tools are offered from then on, and removed ones no longer. A tool whose definition changed is offered with
    the new one, and keeps its options, if its server is trusted; else it is no longer offered.

    Args:
        *servers: the servers. All their tools are offered, except those of ``exclude``.
    """

    async def refresh(ctx: Context) -> Context:
        present = {
            _key_of(tool): tool for tool in ctx.tools.values() if _server_of(tool) in servers
        }
        latest = [(one, tool) for one in servers for tool in await one.latest_tools()]
        if list(map(_digest_of, present.values())) == [_digest_of(tool) for _, tool in latest]:
            return ctx
        return _refreshed(ctx, present, latest)

    return stage(refresh, "refresh_tools")


def _refreshed(
    ctx: Context, present: Mapping[Any, Tool], latest: list[tuple[MCPServer, Tool]]
) -> Context:
    """Replace the tools of servers that are present in a run by the latest ones."""
    now = {_key_of(tool): tool for _, tool in latest}
    for key, tool in present.items():
        if key not in now:
            warn(
                "the tool %r is no longer offered: its server has removed or changed it", tool.name
            )
    kept = [_updated(tool, now[key]) for key, tool in present.items() if key in now]
    others = [tool for tool in ctx.tools.values() if tool not in present.values()]
    new = [(server, tool) for server, tool in latest if _key_of(tool) not in present]
    made = _unique([*others, *kept], new)
    return ctx.with_tools(remove=present.values(), add=made[len(others) :])


def _updated(old: Tool, new: Tool) -> Tool:
    """A tool of a run with its new definition; its policies do not become less strict."""
    if _digest_of(old) == _digest_of(new):
        return old
    return dataclasses.replace(
        old,
        description=new.description,
        input_schema=new.input_schema,
        annotations=new.annotations,
        fn=new.fn,
        parallel_safe=old.parallel_safe and new.parallel_safe,
        idempotent=old.idempotent and new.idempotent,
    )


def _server_of(tool: Tool) -> MCPServer | None:
    return tool.fn.server if isinstance(tool.fn, RemoteTool) else None


def _key_of(tool: Tool) -> tuple[int, str]:
    remote: Any = tool.fn
    return id(remote.server), remote.definition.name


def _digest_of(tool: Tool) -> str:
    remote: Any = tool.fn
    digest: str = remote.definition.digest
    return digest
