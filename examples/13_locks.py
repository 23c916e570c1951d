"""Locks: calls with the same key never overlap, even in different runs; other calls run at the same time."""

import asyncio
from collections import Counter

from treadle import Locks, Loop, tool
from treadle.testing import ScriptedLLM, call, calls

writing: Counter[str] = Counter()
most: Counter[str] = Counter()


@tool(lock=lambda arguments: "file:" + arguments["path"])
async def append(path: str, line: str) -> str:
    """Append a line to a file."""
    writing[path] += 1
    most[path] = max(most[path], writing[path])
    most["any file"] = max(most["any file"], writing.total())
    await asyncio.sleep(0.05)  # long enough to overlap
    writing[path] -= 1
    return line


async def main() -> None:
    """Two concurrent runs, each of which appends two lines to each of two files."""
    lines = [call("append", path=path, line=line) for path in ("log", "todo") for line in "ab"]
    loop = Loop(tools=[append], locks=Locks())
    question = "Write it down."
    runs = [loop.run(question, ScriptedLLM(calls(*lines), "Done.")) for _ in range(2)]
    for result in await asyncio.gather(*runs):
        print(f"{result.stop_reason}: {result.tool_calls_count} calls ran")
    for path, count in sorted(most.items()):
        print(f"at once on {path}: {count}")


asyncio.run(main())
