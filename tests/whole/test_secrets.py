"""Secrets that a program hands over, such as keys of models, are in no text that treadle makes.

What is in the conversation is content, and no secret: docs/guide-telemetry.md says where content is.
"""

import dataclasses
import functools
import json
import logging
import os
import pathlib
import sys
from collections.abc import Mapping

import anyio
import pytest
from tests.completion import COMPLETION
from tests.deciding import on
from tests.http_server import Handler, served_by
from tests.programs import run_program
from tests.telemetry.watching import Watch

from treadle import (
    CircuitBreaker,
    Limits,
    Loop,
    OptionError,
    Output,
    Paused,
    Pauses,
    Recipe,
    RecipeStep,
    RunHandle,
    SQLiteClaims,
    Tool,
    ToolContext,
    approve,
    stage,
    tool,
)
from treadle.context import Request
from treadle.effects import Call
from treadle.loop.options import Settings
from treadle.model import ModelClient, ModelRequest
from treadle.providers.openai import OpenAIModel
from treadle.reports import Recorder
from treadle.stages import validate_calls
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools.resolver import Resolver

SECRET = "canary-5c1f"  # noqa: S105
USER = [{"role": "user", "content": "Hi"}]
OPTS = {
    "temperature": 0,
    "api_key": SECRET,
    "extra_headers": {"Authorization": f"Bearer {SECRET}"},
}


@dataclasses.dataclass
class Client:
    """An object of the user, whose repr shows its token, as that of any dataclass does."""

    token: str = SECRET

    def __call__(self, *_args, **_opts):
        return None

    def claim(self, pause_id, claimant, *, take_over):
        return True

    def release(self, pause_id, claimant, outcome):
        pass

    def resolve(self, asked):
        return "resolved"

    def available_tools(self):
        return ["search"]

    def dispatch_recipe(self, name):
        return functools.partial(recipe, key=SECRET)


def recipe(arguments, key):
    return Recipe(
        serial=[RecipeStep("look", functools.partial(makes, key=SECRET))],
        compose=functools.partial(makes, key=SECRET),
    )


def makes(results, key):
    return {}


def look(place: str = "here", *, key: str = "") -> str:
    """Look somewhere."""
    return "seen"


def ask(script, messages, key="", **opts):
    return script(messages, **opts)


def passes(steps, key):
    return (yield from steps)


@tool(requires_approval=True)
def sign(ctx: ToolContext):
    """Sign."""
    return "signed"


@stage
def annotate(ctx, *, token=""):
    return ctx.with_request(options={"extra_headers": OPTS["extra_headers"]})


def partial(fn):
    return functools.partial(fn, key=SECRET)


def ignores(*_args, key):
    return None


def options(**more):
    """The options of a loop that has a secret wherever one may be."""
    return {
        "llm_opts": OPTS,
        "instructions": functools.partial(lambda ctx, key: "Be good.", key=SECRET),
        "deps": {"token": SECRET},
        "pauses": Pauses(secret=SECRET, claims=Client()),
        "resolve_tool": Client(),
        "tools": [
            Tool(
                "look",
                fn=partial(look),
                lock=partial(ignores),
                requires_approval=partial(lambda arguments, key: False),
            ),
            sign,
        ],
        "stages": [annotate(token=SECRET), validate_calls(repair_call=partial(ignores)), ...],
        "limits": Limits(cost_of=functools.partial(lambda response, key: 0.1, key=SECRET)),
        "output": Output(str, validators=[partial(ignores)]),
        "on_iteration": partial(ignores),
        "on_complete": Client(),
        "on_event": [Client(), partial(ignores)],
        "middleware": [partial(passes)],
        "breaker": CircuitBreaker(3, 1),
        **more,
    }  # fmt: skip


def scripted(*script):
    """A model with a key, as a partial."""
    return functools.partial(ask, ScriptedLLM(*script), key=SECRET)


