"""Builds the model of a run from its lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from treadle.codec import finite
from treadle.messages import JSONDict, Usage, is_dict
from treadle.recording.lines import common_prefix
from treadle.recording.model import Call, Change, Guard, Iteration, Retry, Run

_OF_CALLS = ("call_", "tool_", "repeat_")


class RunBuilder:
    """Adds the lines of one run, and of the runs of its subagents, to a `Run`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._iterations: dict[int, Iteration] = {}
        self._calls: dict[str, Call] = {}
        self._within: dict[str, RunBuilder] = {}
        self._paused_at: float | None = None

    def add(self, name: str, line: JSONDict, depth: int = 0) -> None:
        """Add a line that is valid against the schema; ``depth`` calls in ``within`` lead to this run."""
        at = time_of(line["at"])
        if at is not None:
            self.run.last_at = at
        path = line.get("within", ())
        if depth == len(path):
            self._add_to_run(name, line, at)
            return
        call_id = path[depth]
        within = self._within.get(call_id)
        is_start = name == "run_started" and not line["resumed"] and depth + 1 == len(path)
        is_retry = is_start and within is not None and within.run.run_id != ""
        if within is None or is_retry:
            if within is not None:
                within.settle()
            within = self._within[call_id] = RunBuilder(Run(""))
            self._call({"id": call_id, "name": "", "arguments": ""}).runs.append(within.run)
        within.add(name, line, depth + 1)

    def settle(self) -> None:
        """Set the status of calls that were running when the recording or the run ended."""
        for within in self._within.values():
            within.settle()
        run = self.run
        waiting = {str(call.get("id")).rpartition("@")[0] for call in run.pending}
        ending = [] if run.ending is None else run.ending.messages
        answers = {str(one.get("tool_call_id")): one.get("content") for one in ending}
        for iteration in run.iterations:
            if iteration.status or iteration.response is None:
                continue
            for line in iteration.response["tool_calls"]:
                call = self._call(line, iteration)
                if call.content is not None:
                    continue
                answer = answers.get(call.id)
                call.content = answer if isinstance(answer, str) else None
                if call.id in waiting:
                    call.status = "waiting"
                elif call.status == "running" and run.ended_at is not None:
                    call.status = "cancelled"
        for call_id, within in self._within.items():
            _name_run_of_stage(self._calls[call_id], within.run)

    def _add_to_run(self, name: str, line: JSONDict, at: float | None) -> None:
        match name:
            case "run_started":
                self._start(line, at)
            case "run_finished":
                self._end(line, at)
            case "history_repaired":
                stage, repairs = line.get("stage"), tuple(line["repairs"])
                if stage is None:
                    self.run.repairs = repairs
                else:
                    number = self.run.total_iterations or 1
                    self._guard("repaired", number, f"after stage {stage}: {'; '.join(repairs)}")
            case "other":
                self.run.others.append(line)
            case _ if name.startswith(_OF_CALLS) and name != "tool_call_delta":
                self._add_to_call(name, line, at)
            case _:
                self._add_to_iteration(name, line, at, self._iteration(line["iteration"]))

    def _start(self, line: JSONDict, at: float | None) -> None:
        run = self.run
        run.run_id = line["run_id"] if "run_id" in line else line["run"]
        run.agent_name, run.request = line["agent_name"], line["request"]
        run.limits, run.tools = line["limits"], line["tools"]
        run.model, run.provider = line["model"] or "", line["provider"] or ""
        if self._paused_at is not None and at is not None:
            run.pauses.append((self._paused_at, at))
        self._paused_at = None
        run.status, run.stop_reason, run.ended_at, run.pending = "did not end", "", None, []
        if run.started_at is None:
            run.started_at = at

    def _end(self, line: JSONDict, at: float | None) -> None:
        run = self.run
        run.ended_at, run.status, run.stop_reason = at, line["status"], line["stop_reason"]
        reason, limit = line["reason"], line["limit"]
        run.reason = reason["text"] if reason is not None else line["error"] or ""
        run.traceback = line.get("traceback")
        run.limit = "" if limit is None else limit["text"]
        run.output, run.pending = line["output"], line["pending"]
        run.total_iterations = line["total_iterations"]
        run.tool_calls_count = line["tool_calls_count"]
        run.usage = _usage(line["usage"])
        run.ending = self._changed(line)
        if run.status == "paused":
            self._paused_at = at

    def _add_to_call(self, name: str, line: JSONDict, at: float | None) -> None:
        call = self._call(line["call"], self._iteration(line["iteration"]))
        match name:
            case "tool_started":
                call.started_at, call.status, call.within = at, "running", line["of"]
                self.run.tool_calls_count += 1
            case "tool_progress":
                call.progress = line["message"]
            case "tool_retried":
                call.retries.append(_retry(line, at))
            case "tool_finished":
                call.ended_at, call.duration = at, finite(line["duration"])
                call.traceback = line.get("traceback")
                _answer(call, line["result"])
            case "repeat_warned":
                call.nudges = line["count"]
                self._guard("nudged", line["iteration"], str(line["count"]), call)
            case "call_not_run":
                call.not_run = line["reason"]
                self._guard("not_run", line["iteration"], line["reason"], call)
            case _:
                pass

    def _add_to_iteration(
        self, name: str, line: JSONDict, at: float | None, iteration: Iteration
    ) -> None:
        match name:
            case "iteration_started":
                iteration.started_at = at
                self.run.total_iterations = max(self.run.total_iterations, iteration.number)
            case "iteration_finished":
                self._end_iteration(line, at, iteration)
            case "user_message_added":
                iteration.steered.extend(line["messages"])
            case "calls_planned":
                iteration.plan = line["reason"]
            case "breaker_changed":
                detail = f"{line['before']} to {line['after']}"
                self._guard("breaker", iteration.number, detail, line["tool"])
            case "history_compacted":
                tokens = f"{line['tokens_before']:,} to {line['tokens_after']:,} tokens"
                how = "summarised" if line["is_summarized"] else "shortened"
                self._guard("compacted", iteration.number, f"{how}, {tokens}")
            case "compaction_failed":
                self._guard("not compacted", iteration.number, line["problem"])
            case "limit_reached":
                self._guard("limit", iteration.number, line["reason"]["text"])
            case _:
                self._add_to_request(name, line, at, iteration)

    def _add_to_request(
        self, name: str, line: JSONDict, at: float | None, iteration: Iteration
    ) -> None:
        match name:
            case "model_requested":
                iteration.asked_at, iteration.guidance = at, line["guidance"]
                iteration.instructions = line.get("instructions")
                iteration.sent = self._changed(line)
                view = line["view"]
                iteration.view = None if view is None else list(self._viewed(view))
            case "first_chunk":
                iteration.first_chunk_at = at
            case "text_delta":
                iteration.streamed += line["text"]
            case "model_retried":
                iteration.retries.append(_retry(line, at))
                iteration.streamed, iteration.first_chunk_at = "", None
                self.run.usage = self.run.usage.plus(None)  # what it used is unknown
            case "model_responded":
                iteration.answered_at, iteration.model_seconds = at, finite(line["duration"])
                iteration.response, iteration.streamed = line["response"], ""
                usage = line["response"]["usage"]
                iteration.usage = None if usage is None else _usage(usage)
                self.run.usage = self.run.usage.plus(iteration.usage)
            case "model_failed":
                iteration.failed_at = at
                self.run.usage = self.run.usage.plus(None)
                iteration.failure = f"{line['error_type']}: {line['error']}"
            case _:
                pass  # other deltas, which the response has, and events of which a report shows nothing

    def _viewed(self, view: list[Any]) -> Iterator[JSONDict]:
        """The messages of a request: those in the line, and ranges of the conversation."""
        for part in view:
            if is_dict(part):
                yield part
            else:
                start, end = (max(0, place) for place in part)
                yield from self.run.messages[start:end]

    def _end_iteration(self, line: JSONDict, at: float | None, iteration: Iteration) -> None:
        iteration.ended_at, iteration.status = at, line["status"]
        iteration.stages = tuple(line["stages"])
        for call in line["not_started"]:
            self._call(call, iteration)
        by_id = {call.id: call for call in iteration.calls}
        for result in line["results"]:
            if result["tool_call_id"] in by_id:
                _answer(by_id[result["tool_call_id"]], result)
        for call_id, problems in line["invalid"].items():
            if call_id in by_id:
                call = by_id[call_id]
                call.problems = tuple(map(str, problems))
                detail = "; ".join(call.problems)
                self._guard("invalid", iteration.number, detail, call)
        places = {call_id: place for place, call_id in enumerate(line["calls"])}
        iteration.calls.sort(key=lambda call: places.get(call.id, len(places)))
        iteration.added = self._changed(line)

    def _iteration(self, number: int) -> Iteration:
        iteration = self._iterations.get(number)
        if iteration is None:
            iteration = self._iterations[number] = Iteration(number)
            self.run.iterations.append(iteration)
        return iteration

    def _call(self, recorded: JSONDict, iteration: Iteration | None = None) -> Call:
        call_id, name, arguments = recorded["id"], recorded["name"], recorded["arguments"]
        call = self._calls.get(call_id)
        if call is None:
            iteration = iteration or self._iteration(self.run.total_iterations or 1)
            call = self._calls[call_id] = Call(call_id, name, arguments, iteration.number)
            iteration.calls.append(call)
        elif not call.name:
            call.name, call.arguments = name, arguments
        return call

    def _guard(self, kind: str, number: int, detail: str, of: Call | str = "") -> None:
        """Add a guard, of a call or of a tool."""
        call_id, tool = (of.id, of.name) if isinstance(of, Call) else (None, of)
        guard = Guard(kind, number, detail, call_id, tool)
        self.run.guards.append(guard)
        self._iteration(number).guards.append(guard)

    def _changed(self, line: JSONDict) -> Change:
        """Apply the messages of a line to the conversation.

        A run that was resumed writes its conversation once more: messages that were there are no change.
        """
        messages, new = self.run.messages, line["messages"]
        start = min(max(line["messages_from"], 0), len(messages))
        known = common_prefix(messages[start:], new)
        start += known
        change = Change(start, new[known:], len(messages) - start)
        messages[start:] = change.messages
        return change


