"""Any sequence of runs, edits, pauses and forks leaves the messages that a plain list would have."""

import itertools
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sessions.conversing import (
    answer,
    compacted,
    ended,
    exchange,
    summary,
    system,
    user,
    with_image,
)

from treadle.sessions import import_session
from treadle.sessions.compaction.view import is_summary
from treadle.testing import check_history

NUMBERS = itertools.count()
"""So that each example has sessions, and each message a text, that no other has."""


@dataclass
class Plain:
    """What a session should be: all messages, and how many of them are summarized."""

    messages: list = field(default_factory=list)
    images: list = field(default_factory=list)
    summaries: list = field(default_factory=lambda: [(0, [])])
    """How many messages are not shown, and what is shown instead: system messages, and the summary at the end, if
    there is one. Each turn that changes this adds one, which is valid as long as what it hides is unchanged."""

    @property
    def through(self):
        return self.summaries[-1][0]

    @property
    def pinned(self):
        return self.summaries[-1][1]

    @property
    def has_summary(self):
        return self.pinned[-1:] != [] and self.pinned[-1]["role"] == "user"

    @property
    def seen(self):
        return self.pinned + self.messages[self.through :]

    def copy(self):
        return Plain([*self.messages], [*self.images], [*self.summaries])


def new_messages(kinds):
    """A question, and what follows: valid wherever a turn may start."""
    number = next(NUMBERS)
    made = [with_image(f"{number}") if "image" in kinds else user(f"{number}")]
    for place, kind in enumerate(kinds):
        if kind == "call":
            made += exchange(f"{number}-{place}", f"result {number}")
        if kind == "system" and place == 0:
            made.insert(0, system(f"{number}"))
    return [*made, answer(f"{number}")]


def save(session, plain, history, **changes):
    loaded = session.load()
    assert loaded["messages"] == plain.seen
    assert (loaded["through"], loaded["pinned"]) == (plain.through, len(plain.pinned))
    memo = changes.pop("memo", loaded["memo"])
    session.save(loaded, ended(history, memo, **changes))


def append(session, plain, kinds):
    added = new_messages(kinds)
    save(session, plain, plain.seen + added)
    keep(plain, plain.messages + added)


def keep(plain, messages):
    """The session has other messages now."""
    known = {part["image_url"]["url"] for part in plain.images}
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url" and part["image_url"]["url"] not in known:
                plain.images.append(part)
    plain.messages = messages


def pause_and_continue(session, plain, kinds):
    """A run pauses; if it has an image, it was compacted before that, down to the question."""
    question, result = new_messages(kinds)[:-1], f"{next(NUMBERS)}"
    waiting = plain.seen + question + exchange(result, "No result yet")
    changes = (
        {"memo": compacted(len(plain.seen), result)} if "image" in kinds and plain.seen else {}
    )
    save(session, plain, waiting, status="paused", pause={"pause_id": result}, **changes)
    through, before = len(plain.messages), systems(plain.seen)
    keep(plain, plain.messages + question + exchange(result, "No result yet"))
    assert session.pause() == {"pause_id": result}
    history = [*plain.seen[:-2], *exchange(result, result), answer(result)]
    save(session, plain, history, **changes)
    keep(plain, [*plain.messages[:-2], *exchange(result, result), answer(result)])
    if changes:
        plain.summaries.append((through, [*before, summary(result)]))


def rewrite(session, plain, kinds):
    """A run replaces the latest turn, as far as it sees it."""
    visible = plain.messages[plain.through :]
    users = [place for place, one in enumerate(visible) if one["role"] == "user"]
    if not users:
        return
    added = new_messages(kinds)
    first = plain.through + users[-1]
    save(session, plain, plain.pinned + plain.messages[plain.through : first] + added)
    keep(plain, plain.messages[:first] + added)


def compact(session, plain, kinds):
    """A run summarizes what it sees, up to its latest user message or less."""
    seen = plain.seen
    splits = [place for place, one in enumerate(seen) if one["role"] == "user"]
    added = new_messages(kinds)
    covered = max(splits[len(splits) // 2 :][:1] or [0])
    covered = max(covered, len(plain.pinned), 1)
    text = f"{next(NUMBERS)}"
    save(session, plain, seen + added, memo=compacted(covered, text))
    through = plain.through + covered - len(plain.pinned)
    keep(plain, plain.messages + added)
    plain.summaries.append((through, [*systems(seen[:covered]), summary(text)]))


def edit_summary(session, plain, kinds):
    """A stage changes the text of the summary, or removes it; the loop has no compaction."""
    if not plain.has_summary:
        compact(session, plain, kinds)
    added, left = new_messages(kinds), systems(plain.pinned)
    if "call" not in kinds:
        left.append(summary(f"{next(NUMBERS)}"))
    save(session, plain, left + plain.messages[plain.through :] + added)
    plain.summaries.append((plain.through, left))
    keep(plain, plain.messages + added)


def edit_system_messages(session, plain, kinds):
    """A stage puts another system message before the others; what is seen from it on is stored again."""
    if not plain.has_summary:
        compact(session, plain, kinds)
    left = [system(f"{next(NUMBERS)}"), *plain.pinned]
    visible = plain.messages[plain.through :] + new_messages(kinds)
    save(session, plain, left + visible)
    keep(plain, plain.messages[: plain.through] + systems(left) + visible)
    plain.summaries.append((plain.through + len(systems(left)), left))


def systems(messages):
    return [one for one in messages if one["role"] == "system"]


def truncate(session, plain, kinds):
    splits = [place for place, one in enumerate(plain.messages) if one["role"] != "tool"]
    if not splits:
        return
    remaining = splits[len(kinds) * len(splits) // 4 % len(splits)]
    session.truncate(remaining)
    plain.messages = plain.messages[:remaining]
    # A summary that covers removed messages is never used again.
    plain.summaries = [one for one in plain.summaries if one[0] <= remaining]


ACTIONS = [
    append,
    append,
    pause_and_continue,
    rewrite,
    compact,
    compact,
    edit_summary,
    edit_system_messages,
    truncate,
]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*ACTIONS, "fork"]),
        st.lists(st.sampled_from(["call", "image", "system", "text"]), max_size=4),
    ),
    min_size=1,
    max_size=8,
)


def is_as_expected(session, plain):
    assert session.messages() == plain.messages
    assert not any(map(is_summary, session.messages()))
    if session.exists:
        loaded = session.load()
        assert loaded["messages"] == plain.seen
        for history in filter(None, (session.messages(), loaded["messages"])):
            check_history(history)
        assert session.info().messages == len(plain.messages)
        assert session.attachments() == plain.images
    return True


@given(steps=STEPS)
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_session_has_the_messages_of_a_plain_list(store, steps):
    session, plain = store.session(f"s{next(NUMBERS)}"), Plain()
    others = []
    for step, kinds in steps:
        if step == "fork":
            if session.exists:
                others.append((session, plain.copy()))
                session = session.fork(f"s{next(NUMBERS)}")
        else:
            step(session, plain, kinds)
    others.append((session, plain))
    assert all(is_as_expected(one, model) for one, model in others)
    if session.exists:
        copy = import_session(store, [*session.export()], f"s{next(NUMBERS)}")
        assert is_as_expected(copy, plain)
        assert copy.turns() == session.turns()
        assert copy.load() == session.load()
