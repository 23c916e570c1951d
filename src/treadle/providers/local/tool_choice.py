"""How a very small model calls a tool: it chooses one, and then fills in the arguments.

Each decision was measured (see `benchmarks/local_model`). A model of 135 million parameters copies
patterns far better than it follows instructions, so the prompt has a worked example for each tool,
made from its description, and two that show how arguments are copied from a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from statistics import fmean
from typing import Any, cast

from treadle.messages import is_list
from treadle.providers.json_schema import simplify
from treadle.providers.local.conversation import OPEN_DOOR, POPULATION, Message
from treadle.providers.local.engine import Engine, LocalModelError

MAX_EXAMPLES = 16
"""Examples for more tools would fill the context."""
MAX_DESCRIPTION = 160
"""Characters of a tool's description in the prompt."""

# Requests for nothing in particular: what the model predicts after them is its bias.
_NEUTRAL = (
    "N/A", "", "Please help me.", "I have a question.",
    "Can you do that for me?", "What is it?", "Tell me more.", "How does this work?",
)  # fmt: skip
# The log-probability of a word that is not among the likeliest.
_UNLIKELY = -14.0

# Example values: words that are unlikely in a request, all different, so that the examples show
# that the value comes from the request.
_WORDS = (
    "alpha", "bravo", "cedar", "delta", "ember", "fjord",
    "grape", "hazel", "ivory", "juniper", "karma", "lemon",
)  # fmt: skip
_STOP_WORDS = frozenset(
    {"a", "an", "the", "of", "in", "is", "no", "for", "to", "with", "and", "or", "up"}
)
_WORKED = (
    (POPULATION, "country_facts", {"country": "Peru"}),
    (OPEN_DOOR, "open_door", {"door": "12", "key": "K-7"}),
)
_TALK = ("Hello!", "Thank you, bye.", "Who was the first man on the moon?")
_TALK_PURPOSE = "Talk with the user, no tool is needed."
# OpenAI's rule for a tool without parameters.
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


class ToolChooser:
    """Chooses among a set of tools: the part of the prompt that depends on the tools only is computed once.

    Args:
        tools: the tools, as OpenAI's dicts.
    """

    def __init__(self, tools: Sequence[Message]) -> None:
        functions = [cast("Message", tool["function"]) for tool in tools]
        self.schemas: dict[str, dict[str, Any]] = {
            each["name"]: simplify(each.get("parameters") or _NO_PARAMETERS) for each in functions
        }
        purposes = {each["name"]: _purpose(each) for each in functions}
        self.talk = "answer" if "answer" not in purposes else "just_talk"
        purposes[self.talk] = _TALK_PURPOSE
        self.words = {name: (split(name), split(text)) for name, text in purposes.items()}
        self._before = self._render(purposes)
        self._bias: dict[str, float] = {}

    def choice(self, request: str) -> str:
        """Return the text that the name of a tool completes."""
        return f"{self._before}{_request(request)}Tool:"

    def arguments(self, request: str, name: str) -> str:
        """Return the text that the arguments of a tool complete, as JSON."""
        return f"{self.choice(request)} {name}\nArguments: "

    def choose(self, engine: Engine, request: str, *, talk: bool) -> str | None:
        """Return the name of the tool that fits a request best; None, if it may talk, is to answer in text."""
        words = {word for pair in self.words.values() for each in pair for word in each}
        if not self._bias:
            views = [self._weights(engine, neutral, words) for neutral in _NEUTRAL]
            self._bias = {word: fmean(view[word] for view in views) for word in words}
        seen = self._weights(engine, request, words)
        scores = {
            name: sum(fmean(seen[word] - self._bias[word] for word in each) for each in pair)
            for name, pair in self.words.items()
            if talk or name != self.talk
        }
        best = max(scores, key=scores.__getitem__)
        return None if best == self.talk else best

    def fill(
        self, engine: Engine, request: str, name: str, sampling: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Return the arguments of a call as JSON text, and the completion that has them."""
        body = {**sampling, "prompt": self.arguments(request, name)}
        try:
            reply = engine.complete({**body, "json_schema": self.schemas[name]})
        except LocalModelError as error:
            if "schema" not in str(error):
                raise
            # The loop validates the arguments; a looser grammar is better than no answer.
            reply = engine.complete({**body, "json_schema": {"type": "object"}})
        text = reply["choices"][0]["text"].strip()
        try:
            return _json(json.loads(text)), reply  # on one line: the model tends to indent
        except ValueError:
            return text, reply

    def _weights(self, engine: Engine, request: str, words: set[str]) -> dict[str, float]:
        """For each word, the log-probability of the longest token that it can begin with."""
        tokens = engine.next_tokens(self.choice(request))
        weights: dict[str, float] = {}
        for word in words:
            # Two characters and the space before them: a single letter begins too many words.
            starts = (f" {word}"[:end] for end in range(len(word) + 1, 2, -1))
            found = next((tokens[start] for start in starts if start in tokens), _UNLIKELY)
            weights[word] = max(found, _UNLIKELY)
        return weights

    def _render(self, purposes: Mapping[str, str]) -> str:
        listed = "\n".join(f"{name}: {purpose}" for name, purpose in purposes.items())
        examples: list[tuple[str, str, Mapping[str, Any]]]
        examples = [(said, self.talk, {}) for said in _TALK]
        words = cycle(_WORDS)
        for name, schema in list(self.schemas.items())[:MAX_EXAMPLES]:
            values = example_arguments(schema, words)
            shown = ", ".join(value for value in map(_plain, values.values()) if value)
            said = purposes[name].rstrip(".") + (f": {shown}" if shown else "")
            examples.append((said, name, values))
        examples.extend(_WORKED)
        shots = "".join(
            f"{_request(said)}Tool: {name}\nArguments: {_json(values)}\n\n"
            for said, name, values in examples
        )
        return f"Tools:\n{listed}\n\n{shots}"


def example_arguments(schema: Mapping[str, Any], words: Iterator[str]) -> dict[str, Any]:
    """Make up arguments for a worked example: the required ones, or all if none is required."""
    properties = cast("Mapping[str, Any]", schema.get("properties") or {})
    names = schema.get("required") or list(properties)
    return {name: _example(properties[name], words) for name in names}


def _example(schema: Mapping[str, Any], words: Iterator[str]) -> Any:
    if "const" in schema or "enum" in schema:
        return schema.get("const", next(iter(schema.get("enum", ())), None))
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], words)
    kind = schema.get("type")
    kind = kind[0] if is_list(kind) else kind
    if kind == "array":
        return [_example(schema.get("items", {}), words)]
    if kind == "object":
        return example_arguments(schema, words)
    least = max(7, schema.get("minimum", 7))
    fixed = {"integer": least, "number": least, "boolean": True, "null": None}
    return fixed[kind] if kind in fixed else next(words)


def split(text: str) -> list[str]:
    """Split a name or a sentence into its significant words, in lower case, each once."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()
    words = dict.fromkeys(re.findall(r"[^\W_]+", spaced))
    return [word for word in words if word not in _STOP_WORDS] or list(words)


def _purpose(function: Message) -> str:
    """The first sentence of a tool's description: the rest only distracts the model."""
    text = " ".join(str(function.get("description") or "").split())
    text = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0][:MAX_DESCRIPTION]
    return text or " ".join(split(str(function["name"]))).capitalize() + "."


def _request(text: str) -> str:
    return f"Request: {' '.join(text.split())}\n"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
