"""`treadle models`: every provider, and what is missing before its models can be used."""

import json
import os
import sys

import pytest
from tests.programs import run_program

KEYS = (
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "XAI_API_KEY",
)


@pytest.fixture
def listed():
    """Runs the command; returns its lines, or its JSON."""

    def run(*args, **env):
        bare = {name: value for name, value in os.environ.items() if name not in KEYS}
        done = run_program(
            [sys.executable, "-m", "treadle", "models", *args], env={**bare, **env}, check=True
        )
        assert done.stderr == ""
        return json.loads(done.stdout) if args else done.stdout.splitlines()

    return run


def test_every_provider_is_listed_with_what_is_missing(listed):
    found = {one["name"]: one for one in listed("--json")["providers"]}
    assert {
        "anthropic",
        "gemini",
        "grok",
        "local",
        "ollama",
        "openai",
        "openai-responses",
    } <= found.keys()
    assert found["local"]["is_ready"]
    assert found["openai"]["missing"] == "set OPENAI_API_KEY"
    assert found["ollama"]["missing"] is None  # its server is on this machine, and needs no key


def test_a_key_makes_a_provider_ready(listed):
    found = {one["name"]: one for one in listed("--json", XAI_API_KEY="k")["providers"]}
    assert found["grok"]["is_ready"]
    assert "k" not in json.dumps(found["grok"]["variables"]).replace("XAI_API_KEY", "")


def test_a_package_that_is_not_installed_is_named_by_its_extra(listed, without):
    lines = listed(**without("anthropic"), ANTHROPIC_API_KEY="k")
    (line,) = (one for one in lines if "anthropic:MODEL" in one)
    assert line.endswith("pip install 'treadle[anthropic]'")


def test_the_list_is_aligned(listed):
    head, *rows = listed()
    assert head.split() == ["PROVIDER", "MODELS", "STATUS"]
    assert all(row[head.index("MODELS") - 1] == " " for row in rows)
