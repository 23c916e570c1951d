"""The parts of the tests of memory: the stores, and a model that extracts by a rule."""

import json
import re
import threading

import pytest

from treadle.sessions import RedisSessions, SQLiteSessions, StoredTurn
from treadle.sessions.memory import RedisMemories, SQLiteMemories
from treadle.testing import call, calls


def sqlite_memories(_request, folder):
    return SQLiteMemories(folder / "memories.sqlite")


def redis_memories(request, _folder):
    return RedisMemories(request.getfixturevalue("redis_url"))


def sqlite_sessions(_request, folder):
    return SQLiteSessions(folder / "sessions.sqlite")


def redis_sessions(request, _folder):
    return RedisSessions(request.getfixturevalue("redis_url"))


MEMORIES = [
    pytest.param(sqlite_memories, id="sqlite"),
    pytest.param(redis_memories, id="redis"),
]
SESSIONS = [
    pytest.param(sqlite_sessions, id="sqlite"),
    pytest.param(redis_sessions, id="redis"),
]


def said_in(prompt):
    """What the messages of a prompt of the worker say, each with its index and its role."""
    _, _, transcript = prompt.partition("\n\n")
    lines = re.findall(r"^\[(\d+)\] (\w+): (.*)$", transcript, flags=re.MULTILINE)
    return [(int(index), role, json.loads(text)) for index, role, text in lines]


def facts_in(prompt):
    """One fact for each user message: its text."""
    return [text for _, role, text in said_in(prompt) if role == "user"]


def known_in(prompt):
    """The known facts that a prompt shows."""
    head, _, _ = prompt.partition("\n\n")
    return [line.removeprefix("- ") for line in head.splitlines() if line.startswith("- ")]


class RuleModel:
    """A model that states a fact for each user message: its text.

    Attributes:
        prompts: what it was asked.
    """

    def __init__(self):
        self.prompts = []
        self.lock = threading.Lock()

    def __call__(self, messages, **_opts):
        prompt = messages[-1]["content"]
        with self.lock:
            self.prompts.append(prompt)
        return calls(call("final_answer", value=facts_in(prompt)))

    @property
    def read(self):
        """The user messages that it was shown, in order, with their repetitions."""
        return [text for prompt in self.prompts for text in facts_in(prompt)]


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def add_turn(store, session_id, *texts, start=None, status="ok", **fields):
    """Store a turn: user messages, each with an answer."""
    info = store.info(session_id)
    version, end = (0, 0) if info is None else (info.version, info.messages)
    messages = [one for text in texts for one in (user(text), assistant(f"Noted: {text}"))]
    turn = StoredTurn(end if start is None else start, messages, status, **fields)
    store.append(session_id, version, [turn], {})


def texts_of(memories, scope):
    """The texts of the facts of a scope, sorted."""
    return sorted(fact.text for fact in memories.facts(scope))


def user_texts(store, session_id):
    """The user messages of a session, sorted: what a worker with a `RuleModel` has to learn."""
    messages = store.session(session_id).messages()
    return sorted(one["content"] for one in messages if one["role"] == "user")
