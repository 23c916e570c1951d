"""The Model Context Protocol: tools of its servers for a loop, and tools and loops as a server. Extra ``mcp``."""

from treadle.mcp.errors import MCPConnectionError, ToolNotApprovedError
from treadle.mcp.server import MCPServer
from treadle.mcp.serving import as_mcp_server, serve_stdio
from treadle.mcp.toolsets import mcp_tools, refresh_tools

__all__ = [
    "MCPConnectionError",
    "MCPServer",
    "ToolNotApprovedError",
    "as_mcp_server",
    "mcp_tools",
    "refresh_tools",
    "serve_stdio",
]
