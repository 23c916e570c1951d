"""Which tool a request is for, and with which arguments, according to a very small model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from treadle.providers._local_engine import Engine, LocalModelError
from treadle.providers._local_prompt import Message, ToolPrompt

# Requests that ask for nothing in particular: what a model expects after them is its prejudice.
_NEUTRAL = (
    "N/A", "", "Please help me.", "I have a question.",
    "Can you do that for me?", "What is it?", "Tell me more.", "How does this work?",
)  # fmt: skip
# The log-probability of a word that is not among the likeliest.
_UNLIKELY = -14.0
_TOOLSETS_KEPT = 8


class Chooser:
    """What is known of one set of tools: their prompt, and the model's prejudices about them.

    Args:
        tools: tools in OpenAI's form.
    """

    def __init__(self, tools: Sequence[Message]) -> None:
        self._prompt = ToolPrompt(tools)
        self._expected: dict[str, float] = {}

    def choose(self, engine: Engine, request: str, *, talk: bool) -> str | None:
        """Pick the tool that the request speaks for. Returns its name, or None to talk."""
        words = {word for pair in self._prompt.words.values() for each in pair for word in each}
        if not self._expected:
            views = [_weigh(words, self._look(engine, neutral)) for neutral in _NEUTRAL]
            self._expected = {word: fmean(view[word] for view in views) for word in words}
        seen = _weigh(words, self._look(engine, request))
        scores = {
            name: sum(fmean(seen[word] - self._expected[word] for word in each) for each in pair)
            for name, pair in self._prompt.words.items()
            if talk or name != self._prompt.talk
        }
        best = max(scores, key=scores.__getitem__)
        return None if best == self._prompt.talk else best

    def fill(
        self, engine: Engine, request: str, name: str, sampling: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Write the arguments of a tool. Returns them as JSON, and the completion they are from."""
        schema = self._prompt.schemas[name]
        body = {**sampling, "prompt": self._prompt.arguments(request, name)}
        try:
            reply = engine.complete({**body, "json_schema": schema})
        except LocalModelError as error:
            if "schema" not in str(error):
                raise
            # The loop validates anyway; a looser grammar is better than no answer.
            reply = engine.complete({**body, "json_schema": {"type": "object"}})
        text = reply["choices"][0]["text"].strip()
        try:
            # On one line: the model likes to indent.
            return json.dumps(json.loads(text), ensure_ascii=False), reply
        except ValueError:
            return text, reply

    def _look(self, engine: Engine, request: str) -> dict[str, float]:
        return engine.next_tokens(self._prompt.choice(request))


def _weigh(words: set[str], tokens: Mapping[str, float]) -> dict[str, float]:
    """Give each word the log-probability of the longest token that it can begin with."""
    weights: dict[str, float] = {}
    for word in words:
        # Two characters and the space before them, as one letter begins too many words.
        starts = (f" {word}"[:end] for end in range(len(word) + 1, 2, -1))
        found = next((tokens[start] for start in starts if start in tokens), _UNLIKELY)
        weights[word] = max(found, _UNLIKELY)
    return weights
