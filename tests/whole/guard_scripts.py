"""More named runs: plans, guards, last answers, approvals, children, and a user who speaks during a run."""

from __future__ import annotations

import itertools
from typing import Any

import anyio
from pydantic import BaseModel
from tests.ways import HandleRef

from treadle import (
    CircuitBreaker,
    Limits,
    Locks,
    Loop,
    Response,
    Tool,
    ToolContext,
    approve,
    deny,
    edit,
    tool,
)
from treadle.testing import ScriptedLLM, call, calls

from .scripts import SCRIPTS, add, alone, boom, counter, doze, join, nap, script

__all__ = ["SCRIPTS"]


def adds(*numbers: int) -> Any:
    return calls(*(call("add", f"a{n}", a=n, b=n) for n in numbers))


# Plans.


@script()
def calls_that_are_deferred_and_asked_for_again():
    batch = calls(call("add", "c1", a=1, b=1), call("alone", "c2", n=1), call("alone", "c3", n=2))
    return ScriptedLLM(batch, calls(call("alone", "c2", n=1), call("alone", "c3", n=2)), "Done."), {
        "tools": [add, alone]
    }


@script()
def calls_that_run_in_their_step():
    fresh = tool(name="fresh", requires_fresh_input=True)(alone.fn)
    batch = calls(
        call("nap", "c1", seconds=0.01),
        call("add", "c2", a=1, b=1),
        call("alone", "c3", n=1),
        call("fresh", "c4", n=2),
        call("nap", "c5", seconds=0.01),
    )
    return ScriptedLLM(batch, calls(call("fresh", "c6", n=2)), "Done."), {
        "tools": [add, nap, alone, fresh],
        "sequential": "in_step",
    }


@script()
def calls_beyond_the_cap_of_their_tool():
    single = tool(name="single", max_parallel=1)(nap.fn)
    batch = calls(*(call("single", f"c{n}", seconds=n / 100) for n in range(3)))
    return ScriptedLLM(batch, "Done."), {"tools": [single]}


@script()
def calls_beyond_the_uses_of_their_tool():
    rare = tool(name="rare", max_uses=1)(add.fn)
    batch = calls(*(call("rare", f"c{n}", a=n, b=n) for n in range(2)), call("add", a=1, b=1))
    batch["tool_calls"][2]["id"] = "c9"
    return ScriptedLLM(batch, calls(call("rare", "c5", a=5, b=5)), "Done."), {"tools": [rare, add]}


@script()
def a_batch_that_fits_the_budget_in_part_and_an_answer():
    script = [adds(1), adds(2, 3), "Six."]
    return ScriptedLLM(*script), {"tools": [add], "max_tool_calls": 3}


# Duplicates and loops.


@script()
def duplicates_and_repeated_calls():
    duplicates = calls(
        call("join", "c1", parts=["x"]),
        call("join", "c2", parts=["x"]),
        call("add", "c3", a=1, b=1),
        call("join", "c4", parts=["x"]),
    )
    again = calls(call("join", "c5", parts=["x"]), call("add", "c6", a=1, b=1))
    return ScriptedLLM(duplicates, again, adds(5), again, "Done."), {"tools": [add, join]}


@script()
def a_call_that_is_new_again_after_something_was_learned():
    reads = [calls(call("nap", f"c{n}", seconds=0)) for n in range(4)]
    return ScriptedLLM(reads[0], adds(1), reads[1], reads[2], adds(2), reads[3], "Done."), {
        "tools": [add, nap]
    }


@script()
def tools_that_are_never_duplicates():
    numbers = itertools.count()
    clock = tool(name="clock", description="", volatile=True)(lambda: next(numbers))
    unique = tool(name="unique", description="", dedupe="off")(lambda: "the same")
    batch = [calls(call("clock", f"c{n}"), call("unique", f"u{n}")) for n in range(4)]
    return ScriptedLLM(*batch, "Done."), {"tools": [clock, unique]}


@script(ends="loop_detected")
def calls_that_take_turns():
    return ScriptedLLM(*(adds(n % 2) for n in range(6))), {"tools": [add]}


