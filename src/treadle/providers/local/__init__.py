"""A small language model in this process, as a model for `Loop`: no server, no API key, no network.

It runs any GGUF file with llama.cpp. The default is SmolLM2-135M-Instruct, which can drive a whole loop: for
most plain requests it picks the right tool of several, and puts the result into a sentence. It cannot plan;
`benchmarks/local_model` measures how good it is.
"""

from treadle.providers.local.engine import LocalModelError
from treadle.providers.local.model import LocalModel

__all__ = ["LocalModel", "LocalModelError"]
