"""Models that raise, once or always, before or after tools have run."""

from __future__ import annotations

from torture_suite.protocol import Scenario
from torture_suite.script import (
    ModelError,
    Request,
    Script,
    Step,
    always,
    call,
    calls,
    says,
)
from torture_suite.toolbox import WEATHER, ends_with_error

BERN, BASEL = {"city": "Bern"}, {"city": "Basel"}
LOOK = calls(call("get_weather", BERN))
BUSY = ModelError(429, "rate limit reached")
DOWN = ModelError(500, "internal server error")


def _then_always(*steps: Step, last: Step) -> Script:
    return lambda request: _step(request, steps, last)


def _step(request: Request, steps: tuple[Step, ...], last: Step) -> Step:
    return steps[request.index] if request.index < len(steps) else last


SCENARIOS = (
    Scenario(
        name="model-busy-once",
        complaint="A rate limit in the middle of a run throws all of it away.",
        source="warpdotdev/oz-for-oss#240",
        script=(LOOK, BUSY, says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
    ),
    Scenario(
        name="model-down-once",
        complaint="After an error of the server the run is repeated, and the tools run again.",
        source="Lingtai-AI/lingtai#188",
        script=(LOOK, DOWN, says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
    ),
    Scenario(
        name="model-unreachable-once",
        complaint="A dropped connection ends a run that was nearly finished.",
        source="AtomicBot-ai/atomic-agent#339",
        script=(LOOK, ConnectionError("connection reset by peer"), says("done")),
        tools=(WEATHER,),
        runs={"get_weather": 1},
        at_most={"get_weather": 1},
    ),
    Scenario(
        name="model-down-from-the-start",
        complaint="A model that is down is asked without limit.",
        source="Lexus2016/hermes-agent-evolution#366",
        script=always(DOWN),
        tools=(WEATHER,),
        most_model_calls=20,
        answer=None,
        checks={"lost": ends_with_error},
    ),
    Scenario(
        name="model-down-after-tools-ran",
        complaint="A run that fails after its tools have run leaves nothing to continue from.",
        source="nexu-io/open-design#8074",
        script=_then_always(LOOK, calls(call("get_weather", BASEL)), last=DOWN),
        tools=(WEATHER,),
        most_model_calls=20,
        runs={"get_weather": 2},
        at_most={"get_weather": 2},
        checks={"lost": ends_with_error},
    ),
    Scenario(
        name="model-context-is-full",
        complaint="Too long a context can never succeed, and is sent again ten times.",
        source="SWE-agent/mini-swe-agent#921",
        script=_then_always(
            LOOK,
            last=ModelError(400, "maximum context length exceeded", "context_length_exceeded"),
        ),
        tools=(WEATHER,),
        most_model_calls=3,
        runs={"get_weather": 1},
        checks={"lost": ends_with_error},
    ),
    Scenario(
        name="model-key-is-wrong",
        complaint="A wrong key is tried again until all retries are used up.",
        source="Lexus2016/hermes-agent-evolution#366",
        script=always(ModelError(401, "invalid api key", "invalid_api_key")),
        tools=(WEATHER,),
        most_model_calls=2,
        checks={"lost": ends_with_error},
    ),
)
