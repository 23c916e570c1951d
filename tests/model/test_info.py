"""The model, provider and options that can be read from a callable, without secrets."""

import functools
from types import SimpleNamespace

import openai
import pytest

from treadle import Loop
from treadle.events import RunStarted
from treadle.model.info import model_info

USER = [{"role": "user", "content": "Hi"}]


def plain(messages, **opts):
    return "x"


class Named:
    """A backend with a model, a provider and options."""

    model, provider = "m", "mine"

    def __init__(self, **opts):
        self.opts = opts

    def __call__(self, messages, **opts):
        return "x"


def info_of(fn, **llm_opts):
    """What `RunStarted` has of the backend."""
    events = []
    Loop.run_sync(USER, fn, llm_opts=llm_opts, on_event=events.append, max_retries=0)
    (started,) = [event for event in events if isinstance(event, RunStarted)]
    return started.model, started.provider, dict(started.request)


@pytest.mark.parametrize(
    ("fn", "opts", "expected"),
    [
        (plain, {}, (None, None, {})),
        (
            plain,
            {"model": "m", "temperature": 0.5, "stop": ["a"]},
            ("m", None, {"temperature": 0.5, "stop": ["a"]}),
        ),
        (functools.partial(plain, model="m", seed=5), {}, ("m", None, {"seed": 5})),
        (  # the options of the loop take precedence
            functools.partial(Named(temperature=0.1, seed=1, n=1), model="p", seed=2),
            {"model": "o", "temperature": 0.3},
            ("o", "mine", {"temperature": 0.3, "seed": 2, "n": 1}),
        ),
    ],
)
def test_the_options_that_a_function_is_given_are_known(fn, opts, expected):
    assert model_info(fn, opts) == expected
    assert info_of(fn, **opts) == expected


class TestFunctions:
    """Partials."""

    def test_the_outer_of_nested_partials_wins(self):
        class Wrapped(functools.partial):
            """A partial that Python does not merge with the one it wraps."""

        inner = Wrapped(plain, model="inner", temperature=0.5, seed=3)
        inner.mark = "an attribute keeps it apart"
        fn = functools.partial(inner, model="outer", temperature=0.7)
        assert isinstance(fn.func, functools.partial)
        assert model_info(fn, {}) == ("outer", None, {"temperature": 0.7, "seed": 3})

    @pytest.mark.parametrize("model", ["", None, 5, object(), ["m"]])
    def test_a_model_that_is_not_a_name_is_ignored(self, model):
        assert model_info(functools.partial(plain, model=model), {}).model is None
        assert model_info(functools.partial(Named(), model=model), {}).model == "m"


class TestClients:
    """Methods of the SDKs' clients, sync and async."""

    @pytest.mark.parametrize("make", [openai.OpenAI, openai.AsyncOpenAI])
    def test_openai_clients(self, make):
        create = make(api_key="canary").chat.completions.create
        assert model_info(create, {"model": "m"}) == ("m", "openai", {})
        fn = functools.partial(
            create, model="m", temperature=0, extra_headers={"authorization": "canary"}
        )
        assert model_info(fn, {}) == ("m", "openai", {"temperature": 0})

    @pytest.mark.parametrize(
        ("package", "provider"),
        [
            ("anthropic", "anthropic"),
            ("groq", "groq"),
            ("mistralai.client", "mistral_ai"),
            ("google.genai", "gcp.gen_ai"),
            ("cohere.v2", "cohere"),
            ("openai_like", None),
            ("mine", None),
        ],
    )
    def test_the_provider_of_a_client_follows_from_the_package_of_its_sdk(self, package, provider):
        client = type("Client", (), {"__module__": package, "create": plain, "__call__": plain})()
        assert model_info(client.create, {}).provider == provider
        assert model_info(functools.partial(client.create, model="m"), {}).provider == provider
        assert model_info(client, {}).provider == provider

    def test_a_client_whose_truth_value_raises(self):
        class Completions:
            __module__ = "openai.resources"

            def __bool__(self):
                raise ValueError("the truth value is ambiguous")

            def create(self, messages):
                return "x"

        assert info_of(Completions().create)[1] == "openai"


class TestObjects:
    """Backends with the attributes `model`, `provider` and `opts`."""

    def test_openai_model(self):
        from treadle.providers.openai import OpenAIModel

        model = OpenAIModel(
            "m", base_url="http://127.0.0.1:9/v1", api_key="canary", stream=True, temperature=0,
            extra_headers={"authorization": "canary"}, timeout=0.01,
        )  # fmt: skip
        info = info_of(model)
        assert info[:2] == ("m", "openai")
        assert info[2] == {"stream": True, "temperature": 0}

    def test_opts_that_are_not_a_mapping_are_ignored(self):
        local = SimpleNamespace(model="m", provider="mine", opts=None)
        assert model_info(local, {}) == ("m", "mine", {})
        local.opts = [("temperature", 1)]
        assert model_info(local, {"seed": 1}) == ("m", "mine", {"seed": 1})

    def test_attributes_that_raise_are_ignored(self):
        class Broken:
            @property
            def model(self):
                raise RuntimeError("not loaded")

            provider = opts = model

            def __call__(self, messages):
                return "x"

        assert info_of(Broken()) == (None, None, {})

    def test_attributes_of_a_wrong_type_are_ignored(self):
        """A mock has every attribute."""

        class Mock:
            def __getattr__(self, name):
                return Mock()

            def __call__(self, messages):
                return "x"

        assert info_of(Mock()) == (None, None, {})


LISTED = {
    "frequency_penalty": 0.1,
    "max_completion_tokens": 10,
    "max_tokens": 10,
    "n": 1,
    "presence_penalty": 0.1,
    "reasoning_effort": "low",
    "seed": 1,
    "stop": ["a"],
    "stream": False,
    "temperature": 0.1,
    "top_k": 3,
    "top_p": 0.3,
}
SECRET = {
    "api_key": "canary",
    "extra_body": {"key": "canary"},
    "extra_headers": {"authorization": "canary"},
    "extra_query": {"key": "canary"},
    "messages": [{"role": "user", "content": "canary"}],
    "metadata": {"who": "canary"},
    "tools": [{"type": "function", "function": {"name": "canary", "parameters": {}}}],
    "user": "canary",
    "base_url": "canary",
}


class TestSecrets:
    """Only options for the response are reported."""

    @pytest.mark.parametrize("place", ["llm_opts", "partial", "object"])
    def test_only_listed_options_are_reported(self, place):
        given = {**LISTED, **SECRET}
        seen = {
            "llm_opts": lambda: model_info(plain, given),
            "partial": lambda: model_info(functools.partial(plain, **given), {}),
            "object": lambda: model_info(Named(**given), {}),
        }[place]()
        assert seen.request == LISTED
        assert "canary" not in repr(seen)

    def test_the_event_has_only_listed_options(self):
        events = []
        options = {key: value for key, value in SECRET.items() if key not in {"messages", "tools"}}
        Loop.run_sync(USER, plain, llm_opts={**LISTED, **options}, on_event=events.append)
        assert "canary" not in repr(events)
        assert events[0].request == LISTED
