"""The program of docs/guide-migrating.md with a server, and a person who types."""

import sys

import pytest
from tests.guides.pasted import shown_blocks
from tests.programs import run_program

pytestmark = pytest.mark.wire

ADDRESS = "http://127.0.0.1:11434/v1"
ANSWER = '{"text": "Done.", "refunded": 9.5}'


@pytest.mark.parametrize(("typed", "told"), [("y", "refunded 9.5 euros"), ("n", "not allowed")])
def test_the_program_streams_asks_and_answers(wire, tmp_path, typed, told):
    program = "\n\n".join(shown_blocks("guide-migrating.md")[:2])
    assert ADDRESS in program
    called = [("find_order", '{"number": 7}'), ("refund", '{"number": 7}'), ("Answer", ANSWER)]
    wire.script(*({"toolCalls": [{"name": name, "arguments": data}]} for name, data in called))
    file = tmp_path / "program.py"
    file.write_text(program.replace(ADDRESS, wire.base_url), encoding="utf-8")

    done = run_program([sys.executable, "-W", "error", file], input=f"{typed}\n")

    assert done.returncode == 0, done.stderr
    assert "Run refund? " in done.stdout
    assert ('refund {"number": 7}' in done.stdout) is (typed == "y")
    assert done.stdout.endswith("text='Done.' refunded=9.5\n")
    assert told in wire.requests[-1]["messages"][-1]["content"]
