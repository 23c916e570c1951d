"""A server of the older protocol on stdin and stdout, whose responses to calls have a fault, the second argument.

Usage: faulty_server.py NOTES FAULT [TOOLS]

A call of a tool is responded to in the way of the fault; one with the argument ``{"well": true}`` without it.
"""

import json
import os
import sys
import time
from pathlib import Path

notes, fault = Path(sys.argv[1]), sys.argv[2]
ANY = {"type": "object"}
tools = [{"name": "act", "inputSchema": ANY, "annotations": {"idempotentHint": True}}]
if len(sys.argv) > 3:
    tools = json.loads(sys.argv[3])


def write(data):
    os.write(1, data if isinstance(data, bytes) else data.encode())


def line(**message):
    return json.dumps({"jsonrpc": "2.0", **message}) + "\n"


def note(text):
    with notes.open("a") as file:
        file.write(f"{text}\n")


def answer(number):
    return line(id=number, result={"content": [{"type": "text", "text": "done"}]})


def error(number, code):
    return line(id=number, error={"code": code, "message": "Connection closed"})


FAULTS = {
    "server error": lambda n: write(error(n, -32000)),
    "byte in place of a response": lambda n: write(b"\xff\n"),
    "byte before a response": lambda n: write(b"\xff" + answer(n).encode()),
    "byte within a response": lambda n: write(answer(n).encode().replace(b"done", b"d\xe9")),
    "half a response": lambda n: write(answer(n)[:30] + "\n"),
    "result null": lambda n: write(line(id=n, result=None)),
    "result a list": lambda n: write(line(id=n, result=[1])),
    "code a text": lambda n: write(line(id=n, error={"code": "x", "message": "m"})),
    "no version": lambda n: write(json.dumps({"id": n, "result": {}}) + "\n"),
    "nothing": lambda n: write(line(id=n)),
    "surrogate": lambda n: write(answer(n).replace("done", "d\\ud83dne")),
    "long number": lambda n: write(
        answer(n).replace('"text": "done"', '"text": "done", "n": ' + "9" * 5_000)
    ),
    "deep": lambda n: write(
        answer(n).replace('"text": "done"', '"text": "done", "n": ' + "[" * 300 + "]" * 300)
    ),
    "id a float": lambda n: write(answer(float(n))),
    "batch": lambda n: write("[" + answer(n).strip() + "]\n"),
    "content null": lambda n: write(line(id=n, result={"content": None})),
    "block unknown": lambda n: write(line(id=n, result={"content": [{"type": "x"}]})),
    "structured a text": lambda n: write(
        line(id=n, result={"content": [], "structuredContent": "x"})
    ),
    "id unknown": lambda n: write(answer(n + 90)),
    "id null": lambda n: write(line(id=None, result={"content": []})),
    "id a fraction": lambda n: write(answer(n + 0.5)),
    "closes stdout": lambda n: os.close(1),
    "byte order mark": lambda n: write("\ufeff" + answer(n)),
    "lines of a log": lambda n: write('hello\n{"level": 30}\n5\n[]\n\n' + answer(n)),
    "twice": lambda n: write(answer(n) * 2),
    "id a text": lambda n: write(answer(str(n))),
    "in pieces": lambda n: [(write(piece), time.sleep(0.001)) for piece in answer(n)],
    "malformed notifications": lambda n: write(
        line(method="notifications/progress", params={"progressToken": n, "progress": "x"})
        + line(method="notifications/message", params={"level": 5})
        + line(method="notifications/tools/list_changed", params={"_meta": 5})
        + line(method="notifications/unknown", params=None)
        + line(method=5)
        + line(id="q", method="ping")
        + answer(n)
    ),
    "long line": lambda n: write(
        line(id=n, result={"content": [{"type": "text", "text": "x" * 3_000_000}]})
    ),
}

note("started")
for given in sys.stdin:
    message = json.loads(given)
    method, params = message.get("method"), message.get("params") or {}
    number = message.get("id")
    if method == "initialize":
        facts = {"tools": {"listChanged": True}, "resources": {}}
        write(
            line(
                id=number,
                result={
                    "protocolVersion": "2025-06-18",
                    "capabilities": facts,
                    "serverInfo": {"name": "faulty", "version": "1"},
                },
            )
        )
    elif method == "tools/list":
        more = {"nextCursor": "again"} if fault == "endless pages" else {}
        write(line(id=number, result={"tools": tools, **more}))
    elif method == "tools/call":
        note(f"called {params['name']}")
        if params.get("arguments", {}).get("well") or fault not in FAULTS:
            write(answer(number))
        else:
            FAULTS[fault](number)
    elif method == "resources/list" and fault == "malformed resources":
        write(line(id=number, result={"resources": [5]}))
    elif "id" in message and method is not None:
        write(line(id=number, error={"code": -32601, "message": "method not found"}))
