"""The page of a report, as text: whole, safe to open, and in plain words."""

import base64
import contextlib
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import get_args

import pytest
from tests.compacting import compacting, failing, script

from treadle import Loop, approve
from treadle.pipeline import stage
from treadle.recording.model import Run
from treadle.recording.reader import RecordingError, read_recording
from treadle.recording.recorder import Recorder
from treadle.reports.report.data import report_data
from treadle.reports.report.explain import HEADLINES, explain_not_run, headline, why
from treadle.reports.report.noscript import MOST_STEPS, visible
from treadle.reports.report.render import render_report
from treadle.results import Reason
from treadle.stages import default_stages
from treadle.testing import ScriptedLLM, call, calls
from treadle.tools import NotRun

from .samples import add, eventful, wipe
from .spoilt import spoilt_records

QUESTION = [{"role": "user", "content": "go"}]


@pytest.fixture
def record(tmp_path):
    """The path of a record of a run in which much happens."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        eventful(recorder)
    return path


class Page(HTMLParser):
    """The elements of a page, and the text of those that matter here."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []
        self.texts = {}
        self._in = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in.append((tag, dict(attrs).get("id", "")))

    def handle_data(self, data):
        if self._in:
            self.texts[self._in[-1]] = self.texts.get(self._in[-1], "") + data

    def handle_endtag(self, tag):
        if self._in and self._in[-1][0] == tag:
            self._in.pop()

    @property
    def policy(self):
        (made,) = [one["content"] for _, one in self.elements if "http-equiv" in one]
        return dict(part.partition(" ")[::2] for part in made.split("; "))

    @property
    def data(self):
        return json.loads(self.texts["script", "data"])


def test_the_page_is_one_file_that_refers_to_nothing(record):
    """No source, no link out, no address; and it is ASCII, so that no encoding can break it."""
    text = render_report(record)
    page = Page(text)
    assert text.isascii()
    attributes = [(tag, name) for tag, given in page.elements for name in given]
    assert not {name for _, name in attributes} & {"src", "srcset", "action", "style", "onload"}
    assert [given["href"] for _, given in page.elements if "href" in given] == ["#steps"]
    found = re.findall(r"\w+://[\w.]+", text)
    assert set(found) <= {"http://www.w3.org"}  # the name of SVG, which is no request


def test_the_policy_lets_only_the_pages_own_script_and_style_take_effect(record):
    """By their hashes; nothing is requested, and no text can be made markup by a script."""
    page = Page(render_report(record))
    style, script = (
        f"'sha256-{base64.b64encode(hashlib.sha256(page.texts[tag, ''].encode()).digest()).decode()}'"
        for tag in ("style", "script")
    )
    assert page.policy == {
        "default-src": "'none'",
        "script-src": script,
        "style-src": style,
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }


def test_no_script_of_the_page_makes_markup_of_text(record):
    """It has no use for it; so that there is nothing to get wrong."""
    script = Page(render_report(record)).texts["script", ""]
    for sink in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert sink not in script


HOSTILE = (
    "</script><script>alert(1)</script></script foo ></script\t<!-- <script <style> &lt; \u2028\u2029 ]]> "
    "{{data}} \\u003c"
)


