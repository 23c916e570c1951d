"""What is known of a run when it is over, or when its time is over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torture_suite.log import Log, ToolRun
from torture_suite.model import Asked, Model
from torture_suite.script import JSONDict

if TYPE_CHECKING:
    from torture_suite.protocol import Outcome, Scenario


@dataclass(frozen=True)
class Evidence:
    """Everything that a verdict is based on.

    Args:
        scenario: what was run.
        model: the model, with the requests it got.
        log: the runs of the tools.
        outcome: the outcome; None if the run did not end.
        seconds: how long it took.
        escaped: what the loop let through that is no ordinary exception, such as ``SystemExit``.
    """

    scenario: Scenario
    model: Model
    log: Log
    outcome: Outcome | None
    seconds: float
    escaped: BaseException | None = None

    @property
    def asked(self) -> Sequence[Asked]:
        """The requests that the model got."""
        return self.model.asked

    @property
    def runs(self) -> Sequence[ToolRun]:
        """The runs of tools."""
        return self.log.runs

    @property
    def error(self) -> str | None:
        """The error it ended with, if it ended with one."""
        return None if self.outcome is None else self.outcome.error

    @property
    def kept(self) -> Sequence[JSONDict]:
        """The messages that the caller has at the end."""
        return () if self.outcome is None else self.outcome.messages or ()

    def histories(self) -> Iterator[tuple[str, Sequence[JSONDict]]]:
        """Every conversation that was sent or kept, and where."""
        for index, asked in enumerate(self.asked):
            yield f"request {index + 1}", asked.messages
        if self.kept:
            yield "the messages at the end", self.kept

    def called(self) -> Counter[str]:
        """How often the model called each tool."""
        return Counter(
            call["function"]["name"] for asked in self.asked for call in calls_of(asked.message)
        )

    def news_after(self, index: int) -> str | None:
        """What was added for the model between two requests; None if there was no later request.

        After an error the messages that the caller has count too: the next run would send them.

        Args:
            index: the number of the earlier request, from 0.
        """
        if index >= len(self.asked):
            return None
        before = self.asked[index].messages
        if index + 1 < len(self.asked):
            after: Sequence[JSONDict] = self.asked[index + 1].messages
        elif self.kept and self.error is not None:
            after = self.kept
        else:
            return None
        old = Counter(map(_key, before))
        texts: list[str] = []
        for message in after:
            key = _key(message)
            if old[key] > 0:
                old[key] -= 1
            elif message.get("role") != "assistant":
                texts.append(text_of(message))
        return "\n".join(texts)


def calls_of(message: Mapping[str, Any] | None) -> list[JSONDict]:
    """The calls of an assistant message that have a function."""
    made = message.get("tool_calls") if message is not None else None
    return [call for call in made or () if "function" in call]


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message's content, of parts too."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return _shown(content) if content else ""


def whole_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """All text of a conversation, calls included."""
    return "\n".join([*map(text_of, messages), *(_shown(m.get("tool_calls")) for m in messages)])


def _key(message: Mapping[str, Any]) -> str:
    return f"{message.get('role')}|{message.get('tool_call_id')}|{text_of(message)}"


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
