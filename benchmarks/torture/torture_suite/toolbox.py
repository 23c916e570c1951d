"""The tools that most scenarios use, and short ways to write what most of them check."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torture_suite.evidence import Evidence, calls_of, text_of
from torture_suite.log import ToolRun
from torture_suite.protocol import Check, Scenario
from torture_suite.tools import ToolSpec


def of_object(required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object that takes nothing else."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


async def _weather(run: ToolRun) -> str:
    return f"Sunny in {run.arguments['city']} ({run.mark})."


WEATHER = ToolSpec(
    "get_weather",
    _weather,
    "Get the weather of a city.",
    of_object(
        ("city",),
        city={"type": "string"},
        days={"type": "integer"},
        unit={"type": "string", "enum": ["celsius", "fahrenheit"]},
    ),
)
"""Takes ``city``, and maybe ``days`` and ``unit``; its result has the city in it."""


async def _ping(run: ToolRun) -> str:
    return f"pong ({run.mark})"


PING = ToolSpec("ping", _ping, "Check whether the server responds.", of_object())
"""Takes nothing."""


async def _fail(_: ToolRun) -> str:
    raise OSError("the disk is on fire")


FAIL = ToolSpec("save", _fail, "Save the work.", of_object(name={"type": "string"}))
"""Always raises an error that says ``the disk is on fire``."""


def returning(value: Callable[[ToolRun], Any], name: str = "look_up") -> ToolSpec:
    """A tool without parameters, whose result a function makes."""

    async def fn(run: ToolRun) -> Any:
        return value(run)

    return ToolSpec(name, fn, "Look something up.", of_object())


def raising(error: Callable[[], BaseException], name: str = "look_up") -> ToolSpec:
    """A tool without parameters that raises what a function makes."""

    async def fn(_: ToolRun) -> Any:
        raise error()

    return ToolSpec(name, fn, "Look something up.", of_object())


def reported_briefly(index: int = 0, most: int = 20_000) -> Check:
    """Check that what is reported to the model after a request has at most some characters."""

    def check(evidence: Evidence) -> Iterator[str]:
        length = len(evidence.news_after(index) or "")
        if length > most:
            yield f"{length:,} characters were reported to the model"

    return check


def ends_with_error(evidence: Evidence) -> Iterator[str]:
    """Check that a failure is reported to the caller."""
    if evidence.outcome is not None and evidence.error is None:
        yield f"the failure was not reported: {evidence.outcome.answer!r:.80}"


def ran_with(tool: str, **arguments: Any) -> Check:
    """A check that a tool was handed its arguments just as the model gave them."""

    def check(evidence: Evidence) -> Iterator[str]:
        for run in evidence.log.of(tool):
            given = {key: value for key, value in run.given.items() if value is not None}
            if given != arguments:
                yield f"{tool!r} was handed {run.given!r:.120}"

    return check


def answers_fit(evidence: Evidence) -> Iterator[str]:
    """A check that the answer to each call of the weather speaks of the city that was asked for."""
    for where, messages in evidence.histories():
        asked_for: dict[Any, str] = {}
        for message in messages:
            for call in calls_of(message):
                found = _CITY.search(call["function"].get("arguments") or "")
                asked_for[call.get("id")] = found[1] if found is not None else ""
            city = asked_for.get(message.get("tool_call_id"), "")
            if message.get("role") == "tool" and city not in text_of(message):
                yield f"{where}: asked for {city!r}, answered {text_of(message):.60}"


_CITY = re.compile(r'"city": ?"([^"]*)"')


def by_name(scenarios: Iterable[Scenario]) -> dict[str, Scenario]:
    """The scenarios by their names, which have to be different."""
    found: dict[str, Scenario] = {}
    for scenario in scenarios:
        if scenario.name in found:
            raise ValueError(f"two scenarios are named {scenario.name!r}")
        found[scenario.name] = scenario
    return found
