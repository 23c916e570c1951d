"""The picture of runs: what it says, what it leaves out where there is no room, and that it is safe."""

import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from treadle.events import (
    BreakerChanged,
    CallNotRun,
    FirstChunk,
    HistoryRepaired,
    IterationStarted,
    LimitReached,
    ModelRequested,
    ModelResponded,
    ModelRetried,
    RunFinished,
    RunStarted,
    SubagentEvent,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolRetried,
    ToolStarted,
)
from treadle.limits import Limits
from treadle.messages import Response, ToolCall, ToolResult, Usage
from treadle.reports.live.board import Board, RunObserver
from treadle.reports.live.table import Table
from treadle.results import LoopDetected
from treadle.tools import NotRun

ALL_LIMITS = Limits(
    max_iterations=10,
    max_tool_calls=20,
    max_input_tokens=50_000,
    max_output_tokens=1_000,
    max_total_tokens=51_000,
    max_cost=0.1,
    max_seconds=60,
)


class Shown:
    """A board with a clock, and pictures of it."""

    def __init__(self):
        self.now = 0.0
        self.board = Board(lambda: self.now)

    def run(self, name="", run_id="0123456789abcdef0123456789abcdef", limits=None):
        watcher = RunObserver(self.board)
        given = {"limits": limits} if limits else {}
        watcher(RunStarted(agent_name=name, run_id=run_id, at=self.now, **given))
        return watcher

    def ended(self, name, stop_reason="answered", error=None, **more):
        watcher = self.run(name, **more)
        watcher(
            RunFinished(
                stop_reason=stop_reason,
                total_iterations=3,
                tool_calls_count=2,
                result=None,
                at=self.now + 8.1,
                usage=Usage(1_000, 230, cost=0.0021),
                error=error,
            )
        )

    def picture(self, width=81, height=24, encoding="utf-8"):
        return Table(width, height, self.now, encoding).lines(self.board)

    def text(self, *size, **more):
        return "\n".join(line.plain for line in self.picture(*size, **more))


@pytest.fixture
def shown():
    return Shown()


def ask(watch, iteration=1):
    watch(IterationStarted(iteration=iteration, at=0.0))
    watch(ModelRequested(iteration=iteration, at=0.0))


def within(watch):
    """A watcher of the subagent of call ``a``."""
    return lambda event: watch(SubagentEvent(call_id="a", event=event))


def made(name, call_id="a", **arguments):
    call = ToolCall(call_id, name, "{}", arguments)
    return ToolStarted(iteration=1, call=call, at=0.0)


def answered(**usage):
    response = Response("x", usage=Usage(**usage))
    return ModelResponded(iteration=1, response=response, at=0.0, duration=1.0)


def test_a_run_is_shown_whole(shown):
    """Its name, the iteration, what is under way, what it has used, its limits, the guards that fired."""
    watch = shown.run("shop", limits=ALL_LIMITS)
    ask(watch, 3)
    watch(answered(input_tokens=40_000, output_tokens=500, cost=0.095))
    shown.now = 2.5
    watch(made("search", words="green tea"))
    watch(made("fetch", "b", url="http://a.example", size=3))
    call = ToolCall("c", "search")
    watch(CallNotRun(iteration=1, call=call, reason=NotRun.NO_NEW_EVIDENCE))
    watch(CallNotRun(iteration=1, call=call, reason=NotRun.DEFERRED))
    watch(BreakerChanged(iteration=1, tool="order", before="closed", after="open"))
    watch(LimitReached(iteration=1, reason=LoopDetected((), 3, "")))
    shown.now = 14.0

    assert shown.text().splitlines() == [
        "● shop  3/10  2 calls                               40,500 tokens  $0.0950  14 s",
        "    search green tea                                                        11 s",
        "    fetch http://a.example                                                  11 s",
        "    iterations ━─────── 1/10   tool calls ━─────── 2/20",
        "    input tokens ━━━━━━── 40,000/50,000   output tokens ━━━━──── 500/1,000",
        "    tokens ━━━━━━── 40,500/51,000   cost ━━━━━━━━ $0.0950/$0.10",
        "    seconds ━━────── 14/60",
        "    1 deferred, 1 no new evidence, breaker of order open, limit: loop_detected",
    ]


def head(shown, width=81):
    """What is under way, in the words of the first line."""
    return re.sub(r" {2,}", "  ", shown.text(width).splitlines()[0])


