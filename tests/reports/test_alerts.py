"""Alerts fire when they should and keep quiet when they should not: put to Prometheus' own promtool."""

import json

import pytest
from tests.programs import run_program

from .prometheus import program
from .rules import ALERTS, RULES

pytestmark = pytest.mark.prometheus


def promtool(*arguments):
    return run_program([program("promtool"), *map(str, arguments)])


def test_prometheus_accepts_the_rules():
    done = promtool("check", "rules", "--lint-fatal", RULES)
    assert done.returncode == 0, done.stdout + done.stderr


def series(name, values, **labels):
    """An input series of promtool, one value a minute."""
    inside = ",".join(
        f'{key}="{value}"' for key, value in {"job": "app", "instance": "a:1", **labels}.items()
    )
    return {"series": f"{name}{{{inside}}}", "values": values}


def runs(reason, values, agent="helper"):
    return series(
        "gen_ai_invoke_agent_duration_seconds_count",
        values,
        gen_ai_agent_name=agent,
        treadle_stop_reason=reason,
        otel_scope_name="treadle",
    )


def active(values, **labels):
    return series("treadle_invoke_agent_active", values, gen_ai_agent_name="helper", **labels)


def model_calls(values, **labels):
    name = "gen_ai_client_operation_duration_seconds_count"
    return series(
        name, values, **{"otel_scope_name": "treadle", "gen_ai_request_model": "m", **labels}
    )


def tool_calls(values, **labels):
    name = "gen_ai_execute_tool_duration_seconds_count"
    return series(
        name, values, **{"otel_scope_name": "treadle", "gen_ai_tool_name": "search", **labels}
    )


def breaker(state, values, **labels):
    name = "treadle_circuit_breaker_transitions_total"
    return series(
        name,
        values,
        **{"gen_ai_tool_name": "search", "treadle_circuit_breaker_state": state, **labels},
    )


