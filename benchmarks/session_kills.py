"""Kills processes that write sessions, and servers, at random points: is every whole turn there once?

``python benchmarks/session_kills.py --kills 200`` kills 200 writers of SQLite and 200 of Redis, and the server of
Redis 20 times. It prints a line for each, and what it found wrong. The same seed kills after the same times.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from treadle.sessions import RedisSessions, SessionStore, SQLiteSessions

SESSION = "alice"
LONGEST = 0.03
"""Seconds after its first turn after which a writer has been killed."""
SECONDS = 30.0
"""How long to wait for a server."""
TEXT = "x" * 20_000
"""The answer of each turn, so that it takes several pages of a file, and several packets."""


def turn_of(number: int) -> list[dict[str, Any]]:
    """The messages of a turn: an image, a call, its result and an answer, which all have the number."""
    image = {"type": "image_url", "image_url": {"url": f"https://example.org/{number}.png"}}
    function = {"name": "look", "arguments": f'{{"number": {number}}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "user", "content": [{"type": "text", "text": f"Turn {number}"}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}"},
        {"role": "assistant", "content": f"{number} {TEXT}"},
    ]


def write(store: Any, acknowledge: int) -> None:
    """Write turns until this process is killed; report each that is stored."""
    session = store.session(SESSION)
    while True:
        loaded = session.load()
        number = loaded["version"]
        ended = {
            "messages": loaded["messages"] + turn_of(number),
            # As after a compaction: only the latest turn is loaded.
            "memo": {"session.compaction": {"covered": len(loaded["messages"])}},
            "status": "ok",
            "stop_reason": "completed",
            "run_id": f"r{number}",
            "error": None,
            "iterations": 2,
            "tool_calls_count": 1,
            "usage": {},
            "pause": None,
            "at": time.time(),
        }
        session.save(loaded, ended)
        os.write(acknowledge, number.to_bytes(4, "big"))


def killed_writer(store: SessionStore, delay: float, meanwhile: Callable[[], None]) -> list[int]:
    """Start a process that writes, and kill it.

    Args:
        store: where it writes.
        delay: seconds from its first turn.
        meanwhile: called before it is killed.

    Returns:
        The numbers of the turns of which it knew that they were stored.
    """
    acknowledged, acknowledge = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(store, acknowledge)
        finally:
            os._exit(1)
    os.close(acknowledge)
    with open(acknowledged, "rb") as reports:  # noqa: PTH123 - a pipe
        first = reports.read(4)
        time.sleep(delay)
        meanwhile()
        os.kill(child, signal.SIGKILL)
        data = first + reports.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the writer has failed"
    return [int.from_bytes(data[place : place + 4], "big") for place in range(0, len(data), 4)]


def problems_of(store: Any, acknowledged: list[int]) -> Iterator[str]:
    """What is wrong with the session.

    Args:
        store: where it is.
        acknowledged: the turns that have to be there.
    """
    session = store.session(SESSION)
    turns, info = session.turns(), session.info()
    numbers = range(len(turns))
    for number, turn in enumerate(turns):
        if (turn.run_id, turn.start) != (f"r{number}", 4 * number):
            yield f"turn {number} is {turn.run_id}, at {turn.start}"
        if turn.messages != turn_of(number):
            yield f"turn {number} has other messages"
    if (info.version, info.messages) != (len(turns), 4 * len(turns)):
        yield f"the session has {len(turns)} turns: {info}"
    if acknowledged != [*range(len(acknowledged))] or len(acknowledged) > len(turns):
        yield f"{len(acknowledged)} turns were reported to be stored, {len(turns)} are"
    urls = [part["image_url"]["url"] for part in session.attachments()]
    if urls != [f"https://example.org/{number}.png" for number in numbers]:
        yield f"it has {len(urls)} attachments for {len(turns)} turns"
    if [one.id for one in store.sessions()] != [SESSION]:
        yield "the list of sessions is wrong"


class Server:
    """A Redis that writes each change to the disk before it answers."""

    def __init__(self, folder: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        """Start it; return when it answers."""
        program = shutil.which("redis-server")
        assert program, "there is no redis-server on this machine: apt-get install redis-server"
        options = [
            "--save",
            "''",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--bind",
            "127.0.0.1",
        ]
        options = [option.strip("'") for option in options]
        self._process = subprocess.Popen(
            [program, "--port", str(self._port), "--dir", self._folder, *options],
            stdout=subprocess.DEVNULL,
        )
        end = time.monotonic() + SECONDS
        with redis.Redis(port=self._port) as client:
            while True:
                with contextlib.suppress(redis.RedisError):
                    if client.info("server")["process_id"] == self._process.pid:
                        return
                assert self._process.poll() is None, "redis-server has ended"
                assert time.monotonic() < end, "redis-server does not answer"
                time.sleep(0.01)

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


def nothing() -> None:
    """What happens meanwhile, as a rule."""


def trial(
    name: str,
    store: Any,
    kills: int,
    chance: random.Random,
    meanwhile: Callable[[], None] = nothing,
) -> bool:
    """Kill writers of one session; print what was found. Return whether all is as it should be."""
    acknowledged: list[int] = []
    start, wrong, unreported = time.perf_counter(), 0, 0
    for kill in range(kills):
        reported = killed_writer(store, chance.uniform(0, LONGEST), meanwhile)
        # A turn that the writer before had stored, and could not report, is the next one's start.
        unreported += sum(1 for _ in range(len(acknowledged), reported[0]))
        acknowledged += range(len(acknowledged), reported[0])
        acknowledged += reported
        for problem in problems_of(store, acknowledged):
            wrong += 1
            print(f"{name}, kill {kill}: {problem}")
    seconds = time.perf_counter() - start
    print(
        f"{name}: {kills} kills, {len(acknowledged):,} turns, {unreported} of them stored and not reported, "
        f"{wrong} problems, {seconds:.0f} s"
    )
    return not wrong


def main() -> int:
    """Read the arguments, and run the trials; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="writers to kill, for each store")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        fine = [trial("SQLite", SQLiteSessions(Path(folder, "sessions.db")), given.kills, chance)]
        server = Server(folder)
        try:
            writers = RedisSessions(server.url, prefix="writers")
            fine.append(trial("Redis", writers, given.kills, chance))
            servers = RedisSessions(server.url, prefix="servers")
            few = given.kills // 10
            fine.append(trial("Redis, the server too", servers, few, chance, server.restart))
        finally:
            server.kill()
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
