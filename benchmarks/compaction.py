"""Long conversations and a long task with a compacted history: what they cost, and whether work is repeated.

Run it with ``make bench-compaction``. The models are scripts, and tokens are estimated. There are two parts:

* A conversation of 2,000 turns, and a run of 2,000 iterations: how long the requests become, and whether a late
  turn costs more than an early one.
* A task of 300 tool calls in a window of 20,000 tokens: a model that knows only what its request shows, and a
  summariser that keeps 150 words; with `compact_history`, and by summarising alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import itertools
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treadle import Loop, Response, Result, Usage, default_stages, stage, tool
from treadle.events import CallNotRun, HistoryCompacted
from treadle.messages import JSONDict, estimate_tokens
from treadle.messages.decode import to_response
from treadle.sessions import SQLiteSessions, compact_history
from treadle.stages import plan_calls
from treadle.tools import NotRun

Model = Callable[[list[JSONDict]], Any]

CEILING = 4_000
"""The tokens from which the history of a conversation is compacted."""
WINDOW = 20_000
"""The same for the task."""
WORDS = 150
"""The number of words that the summariser of the task keeps."""
EVERY = 25
"""One of so many files of the task has an error: these are the facts to find."""
BATCH = 3
"""The number of files that the model of the task reads at once."""


class Counted:
    """A model whose responses have a count of their tokens, and that notes how long its requests are.

    Args:
        answer: makes the message of a response from those of the request.

    Attributes:
        sizes: the tokens of each request.
    """

    def __init__(self, answer: Callable[[list[JSONDict]], JSONDict]) -> None:
        self._answer = answer
        self.sizes: list[int] = []

    def __call__(self, messages: list[JSONDict]) -> Response:
        """Answer a request."""
        made = self._answer(messages)
        self.sizes.append(estimate_tokens(messages))
        usage = Usage(self.sizes[-1], estimate_tokens([made]))
        return dataclasses.replace(to_response(made), usage=usage)


def calls(ids: itertools.count[int], name: str, *given: str) -> JSONDict:
    """An assistant message with calls."""
    made = [
        {
            "id": f"call_{next(ids)}",
            "type": "function",
            "function": {"name": name, "arguments": one},
        }
        for one in given
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def text_of(message: JSONDict) -> str:
    """The text of a message, with its calls."""
    made = [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return "\n".join([message.get("content") or "", *made])


# Conversations


@tool(read_only=True)
def look_up(number: int) -> str:
    """Look up a number."""
    return f"{number} is {'a number ' * 30}"


def brief(messages: list[JSONDict]) -> str:
    """A summary of constant length."""
    return "The user asks for numbers, one after another. " * (1 + len(messages) // 100)


@dataclass
class Growth:
    """What the steps of a conversation took.

    Args:
        seconds: of CPU time, for each step.
        sizes: the tokens of each request.
        compactions: how often the history was compacted.
    """

    seconds: list[float]
    sizes: list[int]
    compactions: int

    @property
    def ratio(self) -> float:
        """The time of a step in the last quarter, for one in the first."""
        quarter = len(self.seconds) // 4
        first, last = self.seconds[:quarter], self.seconds[-quarter:]
        return statistics.median(last) / statistics.median(first)


def conversation(turns: int, folder: str, ceiling: int = CEILING) -> Growth:
    """A conversation: each turn is a run that continues a stored session."""
    ids, compacted, seconds = itertools.count(), Counter[type](), []

    def answer(messages: list[JSONDict]) -> JSONDict:
        if messages[-1]["role"] == "tool":
            return {"role": "assistant", "content": f"It is {messages[-1]['content'][:40]}."}
        return calls(ids, "look_up", f'{{"number": {len(seconds)}}}')

    model = Counted(answer)
    loop = Loop(
        tools=[look_up],
        stages=[compact_history(brief, max_tokens=ceiling), *default_stages()],
        on_event=lambda event: compacted.update([type(event)]),
    )
    session = SQLiteSessions(Path(folder) / "sessions.db").session("long")
    for turn in range(turns):
        started = time.process_time()
        loop.run_sync(f"What is {turn}?", model, session=session).unwrap()
        seconds.append(time.process_time() - started)
    info = session.info()
    assert info is not None
    assert (info.version, info.messages) == (turns, 4 * turns)
    return Growth(seconds, model.sizes, compacted[HistoryCompacted])


def one_run(iterations: int) -> Growth:
    """One run: each step is an iteration."""
    ids, compacted, times = itertools.count(), Counter[type](), [time.process_time()]

    def answer(_messages: list[JSONDict]) -> JSONDict:
        times.append(time.process_time())
        if len(times) > iterations:
            return {"role": "assistant", "content": "That is all."}
        return calls(ids, "look_up", f'{{"number": {len(times)}}}')

    model = Counted(answer)
    result = Loop.run_sync(
        "Look up all numbers.",
        model,
        tools=[look_up],
        max_iterations=iterations,
        stages=[compact_history(brief, max_tokens=CEILING), *default_stages()],
        on_event=lambda event: compacted.update([type(event)]),
    )
    assert len(result.messages) == 2 * iterations
    seconds = [after - before for before, after in itertools.pairwise(times)]
    return Growth(seconds, model.sizes, compacted[HistoryCompacted])


# The task

QUESTION = "Read log-000 to log-{last:03}. Which have an error, and which code? Name each once."


def log_of(number: int) -> str:
    """The text of a file: about 250 tokens, with the fact at its end, if there is one."""
    lines = [
        f"{number:03} {minute:02}: request served in {minute * 7 % 50} ms" for minute in range(28)
    ]
    if number % EVERY == EVERY - 1:
        lines.append(f"ERROR in log-{number:03}: code {code_of(number)}")
    return "\n".join(lines)


def code_of(number: int) -> int:
    return 1_000 + number * 37 % 9_000


def keep_words(messages: list[JSONDict]) -> str:
    """A summariser that keeps the errors, without their codes, and the latest files, in so many words."""
    text = messages[-1]["content"]
    errors = sorted(set(re.findall(r"ERROR in (log-\d{3})", text)))
    noted = re.findall(r"Read: (.*)", text)
    read = [path for line in noted for path in line.split()]
    read += re.findall(r'"path": "(log-\d{3})"', text)
    words = f"{' '.join(f'ERROR in {path}.' for path in errors)} Read:".split()
    room = max(WORDS - len(words), 0)
    latest = list(dict.fromkeys(reversed(read)))[:room]
    return " ".join([*words, *sorted(latest)])


class Reader:
    """The model of the task. All that it knows is in its request: results, notes, and calls that are listed.

    Args:
        files: the number of files.
    """

    def __init__(self, files: int) -> None:
        self._paths = [f"log-{number:03}" for number in range(files)]
        self._ids = itertools.count()

    def __call__(self, messages: list[JSONDict]) -> JSONDict:
        """Read what is not known to be read, then what has an error whose code is not known; then answer."""
        text = "\n".join(
            map(text_of, messages[1:] if "Name each once" in text_of(messages[0]) else messages)
        )
        read = set(re.findall(r"log-\d{3}", text))
        missing = [path for path in self._paths if path not in read]
        if not missing:
            codes = dict(re.findall(r"ERROR in (log-\d{3}): code (\d+)", text))
            errors = set(re.findall(r"ERROR in (log-\d{3})", text))
            missing = sorted(errors - codes.keys())
            if not missing:
                found = " ".join(f"{path}={code}" for path, code in sorted(codes.items()))
                return {"role": "assistant", "content": found}
        return calls(self._ids, "read", *(f'{{"path": "{path}"}}' for path in missing[:BATCH]))


@stage
def summarize_alone(ctx: Any) -> Any:
    """Compaction as other frameworks have it: a summary stands for all messages but the latest."""
    summary, covered = ctx.memo.get("alone", ("", 0))
    history = ctx.messages
    shown = [_notes(summary), *history[covered:]] if covered else list(history)
    if estimate_tokens(shown) > WINDOW:
        split = len(history) - 4
        while split > covered and history[split]["role"] != "assistant":
            split -= 1
        older = "\n".join(map(text_of, history[covered:split]))
        summary = keep_words([{"role": "user", "content": f"{summary}\n{older}"}])
        covered = split
        shown = [_notes(summary), *history[covered:]]
        ctx = ctx.remember("compactions", ctx.memo.get("compactions", 0) + 1)  # for the table
    return ctx.remember("alone", (summary, covered)).with_request(messages=shown)


def _notes(summary: str) -> JSONDict:
    return {"role": "user", "content": f"[Previous conversation summary]\n{summary}"}


@dataclass
class Task:
    """What became of the task.

    Args:
        name: how the history was compacted.
        result: that of the run.
        made: the number of calls that the model made.
        ran: how often the tool ran for each file.
        facts: how often the answer has each fact; empty without an answer.
        compactions: how often the history was compacted.
        tokens: of all requests and responses, those of the summariser not among them.
        largest: the tokens of the largest request.
    """

    name: str
    result: Result
    made: int
    ran: Counter[str]
    facts: Counter[tuple[str, str]]
    compactions: int
    tokens: int
    largest: int
    recalled: int


def task(name: str, stages: Sequence[Any], files: int, **options: Any) -> Task:
    """Perform the task."""
    ran, events = Counter[str](), Counter[Any]()

    @tool(read_only=True)
    def read(path: str) -> str:
        """Read a file."""
        ran[path] += 1
        return log_of(int(path[-3:]))

    model = Counted(Reader(files))
    compactions = 0

    def note(ctx: Any) -> None:
        nonlocal compactions
        compactions = ctx.memo.get("compactions", 0)

    result = Loop.run_sync(
        QUESTION.format(last=files - 1),
        model,
        tools=[read],
        stages=[*stages],
        max_iterations=4 * files,
        on_event=lambda event: events.update(
            [event.reason if isinstance(event, CallNotRun) else type(event)]
        ),
        on_iteration=note,
        **options,
    )
    made = [call for one in result.messages for call in one.get("tool_calls") or ()]
    answer = result.messages[-1]["content"] if result.messages[-1]["role"] == "assistant" else ""
    facts = Counter(re.findall(r"(log-\d{3})=(\d+)", answer or ""))
    tokens = result.usage.total_tokens
    return Task(
        name,
        result,
        len(made),
        ran,
        facts,
        compactions or events[HistoryCompacted],
        tokens,
        max(model.sizes),
        events[NotRun.RECALLED],
    )


def both(files: int) -> tuple[Task, Task]:
    """The task with `compact_history`, and by summarising alone; the latter without guards, which would end it."""
    return (
        task(
            "compact_history",
            [compact_history(keep_words, max_tokens=WINDOW), *default_stages()],
            files,
        ),
        task(
            "summarising alone",
            [summarize_alone, plan_calls(dedupe="off"), ...],
            files,
            loop_threshold=None,
        ),
    )


def facts_of(files: int) -> set[tuple[str, str]]:
    """The facts of the task: files with errors, and their codes."""
    return {(f"log-{n:03}", str(code_of(n))) for n in range(EVERY - 1, files, EVERY)}


# What is printed


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print(f"| {' | '.join(head)} |")
    print(f"|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--files", type=int, default=300)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        grown = {
            f"{given.turns:,} turns of a session": conversation(given.turns, folder),
            f"{given.turns:,} iterations of a run": one_run(given.turns),
        }
    print(f"Conversations, compacted above {CEILING:,} tokens:\n")
    head = ("", "largest request", "compactions", "ms per step", "last quarter / first")
    rows = [
        (
            name,
            f"{max(one.sizes):,}",
            one.compactions,
            f"{1_000 * statistics.median(one.seconds):.2f}",
            f"{one.ratio:.2f}",
        )
        for name, one in grown.items()
    ]
    table(head, rows)
    gc.collect()
    facts = facts_of(given.files)
    print(f"{given.files} files to read, {len(facts)} facts, in {WINDOW:,} tokens:\n")
    head = (
        "", "calls made", "answered from the store", "tool runs", "files read twice", "facts in the answer",
        "compactions", "largest request", "tokens", "ended",
    )  # fmt: skip
    rows = [
        (
            one.name,
            one.made,
            one.recalled,
            one.ran.total(),
            sum(count > 1 for count in one.ran.values()),
            f"{sum(one.facts[fact] == 1 for fact in facts)} of {len(facts)}",
            one.compactions,
            f"{one.largest:,}",
            f"{one.tokens:,}",
            one.result.stop_reason,
        )
        for one in both(given.files)
    ]
    table(head, rows)


if __name__ == "__main__":
    main()
