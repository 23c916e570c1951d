"""Several workers in several processes: they share the work, and killing them loses and doubles nothing."""

import json
import os
import sys
from pathlib import Path

import pytest
from tests.programs import run_program
from tests.sessions.memory.kill_workers import MAX_TOKENS, stores_at
from tests.sessions.memory.parts import RuleModel, user_texts

from treadle.sessions.memory import MemoryWorker
from treadle.sessions.memory.transcript import pieces_of

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(params=["redis", "sqlite"])
def where(request, tmp_path, redis_url):
    return redis_url if request.param == "redis" else str(tmp_path)


def run(where, redis_url, **job):
    """Run workers until all is read; return how often the model was asked, and with how many different pieces."""
    defaults = {"seed": 7, "sessions": 8, "turns": 40, "workers": 2, "kills": 0, "edits": 0.0}
    done = run_program(
        [sys.executable, "-m", "tests.sessions.memory.kill_workers"],
        input=json.dumps({**defaults, "where": where, "redis": redis_url, **job}),
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["is_done"], done.stderr
    return outcome["asked"], outcome["distinct"]


def check_facts(sessions, memories):
    """Each user message is one fact of its user, with one source, whose messages have it."""
    expected = {}
    for info in sessions.sessions():
        scope = info.id.split("/")[0]
        expected.setdefault(scope, []).extend(user_texts(sessions, info.id))
        known = memories.sources(info.id)
        stops = [0, *(one.stop for one in known)]
        # Pieces do not overlap; between two may be answers of the model, of which it makes no fact.
        assert all(one.start >= stop for one, stop in zip(known, stops, strict=False))
    for scope, texts in expected.items():
        facts = memories.facts(scope)
        assert sorted(fact.text for fact in facts) == sorted(texts)
        for fact in facts:
            [source] = fact.sources
            session = sessions.session(source.session_id)
            said = session.messages(source.start, source.stop)
            assert fact.text in [one["content"] for one in said]


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share_the_work_and_no_message_is_read_twice(where, redis_url, workers):
    asked, distinct = run(where, redis_url, sessions=20, turns=120, workers=workers)
    sessions, memories = stores_at(where)
    check_facts(sessions, memories)
    messages = [sessions.session(info.id).messages() for info in sessions.sessions()]
    pieces = sum(len([*pieces_of(one, 0, MAX_TOKENS)]) for one in messages)
    assert asked == distinct == pieces > 100


@pytest.mark.parametrize("seed", [1, 2])
def test_killing_workers_loses_and_doubles_nothing(where, redis_url, seed):
    """A killed worker wastes at most the request that it was waiting for."""
    kills = 40
    asked, distinct = run(
        where, redis_url, workers=3, kills=kills, seed=seed, sessions=12, turns=60
    )
    check_facts(*stores_at(where))
    assert 100 < distinct <= asked <= distinct + kills


def test_edits_while_workers_are_killed_lose_and_double_nothing(where, redis_url):
    run(where, redis_url, workers=3, kills=30, edits=0.3, sessions=6, turns=40)
    sessions, memories = stores_at(where)
    check_facts(sessions, memories)
    worker = MemoryWorker(sessions, memories, RuleModel())
    assert worker.run_once_sync().sessions == 0
