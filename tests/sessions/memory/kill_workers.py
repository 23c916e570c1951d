"""Runs workers in processes, and kills them at random moments; the job on stdin, what happened on stdout, as JSON.

It forks the workers, so that a new one starts at once; in a test, a fork would copy the threads of the test.
"""

import json
import os
import random
import signal
import sys
import time

import redis
from tests.sessions.memory.parts import RuleModel, add_turn

from treadle.sessions import RedisSessions, SQLiteSessions
from treadle.sessions.memory import MemoryWorker, RedisMemories, SQLiteMemories

LEASE_SECONDS = 3.0
MAX_TOKENS = 30
CALLS, PROMPTS = "test:calls", "test:prompts"
"""The keys of the number of requests to the model, and of the set of messages that they had."""


def stores_at(where):
    """The stores of sessions and of facts: in a Redis, or in a folder."""
    if where.startswith("redis://"):
        return RedisSessions(where), RedisMemories(where)
    return SQLiteSessions(f"{where}/s.sqlite"), SQLiteMemories(f"{where}/m.sqlite")


class SlowModel(RuleModel):
    """Takes some milliseconds, and counts its requests in Redis."""

    def __init__(self, url):
        super().__init__()
        self.url = url

    def __call__(self, messages, **opts):
        with redis.Redis.from_url(self.url) as client:
            client.incr(CALLS)
            client.sadd(PROMPTS, messages[-1]["content"].partition("\n\n")[2])
        time.sleep(random.uniform(0, 0.01))
        return super().__call__(messages, **opts)


def work(job):
    """Be a worker until the process is killed."""
    sessions, memories = stores_at(job["where"])
    random.seed(os.getpid())
    MemoryWorker(
        sessions,
        memories,
        SlowModel(job["redis"]),
        scope_of=lambda session_id: session_id.split("/")[0],
        max_tokens=MAX_TOKENS,
        lease_seconds=LEASE_SECONDS,
    ).run_forever_sync(poll_seconds=0.01)


def start(job):
    child = os.fork()
    if child:
        return child
    try:
        work(job)
    finally:
        os._exit(1)


def kill(child):
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def change(sessions, job, number, dice):
    """Make a change of a random session: usually a turn, sometimes an edit."""
    session_id = f"user{dice.randrange(3)}/{dice.randrange(job['sessions'])}"
    info = sessions.info(session_id)
    if info is not None and dice.random() < job["edits"]:
        add_turn(
            sessions, session_id, f"Edit {number}.", start=2 * dice.randint(0, info.messages // 2)
        )
    else:
        add_turn(
            sessions, session_id, *(f"Fact {number}, {one}." for one in range(dice.randint(1, 5)))
        )


def is_done(sessions, memories):
    infos = sessions.sessions()
    cursors = memories.cursors([info.id for info in infos])
    return all(
        info.id in cursors and (info.version, info.messages) == (cursors[info.id].turns, cursors[info.id].messages)
        for info in infos
    )  # fmt: skip


def main():
    job = json.load(sys.stdin)
    dice = random.Random(job["seed"])
    sessions, memories = stores_at(job["where"])
    numbers = iter(range(1_000_000))
    for _ in range(job["turns"]):
        change(sessions, job, next(numbers), dice)
    children = [start(job) for _ in range(job["workers"])]
    for _ in range(job["kills"]):
        time.sleep(dice.uniform(0, 0.06))
        change(sessions, job, next(numbers), dice)
        kill(children.pop(dice.randrange(len(children))))
        children.append(start(job))
    end = time.monotonic() + 60
    while not is_done(sessions, memories) and time.monotonic() < end:
        time.sleep(0.02)
    for child in children:
        kill(child)
    with redis.Redis.from_url(job["redis"]) as client:
        asked, distinct = int(client.get(CALLS) or 0), client.scard(PROMPTS)
    is_all_read = is_done(sessions, memories)
    json.dump({"is_done": is_all_read, "asked": asked, "distinct": distinct}, sys.stdout)


if __name__ == "__main__":
    main()
