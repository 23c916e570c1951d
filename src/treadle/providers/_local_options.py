"""The options of one call of the local model: checked, and sorted by the step they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from treadle.errors import OptionError
from treadle.providers._local_prompt import Message

_SAMPLING = frozenset({
    "temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "presence_penalty",
    "frequency_penalty", "repeat_penalty", "repeat_last_n", "logit_bias", "mirostat",
    "mirostat_tau", "mirostat_eta", "dry_multiplier", "dry_base", "dry_allowed_length",
    "xtc_probability", "xtc_threshold", "cache_prompt",
})  # fmt: skip
_ANSWER_ONLY = frozenset({"stop", "response_format"})
# They change nothing here, but a user who changes the backend should not have to change them.
_IGNORED = frozenset({
    "model", "user", "metadata", "store", "parallel_tool_calls", "stream_options", "timeout",
    "service_tier",
})  # fmt: skip
_OURS = frozenset({"tools", "tool_choice", "max_tokens", "max_completion_tokens", "n", "stream"})
_KNOWN = _SAMPLING | _ANSWER_ONLY | _IGNORED | _OURS


class CallOptions:
    """What one call asked for.

    Args:
        opts: the keywords of the call; None stands for the default.
        max_tokens: the length of a reply in tokens where the call does not say.

    Raises:
        OptionError: if a name is not known, or asks for what a local model cannot do.
    """

    def __init__(self, opts: Mapping[str, Any], max_tokens: int) -> None:
        given = {name: value for name, value in opts.items() if value is not None}
        unknown = sorted(given.keys() - _KNOWN)
        if unknown:
            listed = ", ".join(sorted(_KNOWN - _IGNORED))
            raise OptionError(f"a local model has no option {unknown[0]!r}; it has: {listed}")
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


def _only(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}
