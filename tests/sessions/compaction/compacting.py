"""Runs with a compacted history, and what is observed of them; and histories for property tests."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import anyio
from hypothesis import strategies as st

from treadle import Loop, Response, Usage, default_stages, stage, tool
from treadle.events import CallNotRun, CompactionFailed, HistoryCompacted
from treadle.messages.decode import to_response
from treadle.sessions import compact_history
from treadle.sessions.compaction.view import HEADING
from treadle.testing import ScriptedLLM, call, check_history
from treadle.tools import NotRun

USER = [{"role": "user", "content": "Look everywhere."}]
SYSTEM = ("system", "developer")


def notes(messages: list[dict[str, Any]]) -> str:
    """A summariser that is short."""
    assert messages
    return "NOTES"


def look(ran: list[str], size: int = 400, **options: Any) -> Any:
    """A tool whose results have so many characters; it records its calls."""

    @tool(**{"read_only": True, **options})
    def look(place: str) -> str:
        """Look somewhere."""
        ran.append(place)
        return f"{place}: {'x' * size}"

    return look


def looks(*places: str, text: str | None = None) -> dict[str, Any]:
    """A response that looks in all places at once; the ids of the calls are the same in each process."""
    made = [call("look", place, place=place) for place in places]
    return {"role": "assistant", "content": text, "tool_calls": made}


def counted(message: Any, usage: Usage | None) -> Response:
    """A response whose provider has counted tokens; None if it did not."""
    return dataclasses.replace(to_response(message), usage=usage)


@dataclasses.dataclass
class Observed:
    """What was observed of a run.

    Args:
        result: what it returned.
        events: its events.
        requests: the messages of each request, as the model received them.
        views: the messages of each request, before they were copied for the model.
        records: the history at each of these requests.
    """

    result: Any = None
    events: list[Any] = dataclasses.field(default_factory=list)
    requests: list[list[dict[str, Any]]] = dataclasses.field(default_factory=list)
    views: list[list[dict[str, Any]]] = dataclasses.field(default_factory=list)
    records: list[list[dict[str, Any]]] = dataclasses.field(default_factory=list)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def compacted(self) -> list[int]:
        """The numbers of the iterations whose requests were compacted."""
        return [event.iteration for event in self.of(HistoryCompacted)]

    @property
    def failed(self) -> list[str]:
        """Why compactions failed."""
        return [event.problem for event in self.of(CompactionFailed)]

    @property
    def recalled(self) -> list[str]:
        """The ids of the calls that were answered from the store."""
        return [event.call.id for event in self.of(CallNotRun) if event.reason is NotRun.RECALLED]

    @property
    def answers(self) -> list[str]:
        """The texts of the tool messages of the record."""
        return [one["content"] for one in self.result.messages if one["role"] == "tool"]


def compacting(
    observed: Observed, summarize: Any = notes, *, stages: Any = None, **options: Any
) -> list[Any]:
    """The stages of a loop whose history is compacted, and that is observed."""

    @stage
    def observe(ctx: Any) -> Any:
        observed.views.append(list(ctx.request.messages))
        observed.records.append(list(ctx.messages))
        return ctx

    return [compact_history(summarize, **options), observe, *(stages or default_stages())]


def run(
    *script: Any,
    summarize: Any = notes,
    given: Any = USER,
    driver: str = "sync",
    compaction: Any = None,
    **options: Any,
) -> Observed:
    """Run a script, or a model, with a compacted history.

    Args:
        *script: the answers of the model; or one callable, which is the model.
        summarize: writes the summaries.
        given: the messages.
        driver: ``sync``, ``asyncio`` or ``trio``.
        compaction: the options of `compact_history`.
        **options: of the loop.
    """
    observed = Observed()
    model = script[0] if len(script) == 1 and callable(script[0]) else ScriptedLLM(*script)

    def asked(messages: list[dict[str, Any]], **opts: Any) -> Any:
        observed.requests.append(messages)
        return model(messages, **opts) if isinstance(model, ScriptedLLM) else model(messages)

    options = {
        "max_iterations": 100,
        "on_event": observed.events.append,
        "stages": compacting(observed, summarize, **(compaction or {})),
        **options,
    }
    if driver == "sync":
        observed.result = Loop.run_sync(given, asked, **options)
    else:
        observed.result = anyio.run(lambda: Loop.run(given, asked, **options), backend=driver)
    check_history(observed.result.messages)
    for request in observed.requests:
        check_history(request)
    return observed


def blocks(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The summaries among some messages."""
    return [one for one in messages if one["role"] == "user" and text(one).startswith(HEADING)]


def text(message: dict[str, Any]) -> str:
    """The text of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


# Histories

PARTS = [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"file_id": "file-1"}},
    {"type": "input_image", "image_url": "https://example.com/b.png"},
    {"type": "input_file", "file_id": "file-2"},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/c.png"}},
    {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        "cache_control": {"type": "ephemeral"},
    },
    {"type": "inline", "inline_data": {"mime_type": "image/png", "data": "AAAA"}},
    {"type": "file", "fileData": {"fileUri": "gs://a/b", "mimeType": "text/plain"}},
]
"""Attachments in the forms of OpenAI, Anthropic and Gemini."""

words = st.sampled_from(["a", "b c", "long " * 60, "[Previous conversation summary] or so"])
attached = st.lists(st.sampled_from(PARTS), max_size=2)


def with_parts(text: str, parts: list[dict[str, Any]]) -> Any:
    """The content of a message."""
    return [{"type": "text", "text": text}, *parts] if parts else text


contents = st.builds(with_parts, words, attached)
users = st.lists(contents, min_size=1, max_size=2).map(
    lambda made: [{"role": "user", "content": content} for content in made]
)
systems = st.builds(
    lambda role, content: [{"role": role, "content": content}], st.sampled_from(SYSTEM), words
)
answers = contents.map(lambda content: [{"role": "assistant", "content": content}])
arguments = st.sampled_from(['{"place": "a"}', '{"place":"a"}', '{"place": "b"}', "{}"])
functions = st.builds(
    lambda name, given: {"type": "function", "function": {"name": name, "arguments": given}},
    st.sampled_from(["look", "gone", "look"]),
    arguments,
)
customs = st.just({"type": "custom", "custom": {"name": "grep", "input": "x"}})


@st.composite
def exchanges(draw: Any) -> list[dict[str, Any]]:
    """Parallel calls and their results."""
    made = draw(st.lists(functions | functions | customs, min_size=1, max_size=4))
    told = draw(st.none() | words)
    results = [{"role": "tool", "content": draw(contents)} for _ in made]
    return [{"role": "assistant", "content": told, "tool_calls": made}, *results]


@st.composite
def histories(draw: Any, max_size: int = 12) -> list[dict[str, Any]]:
    """Valid histories: parallel calls, several user messages in a row, system messages anywhere, attachments."""
    groups = draw(
        st.lists(st.one_of(users, exchanges(), exchanges(), answers, systems), max_size=max_size)
    )
    history: list[dict[str, Any]] = draw(users)
    numbers = itertools.count(1)
    for group in groups:
        if group[0]["role"] == "assistant" and history[-1]["role"] == "assistant":
            history.append({"role": "user", "content": "Go on."})
        made = [dict(one) for one in group]
        if made[0].get("tool_calls"):
            asked = [{"id": f"c{next(numbers)}", **one} for one in made[0]["tool_calls"]]
            made[0]["tool_calls"] = asked
            for result, one in zip(made[1:], asked, strict=True):
                result["tool_call_id"] = one["id"]
        history += made
    return history
