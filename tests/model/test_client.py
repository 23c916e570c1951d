"""The model is any callable: its signature decides, once, how it is called."""

import functools
import inspect
import types
from types import SimpleNamespace

import anyio
import pytest
from tests.loop.conftest import USER, way

from treadle import Loop, OptionError, tool
from treadle.effects import Mode
from treadle.model import ModelClient, ModelRequest
from treadle.model.client import signature_of
from treadle.providers.middleware import ResponseCache
from treadle.stages import loop_decision
from treadle.testing import ScriptedLLM, call, calls

__all__ = ["way"]


@tool
def add(a: int): ...


TOOLS = [add.as_openai()]
COLD = {"temperature": 0}


@pytest.fixture
def seen():
    return {}


def sent(fn, **llm_opts):
    """Send one request as a run does."""
    client = ModelClient(fn, llm_opts)
    return answer_of(client, list(TOOLS))


def answer_of(client, tools=()):
    """The answer to one request."""
    request = ModelRequest(client, list(USER), client.opts_of(client.options, tools))
    return request.send(SimpleNamespace(now=lambda: 0.0, emit=lambda event: None))[0]


class TestForms:
    """Every form of callable gets the messages, and the options as it takes them."""

    @pytest.mark.parametrize(
        ("parameters", "given", "received"),
        [
            ("messages", {}, {"messages": USER}),
            *(
                (f"messages, {name}", COLD, {"messages": USER, name: {"tools": TOOLS, **COLD}})
                for name in ("opts", "options", "kwargs", "params", "anything")
            ),
            *(
                (f"m, {name}=None", {}, {"m": USER, name: {"tools": TOOLS}})
                for name in ("opts", "options", "kwargs", "params")
            ),
            ("messages, **opts", COLD, {"messages": USER, "opts": {"tools": TOOLS, **COLD}}),
            ("*, messages, **opts", {}, {"messages": USER, "opts": {"tools": TOOLS}}),
            (
                "messages, tools=None, tool_choice=None",
                {},
                {"messages": USER, "tools": TOOLS, "tool_choice": None},
            ),
            ("messages, temperature", COLD, {"messages": USER, **COLD}),
            ("*args, **kwargs", {}, {"args": (USER,), "kwargs": {"tools": TOOLS}}),
            ("*args", {}, {"args": (USER,)}),
            ("*args, temperature", COLD, {"args": (USER,), **COLD}),
        ],
    )
    def test_a_function_with_these_parameters(self, parameters, given, received, seen):
        space = {"seen": seen}
        exec(f"def fn({parameters}): seen.update(locals()); return 'x'", space)  # noqa: S102
        sent(space["fn"], **given)
        assert seen == received

    def test_keyword_only_messages_as_those_of_openais_client(self, seen):
        def create(*, messages, model, tools=None, temperature=None):
            seen.update(locals())
            return "x"

        sent(functools.partial(create, model="m1"), **COLD)
        assert (seen["messages"], seen["model"]) == (USER, "m1")
        assert (seen["tools"], seen["temperature"]) == (TOOLS, 0)

    def test_a_builtin_without_a_signature(self):
        with pytest.raises(ValueError, match="no signature"):
            inspect.signature(max)
        result = Loop.run_sync(USER, max)  # the greatest of one message is this message
        assert "got str 'user'" in result.reason.message

    def test_methods_objects_and_partials(self, seen):
        class Model:
            def __call__(self, messages, **opts):
                seen.update(called=messages)
                return "x"

            def ask(self, messages, opts):
                seen.update(asked=opts)
                return "x"

            @classmethod
            def of_class(cls, messages):
                seen.update(of_class=messages)
                return "x"

            @staticmethod
            def static(messages):
                seen.update(static=messages)
                return "x"

        def plain(flavour, messages, **opts):
            seen.update(partial=flavour)
            return "x"

        for fn in (Model(), Model().ask, Model.of_class, Model.static):
            sent(fn)
        sent(functools.partial(plain, "mild"))
        assert seen == {
            "called": USER,
            "asked": {"tools": TOOLS},
            "of_class": USER,
            "static": USER,
            "partial": "mild",
        }

    def test_without_tools_the_request_has_no_key_for_them(self, seen):
        answer_of(ModelClient(lambda m, **o: seen.update(o) or "x", {}))
        assert seen == {}

    @pytest.mark.parametrize(
        "fn",
        [
            lambda messages, tools, tool_choice: f"{tools} {tool_choice}",
            lambda messages, tools, tool_choice, **opts: f"{tools} {tool_choice}",
        ],
        ids=["named", "any"],
    )
    def test_a_required_parameter_for_tools_is_none_without_tools(self, fn):
        assert answer_of(ModelClient(fn, {})).text == "None None"

    def test_user_supplied_tools_take_precedence(self, seen):
        sent(lambda m, **o: seen.update(o) or "x", tools=["mine"])
        assert seen == {"tools": ["mine"]}