@script()
def a_shared_breaker_that_opens_and_closes():
    outcomes = iter([OSError("down"), OSError("down"), "up", "up still"])

    def fetch(page: int) -> str:
        outcome = next(outcomes)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    fetching = tool(name="fetch", description="")(fetch)
    batch = [calls(call("fetch", f"c{n}", page=n)) for n in range(4)]
    breaker = CircuitBreaker(threshold=2, cool_down=0)
    return ScriptedLLM(*batch, "Done."), {"tools": [fetching], "breaker": breaker}


@script()
def a_shared_breaker_that_stays_open():
    breaker = CircuitBreaker(threshold=1, cool_down=600)
    batch = calls(
        call("boom", "c2", text="no"), call("boom", "c3", text="x"), call("add", a=1, b=1)
    )
    batch["tool_calls"][2]["id"] = "c4"
    return ScriptedLLM(calls(call("boom", "c1", text="no")), batch, "Done."), {
        "tools": [boom, add],
        "breaker": breaker,
    }


# Locks.


@script()
def calls_that_wait_for_each_other():
    file = tool(name="file", lock=lambda arguments: f"file:{arguments['seconds']}")(nap.fn)
    both = tool(name="both", lock=lambda arguments: ["file:0.02", "file:0.01"])(doze.fn)
    batch = calls(
        call("file", "c1", seconds=0.02),
        call("file", "c2", seconds=0.01),
        call("both", "c3", seconds=0.01),
        call("nap", "c4", seconds=0.01),
    )
    return ScriptedLLM(batch, "Done."), {"tools": [file, both, nap], "locks": Locks()}


# Limits.


def spender(*answers: Any) -> ScriptedLLM:
    """A model whose answers cost something."""

    def counted(answer: Any) -> Any:
        message = answer if isinstance(answer, dict) else {"role": "assistant", "content": answer}
        usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
        return {"choices": [{"message": message}], "usage": usage}

    return ScriptedLLM(*map(counted, answers))


def price(response: Response) -> float:
    assert response.usage is not None
    return response.usage.input_tokens * 1e-6


@script(ends="budget_exhausted")
def too_costly():
    return spender(adds(1), adds(2)), {
        "tools": [add],
        "limits": Limits(cost_of=price),
        "max_cost": 0.002,
    }


@script()
def a_budget_that_is_shown():
    @tool
    def left(context: ToolContext) -> str:
        """Tell what is left."""
        return str(context.remaining)

    options = {"limits": Limits(show_budget=True), "max_tool_calls": 5, "max_total_tokens": 10_000}
    return spender(calls(call("left", "c1")), "Done."), {"tools": [left], **options}


@script(ends="finished")
def a_last_answer():
    return ScriptedLLM(adds(1), adds(2), "Six."), {
        "tools": [add],
        "max_iterations": 2,
        "limits": Limits(on_limit="finish"),
    }


@script(ends="finished")
def a_last_answer_of_a_model_that_calls_on():
    options = {"tools": [add], "max_tool_calls": 1, "limits": Limits(on_limit="finish")}
    return ScriptedLLM(adds(1, 2), adds(3), "Two."), options


@script(ends="finished")
def a_last_answer_of_a_model_that_says_nothing():
    options = {"tools": [add], "max_iterations": 1, "limits": Limits(on_limit="finish")}
    return ScriptedLLM(adds(1), adds(3), ""), options


@script(ends="finished")
def a_last_answer_that_is_streamed():
    options = {"tools": [add], "max_iterations": 1, "limits": Limits(on_limit="finish")}
    return ScriptedLLM(adds(1), ["Tw", "o."]), options


class Sum(BaseModel):
    number: int


@script(ends="finished")
def a_last_answer_by_a_terminal_tool():
    options = {
        "tools": [add],
        "output": Sum,
        "max_iterations": 1,
        "limits": Limits(on_limit="finish"),
    }
    return ScriptedLLM(adds(1), calls(call("Sum", "c1", number=2))), options


@script(ends="finished")
def a_last_answer_of_a_model_that_loops():
    return ScriptedLLM(*(adds(1) for _ in range(4)), "Two."), {
        "tools": [add],
        "limits": Limits(on_limit="finish"),
    }


