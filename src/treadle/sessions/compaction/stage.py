"""`compact_history`: keeps what the model sees of a long history below a number of tokens."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from treadle.context import Context
from treadle.effects import Emit, Steps
from treadle.errors import OptionError
from treadle.events import CompactionFailed, Event, HistoryCompacted
from treadle.fast_dataclass import light_dataclass
from treadle.loop import Loop
from treadle.messages import (
    CHARACTERS_PER_TOKEN,
    SYSTEM_ROLES,
    JSONDict,
    estimate_tokens,
)
from treadle.model import Model
from treadle.pipeline import Stage
from treadle.results import CompactionStalled
from treadle.sessions.attachments import attachments_of, distinct
from treadle.sessions.compaction.progress import calls_in, fitted, hide_results, merged
from treadle.sessions.compaction.read_result import READ_RESULT_TOOL
from treadle.sessions.compaction.strategies import (
    READ_RESULT,
    Strategy,
    StubResults,
    check_strategies,
    is_whole,
)
from treadle.sessions.compaction.summary import summarized, summarizer
from treadle.sessions.compaction.view import (
    RUN,
    STATE,
    CompactionState,
    is_summary,
    mark_of,
    pinned_in,
    split_of,
    text_of_summary,
    view_of,
)

MAX_TOKENS = 40_000
MAX_TOKENS_WITH_DOCUMENTS = 60_000
KEEP_RECENT = 4
RELIEF = 0.8
"""Without a summary, a view has to become this much shorter than allowed, so that a compaction lasts for some
iterations: each one costs the provider's cache of the prompt."""
MAX_STRIKES = 2
"""How many useless summaries in a row end the attempts of a run."""
MAX_STALLED = 3
"""How many compactions in a row, before each of which nothing new was learned, end a run."""
SHARE_OF_CALLS = 0.25
"""The share of the tokens that the list of calls in the summary may take."""
LEAST_SHARE = 0.1
"""The share of a request that a summary, or strategies, have to shorten, to be worth their cost. It is a share of
estimates, which may all be too low, as for a language with more tokens than English."""


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
            its own limits and instructions. Its usage and cost count as those of the run. None only applies
            the strategies.
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
        ("max_messages", max_messages, (keep_recent or 0) + 2),
    ):
        if not is_whole(value, least) and (value is not None or name != "max_messages"):
            raise OptionError(
                f"compact_history: {name}: expected a whole number of at least {least}, got {value!r}"
            )
    if not isinstance(strategies, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(
            f"compact_history: strategies: expected a list of them, got {type(strategies).__name__}"
        )
    strategies = tuple(strategies)
    for place, strategy in enumerate(strategies):
        if not callable(strategy):  # pyright: ignore[reportUnnecessaryComparison]
            raise OptionError(
                f"compact_history: strategies[{place}]: expected a callable, got {type(strategy).__name__}"
            )
    if summarize is None and not strategies:
        raise OptionError(
            "compact_history: there is nothing to do: pass a model that writes summaries, or strategies"
        )
    writer = None if summarize is None else summarizer(summarize, max_tokens)
    options = _Options(
        writer,
        max_tokens,
        max_tokens_with_documents,
        max_messages,
        keep_recent,
        strategies,
    )
    return Stage(
        "compact_history", functools.partial(_compacting, options), {}, requires=("messages",)
    )


def _compacting(options: _Options, ctx: Context) -> Steps[Context]:
    if "messages" in ctx.request_changes:
        raise OptionError(
            "compact_history: an earlier stage changed the messages of the request; put compact_history before it"
        )
    if options.has_stubs:
        ctx = _with_read_result(ctx)
    compaction = _Compaction(ctx, options)
    if compaction.is_over:
        yield from compaction.compact()
    return compaction.applied()


def _with_read_result(ctx: Context) -> Context:
    """The context with the tool that reads results back, which every request offers."""
    tool = ctx.tools.get(READ_RESULT)
    if tool is None:
        ctx.run.ledger.found[READ_RESULT] = None  # with tool search, only what was found is offered
        return ctx.with_tools(add=[READ_RESULT_TOOL])
    if tool is not READ_RESULT_TOOL:
        raise OptionError(
            f"compact_history: {READ_RESULT!r} is the name of the tool that `StubResults` needs; "
            "give yours another"
        )
    return ctx


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
        self._facts: dict[str, Any] = dict(ctx.memo.get(RUN) or {})
        self.state = CompactionState.of(ctx)
        self.view = self._view(self.state)
        self.tokens = _counted(ctx, self.view, self._facts)
        self._has_documents = self._facts.get("documents") or bool(self.state.attachments)
        if not self._has_documents:
            is_known = "documents" in self._facts  # not in those of a session that was loaded
            new = ctx.messages[self._facts["upto"] if is_known else self.state.covered :]
            self._has_documents = any(map(attachments_of, new))

    def _view(self, state: CompactionState) -> list[JSONDict]:
        return view_of(
            self.ctx.messages, state, self._options.strategies, self._pinned(state.covered)
        )

    def _pinned(self, covered: int) -> Sequence[int]:
        """The indices of the covered system messages; each message is looked at once in a run."""
        known, places = self._facts.get("pinned", (0, ()))
        if known > covered:  # a stage removed messages
            known, places = 0, ()
        if known < covered:
            places = (*places, *pinned_in(self.ctx.messages, known, covered))
            self._facts["pinned"] = covered, places
        return places

    @property
    def _limit(self) -> int:
        options = self._options
        return options.max_tokens_with_documents if self._has_documents else options.max_tokens

    @property
    def is_over(self) -> bool:
        """Whether the request is too long."""
        return self._has_too_many_messages or self.tokens > self._limit

    @property
    def _has_too_many_messages(self) -> bool:
        most = self._options.max_messages
        return most is not None and len(self.view) > most

    def compact(self) -> Steps[None]:
        """Make the request shorter, if it can be."""
        history, options = self.ctx.messages, self._options
        split = split_of(history, self.state.covered, options.keep_recent)
        if split <= self.state.covered:
            return
        stalled = self._stalled()
        if stalled >= MAX_STALLED and not self.ctx.run.budget.is_finishing:
            self.ctx = self.ctx.stop(CompactionStalled(self._facts.get("count", 0), stalled))
            return
        if options.strategies and split > self.state.covered + self.state.shortened:
            yield from self._shorten(split)
            if self.tokens <= self._limit * RELIEF and not self.is_over:
                return
        writer = options.writer if self._facts.get("strikes", 0) < MAX_STRIKES else None
        if writer is not None and self._is_worth_a_summary(split):
            yield from self._summarize(writer, split)

    def _stalled(self) -> int:
        """How many times in a row the history became too long after a compaction, and nothing new was learned."""
        has_learned = self._facts.get("evidence") != self.ctx.run.repeats.evidence
        return 0 if has_learned else self._facts.get("stalled", 0) + 1

    def _is_worth_a_summary(self, split: int) -> bool:
        """Whether there is enough to summarise: else the recent messages are too long, and it is no failure."""
        older = self.ctx.messages[self.state.covered : split]
        if self._has_too_many_messages and len(older) > 1:
            return True
        return estimate_tokens(older) >= LEAST_SHARE * estimate_tokens(self.view)

    def _shorten(self, split: int) -> Steps[None]:
        """Apply the strategies to the messages before an index, if that helps enough."""
        check_strategies(self._options.strategies, self.ctx.messages[self.state.covered : split])
        mark = mark_of(self.ctx.messages[self.state.covered])
        shortened = split - self.state.covered
        state = dataclasses.replace(self.state, shortened=shortened, mark=mark)
        view = self._view(state)
        before = estimate_tokens(self.view)
        removed = before - estimate_tokens(view)
        is_enough = removed >= LEAST_SHARE * before
        if removed > 0 and (is_enough or self.tokens - removed <= self._limit):
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
            calls = merged(state.calls, calls_in(self.ctx, older))
            listed = fitted(calls, int(max_tokens * SHARE_OF_CALLS) * CHARACTERS_PER_TOKEN)
            changed = CompactionState(
                covered=split,
                kept=len(history) - split,
                mark=mark_of(history[split]),
                summary=summary,
                calls=listed,
                unlisted=state.unlisted + len(calls) - len(listed),
                attachments=tuple(distinct((*state.attachments, *parts))),
            )
            view = self._view(changed)
            if estimate_tokens(view) < estimate_tokens(self.view):
                yield from self._adopt(changed, view, is_summarized=True)
                return
            problem = "the summary does not make the request shorter"
        strikes = self._facts.get("strikes", 0) + 1
        self._facts["strikes"] = strikes
        yield Emit(  # in any case, since it is logged as a warning
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
        facts = self._facts
        if facts.get("iteration") != ctx.iteration:  # a request that is compacted twice counts once
            evidence = ctx.run.repeats.evidence
            facts.update(stalled=self._stalled(), evidence=evidence, iteration=ctx.iteration)
            facts["count"] = facts.get("count", 0) + 1
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
        has_view = self.state.covered > 0 or self.state.shortened > 0
        if has_view or STATE in ctx.memo:
            ctx = self.state.kept_in(ctx)
        if not has_view:
            return ctx
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
    new, response = history[counted:], ctx.run.ledger.last_response
    usage = None if response is None else response.usage
    answers = [place for place, one in enumerate(new) if one["role"] == "assistant"]
    is_measured = usage is not None and usage.is_measured and usage.input_tokens > 0
    if usage is None or not is_measured or not answers:
        return facts["tokens"] + estimate_tokens(new)
    return usage.input_tokens + usage.output_tokens + estimate_tokens(new[answers[-1] + 1 :])
