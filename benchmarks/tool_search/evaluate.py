"""Is the right tool among those that a search finds? 1,000 tools, and questions in other words than their names.

Run it with ``make bench-tool-search``. The search was tuned with the questions in ``tuning.txt``. Those in
``held_out.txt`` were written with them, and those in ``unseen.txt`` after a first version of the search, for tools
drawn at random: both are only counted, to drop a change with which fewer tools are found. Those in ``fresh.txt``
were written before the last change of the synonyms, by the author of that change. The sizes are those of the tools
of one request, without and with tool search.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog import catalog

from treadle import Loop, Response, Tool, ToolSearch
from treadle.messages.estimate import estimate_usage
from treadle.testing import ScriptedLLM, call, calls
from treadle.tool_search.index import SearchIndex

LIMITS = (1, 3, 5, 10)
FILES = ("tuning.txt", "held_out.txt", "unseen.txt", "fresh.txt")
Question = tuple[str, str]


def questions(file: str) -> list[Question]:
    """Each right tool and the question that it answers."""
    text = Path(__file__).with_name(file).read_text(encoding="utf-8")
    pairs = [line.split(" | ") for line in text.splitlines()]
    return [(name, question) for name, question in pairs]


def rank_of(index: SearchIndex, question: Question) -> int:
    """The place of the right tool among the results, from 1; a large number if it is not found."""
    found = index.search(question[1], max(LIMITS))
    return found.index(question[0]) + 1 if question[0] in found else 10**6


def shares(ranks: Sequence[int]) -> list[str]:
    """The share of the questions whose right tool is within each limit."""
    return [f"{sum(rank <= limit for rank in ranks) / len(ranks):.1%}" for limit in LIMITS]


def payload(tools: Sequence[Tool], search: ToolSearch | None) -> list[dict[str, Any]]:
    """The tools of a request in OpenAI's form."""
    model = ScriptedLLM("Done.")
    Loop.run_sync("Hello.", model, tools=tools, tool_search=search)
    sent: list[dict[str, Any]] = model.sent[0].opts["tools"]
    return sent


def answer(tools: Sequence[Tool], question: str) -> str:
    """What a model reads after a search."""
    model = ScriptedLLM(calls(call("search_tools", query=question)), "Done.")
    result = Loop.run_sync("Hello.", model, tools=tools, tool_search=ToolSearch())
    text: str = result.messages[2]["content"]
    return text


def report(tools: Sequence[Tool], *, misses: bool) -> None:
    """Print the tables."""
    started = time.perf_counter()
    index = SearchIndex(tools)
    built = time.perf_counter() - started
    ranks, times = dict[str, list[int]](), list[float]()
    for file in FILES:
        ranks[file] = []
        for question in questions(file):
            started = time.perf_counter()
            ranks[file].append(rank_of(index, question))
            times.append(time.perf_counter() - started)
    print(f"{len(tools):,} tools: the right tool is among the results")
    print("| questions | " + " | ".join(f"limit {limit}" for limit in LIMITS) + " |")
    for file, found in ranks.items():
        print(f"| {file} ({len(found)}) | " + " | ".join(shares(found)) + " |")
    print(f"index: {built * 1e3:.0f} ms; a search: {statistics.median(times) * 1e3:.2f} ms")
    for title, search in (("all tools", None), ("two fixed tools", ToolSearch())):
        sent = payload(tools, search)
        tokens = estimate_usage([], sent, Response()).input_tokens
        print(f"{title}: {len(json.dumps(sent)):,} bytes, about {tokens:,} tokens")
    found = [len(answer(tools, question)) for _, question in questions(FILES[0])[:10]]
    print(
        f"a result of a search: {statistics.median(found):,.0f} bytes, {ToolSearch().limit} tools"
    )
    for question, rank in zip(questions(FILES[0]), ranks[FILES[0]], strict=True) if misses else ():
        if rank > ToolSearch().limit:  # of the questions for tuning only
            print(question, rank, index.search(question[1], 5))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--misses", action="store_true", help="list the questions for tuning that fail"
    )
    report(catalog(), misses=parser.parse_args().misses)


if __name__ == "__main__":
    main()
