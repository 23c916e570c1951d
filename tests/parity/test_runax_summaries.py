"""Parity with RunaxAI: the rolling summary of a long conversation."""

import inspect

import pytest

from treadle import OptionError, Response, Usage, default_stages, tool
from treadle.events import CompactionFailed, HistoryCompacted
from treadle.messages.decode import to_response
from treadle.sessions import compact_history
from treadle.sessions.attachments import attachments_of, digest_of
from treadle.testing import ScriptedLLM, check_history

from .places import looks

HEADING = "[Previous conversation summary]"
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
LONG = "x" * 2_000


def counted(message, tokens):
    """A response of a provider that has counted its prompt; it counts nothing of the response."""
    made = to_response(message)
    return Response(made.content, made.tool_calls, usage=Usage(tokens))


class Summarizer:
    """The cheaper model: it answers by a script, whose last entry is repeated."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []

    def __call__(self, messages):
        self.asked.append(messages[-1]["content"])
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@tool(read_only=True)
def look(place: str) -> str:
    """Look somewhere."""
    return f"{place}: {'long ' * 100}"


@pytest.fixture
def summarized(run):
    """Runs a loop that summarises; returns its result, what the model was sent, and its events."""

    def summarized(*script, summarize, messages="Go.", options=None, **more):
        model, events = ScriptedLLM(*script), []
        stages = [compact_history(summarize, **(options or {})), *default_stages()]
        result = run(
            messages,
            model,
            stages=stages,
            tools=[look],
            on_event=events.append,
            max_iterations=30,
            **more,
        )
        sent = [one.messages for one in model.sent]
        for request in sent:
            check_history(request)
        return result, sent, events

    return summarized


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


def text(message):
    content = message["content"] or ""
    return content if isinstance(content, str) else content[0]["text"]


def prompts(*tokens):
    """Responses with one call each, whose prompts have so many tokens, and an answer."""
    made = [counted(looks(f"p{place}"), count) for place, count in enumerate(tokens)]
    return [*made, "Done."]


def talk(size, first="Hello."):
    """A conversation of so many messages, which ends with the user's."""
    given = [{"role": "user", "content": first}]
    for number in range((size - 1) // 2):
        given += [
            {"role": "assistant", "content": f"Answer {number}."},
            {"role": "user", "content": f"Question {number}."},
        ]
    return given


# Thresholds


def test_the_thresholds_are_those_of_runax():
    """40,000 tokens of the prompt; with documents 60,000; the 4 most recent messages stay.

    In RunaxAI, its project mode has the second threshold, and one of 18 messages. Here the second one holds if the
    conversation has documents, and the number of messages is an option.
    """
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(compact_history).parameters.items()
    }
    wanted = {"max_tokens": 40_000, "max_tokens_with_documents": 60_000, "keep_recent": 4}
    assert {name: defaults[name] for name in wanted} == wanted


@pytest.mark.parametrize(("tokens", "is_summarized"), [(38_000, False), (40_001, True)])
def test_it_is_summarised_strictly_above_40_000_tokens(summarized, tokens, is_summarized):
    """The provider's count of the last prompt counts.

    RunaxAI takes that count alone. Here the response, and an estimate of what came since, are added to it.
    """
    given = talk(9, first="x" * 40_000)
    script = prompts(tokens)
    result, _, events = summarized(*script, summarize=Summarizer("S"), messages=given)
    assert result.stop_reason == "answered"
    assert [event.iteration for event in of(events, HistoryCompacted)] == [2] * is_summarized


@pytest.mark.parametrize(("tokens", "is_summarized"), [(58_000, False), (60_001, True)])
def test_with_documents_above_60_000_tokens(summarized, tokens, is_summarized):
    """A document is a file, an image or a sound in any message that the model sees."""
    content = [{"type": "text", "text": "x" * 40_000}, IMAGE]
    given = [{"role": "user", "content": content}, *talk(9)[1:]]
    _, _, events = summarized(*prompts(tokens), summarize=Summarizer("S"), messages=given)
    assert len(of(events, HistoryCompacted)) == is_summarized


@pytest.mark.parametrize(("size", "is_summarized"), [(17, False), (19, True)])
def test_above_18_messages(summarized, size, is_summarized):
    """RunaxAI's number in project mode; here an option."""
    _, [request], events = summarized(
        "Done.", summarize=Summarizer("S"), messages=talk(size), options={"max_messages": 18}
    )
    assert len(of(events, HistoryCompacted)) == is_summarized
    assert len(request) == (5 if is_summarized else size)


# What stays


