"""`compact_history`: keeps what the model sees of a long history below a number of tokens."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from treadle.context import Context
from treadle.effects import Emit, Steps
from treadle.errors import OptionError
from treadle.events import CompactionFailed, Event, HistoryCompacted
from treadle.fast_dataclass import light_dataclass
from treadle.loop import Loop
from treadle.messages import CHARACTERS_PER_TOKEN, JSONDict, estimate_tokens
from treadle.model import Model
from treadle.pipeline import Stage
from treadle.results import CompactionStalled
from treadle.sessions.attachments import attachments_of, distinct
from treadle.sessions.compaction.progress import Made, calls_in, hide_results
from treadle.sessions.compaction.read_result import READ_RESULT_TOOL
from treadle.sessions.compaction.strategies import READ_RESULT, Strategy, StubResults
from treadle.sessions.compaction.summary import summarized, summarizer
from treadle.sessions.compaction.view import (
    RUN,
    SYSTEM_ROLES,
    CompactionState,
    is_summary,
    mark_of,
    split_of,
    text_of_summary,
    view_of,
)

MAX_TOKENS = 40_000
MAX_TOKENS_WITH_DOCUMENTS = 60_000
KEEP_RECENT = 4
"""These three are RunaxAI's, like the 18 messages of its project mode."""
RELIEF = 0.8
"""Without a summary, a view has to become this much shorter than allowed, so that a compaction lasts for some
iterations: each one costs the provider's cache of the prompt."""
MAX_STRIKES = 2
"""How many useless summaries in a row end the attempts of a run. It is RunaxAI's number."""
MAX_STALLED = 3
"""How many compactions in a row, before each of which nothing new was learned, end a run."""
SHARE_OF_CALLS = 0.25
"""The share of the tokens that the list of calls in the summary may take."""


@light_dataclass(frozen=True)
class _Options:
    writer: Loop[Any] | None
    max_tokens: int
    max_tokens_with_documents: int
    max_messages: int | None
    keep_recent: int
    strategies: tuple[Strategy, ...]

    @property
    def has_stubs(self) -> bool:
        """Whether the model needs the tool that reads results back."""
        return any(isinstance(strategy, StubResults) for strategy in self.strategies)

    @property
    def max_calls(self) -> int:
        """The length of the list of calls, in characters."""
        return int(self.max_tokens * SHARE_OF_CALLS) * CHARACTERS_PER_TOKEN


def compact_history(
    summarize: Model | Loop[Any] | None,
    *,
    max_tokens: int = MAX_TOKENS,
    max_tokens_with_documents: int = MAX_TOKENS_WITH_DOCUMENTS,
    max_messages: int | None = None,
    keep_recent: int = KEEP_RECENT,
    strategies: Sequence[Strategy] = (),
) -> Stage[[], Steps[Context]]:
    """Make a stage, for a place before `ask_model`, that shows the model less of a long history.

    The history itself stays as it is. Once a request would have more tokens than allowed, the older messages are
    replaced in it by one message with a summary, the list of the calls that were made, and the attachments. System
    messages and the most recent messages stay as they are, and no call is separated from its results. What the
    calls returned is kept outside the history: one that is repeated because its result was removed is answered
    with that result if it still holds, and is neither a duplicate nor a loop.

    The tokens are those that the provider counted for the last request and its response, and an estimate of what
    was added since. A failed summary, or one that makes the request no shorter, changes nothing, and
    `CompactionFailed` is emitted; after two in a row, no other is tried in the run. If the history becomes too
    long again and again, and no tool returned anything new in between, the run ends with `CompactionStalled`.

    Args:
        summarize: writes the summaries: a model, such as a cheap one, as a callable or a name; or a `Loop`, with
            its
            own limits and instructions. Its usage and cost count as those of the run. None only applies the
            strategies.
        max_tokens: the history is compacted above this number of tokens.
        max_tokens_with_documents: the same, if the view has attachments: images, files or sounds.
        max_messages: the view is compacted above this number of messages as well; None sets no limit.
        keep_recent: the number of messages at the end that stay as they are.
        strategies: make the older messages shorter, in order, before a summary is tried: `StubResults`,
            `drop_superseded`, `collapse_repeats`, or custom ones.

    Raises:
        OptionError: a value that an option does not accept.
    """
    for name, value, least in (
        ("max_tokens", max_tokens, 1),
        ("max_tokens_with_documents", max_tokens_with_documents, 1),
        ("keep_recent", keep_recent, 1),
        ("max_messages", max_messages, keep_recent + 2),
    ):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_whole and value >= least):
            raise OptionError(
                f"compact_history: {name}: expected a whole number of at least {least}, got {value!r}"
            )
    for place, strategy in enumerate(strategies):
        if not callable(strategy):  # pyright: ignore[reportUnnecessaryComparison]
            raise OptionError(
                f"compact_history: strategies[{place}]: expected a callable, got {type(strategy).__name__}"
            )
    writer = None if summarize is None else summarizer(summarize, max_tokens)
    options = _Options(
        writer,
        max_tokens,
        max_tokens_with_documents,
        max_messages,
        keep_recent,
        tuple(strategies),
    )
    return Stage(
        "compact_history", functools.partial(_compacting, options), {}, requires=("messages",)
    )


