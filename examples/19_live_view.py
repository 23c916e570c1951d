"""A live view of several runs at once. In a pipe and in CI it is disabled.

On a terminal it takes some seconds, so that there is something to see. This needs the extra ``cli`` there.
"""

import threading
import time
from typing import Any

from treadle import Loop, tool
from treadle.reports import LiveView
from treadle.testing import call, calls

live = LiveView()
pace = 1.0 if live.enabled else 0.0  # seconds; no delay if nothing is shown


@tool
def search(words: str) -> str:
    """Search the library."""
    time.sleep(1.5 * pace)
    return f"two books on {words}"


def told(message: dict[str, Any], tokens: int) -> dict[str, Any]:
    """A response with its tokens and its cost."""
    time.sleep(pace)
    usage = {"prompt_tokens": tokens, "completion_tokens": 40, "cost": tokens * 2e-6}
    return {"choices": [{"message": message}], "usage": usage}


def reading(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Search for the task, then report the result."""
    last = messages[-1]
    if last["role"] == "user":
        return told(calls(call("search", words=last["content"])), 500)
    return told({"content": f"There are {last['content']}."}, 600)


def writing(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Delegate a task for each word of the question, then answer."""
    words = messages[0]["content"].split()
    done = sum(message["role"] == "tool" for message in messages)
    if done < len(words):
        return told(calls(call("research", task=words[done])), 800)
    return told({"content": f"On {' and '.join(words)} there is much to read."}, 900)


researcher = Loop(name="researcher", tools=[search])
research = researcher.as_tool("research", "Find something out.", reading)
editor = Loop(
    name="editor", tools=[research], on_event=live, max_tool_calls=12, max_cost=0.02, max_seconds=60
)
answers: dict[str, str] = {}


def ask(question: str) -> None:
    """One run, in a separate thread."""
    result = editor.run_sync([{"role": "user", "content": question}], writing)
    answers[question] = result.unwrap().text


with live:
    threads = [threading.Thread(target=ask, args=(topic,)) for topic in ("rivers lakes", "seas")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

for question in sorted(answers):
    print(answers[question])