def test_what_somebody_wrote_cannot_end_the_data(tmp_path):
    """It is in the page once, between quotes, and comes back as it was."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(name=HOSTILE, on_event=recorder).run_sync(QUESTION, ScriptedLLM(HOSTILE))
    text = render_report(path)
    page = Page(text)
    (run,) = page.data["runs"]
    assert (run["agent"], run["answer"]) == (HOSTILE, HOSTILE)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert "alert(1)</script>" not in text
    assert "<!-- <script" not in text
    assert text.lower().count("</script") == 2


def test_runs_can_be_given_in_any_form(record):
    """A path, what was read from it, or some runs of it."""
    read = read_recording(record)
    assert render_report(record) == render_report(str(record)) == render_report(read)
    assert Page(render_report(read.runs)).data["runs"] == report_data(read)["runs"]


def test_the_data_has_what_happened(record):
    """Tokens, calls with their last words, retries, guards, the run within."""
    (run,) = Page(render_report(record)).data["runs"]
    assert (run["headline"], run["iterations"], run["calls"], run["guards"], run["retries"]) == (
        "Answered",
        6,
        5,
        4,
        2,
    )
    rows = [(row["k"], row.get("name")) for row in run["steps"][0]["rows"]]
    assert rows == [
        ("message", None),
        ("message", None),
        ("answer", None),
        ("call", "add"),
        ("call", "flaky"),
        ("call", "broken"),
    ]
    suppressed = run["steps"][4]["rows"][-1]
    assert (
        suppressed["guard"]
        == "The same call was answered before, and nothing new has been learned since."
    )
    assert suppressed["result"].startswith("Not run again: you made the same call in iteration 4")
    assert "with the same arguments in this turn" in suppressed["result"]  # the nudge, added later
    (inner,) = run["steps"][2]["rows"][0]["runs"]
    assert (inner["agent"], inner["headline"]) == ("inner", "Answered")
    assert run["t"] <= inner["t"] <= inner["e"] <= run["e"]


def test_there_are_plain_words_for_every_way_to_end():
    """For each reason, and for the ends that have none."""
    assert {reason.stop_reason for reason in get_args(Reason)} <= set(HEADLINES)
    assert {"answered", "output", "finished", "paused"} <= set(HEADLINES)
    assert headline(Run("r", stop_reason="bored")) == "Ended: bored"


def test_there_are_plain_words_for_every_reason_to_hold_a_call():
    """A sentence each."""
    told = {explain_not_run(reason.value) for reason in NotRun}
    assert len(told) == len(NotRun)
    assert all(" " in one and one.endswith(".") for one in told)


def test_a_report_says_what_a_run_was_doing_when_its_record_stops(tmp_path):
    """Where it was not begun, where the model was asked, where a tool ran."""
    path = tmp_path / "run.jsonl"
    with Recorder(path, replayable=False) as recorder:
        model = ScriptedLLM(calls(call("add", a=1, b=2)), "done")
        Loop(tools=[add], on_event=recorder).run_sync(QUESTION, model)
    lines = path.read_bytes().splitlines(keepends=True)
    told = []
    for count in range(2, len(lines)):
        path.write_bytes(b"".join(lines[:count]))
        (run,) = read_recording(path).runs
        assert headline(run) == "Did not end"
        told.append(why(run))
    assert told[0] == "The recording ends before the first model call."
    assert told[1] == "The recording ends in iteration 1, during the model call."
    assert "The recording ends in iteration 1, after the model call." in told
    assert "The recording ends in iteration 1, while add was running." in told


def test_without_javascript_there_is_a_summary_and_a_transcript(record):
    """What was said and done, as text."""
    plain = Page(render_report(record)).texts
    text = render_report(record)
    noscript = text[text.index("<noscript>") : text.index("</noscript>")]
    assert "outer" in noscript
    assert "Answered" in noscript
    assert "It is forty-two." in noscript
    assert "2. call of add: invalid" in noscript
    assert "in broken\n" in noscript
    assert plain["title", ""].strip() == "outer: Answered"


def test_without_javascript_long_runs_are_cut_and_it_says_so(tmp_path):
    """A page that nobody looks at that way must not grow twice as large."""
    path = tmp_path / "run.jsonl"
    numbers = iter(range(400))
    with Recorder(path) as recorder:
        Loop(tools=[add], max_iterations=400, on_event=recorder).run_sync(
            QUESTION, lambda _: calls(call("add", a=next(numbers), b=1))
        )
    text = render_report(path)
    assert f"Only the first {MOST_STEPS} parts" in text
    assert text.count("<details>") == MOST_STEPS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain\n\ttext é", "plain\n\ttext é"),
        ("a\u202eb", "a[U+202E]b"),
        ("\x1b[31m\x00", "[U+001B][31m[U+0000]"),
        ("\ud800", "[U+D800]"),
        ("a\u200bb\U000e0041", "a[U+200B]b[U+E0041]"),
    ],
)
def test_what_would_not_be_seen_is_shown(text, expected):
    """Controls, marks of direction, invisible letters, halves of characters."""
    assert visible(text) == expected


@pytest.mark.parametrize("seed", range(8))
def test_whatever_can_be_read_can_be_rendered(tmp_path, seed):
    """Records in which anything was replaced by anything: they make a page, unless their first line is spoilt."""
    made = 0
    for number, spoilt in enumerate(spoilt_records(seed, 40, readable=False)):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(spoilt)
        with contextlib.suppress(RecordingError):
            assert render_report(path).isascii()
            made += 1
    assert made > 30


def test_the_same_record_makes_the_same_page(record):
    """Nothing of the machine or of the time is in it."""
    assert render_report(record) == render_report(record)


def rows_of(path, kind):
    """The rows of one kind, iteration by iteration."""
    (run,) = report_data(read_recording(path))["runs"]
    return [[row for row in step["rows"] if row["k"] == kind] for step in run["steps"]]


def test_a_report_shows_each_request_as_it_was_sent(tmp_path):
    """An edited view and guidance where they were sent; the system message where it changed."""

    @stage
    def shorten(ctx):
        if ctx.iteration != 2:
            return ctx
        return ctx.with_request(messages=ctx.messages[-2:]).guide("hurry")

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(
            tools=[add],
            stages=[shorten, *default_stages()],
            instructions=lambda ctx: "be kind" if ctx.iteration < 3 else "be brief",
            on_event=recorder,
        ).run_sync(
            QUESTION,
            ScriptedLLM(calls(call("add", a=1, b=2)), calls(call("add", a=3, b=4)), "done"),
        )

    assert [[row["text"] for row in rows] for rows in rows_of(path, "instructions")] == [
        ["be kind"],
        [],
        ["be brief"],
    ]
    assert [[row["text"] for row in rows] for rows in rows_of(path, "guidance")][1] == ["hurry"]
    views = [
        [one["role"] for row in rows for one in row["messages"]] for rows in rows_of(path, "view")
    ]
    assert views == [[], ["assistant", "tool"], []]
    first = rows_of(path, "message")[0]
    assert [(row["role"], row["text"]) for row in first] == [("user", "go")]


def spoil(ctx):
    """Drop the user's message and the calls, so that a result has no call."""
    return ctx.replace(messages=[QUESTION[0], *ctx.messages[2:]]) if ctx.iteration == 2 else ctx


