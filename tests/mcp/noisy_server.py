"""A program that serves a tool on stdin and stdout, and prints before, meanwhile and afterwards."""

import atexit
import os
import sys
import threading

from treadle import tool
from treadle.mcp import as_mcp_server, serve_stdio


@tool
def shout(text: str) -> str:
    """Print a text."""
    print("printed by a tool", text)  # noqa: T201
    sys.stdout.write("written without a line end")
    os.system("echo printed by a child")  # noqa: S605
    threading.Thread(target=print, args=["printed by a thread"]).start()
    return text


atexit.register(print, "printed at the exit")
print("printed before")  # noqa: T201
serve_stdio(as_mcp_server(shout, name="noisy"))
print("printed afterwards", flush=True)  # noqa: T201
os.write(1, b"written afterwards")
