"""Runs for a Prometheus to see: every kind of end and of guard, and what has to be counted of them."""

import threading
import time

from tests.compacting import compacting, look_ups
from tests.samples import add

from treadle import CircuitBreaker, Limits, Loop, RunHandle, Telemetry, approve, tool
from treadle.testing import ScriptedLLM, call, calls

QUESTION = [{"role": "user", "content": "Go."}]
INPUT_TOKENS, OUTPUT_TOKENS = 100, 10
PRICE = 0.002
"""US dollars of a reply."""


def price(response):
    return PRICE if response.usage else None


def reply(*made, text=None, **usage):
    """A completion that names its model, with the tokens of all replies here."""
    message = calls(*made) if made else {"role": "assistant", "content": text or "Done."}
    tokens = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, **usage}
    return {"model": "script-1", "choices": [{"message": message}], "usage": tokens}


def chunks(*pieces):
    """The same, streamed."""
    for piece in pieces:
        yield {"model": "script-1", "choices": [{"delta": {"content": piece}}]}
    usage = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS}
    last = {"delta": {}, "finish_reason": "stop"}
    yield {"model": "script-1", "choices": [last], "usage": usage}


def scripted(*script):
    """A model that can be seen to be of somebody."""
    model = ScriptedLLM(*script)
    model.provider = "script-house"
    return model


@tool
def read(path: str) -> str:
    """Read a file."""
    return f"the text of {path}"


@tool(parallel_safe=False)
def write(path: str) -> str:
    """Write a file."""
    return "written"


@tool
def search(words: str) -> str:
    """Search the web."""
    raise ConnectionError("no route to host")


@tool(timeout=0.05)
def slow() -> str:
    """Take too long."""
    time.sleep(0.5)
    return "late"