def test_the_model_is_waited_for(shown):
    watch = shown.run("shop")
    assert head(shown) == "● shop  0/10  starting 0.0 s  0.0 s"
    ask(watch)
    shown.now = 2.19
    assert head(shown) == "● shop  1/10  calling the model 2.1 s  2.1 s"
    watch(FirstChunk(iteration=1, at=0.0))
    watch(TextDelta(iteration=1, text="x" * 1_204))
    shown.now = 130.0
    assert head(shown) == (
        "● shop  1/10  streaming the response 2 min 07 s, 1,204 characters  2 min 10 s"
    )


def test_the_stage_whose_edit_was_repaired_is_shown(shown):
    """Once, however often it was; a repair of the caller's messages names no stage."""
    watch = shown.run("shop")
    watch(HistoryRepaired(repairs=("an orphan",)))
    assert "    1 repaired" in shown.text().splitlines()
    for _ in range(2):
        watch(HistoryRepaired(repairs=("an orphan", "a blank"), stage="trim\x1b[2J"))
    assert "    5 repaired, repaired after stage trim\\x1b[2J" in shown.text().splitlines()


def test_a_retry_is_counted_down_and_then_is_a_try(shown):
    watch = shown.run("shop")
    ask(watch)
    watch(
        ModelRetried(iteration=1, attempt=1, error="x", error_type="RateLimit", delay=4.0, at=0.0)
    )
    shown.now = 1.0
    assert "  retry in 3.0 s (attempt 2, RateLimit)  " in head(shown)
    shown.now = 5.5
    assert "  calling the model 1.5 s, attempt 2  " in head(shown)


def test_a_call_that_is_tried_again_is_counted_down(shown):
    watch = shown.run("shop")
    start = made("fetch", url="x")
    watch(start)
    watch(
        ToolRetried(
            iteration=1,
            call=start.call,
            attempt=1,
            error="x",
            error_type="timeout",
            delay=2.0,
            at=0.0,
        )
    )
    assert re.search(
        r"fetch x +retry in 2\.0 s \(attempt 2, timeout\)$", shown.text(), re.MULTILINE
    )
    shown.now = 3.0
    assert re.search(r"fetch x +3\.0 s, attempt 2$", shown.text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "given", "told"),
    [
        ("{}", {}, "look"),
        ("", None, "look"),
        ('{"a": 1', None, 'look {"a": 1'),
        ("{}", {"count": 3, "words": "tea", "more": "x"}, "look tea"),
        ("{}", {"count": 3, "is_new": True}, "look 3"),
        ("{}", {"is_new": True}, "look true"),
        ("{}", {"empty": "", "count": None}, 'look ""'),
        ('{"filter": {"a": 1}}', {"filter": {"a": 1}}, 'look {"filter": {"a": 1}}'),
        ("{}", {"words": "x" * 1_000_000}, "look " + "x" * 60 + "..."),
        ("{}", {"text": "two\nlines"}, "look two lines"),
    ],
)
def test_a_call_is_shown_with_its_main_argument(shown, arguments, given, told):
    """Its first text, else its first argument, else all as they came."""
    watch = shown.run("shop")
    watch(ToolStarted(iteration=1, call=ToolCall("a", "look", arguments, given), at=0.0))
    line = shown.text(120).splitlines()[1]
    assert re.sub(r" +0\.0 s$", "", line).strip() == told


def test_the_latest_progress_of_a_call_is_in_its_row(shown):
    watch = shown.run("shop")
    start = made("look", what="tea")
    watch(start)
    for message, progress in (("first", None), ("page 2\nof 4", 0.5)):
        watch(
            ToolProgress(iteration=1, call=start.call, message=message, progress=progress, at=0.0)
        )
    line = shown.text(120).splitlines()[1]
    assert re.sub(r" +0\.0 s$", "", line).strip() == "look tea  50% page 2 of 4"
    other = ToolCall("gone", "look")
    watch(ToolProgress(iteration=1, call=other, message="late", at=0.0))
    assert "late" not in shown.text()


def test_many_calls_at_once_are_cut(shown):
    watch = shown.run("shop")
    for number in range(9):
        watch(made("look", str(number), where=f"place {number}"))
    lines = shown.text().splitlines()
    assert [line.split()[-3] for line in lines[1:6]] == ["0", "1", "2", "3", "4"]
    assert lines[6] == "    and 4 more calls"


def test_the_steps_of_a_recipe_stand_below_their_call(shown):
    watch = shown.run("shop")
    watch(made("plan", what="x"))
    watch(ToolStarted(iteration=1, call=ToolCall("b", "fetch", input={"u": "y"}), at=0, within="a"))
    assert shown.text().splitlines()[1].startswith("    plan x ")
    assert shown.text().splitlines()[2].startswith("        fetch y ")


