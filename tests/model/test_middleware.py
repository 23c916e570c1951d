"""Middleware of model calls: what it sees, and how it is composed."""

import pytest
from tests.providers.middleware.flaky import BusyError, Named

from treadle import Loop, Response, Usage, tool
from treadle.effects import Sleep
from treadle.errors import OptionError
from treadle.testing import ScriptedLLM, call, calls


def noting(name, log):
    """Middleware that notes when a request passes it."""

    def middleware(request, send):
        log.append(f"{name} in")
        yield Sleep(0.001)
        answer = yield from send(request)
        log.append(f"{name} out")
        return answer

    return middleware


def test_the_first_is_the_outermost(way):
    log = []
    model = Named("m", BusyError())
    options = {"model_middleware": [noting("a", log), noting("b", log)], "retry_delay": 0}
    observed = way.run("Hi", model, **options)
    assert observed.result.unwrap().content == "from m"
    assert log == ["a in", "b in", "a in", "b in", "b out", "a out"]


def test_it_may_answer_or_change_the_request(driven):
    def answering(request, send):
        if request.messages[-1]["content"] == "Hi":
            return Response("Hello."), 1.0, 1.0
        request.opts["temperature"] = 0
        request.messages[-1]["content"] += "!"
        return (yield from send(request))

    model = Named("m")
    assert driven.run("Hi", model, model_middleware=[answering]).result.unwrap().text == "Hello."
    assert model.sent == []
    result = driven.run("Go", model, model_middleware=[answering]).result
    assert [m["content"] for m in result.messages] == ["Go", "from m"]
    assert (model.sent[0][-1]["content"], model.given[0]) == ("Go!", {"temperature": 0})


def test_it_knows_the_iteration_and_the_attempt(driven):
    seen = []

    def looking(request, send):
        seen.append((request.iteration, request.attempt))
        return (yield from send(request))

    @tool
    def look() -> str:
        return "seen"

    model = ScriptedLLM(BusyError(), calls(call("look")), "Done.")
    driven.run("Hi", model, tools=[look], model_middleware=[looking], retry_delay=0)
    assert seen == [(1, 1), (1, 2), (2, 1)]


def test_it_works_in_a_subagent(way):
    log = []
    helper = Loop(model_middleware=[noting("inner", log)]).as_tool("helper", "Helps.", Named("kid"))
    model = ScriptedLLM(calls(call("helper", "c1", task="Go.")), "Done.")
    observed = way.run("Hi", model, tools=[helper], model_middleware=[noting("outer", log)])
    assert observed.result.messages[2]["content"] == "from kid"
    assert log == [
        "outer in", "outer out", "inner in", "inner out", "outer in", "outer out",
    ]  # fmt: skip


def test_its_exception_is_the_models(driven):
    def failing(request, send):
        yield from send(request)
        raise LookupError("no")

    result = driven.run("Hi", Named("m", usage=Usage(1, 1)), model_middleware=[failing]).result
    assert (result.reason.error_type, result.reason.message) == ("LookupError", "no")


@pytest.mark.parametrize("given", [noting("a", []), [1], "ab"])
def test_anything_else_is_refused(given):
    with pytest.raises(OptionError, match="model_middleware: expected a list of functions"):
        Loop(model_middleware=given)