def _name_run_of_stage(call: Call, run: Run) -> None:
    """Give the facts of a run to its call if that is none: a stage made the run, such as one that summarises."""
    if not call.name:
        call.name, call.is_error = run.agent_name or call.id, run.status in {"error", "cancelled"}
        call.status = {"ok": "done", "did not end": "running"}.get(run.status, run.status)


def _answer(call: Call, result: JSONDict) -> None:
    call.status, call.is_error = result["status"], result["is_error"]
    call.content = result["content"]


def _retry(line: JSONDict, at: float | None) -> Retry:
    delay = finite(line["delay"]) or 0.0
    trace = line.get("traceback")
    return Retry(line["attempt"], line["error"], line["error_type"], delay, at, trace)


def _usage(recorded: JSONDict) -> Usage:
    """Recorded tokens. A cost that is not finite is dropped."""
    known: dict[str, Any] = {
        name: recorded[name] for name in Usage.__dataclass_fields__ if name in recorded
    }
    known["cost"] = finite(known["cost"])
    return Usage(**known)


LAST_TIME = 253402300800.0
"""The year 10000, in seconds since the epoch: the end of what dates can show."""


def time_of(value: Any) -> float | None:
    """A time in seconds since the epoch; None if it is missing or no date can show it."""
    at = finite(value)
    return at if at is not None and 0 <= at < LAST_TIME else None
