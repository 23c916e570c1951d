"""The providers of the wire tests: where each one is reached, and how a body that it was sent is checked."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field

from treadle.providers import backend


@dataclass(frozen=True)
class Wire:
    """One provider on the wire server.

    Args:
        name: the name of the provider.
        model: a model that the wire server takes for one of the provider.
        path: what the base URL has after the address of the server.
        back: the module of `tests.providers` that reads and checks the bodies of its requests.
        reasoning: options with which the model shows its reasoning.
        takes_reasoning_back: whether the text of its reasoning is sent back to it.
        text_at: a piece of the stream before which some text has come, and after which more comes.
        has_usage: whether the wire server counts tokens for it.
        shows_reasoning: whether the wire server has reasoning for it.
    """

    name: str
    model: str
    path: str
    back: str
    reasoning: dict = field(default_factory=dict)
    takes_reasoning_back: bool = True
    text_at: int = 4
    has_usage: bool = True
    shows_reasoning: bool = True

    def open(self, url, **opts):
        """A model on the server at an address."""
        return backend(
            f"{self.name}:{self.model}", base_url=url + self.path, api_key="a key", **opts
        )

    def check(self, body):
        """Check a body by the types of the SDK; return its history in OpenAI's form."""
        back = importlib.import_module(f"tests.providers.back_{self.back}")
        back.check_body(body)
        return back.messages_of(body)


PROVIDERS = {
    one.name: one
    for one in (
        Wire("openai", "gpt-5", "/v1", "openai"),
        Wire("grok", "grok-4", "/v1", "openai"),
        Wire("openai-responses", "gpt-5", "/v1", "openai_responses", text_at=8),
        Wire("anthropic", "claude-sonnet-5-5", "", "anthropic", text_at=5),
        Wire("gemini", "gemini-2.5-flash", "", "gemini"),
        Wire("ollama", "qwen3", "", "ollama", has_usage=False, shows_reasoning=False),
    )
}
