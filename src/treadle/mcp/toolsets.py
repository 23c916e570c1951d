"""The tools of several servers together: clashing names, and changes of the lists during a run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

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
    found = [tool for server in servers for tool in server.tools()]
    return _unique(list(toolset(tools).values()), found)


def _unique(others: list[Tool], found: list[Tool]) -> list[Tool]:
    """The tools, those that are found on servers with the names of these where names clash."""
    counts = Counter(tool.name for tool in (*others, *found))
    made = [tool if counts[tool.name] == 1 else _with_server(tool) for tool in found]
    names = Counter(tool.name for tool in (*others, *made))
    double = sorted(name for name, count in names.items() if count > 1)
    if double:
        raise ToolDefinitionError(
            f"mcp_tools: there are two tools named {', '.join(map(repr, double))}; give one of the servers "
            f"another name= or prefix="
        )
    return [*others, *made]


def _with_server(tool: Tool) -> Tool:
    remote: Any = tool.fn
    return dataclasses.replace(tool, name=valid_name(f"{remote.server.name}_{tool.name}"))


def refresh_tools(*servers: MCPServer) -> Stage[..., Any]:
    """Make a stage that brings the changed lists of servers into a run; put it before `ask_model`.

    New tools are offered from then on, and removed ones no longer. A tool whose definition changed is offered with
    the new one, and keeps its options, if its server is trusted; else it is no longer offered.

    Args:
        *servers: the servers. All their tools are offered, except those of ``exclude``.
    """

    async def refresh(ctx: Context) -> Context:
        present = {_key_of(one): one for one in ctx.tools.values() if _server_of(one) in servers}
        latest = [tool for server in servers for tool in await server.latest_tools()]
        now = {_key_of(tool): tool for tool in latest}
        if _digests(present) == _digests(now):
            return ctx
        others = [one for one in ctx.tools.values() if _server_of(one) not in servers]
        return _refreshed(ctx, others, present, now)

    return stage(refresh, "refresh_tools")


_Remote: TypeAlias = Mapping[tuple[int, str], Tool]
"""Tools of servers by server, and by name at the server."""


def _refreshed(ctx: Context, others: list[Tool], present: _Remote, now: _Remote) -> Context:
    """Replace the tools of servers that are present in a run by those that they have now."""
    for key in present.keys() - now.keys():
        text = "the tool %r is no longer offered: its server has removed or changed it"
        warn(text, present[key].name)
    kept = [_updated(tool, now[key]) for key, tool in present.items() if key in now]
    new = [tool for key, tool in now.items() if key not in present]
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


def _digests(tools: _Remote) -> dict[tuple[int, str], str]:
    return {key: _digest_of(tool) for key, tool in tools.items()}


def _digest_of(tool: Tool) -> str:
    remote: Any = tool.fn
    digest: str = remote.definition.digest
    return digest