def test_the_4_most_recent_messages_and_system_messages_stay(summarized):
    """As they are. (In RunaxAI the system message is built anew for each request.)"""
    given = [
        {"role": "system", "content": "Be brief."},
        *talk(9, first=LONG),
        {"role": "system", "content": "The user is Ada."},
        *talk(9, first=LONG)[1:],
    ]
    _, [request], _ = summarized(
        "Done.", summarize=Summarizer("S"), messages=given, options={"max_tokens": 100}
    )
    systems = [one for one in given if one["role"] == "system"]
    assert request[:2] == systems
    assert request[2]["content"].startswith(HEADING)
    assert request[3:] == given[-4:]


def test_the_split_never_falls_between_a_call_and_its_result(summarized):
    """More messages than the most recent 4 stay, if these would begin within an exchange."""
    batch = looks(*"abcdefgh")
    script = [looks("one"), looks("two"), looks("three"), batch, "Done."]
    _, sent, events = summarized(*script, summarize=Summarizer("S"), options={"max_tokens": 600})
    assert of(events, HistoryCompacted)
    [block, calling, *results] = sent[-1]
    assert text(block).startswith(HEADING)
    assert len(calling["tool_calls"]) == len(results) == 8


def test_one_block_with_a_rolling_summary(summarized):
    """Each summary is made of the last one and what follows; one block takes the place of all before."""
    summarize = Summarizer("First.", "Second.", "Third.")
    script = [*(looks(f"p{n}") for n in range(12)), "Done."]
    _, sent, events = summarized(*script, summarize=summarize, options={"max_tokens": 700})
    assert len(of(events, HistoryCompacted)) >= 3
    assert "<notes>\nFirst.\n</notes>" in summarize.asked[1]
    assert "<notes>\nSecond.\n</notes>" in summarize.asked[2]
    blocks = [one for one in sent[-1] if text(one).startswith(HEADING)]
    assert [text(one).splitlines()[1] for one in blocks] == ["Third."]


def test_a_cheaper_model_writes_it(summarized):
    """Any model. (RunaxAI routes by role; here `Roles` may name it.) Its tokens count as those of the run."""

    def cheap(messages):
        return Response("S", usage=Usage(70, 7))

    result, _, _ = summarized(
        *prompts(10, 20, 30), summarize=cheap, options={"max_tokens": 100}, messages=talk(9, LONG)
    )
    assert result.usage.input_tokens > 10 + 20 + 30 + 70
    assert (result.usage.input_tokens - 60) % 70 == 0


def test_attachments_are_kept_once(summarized):
    """Those of the summarised messages come with the summary, deduplicated, in the form that they had.

    RunaxAI keeps its own references to stored files; here it is the content parts of OpenAI, Anthropic and Gemini.
    """
    source = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
    parts = [
        IMAGE,
        {"type": "document", "source": source},
        {"type": "media", "inline_data": {"mime_type": "image/png", "data": "AAAA"}},
    ]
    content = [{"type": "text", "text": LONG}, *parts]
    given = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": [{"type": "text", "text": "Again."}, IMAGE]},
        *talk(7)[1:],
    ]
    options = {"max_tokens": 100, "max_tokens_with_documents": 100}
    _, [request], _ = summarized(
        "Done.", summarize=Summarizer("S"), messages=given, options=options
    )
    kept = [digest_of(part) for one in request for part in attachments_of(one)]
    assert kept == list(map(digest_of, parts))


def test_the_record_stays_whole(summarized):
    """The result has every message. (RunaxAI replaces the messages of the conversation.)"""
    given = talk(15, first=LONG)
    result, [request], _ = summarized(
        "Done.", summarize=Summarizer("S"), messages=given, options={"max_tokens": 100}
    )
    assert len(request) == 5
    assert result.messages == [*given, {"role": "assistant", "content": "Done."}]


# Failures


@pytest.mark.parametrize("answer", [ValueError("down"), "", "long " * 5_000])
def test_a_failure_of_the_summariser_changes_nothing(summarized, answer):
    """An error, nothing, or a summary that does not help: the request has the whole history."""
    given = talk(9, first=LONG)
    result, [request], events = summarized(
        "Done.", summarize=Summarizer(answer), messages=given, options={"max_tokens": 100}
    )
    assert result.stop_reason == "answered"
    assert request == given
    assert len(of(events, CompactionFailed)) == 1


def test_after_two_failures_in_a_row_none_is_tried_again(summarized):
    """In this run. A success in between resets the count."""
    summarize = Summarizer(ValueError("down"))
    script = [*(looks(f"p{n}") for n in range(8)), "Done."]
    _, _, events = summarized(*script, summarize=summarize, options={"max_tokens": 500})
    assert [event.gives_up for event in of(events, CompactionFailed)] == [False, True]
    assert len(summarize.asked) == 2


def test_a_threshold_that_makes_no_sense_is_refused():
    """RunaxAI has constants."""
    with pytest.raises(OptionError, match="max_messages: expected a whole number of at least 6"):
        compact_history(Summarizer("S"), max_messages=4)
