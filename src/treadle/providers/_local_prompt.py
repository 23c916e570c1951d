"""What a very small model is shown: to choose a tool, to fill in its arguments, and to answer.

All of it was measured (see `benchmarks/local_model`). A model of 135 million parameters copies
patterns far better than it follows instructions, so each tool gets a worked example made from its
own description, then come two that show how arguments are copied out of a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any, cast

from treadle.providers._local_schema import is_list, is_mapping, simplify

# Examples for more tools than this would fill the context.
MAX_EXAMPLES = 16
_MAX_DESCRIPTION = 160

# Stand-ins for arguments: words that a request is unlikely to hold, all different, so that the
# examples show that the value comes out of the request.
_WORDS = (
    "alpha", "bravo", "cedar", "delta", "ember", "fjord",
    "grape", "hazel", "ivory", "juniper", "karma", "lemon",
)  # fmt: skip
_NO_WORDS = frozenset(
    {"a", "an", "the", "of", "in", "is", "no", "for", "to", "with", "and", "or", "up"}
)

_PERU = "How many people live in Peru?"
_DOOR = "Please open door 12 with the key K-7."
_WORKED = (
    (_PERU, "country_facts", {"country": "Peru"}),
    (_DOOR, "open_door", {"door": "12", "key": "K-7"}),
)
_TALK = ("Hello!", "Thank you, bye.", "Who was the first man on the moon?")
_TALK_PURPOSE = "Talk with the user, no tool is needed."

_ANSWER_SYSTEM = "You are a helpful assistant. Answer the question from the result."
_ANSWERED = (
    (
        _PERU,
        "country_facts",
        "Peru, capital Lima, 34 million people",
        "34 million people live in Peru.",
    ),
    ("Who sits in room 5?", "who_is_in", "Anna, Bob, Carl", "Anna, Bob and Carl sit in room 5."),
    (_DOOR, "open_door", "The door 12 is open now", "The door 12 is open now."),
)

# What a tool that states no parameters takes, says OpenAI.
_NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}

Message = Mapping[str, Any]


class ToolPrompt:
    """The part of the prompt that depends on the tools alone, so that it is computed once.

    Args:
        tools: tools in OpenAI's form.
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

    def choice(self, request: str) -> str:
        """The text after which the name of a tool comes."""
        return f"{self._before}{_request(request)}Tool:"

    def arguments(self, request: str, name: str) -> str:
        """The text after which the arguments of a tool come, as JSON."""
        return f"{self.choice(request)} {name}\nArguments: "

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
    """Make up arguments for a worked example.

    Args:
        schema: a schema as `simplify` returns it.
        words: an iterator of stand-ins for strings.

    Returns:
        A value for each required property, or for each property where none is required.
    """
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


def last_request(messages: Sequence[Message]) -> tuple[str, bool]:
    """Find what the user wants now.

    Args:
        messages: an OpenAI conversation.

    Returns:
        The text of the last user message, and whether a tool has answered since.
    """
    answered = False
    for message in reversed(messages):
        if message.get("role") == "user":
            return text_of(message), answered
        answered = answered or message.get("role") == "tool"
    return "", answered


def answer_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Rewrite a conversation for a model whose chat template knows nothing of tools.

    Each result is put under the user's question, where even a very small model reads it; two short
    conversations before show how an answer is made of a result.

    Args:
        messages: an OpenAI conversation.

    Returns:
        Messages of system, user and assistant only, all with text.
    """
    system = [text_of(each) for each in messages if each.get("role") in {"system", "developer"}]
    turns = [each for each in messages if each.get("role") not in {"system", "developer"}]
    plain = _without_tools(turns)
    if any(each.get("role") == "tool" for each in turns):
        worked = [
            {"role": role, "content": text}
            for asked, name, result, answer in _ANSWERED
            for role, text in (("user", _with_result(asked, name, result)), ("assistant", answer))
        ]
        plain = worked + plain
        system.append(_ANSWER_SYSTEM)
    text = "\n".join(each for each in system if each)
    return ([{"role": "system", "content": text}] if text else []) + plain


def _without_tools(turns: Sequence[Message]) -> list[dict[str, str]]:
    plain: list[dict[str, str]] = []
    names: dict[str, str] = {}
    for message in turns:
        text = text_of(message)
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message.get("role") == "tool":
            name = names.get(message.get("tool_call_id", ""), "the tool")
            if not plain or plain[-1]["role"] != "user":
                plain.append({"role": "user", "content": ""})
            plain[-1]["content"] = _with_result(plain[-1]["content"], name, text)
        elif message.get("role") == "user" or (text and not message.get("tool_calls")):
            # What was said beside a call is left out: it would part the question from the result.
            plain.append({"role": str(message.get("role")), "content": text})
    return plain


def text_of(message: Message) -> str:
    """Return the text of a message, whose content may be text, None, or a list of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast("Sequence[Any]", content or ())
    texts = [str(each.get("text", "")) if is_mapping(each) else str(each) for each in parts]
    return "\n".join(each for each in texts if each)


def split(text: str) -> list[str]:
    """Split a name or a sentence into its telling words, in lower case, each once."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()
    words = dict.fromkeys(re.findall(r"[^\W_]+", spaced))
    return [word for word in words if word not in _NO_WORDS] or list(words)


def _purpose(function: Message) -> str:
    """Cut the description of a tool to its first sentence: the rest only distracts."""
    text = " ".join(str(function.get("description") or "").split())
    text = re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0][:_MAX_DESCRIPTION]
    return text or " ".join(split(str(function["name"]))).capitalize() + "."


def _with_result(request: str, name: str, result: str) -> str:
    # On one line, as a list of lines is taken for a text to go on with.
    return f"{request}\n\nResult of {name}: {', '.join(result.splitlines())}"


def _request(text: str) -> str:
    return f"Request: {' '.join(text.split())}\n"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
