"""Models by name: the forms of a name, the providers behind them, and the errors if a model cannot be opened."""

import os
import sys
import textwrap

import pytest
from tests.programs import run_program

from treadle import Loop, MissingExtraError, OptionError
from treadle.model import registry
from treadle.model.registry import find_provider, named_model
from treadle.providers import add_alias, aliases, backend, embedder, providers
from treadle.providers.endpoint import PLACEHOLDER
from treadle.providers.openai import GrokModel, OpenAIModel

HERE = "http://127.0.0.1:1/v1"
USER = [{"role": "user", "content": "Hi"}]


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "XAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(registry, "_aliases", {})


class TestName:
    @pytest.mark.parametrize(
        ("name", "provider", "model"),
        [
            ("openai:gpt-4.1", "openai", "gpt-4.1"),
            ("openai/gpt-4.1", "openai", "gpt-4.1"),
            ("openai:Qwen/Qwen3-8B:free", "openai", "Qwen/Qwen3-8B:free"),
            ("openai/org/model", "openai", "org/model"),
            ("grok:grok-4", "grok", "grok-4"),
            ("xai:grok-4", "grok", "grok-4"),
            ("local", "local", ""),
            ("local:a:b.gguf", "local", "a:b.gguf"),
            ("gpt-5-mini", "openai", "gpt-5-mini"),
            ("o3", "openai", "o3"),
            ("chatgpt-4o-latest", "openai", "chatgpt-4o-latest"),
            ("text-embedding-3-small", "openai", "text-embedding-3-small"),
            ("grok-4", "grok", "grok-4"),
            ("openai-responses:gpt-5", "openai-responses", "gpt-5"),
        ],
    )
    def test_a_name_has_a_provider_and_a_model(self, name, provider, model):
        found, rest = find_provider(name)
        assert (found.name, rest) == (provider, model)

    @pytest.mark.parametrize("name", ["", "gpt", "qwen3", ":x", "/x", "Local", "http://x/v1"])
    def test_an_unknown_name_is_an_error_that_lists_the_known_forms(self, name):
        with pytest.raises(OptionError, match="is unknown; known are ") as caught:
            backend(name)
        for form in ("local, local:PATH.gguf", "openai:MODEL", "openai-responses:MODEL"):
            assert form in str(caught.value)

    def test_an_unknown_provider_that_is_like_a_known_one_is_a_hint(self):
        with pytest.raises(OptionError, match="'opnai:x' is unknown; did you mean 'openai'"):
            backend("opnai:x")

    @pytest.mark.parametrize(
        ("name", "separator"), [("openai:", "colon"), ("local:", "colon"), ("openai/", "slash")]
    )
    def test_a_name_is_required_after_the_provider(self, name, separator):
        with pytest.raises(OptionError, match=f"has no name after the {separator}"):
            backend(name)

    def test_a_provider_without_a_default_model_needs_a_name(self):
        with pytest.raises(OptionError, match="name of a model"):
            backend("openai", base_url=HERE)

    @pytest.mark.parametrize(
        "key", ["sk-proj-1", "xai-0aB1cD2eF3gH4iJ5kL6m", "AIzaSyD-1234567890abcdefgh", "k" * 101]
    )
    def test_a_text_that_may_be_a_key_is_not_shown(self, key):
        with pytest.raises(OptionError, match="model: this name is unknown") as caught:
            backend(key)
        assert key not in str(caught.value)