async def later(messages): ...


async def stream_later(messages):
    yield "x"


class Later:
    async def __call__(self, messages): ...


@pytest.mark.parametrize(
    ("fn", "mode"),
    [
        (lambda messages: "x", Mode.THREAD),
        (later, Mode.ASYNC),
        (functools.partial(later), Mode.ASYNC),
        (Later(), Mode.ASYNC),
        (stream_later, Mode.ASYNC),
        (functools.partial(stream_later), Mode.ASYNC),
    ],
)
def test_sync_or_async_is_decided_once(fn, mode):
    assert ModelClient(fn, {}).mode is mode


class TestTheModelOfALoop:
    """It is given once, to the loop; the runs may have another."""

    def test_it_is_the_model_of_each_run(self, way):
        loop = Loop(llm_send_fn=lambda messages: "a")
        assert way.run(loop, None).unwrap().content == "a"
        assert way.run(loop.with_options(max_iterations=2), None).unwrap().content == "a"

    def test_a_run_may_have_another(self, way):
        loop = Loop(llm_send_fn=lambda messages: "a")
        assert way.run(loop, lambda messages: "b").unwrap().content == "b"
        assert loop.run_sync(USER, llm_send_fn=lambda messages: "b").unwrap().content == "b"

    def test_a_subagent_has_that_of_its_loop(self, way):
        child = Loop(llm_send_fn=lambda messages: "4").as_tool("child", "Add.")
        result = way.run(Loop(tools=[child]), ScriptedLLM(calls(call("child", task="2+2")), "4."))
        assert [m["content"] for m in result.messages if m["role"] == "tool"] == ["4"]

    def test_without_one_nothing_runs(self):
        expected = r"^llm_send_fn: there is no model; give one to the run, or to Loop"
        for start in (Loop.run_sync, Loop.run, Loop().steps):
            with pytest.raises(OptionError, match=expected):
                start(USER)
        with pytest.raises(OptionError, match=expected):
            Loop().as_tool("child", "Add.")


@pytest.mark.parametrize("fn", [lambda: "x", lambda *, model: "x"])
def test_a_model_that_takes_no_messages_is_an_error_before_anything_runs(fn):
    with pytest.raises(OptionError, match=r"^llm_send_fn: .* takes no messages$"):
        Loop.run_sync(USER, fn)


def test_the_error_about_a_model_does_not_show_the_arguments_of_a_partial():
    def model(prompt, *, key):
        return prompt

    with pytest.raises(OptionError, match="takes no messages") as caught:
        Loop.run_sync(USER, functools.partial(model, "hi", key="a-secret"))
    assert "a-secret" not in str(caught.value)


def test_an_option_for_a_model_with_only_positional_arguments_is_an_error():
    with pytest.raises(OptionError, match="does not take 'temperature'"):
        Loop.run_sync(USER, lambda *args: "x", llm_opts={"temperature": 1})