STUCK = [active("2x60"), model_calls("7x60"), tool_calls("3x60")]
FIRES = {
    "a run is active and nothing ends": (
        "TreadleLoopsStuck",
        STUCK,
        "12m",
        {"instance": "a:1"},
        "2 runs of a:1 are stuck",
    ),
    "the first model call never ends": (
        "TreadleLoopsStuck",
        [active("1x60")],
        "12m",
        {"instance": "a:1"},
        "1 runs of a:1 are stuck",
    ),
    "it is stuck after it has worked": (
        "TreadleLoopsStuck",
        [active("1x60"), model_calls("0+1x20 20x40")],
        "32m",
        {"instance": "a:1"},
        "1 runs of a:1 are stuck",
    ),
    "another process works, and another library's calls end": (
        "TreadleLoopsStuck",
        [*STUCK, active("1x60", instance="b:1"), model_calls("0+1x60", instance="b:1"),
         model_calls("0+1x60", otel_scope_name="another")],
        "12m",
        {"instance": "a:1"},
        "2 runs of a:1 are stuck",
    ),
    "one run of ten goes in circles": (
        "TreadleLoopsDetected",
        [runs("answered", "0+9x60"), runs("loop_detected", "0+1x60")],
        "40m",
        {"gen_ai_agent_name": "helper"},
        "Runs of helper repeat themselves",
    ),
    "a quarter of the runs comes to a limit": (
        "TreadleBudgetsExhausted",
        [runs("answered", "0+12x60"), runs("max_iterations_reached", "0+1x60"), runs("finished", "0+1x60"),
         runs("budget_exhausted", "0+1x60"), runs("deadline_exceeded", "0+1x60")],
        "45m",
        {"gen_ai_agent_name": "helper"},
        "Runs of helper reach their limits",
    ),
    "an agent without a name comes to limits": (
        "TreadleBudgetsExhausted",
        [runs("answered", "0+3x60", ""), runs("budget_exhausted", "0+1x60", "")],
        "45m",
        {},
        "Runs of an unnamed agent reach their limits",
    ),
    "a model of no known name fails": (
        "TreadleModelFailing",
        [model_calls("0+4x60", gen_ai_request_model=""),
         model_calls("0+1x60", gen_ai_request_model="", error_type="APIStatusError")],
        "30m",
        {},
        "An unnamed model fails",
    ),
    "a breaker opens for the first time": (
        "TreadleBreakerOpen",
        [breaker("open", "_x5 1x10")],
        "8m",
        {"gen_ai_tool_name": "search"},
        "The circuit breaker of tool search is open",
    ),
    "a breaker opens again after a probe": (
        "TreadleBreakerOpen",
        [breaker("open", "2x10"), breaker("half_open", "1x10")],
        "5m",
        {"gen_ai_tool_name": "search"},
        "The circuit breaker of tool search is open",
    ),
    "two of three calls of a tool fail": (
        "TreadleToolFailing",
        [tool_calls("0+1x60"), tool_calls("0+2x60", error_type="timeout")],
        "30m",
        {"gen_ai_tool_name": "search"},
        "Tool search fails",
    ),
    "a fifth of the model calls fails": (
        "TreadleModelFailing",
        [model_calls("0+4x60"), model_calls("0+1x60", error_type="APIStatusError")],
        "30m",
        {"gen_ai_request_model": "m"},
        "m fails",
    ),
}  # fmt: skip
QUIET = {
    "model calls end": ("TreadleLoopsStuck", [active("1x60"), model_calls("0+1x60")], "60m"),
    "only tool calls end": (
        "TreadleLoopsStuck", [active("1x60"), model_calls("1x60"), tool_calls("0+1x60")], "60m"),
    "calls end every nine minutes": (
        "TreadleLoopsStuck", [active("1x60"), model_calls("1x8 2x8 3x8 4x8 5x8 6x8 7x8")], "60m"),
    "the very first call ended nine minutes ago": (
        "TreadleLoopsStuck", [active("1x60"), model_calls("_x8 1x60")], "17m"),
    "no run is active": ("TreadleLoopsStuck", [active("0x60"), model_calls("7x60")], "60m"),
    "a run became active after a pause of all": (
        "TreadleLoopsStuck", [active("1x20 0x10 1x60"), model_calls("7x90")], "38m"),
    "a process has just begun": ("TreadleLoopsStuck", [active("_x20 1x60")], "27m"),
    "nothing was ever run": ("TreadleLoopsStuck", [], "60m"),
    "one run of a hundred goes in circles": (
        "TreadleLoopsDetected", [runs("answered", "0+99x60"), runs("loop_detected", "0+1x60")], "40m"),
    "one of two runs went in circles": (
        "TreadleLoopsDetected", [runs("answered", "0x15 1x60"), runs("loop_detected", "0x16 1x60")], "40m"),
    "one run of ten comes to a limit": (
        "TreadleBudgetsExhausted", [runs("answered", "0+9x60"), runs("budget_exhausted", "0+1x60")], "45m"),
    "runs that are paused are no runs yet": (
        "TreadleBudgetsExhausted", [runs("answered", "0+9x60"), runs("paused", "0+50x60"),
                                    runs("budget_exhausted", "0+1x60")], "45m"),
    "another agent comes to limits, few times": (
        "TreadleBudgetsExhausted",
        [runs("answered", "0+9x60"), runs("budget_exhausted", "0x30 1x60", "other")], "45m"),
    "a breaker let a probe through": (
        "TreadleBreakerOpen", [breaker("open", "1x10"), breaker("half_open", "1x10")], "9m"),
    "a breaker closed again": (
        "TreadleBreakerOpen",
        [breaker("open", "3x10"), breaker("half_open", "3x10"), breaker("closed", "1x10")], "9m"),
    "the agent that opened it is not the one that tried again": (
        "TreadleBreakerOpen",
        [breaker("open", "1x10", gen_ai_agent_name="one"), breaker("half_open", "1x10", gen_ai_agent_name="two")],
        "9m"),
    "one of three calls of a tool fails": (
        "TreadleToolFailing", [tool_calls("0+2x60"), tool_calls("0+1x60", error_type="timeout")], "30m"),
    "people cancel half of the runs in a tool's call": (
        "TreadleToolFailing", [tool_calls("0+1x60"), tool_calls("0+2x60", error_type="cancelled")], "30m"),
    "people cancel half of the runs in a model call": (
        "TreadleModelFailing",
        [model_calls("0+5x60"), model_calls("0+4x60", error_type="cancelled"),
         model_calls("0+1x60", error_type="abandoned")],
        "30m"),
    "one of twenty model calls fails": (
        "TreadleModelFailing", [model_calls("0+19x60"), model_calls("0+1x60", error_type="Timeout")], "30m"),
}  # fmt: skip
ALERT = {alert.name: alert for alert in ALERTS}


def check(tmp_path, alert, given, at, expected):
    """Put it to promtool, which takes YAML, of which JSON is a part."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": given,
                "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    done = promtool("test", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def expected_alert(alert, labels, summary, description):
    return {
        "exp_labels": {"job": "app", "severity": alert.severity, **labels},
        "exp_annotations": {
            "summary": summary,
            "description": description,
            "runbook": alert.runbook,
        },
    }


DESCRIPTIONS = {
    "TreadleLoopsStuck": "Runs are active, and for ten minutes no model call and no tool call has ended.",
    "TreadleLoopsDetected": "10% of the runs of the last 30 minutes ended with loop_detected.",
    "TreadleBudgetsExhausted": "25% of the runs of the last 30 minutes reached a limit.",
    "TreadleBreakerOpen": "1 circuit breakers of the tool are open, so its calls are refused.",
    "TreadleToolFailing": "66.67% of its calls of the last 15 minutes failed.",
    "TreadleModelFailing": "20% of its calls of the last 10 minutes failed after all retries.",
}


@pytest.mark.parametrize("case", FIRES)
def test_an_alert_fires(case, tmp_path):
    name, given, at, labels, summary = FIRES[case]
    expected = expected_alert(ALERT[name], labels, summary, DESCRIPTIONS[name])
    check(tmp_path, name, given, at, [expected])


@pytest.mark.parametrize("case", QUIET)
def test_an_alert_keeps_quiet(case, tmp_path):
    name, given, at = QUIET[case]
    check(tmp_path, name, given, at, [])


def test_every_alert_is_seen_to_fire_and_to_keep_quiet():
    assert (
        {case[0] for case in FIRES.values()} == {case[0] for case in QUIET.values()} == set(ALERT)
    )
