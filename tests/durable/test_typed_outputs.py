"""A stored output is what it was: no validator reads what it returned."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from tests.ways import SYNC, Way
from tests.whole.scripts import HELLO

from treadle import Loop, Output, stage
from treadle.durable import SQLiteJournal
from treadle.errors import JournalError
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls

from . import typed_outputs
from .memory import MemoryJournal
from .typed_outputs import CASES, Parts, Point, Price

RUN = "run"


@pytest.mark.parametrize("name", CASES)
def test_a_typed_output_is_read_back_as_it_was(driven: Way, name: str):
    kind, tool_name, arguments = CASES[name]
    journal = MemoryJournal()
    options: Any = {"output": kind, "journal": journal, "run_id": RUN}
    first = driven.run(HELLO, ScriptedLLM(calls(call(tool_name, "c1", **arguments))), **options)
    assert first.result.stop_reason == "output", first.result
    for _ in range(2):
        second = driven.run(HELLO, ScriptedLLM(), **options)
        assert second.result == first.result
        assert type(second.result.output) is type(first.result.output)
    if isinstance(second.result.output, Parts):
        assert second.result.output.seen == first.result.output.seen == 4


def test_an_output_that_no_model_wrote():
    for output in (Price(cents=5), [Point(1, typed_outputs.Color.RED)], {"a": {1}}, (1, b"2")):

        @stage
        def end(ctx: Any, output: Any = output) -> Any:
            """End the run with a value."""
            return ctx.done(output)

        journal = MemoryJournal()
        options: Any = {"stages": [end, *default_stages()], "journal": journal, "run_id": RUN}
        first = Loop.run_sync("Hi.", ScriptedLLM("Hi."), **options)
        assert first.output == output
        assert Loop.run_sync("Hi.", ScriptedLLM(), **options) == first


def test_an_output_validator_replaces_the_output(driven: Way):
    def double(price: Price) -> Price:
        return price.model_copy(update={"cents": 2 * price.cents})

    journal = MemoryJournal()
    options: Any = {"output": Output(Price, validators=[double]), "journal": journal}
    llm = ScriptedLLM(calls(call("Price", "c1", cents=5)))
    for _ in range(2):
        result = driven.run(HELLO, llm, **options, run_id=RUN).result
        assert result.output.cents == 1000


def test_a_class_in_a_function():
    class Local(BaseModel):
        number: int

    journal = MemoryJournal()
    options: Any = {"output": Local, "journal": journal, "run_id": RUN}
    first = Loop.run_sync("Hi.", ScriptedLLM(calls(call("Local", "c1", number=1))), **options)
    assert Loop.run_sync("Hi.", ScriptedLLM(), **options) == first


@pytest.mark.parametrize("change", ["gone", "field"])
def test_a_class_that_has_changed_is_an_error_that_names_it(monkeypatch: Any, change: str):
    journal = MemoryJournal()
    options: Any = {"journal": journal, "run_id": RUN}
    llm = ScriptedLLM(calls(call("final_answer", "c1", value=[{"cents": 5}])))
    Loop.run_sync("Hi.", llm, output=list[Price], **options)
    if change == "gone":
        monkeypatch.delattr(typed_outputs, "Price")
    else:

        class Changed(BaseModel):
            cents: int
            currency: str

        monkeypatch.setattr(typed_outputs, "Price", Changed)
    with pytest.raises(JournalError, match=r"does not accept the stored output.*Price.*"):
        Loop.run_sync("Hi.", ScriptedLLM(), output=list[Price], **options)


def test_readers_without_the_class_see_json(tmp_path: Any):
    journal = SQLiteJournal(tmp_path / "journal.db")
    llm = ScriptedLLM(calls(call("Hidden", "c1", shown=2, when="2026-01-02")))
    SYNC.run(HELLO, llm, output=typed_outputs.Hidden, journal=journal, run_id=RUN)
    assert journal.part(RUN).result.output == {"shown": 2, "when": "day 739618", "double": 4}
