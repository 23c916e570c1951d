"""Misbehaving models and tools, to test what must be true whatever a model does.

`ChaosLLM` is a model that does everything that models and their clients do wrong: malformed arguments, unknown
names, duplicate ids, thousands of calls, blank responses, broken or endless streams, errors, values that are not a
response. `ChaosTools` is a list of tools that raise, hang, change their arguments and return any value. Both
take a seed, and the same seed does the same again:

    @pytest.mark.parametrize("seed", range(100))
    def test_my_stages_survive(seed):
        tools = ChaosTools(seed)
        result = Loop.run_sync("Go.", ChaosLLM(seed, tools), tools=tools, stages=my_stages, retry_delay=0)
        check_history(result.messages)

``ChaosLLM.behaviours`` and ``ChaosTools.behaviours`` name what was done; ``BEHAVIOURS`` of each class names
everything that may be done. ``ChaosTools.runs`` is a list of `ToolRun`: which tools ran, with which arguments, and
which runs overlapped.

There is one module for each concept. `dice` chooses by a seed. `arguments` and `calls` make calls, `errors` makes
what is raised, and `responses` what is returned, in the form of a client. A `Reply` says what one call of a model
or a tool does.
"""

from treadle.testing.chaos.model import ChaosLLM
from treadle.testing.chaos.tools import ChaosTools, ToolRun

__all__ = ["ChaosLLM", "ChaosTools", "ToolRun"]