def test_an_option_that_the_model_does_not_take_is_an_error_that_names_the_closest():
    def fn(messages, *, temperature=0, tools=None): ...

    with pytest.raises(OptionError) as caught:
        Loop.run_sync(USER, fn, llm_opts={"temprature": 1})
    assert str(caught.value) == (
        "llm_opts: llm_send_fn does not take 'temprature'; did you mean 'temperature'?"
    )


@pytest.mark.parametrize("is_async", [False, True])
def test_a_sync_function_that_returns_an_awaitable_is_awaited(is_async):
    async def answer():
        await anyio.sleep(0)
        return "later"

    if is_async:
        result = anyio.run(lambda: Loop.run(USER, lambda m: answer()))
    else:
        result = Loop.run_sync(USER, lambda m: answer())
    assert result.unwrap().content == "later"


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_model_that_changes_the_options_changes_its_own_copy(is_nested):
    given = {"metadata": {"tags": ["a"]}} if is_nested else {"user": "a"}
    seen = []

    def mutate(messages, **opts):
        seen.append(repr(opts))
        for value in opts.values():
            if isinstance(value, dict):
                value["tags"].append("broken")
        opts.clear()
        return {"role": "assistant", "content": ""}

    before = repr(given)
    Loop.run_sync(USER, mutate, llm_opts=given, stages=[loop_decision(max_blank_stops=2), ...])
    assert seen == [before] * 3
    assert repr(given) == before


def plain(messages, temperature=None):
    return "x"


def closure(*, with_options):
    def fn(messages, seed=None):
        return "x"

    def fn_with_options(messages, **options):
        return "x"

    return fn_with_options if with_options else fn


class Backend:
    def __call__(self, messages, seed=None):
        return "x"

    def method(self, messages, top_p=None):
        return "x"


class Derived(Backend):
    pass


class Static:
    __call__ = staticmethod(vars(Backend)["__call__"])


class Declared(Backend):
    __signature__ = inspect.signature(plain)


def wrapper(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapped


CALLABLES = {
    "function": lambda: plain,
    "closure": lambda: closure(with_options=False),
    "another closure": lambda: closure(with_options=True),
    "object": Backend,
    "object of a derived class": Derived,
    "object with a static call": Static,
    "object with a signature": Declared,
    "bound method": lambda: Backend().method,
    "function of a class": lambda: Backend.method,
    "partial": lambda: functools.partial(plain, temperature=1),
    "partial with a position": lambda: functools.partial(plain, []),
    "partial of an object": lambda: functools.partial(Backend(), seed=1),
    "wrapper": lambda: wrapper(plain),
    "wrapper of another": lambda: wrapper(Backend.method),
    "other defaults": lambda: types.FunctionType(plain.__code__, {}, "plain", ()),
    "builtin": lambda: print,
    "class": lambda: Backend,
}


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("made", CALLABLES.values(), ids=CALLABLES.keys())
def test_the_signature_is_that_of_inspect(made, turn):
    found, given = signature_of(made()), inspect.signature(made()).parameters.values()
    named = [one for one in given if one.kind in {one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD}]
    positional = [one for one in named if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert found.known == {one.name for one in named} - {one.name for one in positional[:1]}
    assert found.second == (positional[1] if len(positional) > 1 else None)
    assert found.takes_any is any(one.kind is one.VAR_KEYWORD for one in given)


def test_that_of_functions_with_the_same_code_is_read_once():
    made = CALLABLES["closure"]
    assert made() is not made()
    assert signature_of(made()) is signature_of(made())


class Mine:
    """A model with a setting that it does not show."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, messages):
        return self.answer

    def ask(self, messages):
        return self.answer


@pytest.mark.parametrize(
    "of", [Mine, lambda text: Mine(text).ask, lambda text: functools.partial(said, text)]
)
def test_models_with_other_settings_or_arguments_share_no_entry_of_a_cache(of):
    cache = ResponseCache()
    answers = [
        Loop.run_sync("q", of(text), model_middleware=[cache]).unwrap().text
        for text in ("one", "two", "one")
    ]
    assert answers == ["one", "two", "one"]


def said(text, messages):
    return text
