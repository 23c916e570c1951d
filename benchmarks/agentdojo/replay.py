"""The scripted model: it makes the calls of a task's ground truth, then gives the task's own answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionCall

Message = dict[str, Any]
SILENT = "Done."
"""The answer where the ground truth has none, as with 50 of the 97 tasks, which are done by what they change.
treadle takes a blank answer for none, and asks again."""
SHOWN = 80
"""Characters of a result by which the model knows it again where it is told it a second time."""


def key_of(name: str, arguments: Mapping[str, Any]) -> str:
    """The same for two calls of one tool with the same arguments."""
    return f"{name} {json.dumps(arguments, sort_keys=True)}"


class Replay:
    """A model for one run.

    A call that came to nothing it makes again, as a model would that was told to ask again, so long as
    anything comes of its asking. Where nothing did, it gives up the first call that is open and goes on.

    Args:
        calls: the ground truth, in order.
        answer: what it says at the end; `SILENT` where it is blank.
        ran: the results of the calls that ran, by id; whoever runs them writes it.
        batch: make all calls that are open in one answer; else one in each.
    """

    def __init__(
        self,
        calls: Sequence[FunctionCall],
        answer: str,
        ran: Mapping[str, str],
        *,
        batch: bool,
    ) -> None:
        self.keys = [key_of(call.function, call.args) for call in calls]
        self.batch = batch
        self.index_of: dict[str, int] = {}
        self._calls = calls
        self._answer = answer or SILENT
        self._ran = ran
        self._open = list(range(len(calls)))

    @property
    def asked(self) -> int:
        """The calls made so far, those made again among them."""
        return len(self.index_of)

    def __call__(self, messages: list[Message], **_opts: Any) -> Message:
        """Answer, as a backend of a loop does."""
        if self.index_of:
            self._read(messages)
        if not self._open:
            return {"role": "assistant", "content": self._answer}
        now = self._open if self.batch else self._open[:1]
        return {"role": "assistant", "content": None, "tool_calls": [self._call(i) for i in now]}

    def _call(self, index: int) -> Message:
        call = self._calls[index]
        call_id = f"call_{len(self.index_of) + 1}"
        self.index_of[call_id] = index
        function = {"name": call.function, "arguments": json.dumps(dict(call.args))}
        return {"id": call_id, "type": "function", "function": function}

    def _read(self, messages: list[Message]) -> None:
        """Take the calls from the list that were answered by the last messages."""
        settled: set[int] = set()
        for message in reversed(messages):
            if message["role"] == "assistant":
                break
            if message["role"] == "tool" and self._is_answered(message):
                settled.add(self.index_of[message["tool_call_id"]])
        if not settled:
            settled.add(self._open[0])
        self._open = [index for index in self._open if index not in settled]

    def _is_answered(self, message: Message) -> bool:
        """Whether the call ran, or its message tells again what the same call had brought."""
        call_id = message["tool_call_id"]
        if call_id in self._ran:
            return True
        earlier = self.earlier_result(self.index_of[call_id])
        return earlier is not None and earlier[:SHOWN] in str(message["content"])

    def earlier_result(self, index: int) -> str | None:
        """What the last call that ran with the same tool and arguments brought; None where none ran."""
        found = None
        for call_id, result in list(self._ran.items()):
            if self.keys[self.index_of[call_id]] == self.keys[index]:
                found = result
        return found