@script(ends="llm_error")
def a_last_answer_that_never_comes():
    options = {
        "tools": [add],
        "max_iterations": 1,
        "limits": Limits(on_limit="finish"),
        "max_retries": 0,
    }
    return ScriptedLLM(adds(1), ConnectionError("gone")), options


# Approvals.


@tool(requires_approval=True)
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


@tool(requires_approval=lambda arguments: arguments["n"] > 5 and f"Pay {arguments['n']}?")
async def pay(n: int) -> str:
    """Pay some."""
    await anyio.lowlevel.checkpoint()
    return f"paid {n}"


def orders() -> Any:
    return calls(
        call("add", "c1", a=1, b=1),
        call("send", "c2", to="Bob"),
        call("pay", "c3", n=3),
        call("pay", "c4", n=9),
        call("pay", "c5", n=8),
    )


@script(ends="paused")
def a_run_that_waits():
    return ScriptedLLM(orders()), {"tools": [add, send, pay]}


@script(decisions=({"c2": edit({"to": "Eve"}), "c4": deny("too much"), "c5": approve},))
def a_run_that_is_resumed():
    return ScriptedLLM(orders(), "Done."), {"tools": [add, send, pay]}


@script(decisions=({"c4": approve}, {"c2": approve}, {"c5": deny()}))
def a_run_that_is_resumed_call_by_call():
    return ScriptedLLM(orders(), adds(1), "Done."), {"tools": [add, send, pay]}


@script(ends="max_iterations_reached", decisions=({"c2": approve}, {"c3": approve}))
def a_run_that_waits_twice_within_its_limits():
    batch = [calls(call("send", f"c{n}", to=f"Bob {n}")) for n in (2, 3)]
    return ScriptedLLM(*batch), {"tools": [send], "max_iterations": 2, "max_seconds": 60}


@script(ends="loop_detected", decisions=({"c1": approve}, {"c2": approve}, {"c3": approve}))
def a_run_that_loops_across_its_pauses():
    again = tool(name="send", dedupe="off", requires_approval=True)(send.fn)
    return ScriptedLLM(*(calls(call("send", f"c{n}", to="Bob")) for n in (1, 2, 3))), {
        "tools": [again]
    }


# Children.


def child(name: str, *script: Any, tools: Any = (), **options: Any) -> Tool:
    loop = Loop(tools=tools, name=name, **options)
    return loop.as_tool(name, "Do a part.", ScriptedLLM(*script))


@script()
def a_child():
    sub = child("sub", adds(1), "It is 2.", tools=[add], max_iterations=3)
    return ScriptedLLM(calls(call("sub", "c1", task="1 + 1?")), "2."), {"tools": [sub, add]}


@script()
def children_at_the_same_time_with_calls_at_the_same_time():
    batch = calls(call("nap", "d1", seconds=0.02), call("nap", "d2", seconds=0.01))
    other = calls(call("nap", "d1", seconds=0.015), call("doze", "d2", seconds=0.005))
    one = child("one", batch, adds(1), "One.", tools=[add, nap])
    two = child("two", other, "Two.", tools=[nap, doze])
    asked = calls(
        call("one", "c1", task="a"), call("add", "c2", a=1, b=1), call("two", "c3", task="b")
    )
    return ScriptedLLM(asked, "Done."), {"tools": [one, two, add], "max_iterations": 20}


@script()
def a_child_of_a_child_that_streams():
    inner = child("inner", ["In", "ner."])
    outer = child("outer", calls(call("inner", "d1", task="b")), "Outer.", tools=[inner])
    return ScriptedLLM(calls(call("outer", "c1", task="a")), ["Do", "ne."]), {"tools": [outer]}


@script()
def children_that_fail():
    limited = child("limited", adds(1), tools=[add], max_iterations=1)
    broken = child("broken", ConnectionError("gone"), max_retries=0)
    late = Loop(tools=[nap], name="late").as_tool(
        "late", "", ScriptedLLM(calls(call("nap", "d1", seconds=9))), timeout=0.3
    )
    batch = calls(
        *(call(made.name, f"c_{made.name}", task="a") for made in (limited, broken, late))
    )
    return ScriptedLLM(batch, "Oh."), {"tools": [limited, broken, late]}