class TestAlias:
    def test_an_alias_takes_precedence(self):
        add_alias("fast", "openai:gpt-5-mini")
        add_alias("gpt-5", "grok:grok-4")
        assert backend("fast", base_url=HERE).model == "gpt-5-mini"
        assert isinstance(backend("gpt-5", base_url=HERE), GrokModel)
        assert aliases() == {"fast": "openai:gpt-5-mini", "gpt-5": "grok:grok-4"}

    def test_an_alias_of_an_unknown_name_or_of_itself_is_an_error(self):
        with pytest.raises(OptionError, match="'opnai:x' is unknown"):
            add_alias("fast", "opnai:x")
        with pytest.raises(OptionError, match="'fast' is an alias of itself"):
            add_alias("fast", "fast")
        assert aliases() == {}

    def test_an_alias_of_an_alias_has_the_same_model(self):
        add_alias("small", "openai:gpt-5-mini")
        add_alias("fast", "small")
        add_alias("small", "fast")  # no cycle
        assert aliases() == dict.fromkeys(("fast", "small"), "openai:gpt-5-mini")
        assert find_provider("fast")[1] == find_provider("small")[1] == "gpt-5-mini"

    @pytest.mark.parametrize("given", [5, None, ["a"], b"openai:m"])
    def test_a_name_is_text(self, given):
        for act in (backend, embedder, lambda name: add_alias("fast", name)):
            with pytest.raises(OptionError, match="model: expected a name, got"):
                act(given)
        with pytest.raises(OptionError, match="alias: expected text, got"):
            add_alias(given, "openai:m")


class TestKey:
    @pytest.mark.parametrize(
        ("name", "variable"),
        [
            ("openai:m", "OPENAI_API_KEY"),
            ("openai-responses:m", "OPENAI_API_KEY"),
            ("grok:m", "XAI_API_KEY"),
        ],
    )
    def test_without_a_key_the_error_names_the_variable(self, name, variable, monkeypatch):
        with pytest.raises(OptionError, match=f"needs an API key; set {variable}"):
            backend(name)
        monkeypatch.setenv(variable, "")
        with pytest.raises(OptionError, match=variable):
            backend(name, api_key="")

    @pytest.mark.parametrize(
        ("environment", "opts", "expected"),
        [
            ({"OPENAI_API_KEY": "of the environment"}, {}, "of the environment"),
            ({"OPENAI_API_KEY": "of the environment"}, {"api_key": "given"}, "given"),
            ({}, {"base_url": HERE}, PLACEHOLDER),
            ({"OPENAI_BASE_URL": HERE}, {}, PLACEHOLDER),
            ({"XAI_API_KEY": "of xAI", "OPENAI_API_KEY": "of OpenAI"}, {}, "of OpenAI"),
        ],
    )
    def test_the_key_is_the_given_one_else_that_of_the_environment(
        self, monkeypatch, environment, opts, expected
    ):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

        assert backend("openai:gpt-4.1", **opts)._api_key == expected

    def test_the_base_url_is_the_given_one_else_that_of_the_environment(self, monkeypatch):
        monkeypatch.setenv("OPENAI_BASE_URL", HERE)
        assert backend("openai:m")._base_url == HERE
        assert (
            backend("openai:m", base_url="http://localhost/v1")._base_url == "http://localhost/v1"
        )
        assert backend("grok:m", api_key="k")._base_url == "https://api.x.ai/v1"

    def test_a_local_model_has_no_endpoint(self):
        with pytest.raises(OptionError, match="base_url"):
            backend("local", base_url=HERE)

    def test_the_key_is_not_in_the_repr(self):
        model = backend("openai:gpt-4.1", api_key="secret")
        assert repr(model) == "OpenAIModel('gpt-4.1')"


class TestNamedModel:
    """A name in place of a model: `Loop(llm_send_fn="openai:...")`."""

    def test_runs_with_the_same_name_share_a_model(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "a")
        assert named_model("openai:m") is named_model("openai/m")
        assert named_model("openai:m") is not named_model("openai:n")

    @pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "OPENAI_BASE_URL"])
    def test_another_value_in_the_environment_is_another_model(self, variable, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "a")
        before = named_model("openai:m")
        monkeypatch.setenv(variable, "http://localhost/v1")
        after = named_model("openai:m")
        assert before is not after
        assert "http://localhost/v1" in {after._api_key, after._base_url}

    def test_an_unknown_name_is_an_error_at_once(self):
        for use in (
            lambda name: Loop(llm_send_fn=name),
            lambda name: Loop.run_sync(USER, name),
            lambda name: Loop().run(USER, name),
            lambda name: Loop().as_tool("ask", "Ask.", name),
        ):
            with pytest.raises(OptionError, match="'opnai:m' is unknown"):
                use("opnai:m")

    def test_a_name_is_opened_by_the_run(self, monkeypatch):
        """A loop can be configured before its key is set."""
        loop = Loop(llm_send_fn="openai:m")
        with pytest.raises(OptionError, match="OPENAI_API_KEY"):
            loop.run_sync(USER)
        monkeypatch.setenv("OPENAI_API_KEY", "a")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
        assert loop.run_sync(USER, max_retries=0).stop_reason == "llm_error"