@tool(requires_approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return "deleted"


RUNS = {
    ("assistant", "answered"): 4,
    ("limited", "max_iterations_reached"): 1,
    ("limited", "budget_exhausted"): 1,
    ("limited", "deadline_exceeded"): 1,
    ("limited", "finished"): 1,
    ("failing", "circuit_broken"): 1,
    ("failing", "loop_detected"): 1,
    ("failing", "llm_error"): 1,
    ("guarded", "answered"): 7,
    ("cancelled", "cancelled"): 1,
    ("keeper", "answered"): 1,
    ("summarize", "answered"): 1,
    ("lead", "answered"): 1,
    ("researcher", "answered"): 1,
    ("", "answered"): 1,
}
"""The runs of a round that end, by agent and stop reason. One of those that are answered was paused before."""
TOOL_CALLS = {
    ("add", ""): 2,
    ("delete", ""): 1,
    ("read", ""): 10,
    ("write", ""): 1,
    ("look_up", ""): 3,
    ("research", ""): 1,
    ("flaky", ""): 1,
    ("flaky", "tool_error"): 2,
    ("search", "tool_error"): 4,
    ("slow", "timeout"): 1,
}
"""The tool calls of a round that run, by tool and kind of error."""


class Rounds:
    """Plays rounds of runs, each the same as the one before.

    Args:
        meters: the meter provider that they report to.
    """

    def __init__(self, meters):
        self.options = {
            "telemetry": Telemetry(meter_provider=meters),
            "limits": Limits(cost_of=price),
            "llm_opts": {"model": "script"},
            "retry_delay": 0,
        }
        self._is_asked, self._go_on = threading.Event(), threading.Event()
        self._waiting = None

    def run(self, agent, *script, **options):
        """One run, to the end of its script."""
        with scripted(*script) as model:
            Loop(name=agent, **{**self.options, **options}).run_sync(QUESTION, model)

    def play(self):
        """One round."""
        self.answered()
        self.limited()
        self.failing()
        self.guarded()
        self.broken()
        self.compacted()
        self.cancelled()
        self.nested()
        self.run("", "A plain text, of no known model.")

    def answered(self):
        both = reply(call("add", a=1, b=2), call("add", a=3, b=4))
        self.run("assistant", both, reply(), tools=[add])
        self.run("assistant", chunks("It ", "is ", "done."))
        self.run("assistant", ConnectionError("no"), ConnectionError("no"), reply(cost=0.01))
        self.paused()

    def paused(self):
        with scripted(reply(call("delete", path="a")), reply()) as model:
            loop = Loop(name="assistant", tools=[delete], **self.options)
            paused = loop.run_sync(QUESTION, model)
            [waiting] = paused.pending
            loop.resume_sync(paused, {waiting.id: approve}, model)

    def limited(self):
        many = [reply(call("read", path=path)) for path in "ab"]
        self.run("limited", *many, tools=[read], max_iterations=2)
        self.run("limited", many[0], tools=[read], max_total_tokens=100)
        self.run(
            "limited",
            many[0],
            reply(),
            tools=[read],
            max_iterations=1,
            limits=Limits(on_limit="finish"),
        )
        self.run("limited", lambda messages: time.sleep(1), max_seconds=0.5)

    def failing(self):
        again = [reply(call("search", words=words)) for words in "abc"]
        self.run("failing", *again, tools=[search])
        rounds = [reply(call("read", path=path)) for path in "ab" * 3]
        self.run("failing", *rounds, tools=[read], dedupe="strict")
        self.run("failing", TimeoutError("no answer"), max_retries=0)

    def guarded(self):
        both = reply(call("read", path="a"), call("write", path="a"))
        self.run("guarded", both, reply(call("write", path="a")), reply(), tools=[read, write])
        twice = [reply(call("read", path="a"))] * 2
        slowly = (reply(call("slow")), reply())
        self.run("guarded", *twice, *slowly, tools=[read, slow], dedupe="strict")

    def broken(self):
        """One breaker opens and stays so, another is tried again twice and closes."""
        down = CircuitBreaker(threshold=1, cool_down=3600)
        for words in "ab":
            asks = reply(call("search", words=words))
            self.run("guarded", asks, reply(), tools=[search], breaker=down)
        works = []

        @tool
        def flaky() -> str:
            """Work at the third try."""
            works.append(True)
            if len(works) < 3:
                raise ConnectionError("no route to host")
            return "well"

        again = CircuitBreaker(threshold=1, cool_down=0)
        for _ in range(3):
            self.run("guarded", reply(call("flaky")), reply(), tools=[flaky], breaker=again)

    def compacted(self):
        """Half of the history is replaced by a summary, which a loop writes, and one of its calls is repeated."""
        options = {name: value for name, value in self.options.items() if name != "retry_delay"}
        with scripted(*map(reply, look_ups()), reply()) as model, scripted(reply()) as notes:
            writer = Loop(name="summarize", llm_send_fn=notes, **options)
            compacted = compacting(writer, max_messages=6)
            Loop(name="keeper", **options, **compacted).run_sync(QUESTION, model)

    def cancelled(self):
        """Somebody ends the run while the model is asked."""
        handle = RunHandle()

        def model(messages, **opts):
            handle.cancel()
            time.sleep(0.3)

        Loop(name="cancelled", **self.options).run_sync(QUESTION, model, handle=handle)

    def nested(self):
        with scripted(reply(call("read", path="a")), reply(text="It says so.")) as inner:
            researcher = Loop(name="researcher", tools=[read], **self.options)
            research = researcher.as_tool("research", "Look something up.", inner)
            self.run("lead", reply(call("research", task="x")), reply(), tools=[research])

    def start_waiting(self):
        """Start a run that goes on until `stop_waiting`."""

        def model(messages, **opts):
            self._is_asked.set()
            self._go_on.wait()
            return reply()

        loop = Loop(name="waiting", **self.options)
        self._waiting = threading.Thread(target=loop.run_sync, args=(QUESTION, model))
        self._waiting.start()
        assert self._is_asked.wait(10)

    def stop_waiting(self):
        self._go_on.set()
        self._waiting.join()
