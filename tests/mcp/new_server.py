"""A server of the newer protocol, by the low-level server of the SDK.

Usage: new_server.py NOTES [PORT]; without a port it serves on stdin and stdout.
"""

import sys
from pathlib import Path

import anyio
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged

sys.path.insert(0, str(Path(__file__).parent))
from server_tools import Notes


def make(path):
    """The server; it notes into a file."""
    notes, bus = Notes(path), InMemorySubscriptionBus()

    async def list_tools(_ctx, _params):
        tools = [types.Tool.model_validate(one) for one in notes.listed()]
        return types.ListToolsResult(tools=tools)

    async def call_tool(ctx, params):
        name = params.name
        notes.add(f"called {name}")
        if name == "hang":
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                notes.add(f"cancelled {name}")
                raise
        if name.startswith("die"):
            notes.die(name)
        if name == "steps":
            for step in (1, 2, 3):
                await ctx.session.report_progress(step, 4, f"step {step}")
        if name in {"grow", "change"}:
            getattr(notes, name)()
            await bus.publish(ToolsListChanged())
        return types.CallToolResult.model_validate(notes.answer(name, params.arguments or {}))

    async def list_resources(_ctx, _params):
        found = types.Resource(uri="note:a", name="a", mime_type="text/plain")
        return types.ListResourcesResult(resources=[found])

    async def read_resource(_ctx, params):
        text = types.TextResourceContents(uri=params.uri, text="So.")
        return types.ReadResourceResult(contents=[text])

    return Server(
        "new",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
        on_subscriptions_listen=ListenHandler(bus),
    )


async def on_stdio(server):
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main(path, port=None):
    Notes(path).start()
    server = make(path)
    if port is None:
        sys.stderr.write("new server: ready, api_key=abc123def\n")
        anyio.run(on_stdio, server)
    else:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