def reachable(*roots):
    """The objects of treadle's classes that can be reached from objects, through attributes and containers."""
    seen, found, waiting = {}, [], list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, str, bytes)):
            continue
        seen[id(one)] = one  # kept, so that no other object gets its id
        if isinstance(one, Mapping):
            waiting += [*one.keys(), *one.values()]
            continue  # a copy of what the user passed
        if isinstance(one, (list, tuple, set, frozenset)):
            waiting += one
        if isinstance(one, functools.partial):
            waiting += [one.func, *one.args]
        if type(one).__module__.partition(".")[0] == "treadle":
            found.append(one)
            waiting += vars(one).values() if hasattr(one, "__dict__") else ()
            slots = [getattr(kind, "__slots__", ()) for kind in type(one).__mro__]
            names = {name for each in slots for name in ([each] if isinstance(each, str) else each)}
            waiting += [getattr(one, name, None) for name in names]
    return found


def shows(*roots):
    """The classes of treadle's objects whose texts have the secret."""
    found = reachable(*roots)
    assert found
    return sorted({type(one).__name__ for one in found if SECRET in f"{one!r} {one!s}"})


def test_the_walk_finds_what_an_object_shows():
    assert shows(RecipeStep("a", {"key": SECRET})) == ["RecipeStep"]
    assert shows([{"a": (Recipe([RecipeStep("a", {"key": SECRET})]),)}]) == ["Recipe", "RecipeStep"]


def test_of_a_loop_and_its_options():
    loop = Loop(llm_send_fn=scripted(), **options())
    assert shows(loop, loop.settings, Settings({"llm_opts": OPTS})) == []
    assert shows(Settings({"tools": [functools.partial(look, key=SECRET)]}, loop.settings)) == []


def test_of_models_and_requests():
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", api_key=SECRET, extra_headers=OPTS)
    client = ModelClient(scripted(), OPTS)
    objects = [model, client, ModelRequest(client, [], {}), client.model_info(), Resolver(Client())]
    assert shows(*objects, Request(USER, options=OPTS)) == []


def test_of_effects_and_contexts_of_tools():
    assert shows(Call(functools.partial(look, key=SECRET))) == []
    assert shows(ToolContext("c", "look", 1, deps={"token": SECRET})) == []
    assert shows(SQLiteClaims("claims.db"), RunHandle()) == []


def test_of_everything_in_a_run(tmp_path):
    """Every effect, event, context and result, and what can be reached from them."""
    found, effects, events = [], [], []

    def watch(steps):
        answer = None
        try:
            effect = next(steps)
            while True:
                effects.append(effect)
                found.extend(shows(effect))
                try:
                    answer = yield effect
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    found.extend(shows([effect], answer, [effect]))
                    effect = steps.send(answer)
        except StopIteration as end:
            return end.value

    def observe(event):
        events.append(event)
        found.extend(shows(event))
        assert SECRET not in json.dumps(event.to_json())

    handle = RunHandle()
    with Recorder(tmp_path / "run.jsonl") as recorder:
        loop = Loop(
            **options(
                middleware=[watch],
                on_event=[observe, recorder],
                on_iteration=lambda ctx: found.extend(shows(ctx)),
                handle=handle,
                loop_threshold=None,
            )
        )
        script = [calls(call("look"), call("search", "s1")), calls(call("sign", "c2")), "Done."]
        model = scripted(*script)
        paused = loop.run_sync(USER, model)
        assert isinstance(paused, Paused)
        result = loop.resume_sync(paused, on(paused, {"c2": approve}), model, handle=RunHandle())
        assert result.stop_reason == "output", result
    assert sorted(set(found)) == []
    assert shows(handle, recorder, paused, result) == []
    assert SECRET not in pathlib.Path(tmp_path / "run.jsonl").read_text()


def test_of_a_stream():
    async def streamed():
        loop = Loop(llm_send_fn=scripted(calls(call("look")), "Done."), **options())
        async with loop.stream(USER) as stream:
            return [shows(event, stream) async for event in stream], shows(stream)

    of_events, of_stream = anyio.run(streamed)
    assert len(of_events) > 10
    assert [of_stream, *of_events] == [[]] * (1 + len(of_events))


class UnauthorizedError(Exception):
    """An error as HTTP clients make them: with the URL and the headers of the request."""

    def __init__(self):
        url = f"https://user:{SECRET}@models.example.org/v1?key={SECRET}"
        super().__init__(f"401 for {url}; sent: {OPTS['extra_headers']}, Bearer {SECRET}")


class OverloadedError(UnauthorizedError):
    status_code = 503


