"""Compaction over the turns of a stored session: each turn is a run that begins with the view of the last one."""

import itertools

import pytest

from treadle import Loop, Usage, default_stages
from treadle.events import HistoryCompacted
from treadle.sessions import SQLiteSessions, StubResults, compact_history
from treadle.sessions.attachments import attachments_of, digest_of
from treadle.testing import check_history

from .compacting import blocks, counted, look, looks, text

IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


class Conversation:
    """A stored session whose model looks somewhere once in each turn, and what it was sent.

    Args:
        folder: where it is stored.
        summarize: writes the summaries.
        size: the length of a result.
        **options: of `compact_history`.
    """

    def __init__(self, folder, summarize=lambda _: "NOTES", size=400, **options):
        self.session = SQLiteSessions(folder / "sessions.db").session("s")
        self.requests, self.events, self.ran = [], [], []
        self.loop = Loop(
            tools=[look(self.ran, size)],
            stages=[compact_history(summarize, **options), *default_stages()],
            on_event=self.events.append,
        )
        self._numbers = itertools.count()

    def model(self, messages):
        self.requests.append(messages)
        check_history(messages)
        if messages[-1]["role"] == "tool":
            return "I looked."
        return looks(f"p{next(self._numbers)}")

    def say(self, *contents):
        for content in contents:
            given = [{"role": "user", "content": content}]
            self.loop.run_sync(given, self.model, session=self.session).unwrap()
        return self

    @property
    def compactions(self):
        return sum(isinstance(event, HistoryCompacted) for event in self.events)


@pytest.mark.parametrize(
    "options",
    [{}, {"strategies": [StubResults(300)]}, {"keep_recent": 2}],
    ids=["summaries", "strategies", "two recent messages"],
)
def test_a_request_begins_with_the_last_one_from_turn_to_turn(tmp_path, options):
    talk = Conversation(tmp_path, max_tokens=1_000, max_tokens_with_documents=3_000, **options)
    talk.say([{"type": "text", "text": "Look."}, IMAGE], *["Look again."] * 30)
    changed = sum(
        after[: len(before)] != before for before, after in itertools.pairwise(talk.requests)
    )
    assert 2 <= changed <= talk.compactions
    assert max(map(len, talk.requests)) < 100
    assert len(talk.session.messages()) == 31 * 4


def test_the_summary_of_a_turn_is_part_of_the_next_one(tmp_path):
    asked = []

    def summarize(messages):
        asked.append(messages[-1]["content"])
        return f"NOTES {len(asked)}"

    talk = Conversation(tmp_path, summarize, max_tokens=600).say(*(f"Turn {n}." for n in range(12)))
    assert len(asked) >= 3
    assert [f"<notes>\nNOTES {n}\n</notes>" in one for n, one in enumerate(asked)][1:] == [True] * (
        len(asked) - 1
    )
    # Each turn is summarised once.
    assert all(sum(f"Turn {n}." in one for one in asked) == 1 for n in range(8))
    [block] = blocks(talk.requests[-1])
    assert text(block).startswith(f"[Previous conversation summary]\nNOTES {len(asked)}\n")
    assert 'look({"place": "p0"})' in text(block)


def test_an_attachment_of_the_first_turn_is_in_every_request(tmp_path):
    talk = Conversation(tmp_path, max_tokens=600, max_tokens_with_documents=1_600)
    talk.say([{"type": "text", "text": "Look."}, IMAGE], *["Look again."] * 12)
    assert talk.compactions >= 2
    for request in talk.requests:
        assert [digest_of(p) for one in request for p in attachments_of(one)] == [digest_of(IMAGE)]


def test_a_document_of_an_earlier_turn_is_one(tmp_path):
    """It is in no new message, and in no summary."""
    talk = Conversation(tmp_path, max_tokens=300, max_tokens_with_documents=50_000)
    talk.say([{"type": "text", "text": "Look."}, IMAGE], *["Look again."] * 8)
    assert talk.compactions == 0


def test_the_count_of_the_last_turn_counts(tmp_path):
    """The provider's count is stored with the turn: the estimate would be far below the threshold."""
    talk = Conversation(tmp_path, max_tokens=5_000)

    def model(messages):
        made = talk.model(messages)
        if isinstance(made, str):
            made = {"role": "assistant", "content": made}
        return counted(made, Usage(5_500 if len(talk.requests) == 6 else 100, 5))

    for number in range(4):
        talk.loop.run_sync(f"Turn {number}.", model, session=talk.session).unwrap()
    assert talk.compactions == 1
    assert blocks(talk.requests[6])


def test_a_call_of_an_earlier_turn_runs_again(tmp_path):
    """The store of results is one of the run; the user may know that something has changed."""
    talk = Conversation(tmp_path, max_tokens=600).say(*["Look."] * 8)
    talk._numbers = itertools.count()
    talk.say("Look again.")
    assert talk.ran.count("p0") == 2


def test_a_truncated_session_is_compacted_anew(tmp_path):
    talk = Conversation(tmp_path, max_tokens=600).say(*(f"Turn {n}." for n in range(12)))
    before = talk.compactions
    talk.session.truncate(8)
    talk.say("Another.")
    request = next(one for one in talk.requests if text(one[-1]) == "Another.")
    check_history(request)
    assert blocks(request) or any("Turn 0." in text(one) for one in request)
    assert not any("Turn 2." in text(one) for one in request)
    talk.say(*["More."] * 6)
    assert talk.compactions > before
    assert len(talk.session.messages()) == 8 + 7 * 4
