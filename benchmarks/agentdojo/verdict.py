"""What is to be said of a task that went through both loops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations

from loops import Record
from world import is_changing

SUPPRESSED = frozenset({"no_new_evidence", "duplicate_in_batch"})
DEFERRED = frozenset({"deferred", "parallel_cap"})


@dataclass
class Counts:
    """What one loop did with one task, or with many, added up.

    Args:
        tasks: how many.
        passed: those that AgentDojo's own check takes for done.
        calls: the calls of the ground truths.
        asked: the calls that the model made, those made again among them.
        ran: the calls that ran.
        suppressed: the calls that were answered with the result of an earlier one.
        deferred: the calls that the model was told to make again.
        failed: the other calls that were answered with an error.
        iterations: the answers that the model gave.
        statuses: the results by their status, as the loop names it.
    """

    tasks: int = 0
    passed: int = 0
    calls: int = 0
    asked: int = 0
    ran: int = 0
    suppressed: int = 0
    deferred: int = 0
    failed: int = 0
    iterations: int = 0
    statuses: Counter[str] = field(default_factory=Counter[str])

    def __add__(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(**{name: value + vars(other)[name] for name, value in vars(self).items()})


def count(record: Record, *, passed: bool) -> Counts:
    """Count what happened in a run."""
    statuses = Counter(result.status for result in record.results.values())
    set_aside = SUPPRESSED | DEFERRED
    errors = [r for r in record.results.values() if r.is_error and r.status not in set_aside]
    return Counts(
        tasks=1,
        passed=int(passed),
        calls=len(record.model.keys),
        asked=record.model.asked,
        ran=len(record.world.ran),
        suppressed=sum(statuses[status] for status in SUPPRESSED),
        deferred=sum(statuses[status] for status in DEFERRED),
        failed=len(errors) if record.results else len(record.world.failed),
        iterations=record.iterations,
        statuses=statuses,
    )


@dataclass(frozen=True)
class NotRun:
    """A call of a ground truth that did not run.

    Args:
        place: which call it is, from 1.
        call: its name and arguments.
        statuses: what it was answered with, each time it was made.
        harm: what is lost by it; empty where nothing is: the same call had run, it would have brought the
            same again, and would have changed nothing.
    """

    place: int
    call: str
    statuses: tuple[str, ...]
    harm: str

    def __str__(self) -> str:
        """In words."""
        answered = ", ".join(self.statuses) or "was never made"
        harm = self.harm or "harmless: the same call ran, and would have returned the same result"
        return f"call {self.place}, {self.call:.100} ({answered}): {harm}"


def not_run(record: Record, plain: Record) -> list[NotRun]:
    """The calls of the ground truth that did not run, and what was lost by it.

    Args:
        record: the run.
        plain: the run of the plain loop, which ran them all and looked at what they changed.
    """
    ran = {record.model.index_of[call_id] for call_id in record.world.ran}
    found: list[NotRun] = []
    for index, key in enumerate(record.model.keys):
        if index in ran:
            continue
        ids = [call_id for call_id, place in record.model.index_of.items() if place == index]
        statuses = tuple(record.results[i].status for i in ids if i in record.results)
        found.append(NotRun(index + 1, key, statuses, _harm(index, record, plain)))
    return found


def _harm(index: int, record: Record, plain: Record) -> str:
    earlier = record.model.earlier_result(index)
    if earlier is None:
        return "it never ran"
    call_ids = {place: call_id for call_id, place in plain.model.index_of.items()}
    if call_ids[index] in plain.world.changed:
        return "it would have changed the environment again"
    if plain.world.ran[call_ids[index]] != earlier:
        return "it would have returned another result than the earlier call"
    keys = plain.model.keys
    last = max((place for place in range(index) if keys[place] == keys[index]), default=index)
    if any(_is_news(place, last, record) for place in range(last + 1, index)):
        return "something new was learned since the same call ran"
    return ""


def _is_news(place: int, last: int, record: Record) -> bool:
    """Whether a call brings something new for one that comes after it, and was made at `last` before.

    Calls that are asked for together and change nothing may run at the same time: then none is after another.
    """
    keys = record.model.keys
    is_new = keys[place] not in keys[:last]
    return is_new and (not record.model.batch or is_changing(keys[place]))


def problems(record: Record, plain: Record, *, passed: bool, plain_passed: bool) -> list[str]:
    """All that is wrong with a run, given the plain loop's; nothing where it is as it should be."""
    found = [str(call) for call in not_run(record, plain) if call.harm]
    if plain_passed and not passed:
        found.append(f"the plain loop passes it, treadle does not: {record.ending}")
    if record.differs:
        found.append(f"its recording is not replayed as it was: {record.differs:.300}")
    found.extend(_out_of_order(record))
    found.extend(
        f"{' and '.join(names)} ran at the same time, and one of them changes the environment"
        for names in sorted(set(record.overlaps))
        if any(map(is_changing, names))
    )
    changed = {plain.model.keys[plain.model.index_of[call_id]] for call_id in plain.world.changed}
    found.extend(
        f"{key:.100} changes the environment, and is not marked so"
        for key in sorted(changed)
        if not is_changing(key)
    )
    return found


def _out_of_order(record: Record) -> list[str]:
    """Calls that ran on the wrong side of one that changes the environment."""
    keys = record.model.keys
    order = [record.model.index_of[call_id] for call_id in record.world.ran]
    changing = {index for index in order if is_changing(keys[index])}
    return [
        f"call {after + 1} ran before call {before + 1}, and one of them changes the environment"
        for after, before in combinations(order, 2)
        if after > before and (after in changing or before in changing)
    ]
