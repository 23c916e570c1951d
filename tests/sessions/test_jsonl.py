"""Sessions as lines of JSON."""

import json

import pytest
from tests.sessions.conversing import answer, compacted, exchange, image, run, user, with_image

from treadle.sessions import SessionError, SQLiteSessions, import_session


@pytest.fixture
def filled(store):
    session = store.session("alice")
    run(session, with_image("cat"), *exchange("a"), answer("Grüße \ud83d \u2028"))
    run(session, user("2"), answer("2"), memo=compacted(4, attachments=[image("cat")]))
    run(session, user("3"), answer("3"), status="paused", pause={"pause_id": "p"})
    session.truncate(5)
    return session


@pytest.fixture
def other(tmp_path):
    return SQLiteSessions(tmp_path / "other.db")


def lines_of(session):
    return [*session.export()]


def test_it_may_get_another_id(filled):
    copy = import_session(filled.store, filled.export(), "bob")
    assert copy.id == "bob"
    assert copy.messages() == filled.messages()


def test_each_line_is_a_line_of_a_text_file(filled, other, tmp_path):
    file = tmp_path / "alice.jsonl"
    with file.open("w", encoding="ascii", newline="") as out:
        out.writelines(filled.export())
    assert len(file.read_text().splitlines()) == 1 + 4 + 1
    with file.open() as lines:
        assert import_session(other, lines).turns() == filled.turns()


def test_a_session_that_exists_is_not_overwritten(filled):
    with pytest.raises(SessionError, match="there is a session 'alice' already"):
        import_session(filled.store, lines_of(filled))
    assert filled.info().version == 4


def changed(place, **fields):
    """Change the turn in a line."""

    def change(lines):
        line = json.loads(lines[place])
        line.get("turn", line).update(fields)
        lines[place] = json.dumps(line)

    return change


def cut(lines):
    lines[2] = lines[2][:50]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (list.clear, "line 1: expected JSON"),
        (lambda lines: lines.pop(0), "line 1: expected the header of an export"),
        (changed(0, format="other"), "line 1: expected the header of an export"),
        (changed(0, id=5), "line 1: expected the header of an export"),
        (changed(0, version=2), "line 1: expected version 1 of the format"),
        (changed(0, id=""), "the id of a session: expected"),
        (cut, "line 3: expected JSON"),
        (lambda lines: lines.insert(1, "[1]"), "line 2: expected a JSON object, got"),
        (lambda lines: lines.insert(1, '{"a": 1}'), "line 2: expected a turn or an attachment"),
        (
            lambda lines: lines.insert(1, '{"turn": 5}'),
            "line 2: expected an object with the fields",
        ),
        (lambda lines: lines.insert(0, "\n"), None),
        (changed(1, start="0"), "line 2: start: expected a value of type int"),
        (changed(1, start=1), "line 2: start: expected 0 to 0, .* got 1"),
        (changed(2, start=5), "line 3: start: expected 0 to 4, .* got 5"),
        (changed(2, start=-1), "line 3: start: expected 0 to 4"),
        (changed(2, status="fine"), "line 3: expected a status among ok, error"),
        (changed(1, messages=[{"role": "wizard"}]), r"line 2: messages\[0\].role: expected"),
        (changed(1, messages=[user(), 5]), r"line 2: messages"),
        (changed(2, view={"through": 9, "pinned": [], "memo": {}}), "line 3: expected a view"),
        (changed(2, view={"through": 1}), "line 3: expected a view"),
        (changed(2, pause=[]), "line 3: pause: expected an object"),
        (list.pop, "not whole: after line 5, expected 1 attachments, found 0"),
        (lambda lines: lines.pop(-2), "not whole: after line 5, expected 4 turns, found 3"),
        (lambda lines: lines.append(lines[-2]), "expected 4 turns, found 5"),
        (changed(5, attachment=5), "line 6: expected a turn or an attachment"),
    ],
)
def test_malformed_lines_are_refused_by_their_number_and_nothing_is_stored(
    filled, other, change, expected
):
    lines = lines_of(filled)
    change(lines)
    if expected is None:
        import_session(other, lines)
        return
    with pytest.raises(SessionError, match=expected):
        import_session(other, lines)
    assert other.sessions() == []