def test_a_run_within_a_call_is_a_row_of_its_own(shown):
    watch = shown.run("editor")
    watch(made("research", task="rivers"))
    inner = RunStarted(agent_name="researcher", run_id="r/a", at=0.0, limits=Limits(5))
    tell = within(watch)
    tell(inner)
    ask(tell, 2)
    tell(made("search", words="x"))
    lines = shown.text().splitlines()
    assert lines[1].startswith("    research rivers ")
    assert lines[2].startswith("        └ researcher  2/5  1 call ")
    assert lines[3].startswith("            search x ")

    watch(
        SubagentEvent(
            call_id="a",
            event=RunFinished(
                stop_reason="answered", total_iterations=2, tool_calls_count=1, result=None, at=1.0
            ),
        )
    )
    assert re.fullmatch(
        " {8}└ researcher  answered: 2 iterations, 1 call +1.0 s",
        shown.text().splitlines()[2],
    )


@pytest.mark.parametrize(
    ("stop_reason", "error", "sign"),
    [
        ("answered", None, "✓"),
        ("output", None, "✓"),
        ("finished", None, "✓"),
        ("llm_error", "the model failed", "✗"),
        ("paused", None, "■"),
        ("cancelled", "the run was cancelled", "■"),
    ],
)
def test_a_run_that_is_over_is_one_line(shown, stop_reason, error, sign):
    shown.ended("shop", stop_reason, error)
    assert re.sub(" {3,}", "   ", shown.text()) == (
        f"{sign} shop  {stop_reason}: 3 iterations, 2 calls   1,230 tokens  $0.0021  8.1 s"
    )


def test_several_runs_have_a_line_for_all(shown):
    """Names stand below each other; what all have used is summed."""
    shown.ended("a")
    watch = shown.run("editor")
    watch(answered(input_tokens=10, output_tokens=5, cost=0.5))
    lines = shown.text().splitlines()
    assert lines[0].startswith("✓ a       answered: ")
    assert lines[1].startswith("● editor  0/10  working ")
    assert lines[-1] == "2 runs: 1 running, 1 finished, 1,245 tokens, $0.5021"


@pytest.mark.parametrize(
    ("name", "run_id", "told"),
    [
        ("", "0123456789abcdef", "0123456789abcdef"),
        ("", "0123456789abcdef0123456789abcdef", "012345"),
        ("", "", "run"),
        ("shop", "order-17", "shop"),
    ],
)
def test_a_run_is_called_by_its_name_or_its_id(shown, name, run_id, told):
    shown.run(name, run_id)
    assert shown.text().startswith(f"● {told}  0/10  ")


def test_runs_of_one_name_are_told_apart_by_their_ids(shown):
    shown.run("shop", "order-17")
    shown.run("shop", "order-18")
    shown.run("mill", "x")
    heads = [line for line in shown.text().splitlines() if line.startswith("●")]
    assert [re.split(r" {2,}", line)[0] for line in heads] == [
        "● shop order-17",
        "● shop order-18",
        "● mill",
    ]


def test_where_there_is_no_room_for_all_what_matters_most_stays(shown):
    """The oldest of what is over goes first, then detail, then the youngest of what goes on. It is counted."""
    for number in range(6):
        shown.ended(f"old{number}")
    for number in range(4):
        watch = shown.run(f"new{number}")
        watch(made("research", task="x"))
        ask(within(watch))

    def names(height):
        words = [line.split() for line in shown.text(100, height).splitlines()]
        return [found[1] for found in words[:-1]], shown.text(100, height).splitlines()[-1]

    new = [f"new{number}" for number in range(4)]
    assert len(names(40)[0]) == 6 + 4 * 4
    assert names(22)[1].startswith("and 1 more; 10 runs: 4 running, 6 finished")
    nested = names(12)[0]
    assert nested[:3] == ["old3", "old4", "old5"]
    assert nested[3:] == [name for one in new for name in (one, "run")]
    assert names(8)[0] == ["old3", "old4", "old5", *new]
    assert names(5) == (new, "and 6 more; 10 runs: 4 running, 6 finished, 7,380 tokens, $0.0126")
    assert names(3)[0] == ["new0", "new1"]
    assert names(3)[1].startswith("and 8 more; ")
    assert shown.text(100, 1).split()[1] == "new0"


