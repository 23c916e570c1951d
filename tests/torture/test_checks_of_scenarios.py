"""What single scenarios check beyond the columns is seen to be wrong where it is wrong."""

import asyncio

import pytest
from torture_suite import (
    CANCELLATION,
    SCENARIOS,
    Log,
    Model,
    Outcome,
    Scenario,
    ToolSpec,
    drive,
    run_suite,
)
from torture_suite.evidence import Evidence
from torture_suite.judge import judge
from torture_suite.model import Asked
from torture_suite.script import call, calls, says

ASK = {"role": "user", "content": "Please do the task."}


def judged(name, *requests, outcome=None, runs=()):
    """The columns that are red, for a run that is made up: its requests, its outcome, its runs of tools."""
    scenario, log = SCENARIOS[name], Log()
    model = Model(scenario, log)
    model.asked.extend(Asked(list(messages), [], reply) for messages, reply in requests)
    for tool, arguments in runs:
        log.end(log.begin(tool, arguments), "")
    outcome = outcome or Outcome("done", None, None)
    found = judge(Evidence(scenario, model, log, outcome, 0.1))
    return {column for column, problems in found.items() if problems}


def tool_turn(content, **arguments):
    return [
        ASK,
        calls(call("pack", arguments, id="a")),
        {"role": "tool", "tool_call_id": "a", "content": content},
    ]


PACKED = [("pack", {"items": ["apple"]})]
PINGED = [("ping", {})]
REASONED = {**calls(call("ping", id="a")), "reasoning_content": "because of the sun"}
PONG = {"role": "tool", "tool_call_id": "a", "content": "pong"}


def test_a_call_that_its_tool_changed():
    asked = calls(call("pack", {"items": ["apple"]}, id="a"))
    name = "tool-changes-its-arguments"

    good = judged(name, ([ASK], asked), (tool_turn("x", items=["apple"]), None), runs=PACKED)
    bad = judged(name, ([ASK], asked), (tool_turn("x", items=[]), None), runs=PACKED)

    assert (good, bad) == (set(), {"lost"})


def test_reasoning_that_is_not_sent_back():
    dropped = calls(call("ping", id="a"))
    name = "reply-with-reasoning"

    good = judged(name, ([ASK], REASONED), ([ASK, REASONED, PONG], None), runs=PINGED)
    bad = judged(name, ([ASK], REASONED), ([ASK, dropped, PONG], None), runs=PINGED)

    assert (good, bad) == (set(), {"lost"})


@pytest.mark.parametrize(
    ("outcome", "columns"),
    [
        (Outcome(None, "ModelRefusal: no"), set()),
        (Outcome("I cannot help with that."), set()),
        (Outcome("", None, [ASK, says(None, refusal="I cannot help with that.")]), set()),
        (Outcome(""), {"lost"}),
    ],
)
def test_a_refusal_that_reaches_no_one_is_a_loss(outcome, columns):
    assert judged("reply-a-refusal", outcome=outcome) == columns


def test_a_record_that_the_model_changed():
    name = "reply-after-changing-the-messages"
    runs = [("get_weather", {"city": "Bern"})]
    request = ([ASK], calls(call("get_weather", {"city": "Bern"})))

    changed = Outcome("done", None, [{"role": "user", "content": "changed"}])
    kept = Outcome("done", None, [ASK])

    assert judged(name, request, outcome=changed, runs=runs) == {"lost"}
    assert judged(name, request, outcome=kept, runs=runs) == set()


@pytest.mark.parametrize(
    ("outcome", "columns"),
    [
        (Outcome("done"), set()),
        (Outcome(None, "ConnectionError: closed"), set()),
        (Outcome("It will be"), {"lost"}),
    ],
)
def test_half_an_answer(outcome, columns):
    assert judged("stream-breaks-in-text", outcome=outcome) == columns


def test_a_result_of_the_given_history_that_is_dropped():
    name = "history-that-ends-with-a-result"

    assert judged(name, ([ASK], says("done"))) == {"lost"}


def test_text_next_to_calls_that_is_dropped():
    silent = calls(call("get_weather", {"city": "Bern"}, id="a"))
    spoken = {**silent, "content": "Let me look."}
    result = {"role": "tool", "tool_call_id": "a", "content": "Sunny"}
    runs = [("get_weather", {"city": "Bern"})]
    name = "text-beside-calls"

    good = judged(name, ([ASK], spoken), ([ASK, spoken, result], None), runs=runs)
    bad = judged(name, ([ASK], spoken), ([ASK, silent, result], None), runs=runs)

    assert (good, bad) == (set(), {"lost"})


def test_arguments_that_come_out_changed():
    asked = ([ASK], calls(call("configure", {})))
    given = {"name": "server", "config": "fast", "type": "small"}
    name = "field-with-a-reserved-name"

    assert judged(name, asked, runs=[("configure", given)]) == set()
    assert judged(name, asked, runs=[("configure", {**given, "config": {}})]) == {"lost"}


def test_a_tool_that_ran_from_half_a_stream():
    assert judged("stream-breaks-in-arguments", runs=[("get_weather", {"city": "Be"})]) == {
        "limits"
    }


def test_the_same_answer_for_two_calls():
    asked = calls(
        call("get_weather", {"city": "Bern"}, id="a"),
        call("get_weather", {"city": "Basel"}, id="b"),
    )
    same = [{"role": "tool", "tool_call_id": i, "content": "Sunny in Bern"} for i in ("a", "b")]
    runs = [("get_weather", {"city": "Bern"}), ("get_weather", {"city": "Basel"})]

    found = judged("results-out-of-order", ([ASK], asked), ([ASK, asked, *same], None), runs=runs)

    assert found == {"lost"}


# Tools that are not async, and cancellation


def test_a_sync_tool_is_noted_too():
    log = Log()

    def fail(run):
        raise ValueError(run.mark)

    tool = ToolSpec("fail", fail).made(log)
    echo = ToolSpec("echo", lambda run: run.mark).made(log)

    with pytest.raises(ValueError, match="result-0001"):
        tool.fn()
    assert isinstance(log.runs[0].error, ValueError)
    assert not log.runs[0].succeeded
    assert echo.function() == "result-0002"
    assert not tool.is_async


def test_a_run_is_cancelled_with_the_suite_itself():
    """A loop that hangs where it was to be cancelled ends when the time of the suite is over."""
    ended = []

    async def run():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def main():
        model = Model(Scenario("s", "c", "t", (), needs=frozenset({CANCELLATION})), Log())
        task = asyncio.create_task(drive(model, run()))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())

    assert ended == [True]


def test_the_suite_runs_all_scenarios_where_none_are_chosen():
    class Nothing:
        name, version, can = "nothing", "0", frozenset()

        async def run(self, scenario, model, tools):
            return Outcome("")

    (row,) = run_suite(Nothing()).rows

    assert [verdict.scenario for verdict in row.verdicts] == list(SCENARIOS)
    assert row.passed < len(SCENARIOS) / 2
