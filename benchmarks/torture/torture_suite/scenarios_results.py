"""What tools raise, return and do to their arguments, and how long they take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torture_suite.evidence import Evidence, whole_text
from torture_suite.log import ToolRun
from torture_suite.protocol import TOOL_TIMEOUT, Fault, Scenario
from torture_suite.script import call, calls, says
from torture_suite.toolbox import of_object, raising, returning
from torture_suite.tools import ToolSpec


class Unprintable(Exception):  # noqa: N818 - what is wrong with it is another thing
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Thing:
    """An object that no serialiser knows."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __repr__(self) -> str:
        return f"Thing({self.mark})"


@dataclass
class Point:
    """What Python programs return."""

    name: str


def _cycle(run: ToolRun) -> list[Any]:
    made: list[Any] = [run.mark]
    made.append(made)
    return made


def _raises(
    name: str,
    complaint: str,
    source: str,
    error: Callable[[], BaseException],
    *words: str,
    **more: Any,
) -> Scenario:
    """A tool raises; the error is reported to the model, and the run ends."""
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(calls(call("look_up")), says("done")),
        tools=(raising(error),),
        faults=(Fault(words or None),),
        **more,
    )


def _returns(
    name: str, complaint: str, source: str, value: Callable[[ToolRun], Any], **more: Any
) -> Scenario:
    """A tool returns something odd; the run goes on, and comes to an end."""
    return Scenario(
        name=name,
        complaint=complaint,
        source=source,
        script=(calls(call("look_up")), says("done")),
        tools=(returning(value),),
        runs={"look_up": 1},
        answer="done",
        **more,
    )


def _nothing_raised() -> BaseException:
    return ValueError()


def _group() -> BaseException:
    return ExceptionGroup(
        "unhandled errors in a TaskGroup", [ConnectionError("connection refused by the server")]
    )


async def _hang(_: ToolRun) -> str:
    await asyncio.sleep(60)
    return "late"


def _block(run: ToolRun) -> str:
    run.log.released.wait(30)
    return "late"


async def _short(run: ToolRun) -> str:
    await asyncio.sleep(0.05)
    return f"short ({run.mark})"


def _until_short_is_done(run: ToolRun) -> str:
    """Block until the sibling is done, which it never is where blocking stops it, too."""
    given_up = time.monotonic() + 2
    while not any(other.succeeded for other in run.log.of("short")):
        if time.monotonic() > given_up:
            raise TimeoutError("nothing else went on while this tool blocked")
        run.log.released.wait(0.01)
    return f"long ({run.mark})"


async def _empty(run: ToolRun) -> str:
    run.arguments["items"].clear()
    return f"packed ({run.mark})"


PACK = ToolSpec(
    "pack",
    _empty,
    "Pack items.",
    of_object(("items",), items={"type": "array", "items": {"type": "string"}}),
)


def _call_is_unchanged(evidence: Evidence) -> Iterator[str]:
    if len(evidence.asked) > 1 and "apple" not in whole_text(evidence.asked[1].messages):
        yield "the call in the history was changed by the tool that ran it"