class TestSDK:
    @pytest.mark.parametrize("name", ["openai:m", "openai-responses:m", "grok:m"])
    def test_without_the_sdk_the_error_names_the_extra(self, name, monkeypatch):
        monkeypatch.setitem(sys.modules, "openai", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'treadle\[openai\]'"):
            backend(name, api_key="k")

    def test_finding_a_provider_imports_no_sdk(self):
        code = (
            "import sys; from treadle.providers import providers; providers(); "
            "print({'openai', 'anthropic', 'google.genai', 'ollama', 'xllamacpp'} & set(sys.modules))"
        )
        done = run_program([sys.executable, "-c", code], check=True)
        assert done.stdout == "set()\n"

    def test_the_adapters_of_openai_are_registered(self):
        known = providers()
        assert known["openai"].open_model is OpenAIModel
        assert known["openai"].open_embedder is not None
        assert known["grok"].key_variables == ("XAI_API_KEY",)


class TestThirdParty:
    """Providers of other distributions: a folder with metadata on the path is installed."""

    @pytest.fixture
    def run(self, tmp_path):
        """Installs a module `demo` with some entry points, and runs a program or the command with it."""
        folder = tmp_path / "demo-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")

        def run(module, points, *args):
            (tmp_path / "demo.py").write_text(textwrap.dedent(module))
            (folder / "entry_points.txt").write_text(f"[treadle.providers]\n{points}\n")
            path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
            return run_program([sys.executable, *args], env={**os.environ, "PYTHONPATH": path})

        return run

    DEMO = """
        from treadle.providers import Provider

        def open_model(name, *, base_url=None, api_key=None, **opts):
            return lambda messages: f"{name} {opts}"

        PROVIDER = Provider("demo", "Demo", open_model, prefixes=("demo-",), needs_key=False)
    """

    def test_a_provider_of_another_distribution_is_found(self, run):
        code = (
            "from treadle import Loop; from treadle.providers import backend;"
            "print(Loop.run_sync('Hi', 'demo-1').unwrap().content);"
            "print(Loop.run_sync('Hi', backend('demo:x', top_p=1)).unwrap().content)"
        )
        done = run(self.DEMO, "demo = demo:PROVIDER", "-c", code)
        assert done.stdout == "demo-1 {}\nx {'top_p': 1}\n", done.stderr

    def test_the_command_runs_a_model_that_cannot_be_closed(self, run):
        args = ("-m", "treadle", "run", "Hi", "--model", "demo:x", "--quiet")
        done = run(self.DEMO, "demo = demo:PROVIDER", *args)
        assert (done.returncode, done.stdout, done.stderr) == (0, "x {}\n", "")

    @pytest.mark.parametrize(
        ("module", "logged"),
        [
            ("1 / 0", "the provider 'demo' cannot be loaded"),
            ("PROVIDER = 5", "the provider 'demo': expected a Provider, got int"),
        ],
    )
    def test_a_broken_provider_is_logged_and_left_out(self, module, logged, run):
        code = (
            "import logging; logging.basicConfig(); from treadle.providers import providers;"
            "print({'demo', 'openai'} & providers().keys())"
        )
        done = run(module, "demo = demo:PROVIDER", "-c", code)
        assert done.stdout == "{'openai'}\n"
        assert f"WARNING:treadle.model:{logged}" in done.stderr
