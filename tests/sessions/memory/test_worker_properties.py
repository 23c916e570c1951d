"""Whatever happens to sessions, the facts are those of their messages: against a model of a few lines."""

import itertools
import shutil
import tempfile
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sessions.memory.parts import RuleModel, add_turn, assistant, known_in, user

from treadle.sessions import RedisSessions, SQLiteSessions, StoredTurn
from treadle.sessions.memory import MemoryWorker, RedisMemories, SQLiteMemories
from treadle.sessions.memory.transcript import pieces_of

IDS = ("ann/1", "ann/2", "bob/1")
TEXTS = st.sampled_from(["Tea.", "tea", "Oslo.", "Python is the language of the project."])
SAID = st.lists(TEXTS, max_size=3)
CHANGES = st.one_of(
    st.tuples(st.just("turn"), st.sampled_from(IDS), SAID),
    st.tuples(st.just("edit"), st.sampled_from(IDS), SAID, st.integers(0, 20)),
    st.tuples(st.just("compact"), st.sampled_from(IDS)),
    st.tuples(st.just("replace"), st.sampled_from(IDS), SAID),
    st.tuples(st.just("forget"), st.sampled_from(IDS)),
    st.tuples(st.just("fork"), st.sampled_from(IDS), st.sampled_from(IDS)),
)
WORK = st.tuples(
    st.just("work"),
    st.integers(5, 60),  # tokens in a piece
    st.none() | st.integers(0, 3),  # the number of pieces after which the model fails
    st.none() | st.lists(CHANGES, max_size=2),  # what happens while the model is asked first
)


class Breaking(RuleModel):
    """Fails after some requests, and calls a function at the first one."""

    def __init__(self, most, first):
        super().__init__()
        self.most, self.first = most, first

    def __call__(self, messages, **opts):
        first, self.first = self.first, None
        if first is not None:
            first()
        if self.most is not None and len(self.prompts) >= self.most:
            raise ValueError("down")
        return super().__call__(messages, **opts)


def apply(sessions, memories, change):
    kind, session_id, *args = change
    info = sessions.info(session_id)
    if kind == "turn":
        add_turn(sessions, session_id, *args[0])
    elif kind == "edit" and info is not None:
        add_turn(sessions, session_id, *args[0], start=min(args[1], info.messages))
    elif kind == "compact" and info is not None:
        add_turn(sessions, session_id, view={"through": info.messages, "pinned": [], "memo": {}})
    elif kind == "replace":
        sessions.delete(session_id)
        add_turn(sessions, session_id, *args[0])
    elif kind == "forget":
        sessions.delete(session_id)
        memories.forget_session(session_id)
    elif kind == "fork" and info is not None and sessions.info(args[0]) is None:
        sessions.session(session_id).fork(args[0])


def work(sessions, memories, max_tokens=1_000, most=None, changes=()):
    def first():
        for change in changes or ():
            apply(sessions, memories, change)

    model = Breaking(most, first)
    MemoryWorker(
        sessions, memories, model, scope_of=lambda one: one[:3], max_tokens=max_tokens
    ).run_once_sync()
    return model


def normal(text):
    return text.casefold().rstrip(".")


def check(sessions, memories):
    """The facts of each user are the user messages of the sessions, each with one source for each piece."""
    expected = {"ann": Counter(), "bob": Counter()}
    for session_id in IDS:
        for message in sessions.session(session_id).messages():
            if message["role"] == "user":
                expected[session_id[:3]][normal(message["content"])] += 1
    for scope, texts in expected.items():
        facts = memories.facts(scope)
        assert sorted(normal(fact.text) for fact in facts) == sorted(texts)
        for fact in facts:
            assert 1 <= len(fact.sources) <= texts[normal(fact.text)]
            for source in fact.sources:
                said = sessions.session(source.session_id).messages(source.start, source.stop)
                assert normal(fact.text) in [normal(one["content"]) for one in said]
    for session_id in IDS:
        spans = [(one.start, one.stop) for one in memories.sources(session_id)]
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def run(sessions, memories, steps):
    for step in steps:
        if step[0] == "work":
            work(sessions, memories, *step[1:])
        else:
            apply(sessions, memories, step)
    model = work(sessions, memories)
    check(sessions, memories)
    assert all(len(known_in(prompt)) <= 4 for prompt in model.prompts)
    assert work(sessions, memories).prompts == []


@settings(max_examples=150, deadline=None)
@given(st.lists(CHANGES | WORK, max_size=12))
def test_the_facts_are_those_of_the_messages_in_sqlite(steps):
    folder = tempfile.mkdtemp()
    try:
        run(SQLiteSessions(f"{folder}/s"), SQLiteMemories(f"{folder}/m"), steps)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def redis_names(redis_url):
    """A function that returns a new prefix in Redis each time: examples share the server."""
    prefixes = iter(range(1_000_000))
    return redis_url, lambda: f"p{next(prefixes)}"


def test_the_facts_are_those_of_the_messages_in_redis(redis_names):
    url, prefix = redis_names

    @settings(max_examples=150, deadline=None)
    @given(st.lists(CHANGES | WORK, max_size=12))
    def runs(steps):
        name = prefix()
        run(RedisSessions(url, prefix=name), RedisMemories(url, prefix=name), steps)

    runs()


MESSAGES = st.lists(
    st.one_of(
        st.text(max_size=60).map(user),
        st.text(max_size=300).map(assistant),
        st.text(max_size=20).map(lambda text: {"role": "system", "content": text}),
        st.just({"role": "assistant", "content": None}),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(MESSAGES, st.integers(1, 60), st.integers(0, 5))
def test_pieces_have_all_messages_in_order_and_fit(messages, max_tokens, start):
    pieces = list(pieces_of(messages, start, max_tokens))
    spans = [(piece.start, piece.stop) for piece in pieces]
    assert [first for first, _ in spans] == [start, *(stop for _, stop in spans)][: len(spans)]
    assert all(first < stop for first, stop in spans)
    assert (spans[-1][1] if spans else start) == start + len(messages)
    said = "".join(one["content"] or "" for one in messages if one["role"] != "system")
    assert "".join(said_by(piece) for piece in pieces) == said


def said_by(piece):
    import json
    import re

    lines = [line for text in piece.texts for line in text.split("\n")]
    return "".join(json.loads(re.sub(r"^\[\d+\] \w+: ", "", line)) for line in lines)


def test_a_turn_whose_messages_are_all_of_the_program_ends_the_cursor(tmp_path):
    sessions = SQLiteSessions(tmp_path / "s")
    sessions.append("ann/1", 0, [StoredTurn(0, [{"role": "system", "content": "Hi"}])], {})
    memories = SQLiteMemories(tmp_path / "m")
    assert work(sessions, memories).prompts == []
    assert memories.cursors(["ann/1"])["ann/1"].messages == 1
