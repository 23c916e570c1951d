"""The tools of several servers: clashing names, and changes of the lists during a run."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.context import Context
from treadle.errors import ToolDefinitionError
from treadle.mcp.log import warn
from treadle.mcp.server import MCPServer, RemoteTool
from treadle.messages.sanitizing import valid_name
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
    others = list(toolset(tools).values())
    found = [tool for server in servers for tool in server.tools()]
    made = [*others, *_renamed(others, found)]
    clashing = _clashing(made)
    if clashing:
        raise ToolDefinitionError(
            f"mcp_tools: there are two tools named {', '.join(map(repr, sorted(clashing)))}; give one of the "
            f"servers another name= or prefix="
        )
    return made


def _renamed(others: Sequence[Tool], found: Sequence[Tool]) -> list[Tool]:
    """The tools that were found, with the names of their servers where names clash."""
    clashing = _clashing([*others, *found])
    return [_with_server(tool) if tool.name in clashing else tool for tool in found]


def _clashing(tools: Iterable[Tool]) -> set[str]:
    counts = Counter(tool.name for tool in tools)
    return {name for name, count in counts.items() if count > 1}


def _with_server(tool: Tool) -> Tool:
    remote: Any = tool.fn
    return dataclasses.replace(tool, name=valid_name(f"{remote.server.name}_{tool.name}"))


def refresh_tools(*servers: MCPServer) -> Stage[..., Any]:
    """Make a stage that brings the changed lists of servers into a run; put it before `ask_model`.

    New tools are offered from then on, and removed ones no longer. A tool whose definition changed is offered with
    the new one, and keeps its options, if its server is trusted; else it is no longer offered. A tool that is
    invalid, or whose name clashes even with that of its server, is left out; a warning is logged.

    Args:
        *servers: the servers. All their tools are offered, except those of ``exclude``.
    """

    async def refresh(ctx: Context) -> Context:
        latest = [tool for server in servers for tool in await server.latest_tools()]
        now = {_key_of(tool): tool for tool in latest}
        present = [one for one in ctx.tools.values() if _server_of(one) in servers]
        if now.keys() == {_key_of(one) for one in present} and all(
            _digest_of(one) == _digest_of(now[_key_of(one)]) for one in present
        ):
            return ctx
        return _refreshed(ctx, present, now)

    return stage(refresh, "refresh_tools")


def _refreshed(ctx: Context, present: list[Tool], now: Mapping[tuple[int, str], Tool]) -> Context:
    """Replace the tools of servers.

    Args:
        ctx: the context.
        present: those that it has.
        now: those that the servers have, by server and by name at the server.
    """
    text = "the tool %r is not offered: "
    for tool in present:
        if _key_of(tool) not in now:
            warn(text + "its server has removed or changed it", tool.name)
    rest = ctx.with_tools(remove=present)
    kept = [_updated(tool, now[_key_of(tool)]) for tool in present if _key_of(tool) in now]
    keys = {_key_of(tool) for tool in present}
    stay = [*rest.tools.values(), *kept]
    added = _renamed(stay, [tool for key, tool in now.items() if key not in keys])
    clashing = _clashing([*stay, *added])
    for tool in added:
        if tool.name in clashing:
            warn(text + "there is another tool with this name", tool.name)
    return rest.with_tools(add=[*kept, *(one for one in added if one.name not in clashing)])


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