@script()
def a_child_with_an_output():
    sub = child("sub", adds(1), calls(call("Sum", "d1", number=2)), tools=[add], output=Sum)
    return ScriptedLLM(calls(call("sub", "c1", task="1 + 1?")), "2."), {"tools": [sub]}


@script(ends="budget_exhausted")
def a_child_that_spends_what_is_its_parents():
    sub = child("sub", *(adds(n) for n in range(9)), tools=[add], limits=Limits(on_limit="finish"))
    return ScriptedLLM(calls(call("sub", "c1", task="a"))), {
        "tools": [sub],
        "limits": Limits(max_requests=4),
    }


@script()
def a_child_that_holds_a_key_around_its_calls():
    file = tool(name="file", lock="a")(nap.fn)
    loop = Loop(tools=[file], name="sub")
    batch = calls(call("file", "d1", seconds=0.01), call("file", "d2", seconds=0.005))
    sub = loop.as_tool("sub", "", ScriptedLLM(batch, "Done."), lock="a")
    asked = calls(call("sub", "c1", task="a"), call("file", "c2", seconds=0.01))
    return ScriptedLLM(asked, "Done."), {"tools": [sub, file]}


@script(decisions=({"c1/d2": edit({"to": "Eve"}), "c2": approve},))
def a_child_that_waits():
    batch = calls(call("add", "d1", a=1, b=1), call("send", "d2", to="Bob"))
    sub = child("sub", batch, "Sent.", tools=[add, send])
    asked = calls(call("sub", "c1", task="a"), call("send", "c2", to="Jim"))
    return ScriptedLLM(asked, "Done."), {"tools": [sub, send]}


@script(ends="paused", decisions=({"c1/d1": deny("not yet")},))
def a_child_that_waits_and_asks_again():
    sub = child(
        "sub",
        calls(call("send", "d1", to="Bob")),
        calls(call("send", "d2", to="Jim")),
        tools=[send],
    )
    return ScriptedLLM(calls(call("sub", "c1", task="a"))), {"tools": [sub]}


# A user who speaks during a run.


@script()
def a_user_who_speaks_while_tools_run():
    handle_ref = HandleRef(is_wanted=True)

    @tool
    def hint(text: str) -> str:
        """Have the user say something."""
        handle_ref.steer(text)
        return "hinted"

    model = ScriptedLLM(
        calls(call("hint", "c1", text="Be quick.")),
        calls(call("hint", "c2", text="Be quick.")),
        calls(call("hint", "c3", text="Be quick.")),
        "Done.",
    )
    return model, {"tools": [hint], "handle_ref": handle_ref}


@script()
def a_user_who_speaks_while_the_model_answers():
    handle_ref = HandleRef(is_wanted=True)

    def interrupted(messages: Any) -> str:
        handle_ref.steer("And you?")
        return "I am well."

    return ScriptedLLM(interrupted, adds(1), "Two."), {"tools": [add], "handle_ref": handle_ref}


@script(ends="max_iterations_reached")
def a_user_who_speaks_too_late():
    handle_ref = HandleRef(is_wanted=True)

    def interrupted(messages: Any) -> Any:
        handle_ref.steer("And you?")
        return adds(1)

    return ScriptedLLM(interrupted), {"tools": [add], "handle_ref": handle_ref, "max_iterations": 1}


# A long one.


@script(ends="finished")
def a_run_with_all_of_it():
    handle_ref = HandleRef(is_wanted=True)
    sub = child("sub", adds(1, 2), adds(1), "Two.", "Two again.", tools=[add])

    def interrupted(messages: Any) -> Any:
        handle_ref.steer("Hurry.")
        return calls(call("nap", "c5", seconds=0), call("sub", "c6", task="b"))

    model = ScriptedLLM(
        calls(call("sub", "c1", task="a"), call("add", "c2", a=1, b=1), call("alone", "c3", n=1)),
        calls(call("add", "c4", a=1, b=1)),
        interrupted,
        adds(5, 6, 7, 8),
        "Enough.",
    )
    tools = [sub, add, nap, alone, counter()]
    return model, {
        "tools": tools,
        "handle_ref": handle_ref,
        "max_tool_calls": 9,
        "limits": Limits(on_limit="finish", show_budget=True),
        "llm_opts": {"temperature": 0},
    }