def raised_by(messages, key, errors):
    raise next(errors)


def test_of_the_errors_of_a_provider(tmp_path, caplog):
    """In the result, events, logs, telemetry, and the recording, which has a traceback."""
    watch, events, path = Watch(), [], tmp_path / "run.jsonl"
    caplog.set_level(logging.DEBUG)
    model = functools.partial(
        raised_by, key=SECRET, errors=iter([OverloadedError(), UnauthorizedError()])
    )
    with Recorder(path) as recorder:
        result = Loop.run_sync(
            USER,
            model,
            retry_delay=0,
            on_event=[events.append, recorder],
            **watch.reporting(capture_content=True),
        )
    texts = {
        "result": f"{result!r} {result.reason}",
        "events": json.dumps([event.to_json() for event in events]),
        "shown events": repr(events),
        "log": repr([vars(record) for record in caplog.records]),
        "telemetry": watch.everything(),
        "recording": path.read_text(),
    }
    assert [name for name, text in texts.items() if SECRET in text] == []
    assert "401 for https://[redacted]@models.example.org/v1?key=[redacted]; sent" in str(
        result.reason
    )
    assert "Traceback" in texts["recording"]


def test_of_logs_and_telemetry_of_a_run(caplog):
    watch = Watch()
    caplog.set_level(logging.DEBUG)
    script = calls(call("look"), call("search", "s1"))
    loop = Loop(**options(middleware=[], **watch.reporting(capture_content=False)))
    assert loop.run_sync(USER, scripted(script, "Done.")).stop_reason == "output"
    assert SECRET not in watch.everything()
    assert len(watch.spans) >= 4
    assert caplog.records
    assert SECRET not in repr([vars(record) for record in caplog.records])


async def is_async(arguments, key):
    return True


@pytest.mark.parametrize(
    "make",
    [
        lambda: Loop(llm_send_fn=functools.partial(lambda *, key: "", key=SECRET)).run_sync(USER),
        lambda: Loop(llm_opts={"api_key": SECRET}).run_sync(USER, lambda messages, model="m": ""),
        lambda: Tool("a", requires_approval=functools.partial(is_async, key=SECRET)),
        lambda: Tool("a", lock=functools.partial(is_async, key=SECRET)),
        lambda: Loop(limits=Limits(cost_of=functools.partial(is_async, key=SECRET))),
        lambda: Loop(pauses=Pauses(claims={"token": SECRET})),
        lambda: Loop(stages=[{"token": SECRET}]),
        lambda: stage({"token": SECRET}),
        lambda: Loop(tools=[{"name": "a", "token": SECRET}]),
        lambda: Loop(resolve_tool={"token": SECRET}),
        lambda: Loop(on_event=[{"token": SECRET}]),
        lambda: Loop(instructions={"token": SECRET}),
    ],
)  # fmt: skip
def test_of_errors_about_options(make):
    with pytest.raises((OptionError, TypeError, ValueError)) as caught:
        result = make()
        raise result.reason
    assert SECRET not in str(caught.value)


@pytest.fixture(params=[200, 401])
def server(request):
    """A server that answers or refuses, and repeats the headers that it got in its error."""

    class Repeating(Handler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            error = {"error": {"message": f"refused: {dict(self.headers)}"}}
            body = json.dumps(COMPLETION if request.param == 200 else error).encode()
            self.respond(request.param, body, {"Content-Type": "application/json"})

    with served_by(Repeating, code=0 if request.param == 200 else 1) as made:
        yield made


def test_of_the_command(server, tmp_path):
    """On the terminal, in the recording and in the report."""
    command = [sys.executable, "-m", "treadle", "run", "hi", "--model", "openai:m"]
    command += ["--base-url", f"http://user:pw{SECRET}@127.0.0.1:{server.server_port}/v1"]
    command += ["--api-key-env", "MY_KEY", "--record", "run.jsonl", "--report", "run.html"]
    done = run_program(command, env={**os.environ, "MY_KEY": SECRET}, cwd=tmp_path)
    assert done.returncode == server.code, done.stderr
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written.keys() == {"run.jsonl", "run.html"}
    texts = {"stdout": done.stdout, "stderr": done.stderr, **written}
    assert [name for name, text in texts.items() if SECRET in text] == []
