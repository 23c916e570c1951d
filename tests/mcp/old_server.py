"""A server of the older protocol, on stdin and stdout, without the SDK: what the wire says is what it notes.

Usage: old_server.py NOTES
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from server_tools import Notes

notes = Notes(sys.argv[1])
running = {}


def send(**message):
    sys.stdout.write(f"{json.dumps({'jsonrpc': '2.0', **message})}\n")
    sys.stdout.flush()


def call(number, name, arguments, token):
    notes.add(f"called {name}")
    running[number] = name
    if name == "hang":
        return
    if name.startswith("die"):
        notes.die(name)
    if name == "steps":
        for step in (1, 2, 3):
            facts = {
                "progressToken": token,
                "progress": step,
                "total": 4,
                "message": f"step {step}",
            }
            if token is not None:
                send(method="notifications/progress", params=facts)
    if name in {"grow", "change"}:
        getattr(notes, name)()
        send(method="notifications/tools/list_changed")
    if name in notes.tools:
        send(id=number, result=notes.answer(name, arguments))
    else:
        send(id=number, error={"code": -32602, "message": f"unknown tool: {name}"})


notes.start()
sys.stderr.write("old server: ready, api_key=abc123def\n")
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if method == "initialize":
        facts = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "old", "version": "1"},
        }
        send(id=message["id"], result=facts)
    elif method == "tools/list" and os.environ.get("SILENT"):
        continue
    elif method == "tools/list":
        send(id=message["id"], result={"tools": notes.listed()})
    elif method == "tools/call":
        token = params.get("_meta", {}).get("progressToken")
        call(message["id"], params["name"], params.get("arguments") or {}, token)
    elif method == "notifications/cancelled":
        notes.add(f"cancelled {running[params['requestId']]}")
    elif "id" in message:
        send(id=message["id"], error={"code": -32601, "message": "method not found"})