SCENARIOS = (
    _raises(
        "tool-raises",
        "An exception in a tool ends the whole run.",
        "agentscope-ai/agentscope#2624",
        lambda: OSError("the disk is on fire"),
    ),
    _raises(
        "tool-raises-without-text",
        "An exception without a text makes an empty tool message.",
        "smallest-inc/smallest-python-sdk#118",
        _nothing_raised,
    ),
    _raises(
        "tool-raises-what-cannot-be-shown",
        "An exception whose text raises another one breaks the code that reports it.",
        "exceptions with a broken __str__",
        Unprintable,
    ),
    _raises(
        "tool-raises-a-group",
        "All that is reported of a failure is: unhandled errors in a TaskGroup (1 sub-exception).",
        "IBM/mcp-context-forge#1902",
        _group,
        "connection refused",
    ),
    _raises(
        "tool-raises-a-novel",
        "The text of an exception is as long as a book, and all of it goes to the model.",
        "huggingface/smolagents#2379",
        lambda: ValueError("no " * 500_000),
        longest_request=500_000,
    ),
    _raises(
        "tool-raises-cancelled",
        "A cancellation inside a tool is taken for one of the run, which ends without a word.",
        "openai/openai-agents-python#2681",
        asyncio.CancelledError,
        may_stop=True,
    ),
    _returns(
        "tool-returns-an-error-in-words",
        "A result that starts with Error is taken for a failure and lost.",
        "results that look like errors",
        lambda run: f"Error: 0 rows found ({run.mark})",
    ),
    _returns(
        "tool-returns-nothing",
        "A tool that returns None leaves its call without a proper answer.",
        "marimo-team/marimo#6431",
        lambda _: None,
    ),
    _returns(
        "tool-returns-bytes",
        "Object of type bytes is not JSON serializable.",
        "bhancockio/agent-development-kit-crash-course#27",
        lambda _: b"\x00\xff\xfe binary",
    ),
    _returns(
        "tool-returns-an-unknown-object",
        "The tool succeeds, and the agent crashes as it serialises the result.",
        "google/adk-python#1056",
        lambda run: Thing(run.mark),
    ),
    _returns(
        "tool-returns-a-set",
        "A set in the result fails the whole task, not just that call.",
        "bojieli/ai-agent-book#206",
        lambda run: {"found": {run.mark}},
    ),
    _returns(
        "tool-returns-a-dataclass",
        "A dataclass comes out as nothing that a model could read.",
        "results that are no JSON",
        lambda run: Point(run.mark),
    ),
    _returns(
        "tool-returns-a-cycle",
        "A structure that holds itself never stops being serialised.",
        "tylerjrbuell/reactive-agents-ts#58",
        _cycle,
    ),
    _returns(
        "tool-returns-nan",
        "NaN in a result is no JSON, and the provider refuses the request.",
        "NaN in JSON",
        lambda run: {"value": float("nan"), "note": run.mark},
    ),
    _returns(
        "tool-returns-an-exception",
        "An exception that is returned, not raised, crashes the loop.",
        "results that are exceptions",
        lambda run: ValueError(run.mark),
    ),
    _returns(
        "tool-returns-half-a-character",
        "Half of a character in a web page makes every later request fail.",
        "anomalyco/opencode#17758",
        lambda run: f"bold: \ud835 ({run.mark})",
    ),
    _returns(
        "tool-returns-control-characters",
        "Raw terminal output with control characters breaks the conversation.",
        "control characters in results",
        lambda run: f"\x1b[31mred\x1b[0m \x07 ({run.mark})",
    ),
    _returns(
        "tool-returns-megabytes",
        "One large result fills the context window, and the task is over.",
        "huggingface/smolagents#2379",
        lambda run: f"{run.mark} " + "x" * 5_000_000,
        longest_request=1_000_000,
    ),
    Scenario(
        name="tool-changes-its-arguments",
        complaint="A tool that empties the list it was handed empties it in the history, too.",
        source="arguments shared with the history",
        script=(calls(call("pack", {"items": ["apple"]})), says("done")),
        tools=(PACK,),
        runs={"pack": 1},
        answer="done",
        checks={"lost": _call_is_unchanged},
    ),
    Scenario(
        name="tool-hangs",
        complaint="A tool that never returns makes the agent wait forever.",
        source="mastra-ai/mastra#18594",
        script=(calls(call("hang")), says("done")),
        tools=(ToolSpec("hang", _hang, "Hang.", of_object(), timeout=0.3),),
        needs=frozenset({TOOL_TIMEOUT}),
        faults=(Fault(("time", "longer")),),
        answer="done",
        seconds=6,
    ),
    Scenario(
        name="tool-blocks-for-ever",
        complaint="A sync tool that never returns cannot be timed out.",
        source="amd/gaia#1591",
        script=(calls(call("hang")), says("done")),
        tools=(ToolSpec("hang", _block, "Hang.", of_object(), timeout=0.3),),
        needs=frozenset({TOOL_TIMEOUT}),
        faults=(Fault(("time", "longer")),),
        answer="done",
        seconds=6,
    ),
    Scenario(
        name="tool-blocks-its-siblings",
        complaint="A sync tool blocks the event loop, and nothing else goes on.",
        source="openai/openai-agents-python#2386",
        script=(calls(call("short"), call("long")), says("done")),
        tools=(
            ToolSpec("short", _short, "Something short.", of_object()),
            ToolSpec("long", _until_short_is_done, "Something long.", of_object()),
        ),
        runs={"short": 1, "long": 1},
        answer="done",
    ),
)
