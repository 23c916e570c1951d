"""Sessions as lines of JSON: a header, then a line for each turn, and one for each attachment."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from treadle.codec import JSONFormatError, restore
from treadle.errors import SessionError
from treadle.messages import JSONDict, is_list, is_mapping, problems_of, short_json
from treadle.sessions.store import StoredTurn, TurnStatus

FORMAT = "treadle-session"
VERSION = 1
"""The version of the format."""


class Exported(NamedTuple):
    """What the lines of an export have.

    Args:
        id: the id of the session.
        turns: its turns, the oldest first.
        attachments: its attachments by digest, in order.
    """

    id: str
    turns: list[StoredTurn]
    attachments: dict[str, JSONDict]


def to_lines(
    session_id: str, count: int, turns: Iterable[StoredTurn], attachments: Mapping[str, JSONDict]
) -> Iterator[str]:
    """Format a session, in ASCII; each line ends with a line feed.

    Args:
        session_id: its id.
        count: the number of its turns.
        turns: the turns, the oldest first.
        attachments: its attachments by digest, in order.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "id": session_id,
        "turns": count,
        "attachments": len(attachments),
    }
    yield f"{json.dumps(header)}\n"
    for turn in turns:
        yield f'{{"turn":{turn.as_json()}}}\n'
    for digest, part in attachments.items():
        yield f"{json.dumps({'attachment': part, 'digest': digest})}\n"


def from_lines(lines: Iterable[str]) -> Exported:
    """Read what `to_lines` returned. Blank lines are skipped.

    Raises:
        SessionError: a line is malformed, or lines are missing; the text has the number of the line, from 1.
    """
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (1, ""))
    header = _header(first, number)
    made = Exported(header["id"], [], {})
    end = 0
    for number, line in numbered:
        data = _object(line, number)
        if "turn" in data:
            turn = _turn(data["turn"], end, number)
            end = turn.end
            made.turns.append(turn)
        elif is_mapping(data.get("attachment")) and isinstance(data.get("digest"), str):
            made.attachments[data["digest"]] = dict(data["attachment"])
        else:
            raise _malformed(number, "a turn or an attachment", data)
    found = {"turns": len(made.turns), "attachments": len(made.attachments)}
    for name, count in found.items():
        if count != header.get(name) or not made.turns:
            expected = short_json(header.get(name))
            raise SessionError(
                f"the export is not whole: after line {number}, expected {expected} {name}, found {count}"
            )
    return made


def _header(line: str, number: int) -> JSONDict:
    header = _object(line, number)
    if header.get("format") != FORMAT or not isinstance(header.get("id"), str):
        raise _malformed(number, f"the header of an export, with the format {FORMAT!r}", header)
    if header.get("version") != VERSION:
        raise _malformed(number, f"version {VERSION} of the format", header)
    return header


def _turn(data: Any, end: int, number: int) -> StoredTurn:
    """Check and restore a turn.

    Args:
        data: the turn.
        end: the number of messages before it.
        number: the number of its line.
    """
    try:
        turn: StoredTurn = restore(StoredTurn, data)
    except JSONFormatError as error:
        raise SessionError(f"line {number}: {error}") from None
    if not 0 <= turn.start <= end:
        raise SessionError(
            f"line {number}: start: expected 0 to {end}, the number of messages before it, "
            f"got {turn.start}"
        )
    if turn.status not in get_args(TurnStatus):
        raise _malformed(number, f"a status among {', '.join(get_args(TurnStatus))}", turn.status)
    problems = list(problems_of(turn.messages)) if turn.messages else []
    if problems:
        raise SessionError(f"line {number}: {'; '.join(problems)}")
    _check_view(turn, number)
    return turn


def _check_view(turn: StoredTurn, number: int) -> None:
    view = turn.view
    if view is None:
        return
    through = view.get("through")
    is_whole = (
        isinstance(through, int)
        and 0 <= through <= turn.end
        and is_list(view.get("pinned"))
        and is_mapping(view.get("memo"))
    )
    if not is_whole:
        raise _malformed(number, "a view with through, pinned and memo", view)


def _object(line: str, number: int) -> JSONDict:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SessionError(f"line {number}: expected JSON: {error}") from None
    if not is_mapping(data):
        raise _malformed(number, "a JSON object", data)
    return dict(data)


def _malformed(number: int, expected: str, found: Any) -> SessionError:
    return SessionError(f"line {number}: expected {expected}, got {short_json(found)}")
