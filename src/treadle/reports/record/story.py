"""A run, told line by line: each event of a record is put where it belongs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from treadle.messages import JSONDict, Usage
from treadle.reports.record.model import Call, Change, Guard, Iteration, Retry, Run


class Story:
    """Puts the lines of one run, and of the runs within it, into its model.

    Args:
        run: is filled.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._iterations: dict[int, Iteration] = {}
        self._calls: dict[str, Call] = {}
        self._within: dict[str, Story] = {}
        self._paused_at: float | None = None
        self._take: Mapping[str, Callable[[JSONDict], None]] = {
            "run_started": self._run_started,
            "history_repaired": self._history_repaired,
            "iteration_started": self._iteration_started,
            "first_chunk": self._first_chunk,
            "text_delta": self._text_delta,
            "model_retried": self._model_retried,
            "model_responded": self._model_responded,
            "model_failed": self._model_failed,
            "user_message_added": self._user_message_added,
            "calls_planned": self._calls_planned,
            "call_suppressed": self._call_held,
            "call_deferred": self._call_held,
            "call_refused": self._call_held,
            "breaker_changed": self._breaker_changed,
            "tool_started": self._tool_started,
            "tool_retried": self._tool_retried,
            "tool_finished": self._tool_finished,
            "repeat_warned": self._repeat_warned,
            "limit_reached": self._limit_reached,
            "iteration_finished": self._iteration_finished,
            "run_finished": self._run_finished,
            "other": self.run.others.append,
        }

    def take(self, name: str, told: JSONDict, depth: int = 0) -> None:
        """Take a line.

        Args:
            name: of its event.
            told: the line; it fits the schema.
            depth: how many of the calls that lead to its run lead to this one.
        """
        at = finite(told["at"])
        if at is not None:
            self.run.last_at = at
        path = told.get("within", ())
        if depth == len(path):
            self._take[name](told)
            return
        within = self._within.get(path[depth])
        if within is None or (depth + 1 == len(path) and within.is_another(name, told)):
            if within is not None:
                within.settle()
            call = self._call(path[depth], {"id": path[depth], "name": "", "arguments": ""})
            within = self._within[path[depth]] = Story(Run(""))
            call.runs.append(within.run)
        within.take(name, told, depth + 1)

    def is_another(self, name: str, told: JSONDict) -> bool:
        """Whether a line begins another run than this: another try of the same call."""
        return name == "run_started" and not told["resumed"] and self.run.run_id != ""

    def settle(self) -> None:
        """Make sense of what was under way where the record stops, or the run ended in the midst of it."""
        for within in self._within.values():
            within.settle()
        for iteration in self.run.iterations:
            if not iteration.status and iteration.response is not None:
                self._settle(iteration, iteration.response["tool_calls"])

    def _settle(self, iteration: Iteration, asked: list[JSONDict]) -> None:
        run = self.run
        waiting = {call.get("id") for call in run.pending}
        ending = [] if run.ending is None else run.ending.messages
        answers = {str(one.get("tool_call_id")): one.get("content") for one in ending}
        for told in asked:
            call = self._call(told["id"], told, iteration)
            if call.content is not None:
                continue
            answer = answers.get(call.id)
            call.content = answer if isinstance(answer, str) else None
            if call.id in waiting:
                call.status = "waiting"
            elif call.status == "running" and run.ended_at is not None:
                call.status = "cancelled"

    def _run_started(self, told: JSONDict) -> None:
        run, at = self.run, finite(told["at"])
        run.run_id = str(told.get("run_id", told["run"]))
        run.agent_name = told["agent_name"]
        run.limits, run.tools = told["limits"], told["tools"]
        run.request = told["request"]
        run.model, run.provider = told["model"] or "", told["provider"] or ""
        if self._paused_at is not None and at is not None:
            run.pauses.append((self._paused_at, at))
        self._paused_at = None
        run.status, run.stop_reason, run.ended_at, run.pending = "did not end", "", None, []
        if run.started_at is None:
            run.started_at = at

    def _history_repaired(self, told: JSONDict) -> None:
        self.run.repairs = tuple(told["repairs"])

    def _iteration_started(self, told: JSONDict) -> None:
        iteration = self._iteration(told)
        iteration.started_at = finite(told["at"])
        iteration.guidance = told["guidance"]
        iteration.sent = self._changed(told)
        self.run.total_iterations = max(self.run.total_iterations, iteration.number)

    def _first_chunk(self, told: JSONDict) -> None:
        self._iteration(told).first_piece_at = finite(told["at"])

    def _text_delta(self, told: JSONDict) -> None:
        self._iteration(told).streamed += told["text"]

    def _model_retried(self, told: JSONDict) -> None:
        iteration = self._iteration(told)
        iteration.retries.append(_retry(told))
        iteration.streamed, iteration.first_piece_at = "", None

    def _model_responded(self, told: JSONDict) -> None:
        iteration = self._iteration(told)
        iteration.answered_at = finite(told["at"])
        iteration.model_seconds = finite(told["duration"])
        iteration.response = response = told["response"]
        iteration.streamed = ""
        usage = response["usage"]
        iteration.usage = None if usage is None else usage_of(usage)
        self.run.usage = self.run.usage.plus(iteration.usage)

    def _model_failed(self, told: JSONDict) -> None:
        iteration = self._iteration(told)
        iteration.ended_at = finite(told["at"])
        iteration.failure = f"{told['error_type']}: {told['error']}"

    def _user_message_added(self, told: JSONDict) -> None:
        self._iteration(told).steered.extend(told["messages"])

    def _calls_planned(self, told: JSONDict) -> None:
        self._iteration(told).plan = told["reason"]

    def _call_held(self, told: JSONDict) -> None:
        call = self._call_of(told)
        call.held = told["reason"]
        kind = told["event"].removeprefix("call_")
        self._guard(Guard(kind, told["iteration"], told["reason"], call.id, call.name))

    def _breaker_changed(self, told: JSONDict) -> None:
        detail = f"{told['before']} to {told['after']}"
        self._guard(Guard("breaker", told["iteration"], detail, None, told["tool"]))

    def _tool_started(self, told: JSONDict) -> None:
        call = self._call_of(told)
        call.started_at, call.status, call.within = finite(told["at"]), "running", told["of"]
        self.run.tool_calls_count += 1

    def _tool_retried(self, told: JSONDict) -> None:
        self._call_of(told).retries.append(_retry(told))

    def _tool_finished(self, told: JSONDict) -> None:
        call = self._call_of(told)
        call.ended_at, call.duration = finite(told["at"]), finite(told["duration"])
        _answer(call, told["result"])

    def _repeat_warned(self, told: JSONDict) -> None:
        call = self._call_of(told)
        call.nudges = told["count"]
        self._guard(Guard("nudged", told["iteration"], str(told["count"]), call.id, call.name))

    def _limit_reached(self, told: JSONDict) -> None:
        self._guard(Guard("limit", told["iteration"], told["reason"]["text"]))

    def _iteration_finished(self, told: JSONDict) -> None:
        iteration = self._iteration(told)
        iteration.ended_at, iteration.status = finite(told["at"]), told["status"]
        iteration.stages = tuple(told["stages"])
        for call in told["not_started"]:
            self._call(call["id"], call, iteration)
        by_id = {call.id: call for call in iteration.calls}
        for result in told["results"]:
            if result["tool_call_id"] in by_id:
                _answer(by_id[result["tool_call_id"]], result)
        for call_id, problems in told["invalid"].items():
            if call_id in by_id:
                call = by_id[call_id]
                call.problems = tuple(map(str, problems))
                detail = "; ".join(call.problems)
                self._guard(Guard("invalid", iteration.number, detail, call.id, call.name))
        places = {call_id: place for place, call_id in enumerate(told["calls"])}
        iteration.calls.sort(key=lambda call: places.get(call.id, len(places)))
        iteration.added = self._changed(told)

    def _run_finished(self, told: JSONDict) -> None:
        run = self.run
        run.ended_at, run.status = finite(told["at"]), told["status"]
        run.stop_reason = told["stop_reason"]
        reason, limit = told["reason"], told["limit"]
        run.reason = reason["text"] if reason is not None else told["error"] or ""
        run.limit = "" if limit is None else limit["text"]
        run.output, run.pending = told["output"], told["pending"]
        run.total_iterations = told["total_iterations"]
        run.tool_calls_count = told["tool_calls_count"]
        run.usage = usage_of(told["usage"])
        run.ending = self._changed(told)
        if run.status == "paused":
            self._paused_at = run.ended_at

    def _iteration(self, told: JSONDict) -> Iteration:
        number = told["iteration"]
        iteration = self._iterations.get(number)
        if iteration is None:
            iteration = self._iterations[number] = Iteration(number)
            self.run.iterations.append(iteration)
        return iteration

    def _call_of(self, told: JSONDict) -> Call:
        return self._call(told["call"]["id"], told["call"], self._iteration(told))

    def _call(self, call_id: str, told: JSONDict, iteration: Iteration | None = None) -> Call:
        call = self._calls.get(call_id)
        if call is None:
            if iteration is None:
                iteration = self._iteration({"iteration": self.run.total_iterations or 1})
            call = Call(call_id, told["name"], told["arguments"], iteration.number)
            self._calls[call_id] = call
            iteration.calls.append(call)
        elif not call.name:
            call.name, call.arguments = told["name"], told["arguments"]
        return call

    def _guard(self, guard: Guard) -> None:
        self.run.guards.append(guard)
        self._iteration({"iteration": guard.iteration}).guards.append(guard)

    def _changed(self, told: JSONDict) -> Change:
        """Take the messages of a line into the conversation."""
        messages = self.run.messages
        start = min(max(told["messages_from"], 0), len(messages))
        change = Change(start, told["messages"], len(messages) - start)
        messages[start:] = change.messages
        return change


def _answer(call: Call, result: JSONDict) -> None:
    call.status, call.is_error, call.content = (
        result["status"],
        result["is_error"],
        result["content"],
    )


def _retry(told: JSONDict) -> Retry:
    return Retry(
        told["attempt"],
        told["error"],
        told["error_type"],
        finite(told["delay"]) or 0.0,
        finite(told["at"]),
    )


def usage_of(told: JSONDict) -> Usage:
    """Tokens as they were recorded; what is no number of JSON's is nothing."""
    known = {name: told[name] for name in Usage.__dataclass_fields__}
    known["cost"] = finite(known["cost"])
    return Usage.from_json(known)


def finite(value: Any) -> float | None:
    """A number; None of what is none, such as the ``1e999`` that a reader of JSON takes for infinity."""
    if not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None