def _compacting(options: _Options, ctx: Context) -> Steps[Context]:
    if "messages" in ctx.request_changes:
        raise OptionError(
            "compact_history: an earlier stage changed the messages of the request; put compact_history before it"
        )
    if options.has_stubs and READ_RESULT not in ctx.tools:
        ctx = ctx.with_tools(add=[READ_RESULT_TOOL])
    compaction = _Compaction(ctx, options)
    if compaction.is_over:
        yield from compaction.compact()
    return compaction.applied()


class _Compaction:
    """The compaction of one request.

    Args:
        ctx: the context.
        options: those of the stage.

    Attributes:
        ctx: the context; it has another decision if the run has stalled.
        state: how much of the history the model no longer sees.
        view: what it sees.
        tokens: the tokens of the request.
    """

    def __init__(self, ctx: Context, options: _Options) -> None:
        self.ctx = ctx
        self._options = options
        self.state = CompactionState.of(ctx)
        self.view = self._view(self.state)
        self._facts: dict[str, Any] = dict(ctx.memo.get(RUN) or {})
        self.tokens = _counted(ctx, self.view, self._facts)
        self._has_documents = self._facts.get("documents") or bool(self.state.attachments)
        if not self._has_documents:
            new = ctx.messages[self._facts.get("upto", self.state.covered) :]
            self._has_documents = any(map(attachments_of, new))

    def _view(self, state: CompactionState) -> list[JSONDict]:
        options = self._options
        return view_of(self.ctx.messages, state, options.strategies, options.max_calls)

    @property
    def _limit(self) -> int:
        options = self._options
        return options.max_tokens_with_documents if self._has_documents else options.max_tokens

    @property
    def is_over(self) -> bool:
        """Whether the request is too long."""
        most = self._options.max_messages
        is_long = most is not None and len(self.view) > most
        return is_long or self.tokens > self._limit

    def compact(self) -> Steps[None]:
        """Make the request shorter, if it can be."""
        history, options = self.ctx.messages, self._options
        split = split_of(history, self.state.covered, options.keep_recent)
        if split <= self.state.covered:
            return
        if self._has_stalled():
            return
        if options.strategies and split > self.state.covered + self.state.shortened:
            yield from self._shorten(split)
            if self.tokens <= self._limit * RELIEF and not self.is_over:
                return
        if options.writer is not None and self._facts.get("strikes", 0) < MAX_STRIKES:
            yield from self._summarize(options.writer, split)

    def _has_stalled(self) -> bool:
        """Count compactions before which nothing new was learned; whether they end the run."""
        run, facts = self.ctx.run, self._facts
        if run.finishing is not None:
            return False
        evidence = run.result_cache.evidence
        stalled = facts.get("stalled", 0) + 1 if facts.get("evidence") == evidence else 0
        facts.update(stalled=stalled, evidence=evidence)
        if stalled < MAX_STALLED:
            return False
        self.ctx = self.ctx.stop(CompactionStalled(facts.get("count", 0), stalled))
        return True

    def _shorten(self, split: int) -> Steps[None]:
        """Apply the strategies to the messages before an index."""
        mark = mark_of(self.ctx.messages[self.state.covered])
        shortened = split - self.state.covered
        state = dataclasses.replace(self.state, shortened=shortened, mark=mark)
        view = self._view(state)
        if estimate_tokens(view) < estimate_tokens(self.view):
            yield from self._adopt(state, view, is_summarized=False)

    def _summarize(self, writer: Loop[Any], split: int) -> Steps[None]:
        """Replace the messages before an index by a summary."""
        history, state = self.ctx.messages, self.state
        older = [one for one in history[state.covered : split] if one["role"] not in SYSTEM_ROLES]
        earlier = [text_of_summary(one) for one in older if is_summary(one)]
        before = "\n\n".join(text for text in (state.summary, *earlier) if text)
        new = [one for one in older if not is_summary(one)]
        max_tokens = self._options.max_tokens
        summary, problem = yield from summarized(self.ctx, writer, before, new, max_tokens)
        if not problem:
            parts = [part for message in older for part in attachments_of(message)]
            made = list(calls_in(self.ctx, older))
            changed = CompactionState(
                split,
                0,
                mark_of(history[split]),
                summary,
                _merged(state.calls, made),
                tuple(distinct((*state.attachments, *parts))),
            )
            view = self._view(changed)
            if estimate_tokens(view) < estimate_tokens(self.view):
                yield from self._adopt(changed, view, is_summarized=True)
                return
            problem = "the summary does not make the request shorter"
        strikes = self._facts.get("strikes", 0) + 1
        self._facts["strikes"] = strikes
        yield from self._emit(
            CompactionFailed(
                iteration=self.ctx.iteration, problem=problem, gives_up=strikes >= MAX_STRIKES
            )
        )

    def _adopt(
        self, state: CompactionState, view: list[JSONDict], *, is_summarized: bool
    ) -> Steps[None]:
        """Show the model less from now on: a new epoch for the detection of loops."""
        ctx, before = self.ctx, (self.tokens, len(self.view))
        removed = estimate_tokens(self.view) - estimate_tokens(view)
        self.tokens = max(estimate_tokens(view), self.tokens - removed)
        hide_results(ctx, ctx.messages[self.state.covered :], view)
        self.state, self.view = state, view
        ctx.run.compactions += 1
        self._facts["count"] = self._facts.get("count", 0) + 1
        if is_summarized:
            self._facts["strikes"] = 0
        yield from self._emit(
            HistoryCompacted(
                iteration=ctx.iteration,
                tokens_before=before[0],
                tokens_after=self.tokens,
                messages_before=before[1],
                messages_after=len(view),
                is_summarized=is_summarized,
            )
        )

    def _emit(self, event: Event) -> Steps[None]:
        if self.ctx.run.has_listeners:
            yield Emit(event)

    def applied(self) -> Context:
        """The context with the view in its request, and the facts for the next iteration in its memo."""
        ctx, history = self.ctx, self.ctx.messages
        facts = {
            **self._facts,
            "tokens": self.tokens,
            "upto": len(history),
            "documents": self._has_documents,
        }
        ctx = ctx.remember(RUN, facts)
        if self.state.covered == 0 and self.state.shortened == 0:
            return ctx
        ctx = self.state.kept_in(ctx)
        return ctx.evolve(request_changes={**ctx.request_changes, "messages": self.view})


def _counted(ctx: Context, view: Sequence[JSONDict], facts: Mapping[str, Any]) -> int:
    """The tokens of a request: those that the provider counted last, and an estimate of what was added since.

    Args:
        ctx: the context.
        view: the messages of the request.
        facts: those of the last request.
    """
    history, counted = ctx.messages, facts.get("upto", 0)
    if not 0 < counted <= len(history):
        request = ctx.request
        tools = [ctx.tools[name].as_openai() for name in request.tools]
        return estimate_tokens(view, tools, (request.instructions or "",))
    new, response = history[counted:], ctx.run.injected
    usage = None if response is None else response.usage
    is_answered = bool(new) and new[0]["role"] == "assistant"
    if usage is None or not usage.is_measured or not is_answered:
        return facts["tokens"] + estimate_tokens(new)
    return usage.input_tokens + usage.output_tokens + estimate_tokens(new[1:])


def _merged(calls: Sequence[tuple[str, str]], made: Sequence[Made]) -> tuple[tuple[str, str], ...]:
    """A list of calls with others at its end; of the same calls, the latest stays."""
    listed = dict(calls)
    for one in made:
        listed.pop(one.call.fingerprint, None)
        listed[one.call.fingerprint] = one.line
    return tuple(listed.items())
