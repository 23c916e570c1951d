"""Runs that strain every guard at once, and a meter that sees from within the tools whether they hold."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import anyio.lowlevel
from hypothesis import strategies as st

from treadle import (
    Limits,
    Locks,
    Loop,
    Response,
    RunHandle,
    Tool,
    ToolCall,
    ToolContext,
    Usage,
    tool,
)
from treadle.events import (
    CallsPlanned,
    IterationFinished,
    IterationStarted,
    SubagentEvent,
    ToolFinished,
    ToolStarted,
)
from treadle.stages import circuit_breaker
from treadle.testing import check_history
from treadle.tools import NotRun

Pause = Callable[[], Awaitable[Any]]
"""How a tool or a model lets others run."""


# Tools: they do what the play says that is on at the time.


async def work(n: int, context: ToolContext) -> str:
    """Do something."""
    return await _ON[-1].work(n, context)


_ON: list[Play] = []

KEYS = ("a", "b", "c")
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "alone": {"parallel_safe": False},
    "fresh": {"requires_fresh_input": True},
    "sole": {"max_parallel": 1},
    "scarce": {"max_uses": 1},
    "flaky": {"retries": 1},
    "broken": {},
    "clock": {"volatile": True},
    "unique": {"dedupe": "off"},
    "asks": {"requires_approval": lambda arguments: arguments["n"] == 0},
    "file": {"lock": lambda arguments: KEYS[arguments["n"]]},
    "files": {"lock": lambda arguments: [KEYS[arguments["n"]], KEYS[(arguments["n"] + 1) % 2]]},
    "stops": {},
    "says": {},
}
TOOLS = {name: tool(name=name, **options)(work) for name, options in SPECS.items()}
CHILDREN: dict[str, dict[str, Any]] = {
    "sub": {},
    "keyed": {"lock": lambda arguments: KEYS[arguments["n"]]},
    "rare": {"max_uses": 1, "parallel_safe": False},
}
"""Loops as tools."""


# What is measured.


class Running(NamedTuple):
    """A call that runs.

    Args:
        run: the run that it is a call of.
        tool: its tool.
        chains: for each key, the calls that hold it: those around it, and itself.
    """

    run: str
    tool: Tool
    chains: Mapping[str, tuple[str, ...]]


class Meter:
    """What runs, measured where it runs; every violation is noted at once.

    A run is known by its id, a call by its path: the id of its run and its own.

    Args:
        gives_up: whether a cancelled call may continue for a while, without counting.
    """

    def __init__(self, *, gives_up: bool = False) -> None:
        self._gives_up = gives_up
        self.violations: list[str] = []
        self.attempts: Counter[str] = Counter()
        self.uses: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.iterations: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.not_run: dict[str, NotRun] = {}
        self.most_at_once: Counter[str] = Counter()
        self._keys: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, Running] = {}
        self._returned: dict[tuple[str, str], str] = {}
        self._mutex = threading.Lock()

    # Bounded the tools.

    def enter(self, n: int, context: ToolContext) -> str:
        """A try of a call begins."""
        path = f"{context.run_id}/{context.call_id}"
        made = TOOLS[context.tool_name]
        with self._mutex:
            self.attempts[path] += 1
            if self.attempts[path] == 1:
                self.uses[context.run_id][made.name] += 1
            if not context.attempt == self.attempts[path] <= 1 + made.retries:
                self.violations.append(f"{path} runs once more, as try {context.attempt}")
            here = Running(context.run_id, made, self._chains(path, made.lock_keys({"n": n})))
            for other_path, other in self._running.items():
                self._look(f"{path} and {other_path}", here, other)
            self._running[path] = here
            alike = [one for one in self._running.values() if one.run == here.run]
            self._count(here.run, len(alike))
            same = sum(one.tool.name == made.name for one in alike)
            if made.max_parallel is not None and same > made.max_parallel:
                self.violations.append(f"{path}: {same} calls of {made.name} at once")
        return path

    def leave(self, path: str) -> None:
        """A try of a call ends, whatever came of it."""
        with self._mutex:
            if self._gives_up:
                self._running.pop(path, None)
            else:
                del self._running[path]

    def _count(self, run: str, at_once: int) -> None:
        self.most_at_once[run] = max(self.most_at_once[run], at_once)

    def _chains(self, path: str, own: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        steps = path.split("/")
        around = ["/".join(steps[:length]) for length in range(2, len(steps))]
        return {
            key: (
                *(each for each in around if key in self._keys.get(each, ())),
                *((path,) if key in own else ()),
            )
            for key in KEYS
        }

    def _look(self, paths: str, here: Running, other: Running) -> None:
        for key in KEYS:
            one, two = list(here.chains[key]), list(other.chains[key])
            while one and two and one[0] == two[0]:
                del one[0], two[0]
            if one and two:
                self.violations.append(f"{paths} overlap, and both hold {key!r}")
        if here.run == other.run and not (_is_social(here.tool) and _is_social(other.tool)):
            self.violations.append(f"{paths} overlap, and one has to be alone")

    # From the events.

    def hear(self, run: str, event: Any) -> None:
        """Take in an event of a root, or of a child at any depth."""
        while isinstance(event, SubagentEvent):
            run, event = f"{run}/{event.call_id}", event.event
        with self._mutex:
            match event:
                case ToolStarted(call=call) if call.name in CHILDREN:
                    is_keyed = "lock" in CHILDREN[call.name]
                    self._keys[f"{run}/{call.id}"] = (KEYS[call.input["n"]],) if is_keyed else ()
                    self.uses[run][call.name] += 0 if f"{run}/{call.id}" in self.attempts else 1
                    self.attempts[f"{run}/{call.id}"] = 1
                case ToolFinished(call=call, result=result) if self._gives_up:
                    if result.status in {"cancelled", "timeout"}:
                        self._running.pop(f"{run}/{call.id}", None)
                case CallsPlanned(not_run=not_run):
                    self.not_run.update(
                        {f"{run}/{each}": reason for each, reason in not_run.items()}
                    )
                case IterationStarted():
                    self.iterations[run] += 1
                case IterationFinished(context=context):
                    self._compare(run, context)

    def _compare(self, run: str, context: Any) -> None:
        """A suppressed call is answered with the result of the same call."""
        results = context.tool_results
        for call in context.tool_calls:
            if call.id in results and results[call.id].status in {"done", "timeout"}:
                self._returned[run, call.fingerprint] = results[call.id].content
        for call in context.tool_calls:
            reason = self.not_run.get(f"{run}/{call.id}")
            if reason is NotRun.NO_NEW_EVIDENCE:
                expected = self._returned.get((run, call.fingerprint), "(it never ran)")
            elif reason is NotRun.DUPLICATE_IN_BATCH:
                expected = _text_of_duplicate(context, call)
            else:
                continue
            if expected not in results[call.id].content:
                content = results[call.id].content
                self.violations.append(f"{run}/{call.id} has {content!r}, not {expected!r}")

    # At the end.

    def check(
        self, root: str, limits: Limits, child_limits: Limits, extra: int, child_extra: int
    ) -> None:
        """Look at the totals of a root and its children.

        Args:
            root: the id of its run.
            limits: of the root.
            child_limits: of each child.
            extra: model calls that the root may make beyond its iterations.
            child_extra: those that a child may make beyond its own, not its parent's.
        """
        runs = [run for run in self.uses if run.partition("/")[0] == root]
        total = sum(sum(self.uses[run].values()) for run in runs)
        self._bound(f"{root} and all below", "max_tool_calls", total, limits)
        below = {run for run in {*runs, *self.iterations} if run.partition("/")[0] == root}
        beyond = extra + child_extra * len(below - {root})
        most = limits.max_requests or 10 * limits.max_iterations
        if self.requests[root] - beyond > most:
            self.violations.append(f"{root}: max_requests={most}, and {self.requests[root]}")
        for run in {*runs, *self.iterations}:
            if run.partition("/")[0] != root:
                continue
            own = limits if run == root else child_limits
            self._bound(run, "max_tool_calls", sum(self.uses[run].values()), own)
            self._bound(run, "max_parallel_calls", self.most_at_once[run], own)
            beyond = extra if run == root else child_extra
            self._bound(run, "max_iterations", self.iterations[run] - beyond, own)
            for name, count in self.uses[run].items():
                most = {**SPECS, **CHILDREN}[name].get("max_uses")
                if most is not None and count > most:
                    self.violations.append(f"{run}: {count} uses of {name}, {most} allowed")
        ran_although_refused = [f"{path} ran" for path in self.not_run if path in self.attempts]
        assert self._running == {}
        assert [*self.violations, *ran_although_refused] == [], "\n".join(self.violations)

    def _bound(self, where: str, name: str, found: int, limits: Limits) -> None:
        most = getattr(limits, name)
        if most is not None and found > most:
            self.violations.append(f"{where}: {name}={most}, and there are {found}")


def _text_of_duplicate(context: Any, duplicate: ToolCall) -> str:
    """The text for a duplicate: the result of the first, or that it did not run."""
    first = next(call for call in context.tool_calls if call.fingerprint == duplicate.fingerprint)
    result = context.tool_results[first.id]
    return str(result.content) if result.status in {"done", "timeout"} else ""


def _is_social(made: Tool) -> bool:
    """Whether its calls may overlap with others of their run."""
    return bool(made.parallel_safe) and not made.requires_fresh_input


# What is played.

Batch = list[tuple[str, int]]


@dataclass
class Plot:
    """A run to be made: what the models say, and what bounds it.

    Args:
        batches: what the model of the root calls, answer by answer.
        tasks: what the models of its children call; those of a task may be given the tasks after it.
        limits: of the root.
        child_limits: of each child.
        options: of the root.
        child_options: of each child.
    """

    batches: list[Batch]
    tasks: list[list[Batch]]
    limits: Limits
    child_limits: Limits
    options: dict[str, Any]
    child_options: dict[str, Any]


names = st.sampled_from([*SPECS, *CHILDREN, "sub", "sub", "file", "files"])
scripts = st.lists(
    st.lists(st.tuples(names, st.integers(0, 2)), min_size=1, max_size=5), min_size=1, max_size=4
)
bounds = st.builds(
    Limits,
    max_iterations=st.integers(1, 9),
    max_tool_calls=st.none() | st.integers(0, 12),
    max_parallel_calls=st.integers(1, 4),
)
policies = st.fixed_dictionaries(
    {
        "sequential": st.sampled_from(["defer", "in_step"]),
        "dedupe": st.sampled_from(["evidence", "strict", "off"]),
        "on_limit": st.sampled_from(["stop", "finish"]),
    }
)
plots = st.builds(Plot, scripts, st.lists(scripts, max_size=2), bounds, bounds, policies, policies)


def large_plot(seed: int) -> Plot:
    """A plot with many calls, for seeds where no smaller one is looked for.

    In every other one the root calls nothing but children, side by side, which have little to share.
    """
    die = random.Random(f"plot {seed}")
    known = [*SPECS, *["file", "files", "asks", "sole", "flaky", "scarce"] * 2, *[*CHILDREN] * 3]
    is_shared = seed % 2 == 1

    def script(length: int, most: int, known: list[str]) -> list[Batch]:
        return [
            [(die.choice(known), die.randrange(3)) for _ in range(die.randint(1, most))]
            for _ in range(die.randint(1, length))
        ]

    def limits(calls: list[int | None]) -> Limits:
        return Limits(die.randint(2, 16), die.choice(calls), die.choice([1, 2, 4, 8]))

    def policy() -> dict[str, Any]:
        return {
            "sequential": die.choice(["defer", "in_step"]),
            "dedupe": die.choice(["evidence", "strict", "off"]),
            "on_limit": die.choice(["stop", "finish"]),
        }

    root = script(3, 5, ["sub", "sub", "keyed"]) if is_shared else script(5, 6, known)
    tasks = [script(3, 5, known), script(2, 3, known)]
    bounds = [limits([5, 8, 12] if is_shared else [None, 8, 20, 40]), limits([None, 8, 20])]
    return Plot(root, tasks, *bounds, policy(), policy())


def locking_plot(seed: int) -> Plot:
    """A plot of calls that all hold keys: one or two, in whichever order, and around calls that want some."""
    die = random.Random(f"locks {seed}")
    known = ["file", "files", "files", "keyed", "keyed"]

    def script() -> list[Batch]:
        return [[(die.choice(known), die.randrange(3)) for _ in range(4)] for _ in range(2)]

    policy = {"sequential": "in_step", "dedupe": "off", "on_limit": "stop"}
    limits = Limits(100, None, 8)
    return Plot(script(), [script(), script()], limits, limits, policy, policy)


def racing_plot(seed: int) -> Plot:
    """A plot of children side by side, each of which would take the rest of the shared budget."""
    die = random.Random(f"race {seed}")
    tasks = [[[("plain", n), ("clock", n)] for n in range(3)]]
    limits = Limits(die.randint(2, 9), die.choice([None, 5, 7, 11]), 4)
    policy = {"sequential": "defer", "dedupe": "off", "on_limit": "stop"}
    return Plot([[("sub", n) for n in range(4)]], tasks, limits, Limits(9), policy, policy)


class Play:
    """Runs of a plot: one, or several that share their locks.

    Args:
        plot: what is to be run.
        pause: how tools and models let others run.
        gives_up: whether a cancelled call may continue for a while, without counting.
    """

    def __init__(
        self,
        plot: Plot,
        pause: Pause = anyio.lowlevel.checkpoint,
        *,
        gives_up: bool = False,
    ) -> None:
        self.plot = plot
        self.meter = Meter(gives_up=gives_up)
        self.handles: dict[str, RunHandle] = {}
        self.locks = Locks()
        self._pause = pause

    def __enter__(self) -> Self:
        _ON.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _ON.pop()

    def loop(self, root: str) -> Loop:
        """The loop of a root."""
        return Loop(
            tools=[*TOOLS.values(), *self._children(root, 0)],
            locks=self.locks,
            on_event=lambda event: self.meter.hear(root, event),
            **COMMON,
            **_under(self.plot.limits, **self.plot.options),
        )

    def _children(self, root: str, task: int) -> list[Tool]:
        if task >= len(self.plot.tasks):
            return []
        loop = Loop(
            tools=[*TOOLS.values(), *self._children(root, task + 1)],
            **COMMON,
            **_under(self.plot.child_limits, **self.plot.child_options),
        )
        model, schema = self.model(root, self.plot.tasks[task]), TOOLS["plain"].input_schema
        return [
            loop.as_tool(name, "Do a part.", model, input_schema=schema, **options)
            for name, options in CHILDREN.items()
        ]

    def model(self, root: str, script: list[Batch]) -> Any:
        """A model that goes by a script, and by how far the conversation is."""

        async def answer(messages: list[dict[str, Any]], opts: dict[str, Any]) -> Response:
            self.meter.requests[root] += 1
            await self._pause()
            at = sum(message["role"] == "assistant" for message in messages)
            asked = script[at] if at < len(script) else []
            made = tuple(
                ToolCall(f"c{at}{place}", name, json.dumps({"n": n}))
                for place, (name, n) in enumerate(asked)
            )
            return Response(None if made else "Done.", made, usage=Usage(1, 1))

        return answer

    async def work(self, n: int, context: ToolContext) -> str:
        """What every tool does: take its time, and now and then something else."""
        path, name = self.meter.enter(n, context), context.tool_name
        try:
            await self._pause()
            handle = self.handles.get(context.run_id.partition("/")[0])
            if name == "stops" and handle is not None:
                handle.cancel_all()
            if name == "says" and handle is not None:
                handle.steer(f"Mind {n}.")
            await self._pause()
            if name == "broken" or (name == "flaky" and context.attempt == 1):
                raise OSError(f"{name} {n}")
            return f"{name} {n} brought {path if name == 'clock' else n}"
        finally:
            self.meter.leave(path)

    def check_all(self, results: Mapping[str, Any]) -> None:
        """All that has to hold once several runs are over."""
        for root, result in results.items():
            self.check(root, result)

    def check(self, root: str, result: Any) -> None:
        """All that has to hold once a run is over."""
        check_history(result.messages)
        plot = self.plot
        extra = {"finish": 2, "stop": 0}  # model calls that a last answer may take
        self.meter.check(
            root,
            plot.limits,
            plot.child_limits,
            extra[plot.options["on_limit"]],
            extra[plot.child_options["on_limit"]],
        )


def _under(limits: Limits, on_limit: Any, **options: Any) -> dict[str, Any]:
    """The options of a loop with some limits and a policy."""
    return {"limits": dataclasses.replace(limits, on_limit=on_limit), **options}


COMMON: dict[str, Any] = {
    "stages": [circuit_breaker(threshold=50), ...],
    "loop_threshold": None,
    "retry_delay": 0,
}
