"""The suite is not blind: each fault of a loop turns its column red, and a sound loop stays green."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
from torture_suite import (
    CANCELLATION,
    GIVEN_HISTORY,
    MAX_TOOL_CALLS,
    SCENARIOS,
    NotApplicable,
    Outcome,
    drive,
    run_scenario,
    run_suite,
)


class HandMade:
    """A loop of one screen. Without flaws it is sound, if not clever; each flaw spoils one thing.

    endless: no limit; forgetful: a failure returns no messages; wordless: errors are answered with nothing;
    wordy: they are answered with a book; lossy: results are answered with "ok"; silent: calls stay unanswered;
    careless: malformed arguments become others; twice: every tool runs twice; boundless: limits are ignored;
    brief: it stops at the first error of a tool; calm: a failing model is an empty answer; at-once: all calls
    start together; stubborn: it continues when it is cancelled; uninvited: it runs what was not asked for.
    """

    name, version = "hand-made", "1"
    can = frozenset({MAX_TOOL_CALLS, CANCELLATION, GIVEN_HISTORY})

    def __init__(self, *flaws):
        self.flaws = set(flaws)

    async def run(self, scenario, model, tools):
        messages = [dict(message) for message in scenario.prompt]
        try:
            answer = await drive(model, self.loop(scenario, model, tools, messages))
        except Exception as error:
            kept = None if "forgetful" in self.flaws else messages
            return Outcome.of_error(error, kept)
        return Outcome(answer, None, messages)

    async def loop(self, scenario, model, tools, messages):
        by_name, self.left = {tool.name: tool for tool in tools}, scenario.max_tool_calls
        for _ in range(10_000 if "endless" in self.flaws else 10):
            try:
                reply = model.reply(messages, [tool.as_openai() for tool in tools])
            except ConnectionError:
                raise
            except Exception:
                if "calm" in self.flaws:
                    return ""
                raise
            asked = reply.get("tool_calls") or []
            if not asked:
                if not (reply.get("content") or "").strip():
                    raise ValueError("a blank answer")
                messages.append(reply)
                return reply["content"]
            contents = await self.answers(by_name, [one["function"] for one in asked])
            messages.append(reply)
            if "silent" not in self.flaws:
                pairs = zip(asked, contents, strict=True)
                messages.extend(
                    {"role": "tool", "tool_call_id": one["id"], "content": text}
                    for one, text in pairs
                )
            if "uninvited" in self.flaws:
                await tools[-1].fn()
        raise RuntimeError("the limit of iterations is reached")

    async def answers(self, by_name, functions):
        if "at-once" in self.flaws:
            return await asyncio.gather(*(self.answer(by_name, one) for one in functions))
        return [await self.answer(by_name, one) for one in functions]

    async def answer(self, by_name, function):
        if self.left is not None and "boundless" not in self.flaws:
            self.left -= 1
            if self.left < 0:
                return "Error: no more calls"
        try:
            result = await self.result(by_name, function)
        except asyncio.CancelledError:
            if "stubborn" in self.flaws:
                return "Error: cancelled"
            raise
        except Exception as error:
            if "brief" in self.flaws:
                raise
            if "wordless" in self.flaws:
                return ""
            return f"Error: {error!r}" + " and so on" * 10_000 * ("wordy" in self.flaws)
        return "ok" if "lossy" in self.flaws else str(result)

    async def result(self, by_name, function):
        tool = by_name[function["name"]]
        try:
            arguments = json.loads(function["arguments"])
        except ValueError as error:
            if "careless" not in self.flaws:
                raise ValueError(f"no JSON: {error}") from error
            arguments = {"city": ""}
        if "twice" in self.flaws:
            await tool.fn(**arguments)
        return await tool.fn(**arguments)


def red(loop, name, **changes):
    """The columns that are red."""
    verdict = run_scenario(loop, replace(SCENARIOS[name], **changes))
    assert verdict.not_applicable is None
    return {column for column, problems in verdict.problems.items() if problems}


SOUND = [
    "arguments-cut-off",
    "field-missing",
    "name-unknown",
    "duplicates-in-a-batch",
    "good-beside-malformed",
    "failing-beside-slow",
    "same-call-for-ever",
    "two-calls-in-turn-for-ever",
    "tool-call-limit-within-a-batch",
    "polling-is-no-loop",
    "reading-again-after-a-write-is-no-loop",
    "reply-blank",
    "tool-raises",
    "tool-raises-a-group",
    "tool-changes-its-arguments",
    "model-down-after-tools-ran",
    "history-that-ends-with-a-result",
    "cancelled-while-a-tool-runs",
]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_loop_is_green(name):
    assert red(HandMade(), name) == set()


@pytest.mark.parametrize(
    ("flaw", "name", "columns"),
    [
        ("endless", "same-call-for-ever", {"ended", "limits"}),
        ("endless", "new-call-for-ever", {"ended", "limits"}),
        ("forgetful", "model-down-after-tools-ran", {"lost"}),
        ("forgetful", "same-call-for-ever", {"lost"}),
        ("wordless", "tool-raises", {"reported"}),
        ("wordless", "name-unknown", {"reported"}),
        ("wordless", "arguments-cut-off", {"reported"}),
        ("lossy", "text-beside-calls", {"lost"}),
        ("lossy", "ids-used-again-later", {"lost"}),
        ("lossy", "failing-beside-slow", {"lost"}),
        ("silent", "text-beside-calls", {"history", "lost"}),
        ("silent", "tool-raises", {"history", "reported"}),
        ("careless", "arguments-cut-off", {"reported"}),
        ("twice", "model-busy-once", {"limits", "lost"}),
        ("twice", "text-beside-calls", {"limits", "lost"}),
        ("boundless", "tool-call-limit-within-a-batch", {"limits"}),
        ("uninvited", "result-that-looks-like-a-call", {"limits"}),
        ("at-once", "a-hundred-slow-calls", {"limits"}),
        ("wordy", "name-of-a-hundred-thousand-characters", {"reported"}),
        ("calm", "model-down-from-the-start", {"lost"}),
        ("stubborn", "cancelled-while-a-tool-runs", {"limits"}),
        ("forgetful", "cancelled-while-a-tool-runs", {"lost"}),
        ("brief", "tool-raises", {"reported"}),
        ("brief", "good-beside-malformed", {"lost", "reported"}),
        ("brief", "arguments-cut-off", {"reported"}),
    ],
)
def test_a_flaw_is_red_in_its_column(flaw, name, columns):
    assert red(HandMade(flaw), name) == columns


def test_what_is_refused_before_it_begins_need_not_be_mended():
    class Refusing(HandMade):
        async def run(self, scenario, model, tools):
            return Outcome.of_error(ValueError("no"), list(scenario.prompt))

    assert red(Refusing(), "history-with-an-unanswered-call") == set()


class Hanging(HandMade):
    """Waits for what never comes, and lets itself be cancelled."""

    async def run(self, scenario, model, tools):
        await asyncio.Event().wait()


class Blocking(HandMade):
    """Blocks its event loop until the scenario is over."""

    async def run(self, scenario, model, tools):
        model.log.released.wait(20)
        return Outcome("done")


@pytest.mark.parametrize("loop", [Hanging(), Blocking()])
def test_a_loop_that_hangs_is_red_and_the_suite_goes_on(loop):
    verdict = run_scenario(loop, replace(SCENARIOS["reply-blank"], seconds=0.1))

    [problem] = verdict.problems["ended"]
    assert re.fullmatch(r"it was still running after \d+ s", problem)
    assert verdict.seconds < 15


class Leaving(HandMade):
    """Lets through what is no ordinary exception."""

    async def run(self, scenario, model, tools):
        raise SystemExit(1)


def test_leaving_the_interpreter_is_red():
    assert red(Leaving(), "reply-without-usage") == {"ended", "lost"}


class Raising(HandMade):
    """Raises out of the adapter itself."""

    async def run(self, scenario, model, tools):
        raise ValueError("a bug")


def test_an_exception_of_the_adapter_is_an_error_of_the_run():
    assert red(Raising(), "reply-without-usage") == {"lost"}
    assert red(Raising(), "model-down-from-the-start") == set()


class Choosy(HandMade):
    """Has nothing that could be tried."""

    async def run(self, scenario, model, tools):
        raise NotApplicable("no such thing")


def test_what_cannot_be_tried_is_not_applicable():
    assert run_scenario(Choosy(), SCENARIOS["tool-raises"]).not_applicable == "no such thing"
    lacking = run_scenario(HandMade(), SCENARIOS["stream-whole"])
    assert lacking.not_applicable == "it has no streaming"
    assert not lacking.passed


def test_the_suite_runs_the_scenarios_that_it_is_given_and_reports_each():
    verdicts = []

    table = run_suite(
        HandMade(), [SCENARIOS["tool-raises"], SCENARIOS["reply-blank"]], verdicts.append
    )

    assert [verdict.scenario for verdict in verdicts] == ["tool-raises", "reply-blank"]
    assert table.rows[0].verdicts == tuple(verdicts)
    assert (table.rows[0].name, table.rows[0].version) == ("hand-made", "1")


def test_the_suite_works_on_a_running_event_loop():
    async def main():
        return run_scenario(HandMade(), SCENARIOS["tool-raises"])

    assert asyncio.run(main()).passed