def hostile(shown):
    """Runs whose every text is as bad as it gets."""
    bad = (
        "[red]\x1b[2J\x1b]0;owned\x07\u202e\x00\r\n\u0085\u2028日本\U0001f469\u200d\U0001f467\ud800"
    )
    watch = shown.run(bad, bad, ALL_LIMITS)
    ask(watch)
    watch(ToolStarted(iteration=1, call=ToolCall(bad, bad, bad), at=0.0))
    start = made(bad, "b", **{bad: bad})
    watch(start)
    watch(ToolProgress(iteration=1, call=start.call, message=bad, at=0.0))
    facts = {"iteration": 1, "attempt": 1, "error": bad, "error_type": bad, "delay": 5.0, "at": 0.0}
    watch(ToolRetried(call=start.call, **facts))
    watch(SubagentEvent(call_id="b", event=RunStarted(agent_name=bad, run_id=bad, at=0.0)))
    watch(BreakerChanged(iteration=1, tool=bad, before=bad, after=bad))
    other = shown.run("other")
    other(ModelRetried(**facts))
    shown.ended(bad, bad, bad, run_id=bad)


@pytest.mark.parametrize("width", [*range(1, 30), 40, 80, 200])
def test_every_line_fits_however_narrow_it_gets(shown, width):
    """One line that went on in the next would throw the picture out of place."""
    hostile(shown)
    for height in (1, 2, 3, 5, 50):
        lines = shown.picture(width, height)
        assert 1 <= len(lines) <= height
        assert max(line.cell_len for line in lines) <= max(1, width - 1)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "cp437", "no-such-encoding"])
def test_what_a_model_wrote_is_never_obeyed(shown, encoding):
    """Nor is it taken for markup; a terminal that cannot show it is shown how it is written."""
    hostile(shown)
    for width in (40, 200):
        text = shown.text(width, 50, encoding=encoding)
        assert not {unicodedata.category(char) for char in text.replace("\n", "")} & {
            *("Cc", "Cf", "Cs", "Zl", "Zp")
        }
        text.encode("ascii" if encoding.startswith("no") else encoding)
        console = Console(
            file=io.StringIO(), force_terminal=True, width=width, color_system="truecolor"
        )
        for line in shown.picture(width, 50, encoding):
            console.print(line)
        assert "[red]" in console.file.getvalue()
        assert set(re.findall(r"\x1b(?!\[[0-9;]*m)", console.file.getvalue())) == set()


@given(st.text(), st.text(), st.text(), st.integers(1, 60))
def test_no_text_at_all_makes_a_line_too_long(name, tool_name, argument, width):
    shown = Shown()
    watch = shown.run(name)
    watch(made(tool_name, words=argument))
    assert all(cell_len(line.plain) < max(2, width) for line in shown.picture(width, 30))


@pytest.mark.parametrize(
    ("limits", "bars"),
    [
        (Limits(max_tool_calls=0), "tool calls ━━━━━━━━ 0/0"),
        (Limits(max_cost=0.0), "cost ━━━━━━━━ $0.00/$0.00"),
        (Limits(max_seconds=2.5), "seconds ━━━━━━━━ 10/2.5"),
        (Limits(), "iterations ──────── 0/10"),
    ],
)
def test_a_budget_is_full_at_its_limit_and_beyond(shown, limits, bars):
    shown.run("shop", limits=limits)
    shown.now = 10.0
    assert bars in shown.text()


@pytest.mark.parametrize(("used", "style"), [(60, "green"), (70, "yellow"), (90, "red")])
def test_a_budget_that_is_nearly_spent_is_seen(shown, used, style):
    watch = shown.run("shop", limits=Limits(max_input_tokens=100))
    watch(answered(input_tokens=used))
    (line,) = [line for line in shown.picture() if "input tokens" in line.plain]
    place = line.plain.index("━", line.plain.index("input tokens"))
    assert [span.style for span in line.spans if span.start <= place < span.end] == [style]


def test_tokens_that_nobody_counted_are_at_least_those(shown):
    watch = shown.run("shop")
    watch(answered(input_tokens=10, is_lower_bound=True))
    assert " 10+ tokens " in shown.text()


def test_a_failed_call_is_counted(shown):
    watch = shown.run("shop")
    start = made("look")
    watch(start)
    result = ToolResult("a", "no", True)
    watch(ToolFinished(iteration=1, call=start.call, result=result, at=0.0, duration=1.0))
    assert shown.text().splitlines()[-1] == "    1 failed"
