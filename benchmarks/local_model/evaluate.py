"""Accuracy of the local model in the whole loop: python benchmarks/local_model/evaluate.py.

The questions of questions.json were split into two halves before the prompt was tuned: `tuned`, on which
every decision was based, and `held_back`, which was run at the end. A call is right if the first call has
the right tool and arguments, or if none is made where no tool is needed. An answer is right if the final
text has the required facts.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

from treadle import Err, Loop, Ok
from treadle.providers.local import LocalModel

Call = tuple[str, dict[str, Any]]
QUESTIONS = Path(__file__).with_name("questions.json")
MAX_ITERATIONS = 4


def function(name: str, description: str, **parameters: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {
            key: {"type": "string", "description": text} for key, text in parameters.items()
        },
        "required": list(parameters),
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


TOOLS = [
    function("list_files", "List the files in a folder.", folder="The folder to list."),
    function("read_file", "Read the text of a file.", path="The path of the file."),
    function(
        "search_text",
        "Search for a text in the files of a folder.",
        text="The text to look for.",
        folder="The folder to search in.",
    ),
    function(
        "current_time",
        "Tell the current time in a time zone.",
        timezone="The time zone, such as Europe/Berlin.",
    ),
    function(
        "calculate",
        "Calculate an arithmetic expression.",
        expression="The expression, such as 2 + 3.",
    ),
    function("get_weather", "Get the weather in a city.", city="The name of the city."),
    function("order_status", "Look up the status of an order.", order_id="The order's number."),
    function("define_word", "Look up the meaning of a word.", word="The word."),
]


def is_right(question: dict[str, Any], name: str, arguments: dict[str, Any]) -> bool:
    """Whether a call is the expected one."""
    expected = question["call"]
    return (
        expected is not None
        and name == expected["name"]
        and arguments.keys() == expected["arguments"].keys()
        and all(
            re.search(pattern, str(arguments[key]), re.IGNORECASE)
            for key, pattern in expected["arguments"].items()
        )
    )


def run_loop(model: LocalModel, question: dict[str, Any]) -> tuple[list[Call], str]:
    """Run the loop with prepared tool results. Returns the calls and the answer."""
    result = Loop.run_sync(
        [{"role": "user", "content": question["question"]}],
        model,
        tools=TOOLS,
        resolve_tool=lambda call: (
            question["outcome"]
            if is_right(question, call.name, dict(call.input or {}))
            else Err("nothing found")
        ),
        max_iterations=MAX_ITERATIONS,
    )
    functions = [
        call["function"] for message in result.messages for call in message.get("tool_calls") or ()
    ]
    made = [(function["name"], json.loads(function["arguments"])) for function in functions]
    return made, result.response.text if isinstance(result, Ok) else ""


def evaluate(model: LocalModel, half: str, *, verbose: bool) -> str:
    """Run one half of the questions. Returns its line of the table."""
    questions = [each for each in json.loads(QUESTIONS.read_text()) if each["half"] == half]
    right_calls = right_answers = right = 0
    seconds = []
    for question in questions:
        start = time.perf_counter()
        calls, answer = run_loop(model, question)
        seconds.append(time.perf_counter() - start)
        call_ok = is_right(question, *calls[0]) if calls else question["call"] is None
        answer_ok = all(re.search(each, answer, re.IGNORECASE) for each in question["answer"])
        right_calls += call_ok
        right_answers += answer_ok
        right += call_ok and answer_ok
        if verbose:
            made = "; ".join(f"{name} {arguments}" for name, arguments in calls)
            marks = f"{'call' if call_ok else '----'} {'answer' if answer_ok else '------'}"
            print(f"{marks} | {question['question']} | {made} | {answer!r}")
    total = len(questions)
    counts = f"{right_calls:>7} of {total}{right_answers:>9} of {total}{right:>9} of {total}"
    return f"{half:<10}{counts}{statistics.median(seconds):>11.1f}{sum(seconds):>9.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=["tuned", "held_back"], help="only this half")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="show each question")
    options = parser.parse_args()
    with LocalModel(threads=options.threads) as model:
        halves = [options.half] if options.half else ["tuned", "held_back"]
        lines = [evaluate(model, half, verbose=options.verbose) for half in halves]
    print("half      right calls  right answers  fully right  median s  total s")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