def test_a_report_names_the_stage_whose_edit_was_repaired(tmp_path):
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(tools=[add], stages=[stage(spoil), *default_stages()], on_event=recorder).run_sync(
            QUESTION, ScriptedLLM(calls(call("add", a=1, b=2)), "done")
        )

    (run,) = report_data(read_recording(path))["runs"]
    assert run["repairs"] == []  # those of the caller's messages
    ((guard,),) = [rows for rows in rows_of(path, "guard") if rows]
    assert guard["kind"] == "repaired"
    assert guard["text"].startswith("The history was repaired after stage spoil: ")
    assert "The history was repaired after stage spoil" in render_report(path)


def test_a_report_shows_compactions_and_recalled_calls(tmp_path):
    """With the run that writes the summary, and the request as the model saw it."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(on_event=recorder, **compacting(lambda _: "Notes.")).run_sync(
            QUESTION, ScriptedLLM(*script())
        )

    (run,) = report_data(read_recording(path))["runs"]
    assert (run["calls"], run["guards"]) == (3, 2)
    recalled, summary = rows_of(path, "call")[3]
    assert (recalled["name"], recalled["status"], recalled["error"]) == (
        "look_up",
        "recalled",
        False,
    )
    assert recalled["guard"] == "Its result was compacted away, and still holds."
    assert recalled["result"].startswith("canary result a")
    assert (summary["name"], summary["status"], summary["error"]) == ("summarize", "done", False)
    assert [one["answer"] for one in summary["runs"]] == ["Notes."]
    (guard,) = rows_of(path, "guard")[3]
    assert guard["kind"] == "compacted"
    assert re.fullmatch(r"The history is summarised, [\d,]+ to \d+ tokens\.", guard["text"])
    (view,) = rows_of(path, "view")[3]
    assert "Notes." in view["messages"][0]["text"]
    assert "call of look_up: recalled" in render_report(path)


def test_a_report_shows_why_a_history_was_not_compacted(tmp_path):
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        Loop(on_event=recorder, **compacting(failing)).run_sync(QUESTION, ScriptedLLM(*script()))

    text = (
        "The history is too long, and stays as it is: "
        "the summary failed: the model failed: ValueError: canary problem"
    )
    guards = [[row["text"] for row in rows] for rows in rows_of(path, "guard")]
    assert guards == [[], [], [], [text], [text]]
    assert text in render_report(path)
    *_, summary = rows_of(path, "call")[4]
    assert (summary["name"], summary["status"], summary["error"]) == ("summarize", "error", True)


def test_a_resumed_run_shows_each_message_once(tmp_path):
    """Its recording has the conversation twice: from before the pause, and from after it."""

    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        loop = Loop(tools=[wipe], on_event=recorder)
        paused = loop.run_sync(QUESTION, ScriptedLLM(calls(call("wipe"))))
        decisions = {paused.pending[0].id: approve}
        loop.resume_sync(paused, decisions, ScriptedLLM("done"))

    (run,) = report_data(read_recording(path))["runs"]
    rows = [
        [(row["k"], row.get("text", row.get("result"))) for row in one["rows"]]
        for one in run["steps"]
    ]
    assert rows == [[("message", "go"), ("call", "gone")], [("answer", "done")]]
