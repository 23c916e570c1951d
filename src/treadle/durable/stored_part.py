"""One part of a run, as a journal has stored it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.durable.payloads import Payloads, Stored
from treadle.errors import JournalError
from treadle.fast_dataclass import fast_dataclass
from treadle.messages import JSONDict
from treadle.recording.journaled import result_from_data
from treadle.recording.log import Entry, settled
from treadle.results import Result

if TYPE_CHECKING:
    import sqlite3


class Place(NamedTuple):
    """Where a run is in the file.

    Args:
        id: its id.
        key: its key in the tables.
        files: the random text in the names of its files.
    """

    id: str
    key: int
    files: str

    def named(self, what: str) -> str:
        """Name a part of the run, for errors."""
        return f"run {self.id!r}: {what}"


@fast_dataclass
class StoredPart:
    """One part of a run: what happened from its start, or from a pause, to the next pause or the end of the run.

    Args:
        number: its number, from 1.
        start: what it started from, as JSON data.
        log: the outcomes in order, without those of an interruption.
        outcome: how it ended, as JSON data; None if it has not.
        decisions: the decisions on the calls that wait at its end, as JSON data, by the id of the call.
    """

    number: int
    start: JSONDict
    log: list[Entry]
    outcome: JSONDict | None
    decisions: Mapping[str, JSONDict]

    @property
    def result(self) -> Result | None:
        """The result with which it ended, its typed output as plain data; None if it has not ended.

        Raises:
            ValueError, KeyError, TypeError: what is stored is no result.
        """
        if self.outcome is None:
            return None
        return result_from_data(self.outcome["result"], None)


class Rows(NamedTuple):
    """The rows of a part: its number, start and outcome, its numbered entries, and the decisions by call."""

    number: int
    start: Stored
    outcome: Stored | None
    entries: list[tuple[int, Stored]]
    decisions: list[tuple[str, Stored]]


def rows_of(db: sqlite3.Connection, place: Place, number: int) -> Rows:
    """Read the rows of a part of a run."""
    where = (place.key, number)
    query = "SELECT start, outcome FROM parts WHERE run = ? AND number = ?"
    start, outcome = db.execute(query, where).fetchone()
    query = "SELECT number, body FROM entries WHERE run = ? AND part = ? ORDER BY number"
    entries = db.execute(query, where).fetchall()
    query = "SELECT call, body FROM decisions WHERE run = ? AND part = ?"
    return Rows(number, start, outcome, entries, db.execute(query, where).fetchall())


def _entry(payloads: Payloads, place: Place, number: int, body: Stored) -> Entry:
    what = place.named(f"outcome {number + 1} of its log")
    data = payloads.get(body, what)
    try:
        return Entry.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JournalError(f"could not read {what}: {error!r}") from error


def part_of(payloads: Payloads, place: Place, rows: Rows) -> tuple[StoredPart, list[int]]:
    """Decode a part of a run.

    Returns:
        The part, and the numbers of the entries of an interruption, which are not in its log.

    Raises:
        JournalError: it cannot be decoded.
    """

    def get(stored: Stored, what: str) -> Any:
        return payloads.get(stored, place.named(what))

    entries = {number: _entry(payloads, place, number, body) for number, body in rows.entries}
    log = settled(entries.values())
    kept = set(map(id, log))
    part = StoredPart(
        rows.number,
        get(rows.start, "what it starts from"),
        log,
        None if rows.outcome is None else get(rows.outcome, "its result"),
        {call: get(body, f"the decision on {call!r}") for call, body in rows.decisions},
    )
    return part, [number for number, entry in entries.items() if id(entry) not in kept]
