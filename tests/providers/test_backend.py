"""`backend`: models by name, and the errors if a model cannot be opened."""

import os
import subprocess
import sys

import pytest

from treadle import MissingExtraError, OptionError
from treadle.providers import backend
from treadle.providers.endpoint import PLACEHOLDER


@pytest.fixture(autouse=True)
def without_openai_settings(monkeypatch):
    for name in list(os.environ):
        if name.startswith("OPENAI_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize("spec", ["", "gpt-4.1", "opnai:gpt-4.1", ":x", "Local"])
def test_an_unknown_name_is_an_error_that_lists_the_known_forms(spec):
    with pytest.raises(OptionError, match=r"known are local, local:PATH\.gguf, openai:NAME"):
        backend(spec)


@pytest.mark.parametrize("spec", ["openai:", "local:"])
def test_a_name_is_required_after_a_colon(spec):
    with pytest.raises(OptionError, match="has no name after the colon"):
        backend(spec)


def test_openai_without_a_name_is_an_error():
    with pytest.raises(OptionError, match="name of a model"):
        backend("openai", base_url="http://127.0.0.1:1/v1")


def test_openai_without_a_key_is_an_error_that_names_the_variable():
    with pytest.raises(OptionError, match="OPENAI_API_KEY"):
        backend("openai:gpt-4.1")


def test_an_empty_key_is_a_missing_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with pytest.raises(OptionError, match="OPENAI_API_KEY"):
        backend("openai:gpt-4.1", api_key="")


def test_base_url_with_a_local_model_is_an_error():
    with pytest.raises(OptionError, match="base_url"):
        backend("local", base_url="http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("environment", "opts", "expected"),
    [
        ({"OPENAI_API_KEY": "of the environment"}, {}, "of the environment"),
        ({"OPENAI_API_KEY": "of the environment"}, {"api_key": "given"}, "given"),
        ({}, {"base_url": "http://127.0.0.1:1/v1"}, PLACEHOLDER),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, {}, PLACEHOLDER),
    ],
)
def test_the_key_is_the_given_one_else_that_of_the_environment(
    monkeypatch, environment, opts, expected
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert backend("openai:gpt-4.1", **opts)._api_key == expected


def test_the_key_is_not_in_the_repr():
    model = backend("openai:gpt-4.1", api_key="secret")
    assert repr(model) == "OpenAIModel('gpt-4.1')"


def test_without_the_sdk_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'treadle\[openai\]'"):
        backend("openai:gpt-4.1", api_key="k")


def test_importing_the_package_imports_no_sdk():
    code = "import sys, treadle.providers; print({'openai', 'xllamacpp'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "set()\n"
