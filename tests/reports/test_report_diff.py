"""The report that compares two recordings: the first difference, and where it is in both."""
# ruff: noqa: F811 - the fixtures are imported, and named again where they are used

import json

import pytest

from treadle import Loop
from treadle.recording import Recorder, read_recording
from treadle.reports import render_report
from treadle.testing import ScriptedLLM, call, calls

from .browser import browser, opened  # noqa: F401 - fixtures
from .looking import active, press
from .samples import add

QUESTION = "What is 1 + 2, and 3 + 4?"
FIRST = calls(call("add", "c1", a=1, b=2))


def recorded(path, number, *, answer, loop=None):
    """A run that adds twice; the second call has a number of its own."""
    model = ScriptedLLM(FIRST, calls(call("add", "c2", a=3, b=number)), answer)
    with Recorder(path) as recorder:
        loop = loop or Loop(tools=[add], name="adder")
        loop.run_sync(QUESTION, model, on_event=recorder)
    return path


def compared(folder, a, b):
    """The page that compares two recordings."""
    page = folder / "diff.html"
    page.write_text(render_report(a, diff=b, names=(a.name, b.name)), encoding="ascii")
    return page


@pytest.fixture
def page(tmp_path, opened):
    a = recorded(tmp_path / "a.jsonl", 4, answer="3 and 7.")
    b = recorded(tmp_path / "b.jsonl", 5, answer="3 and 8.")
    return opened(compared(tmp_path, a, b)).page


@pytest.mark.browser
def test_the_first_difference_is_at_the_top_with_both_values(page):
    assert page.inner_text(".diff .first") == (
        "First difference: iteration 2: the response of the model at tool_calls[0].arguments.b"
    )
    assert page.locator(".side h3").all_inner_texts() == ["a.jsonl", "b.jsonl"]
    assert page.locator(".side mark").all_inner_texts() == ["4", "5"]


@pytest.mark.browser
def test_both_runs_are_in_the_page_and_the_difference_is_highlighted_in_each(page):
    options = page.locator("#run option").all_inner_texts()
    assert options == ["a.jsonl 1. adder: Answered", "b.jsonl 1. adder: Answered"]
    for place, answer in enumerate(["3 and 7.", "3 and 8.", "3 and 7."]):
        if place:
            press(page, "d")
            assert "first difference" in active(page)
        assert page.locator(".said pre").inner_text() == answer
        assert page.locator(".row.differs").count() == 1
        assert "first difference" in page.locator(".row.differs").inner_text()
        assert page.locator(".row.differs .no").inner_text() == "2"


@pytest.mark.browser
def test_a_click_goes_to_the_difference(page):
    page.locator(".side button").last.click()
    assert page.locator("#run").input_value() == "1"
    assert "first difference" in active(page)


@pytest.mark.browser
def test_a_difference_in_a_subagent_is_highlighted_there(tmp_path, opened):
    def outer(answer):
        child = Loop(llm_send_fn=lambda messages: answer, name="child")
        return Loop(tools=[child.as_tool("research", "Research.")], name="outer")

    paths = []
    for name, answer in (("a.jsonl", "It is 3."), ("b.jsonl", "It is 4.")):
        paths.append(tmp_path / name)
        with Recorder(paths[-1]) as recorder:
            model = ScriptedLLM(calls(call("research", "c1", task="Add.")), "Done.")
            outer(answer).run_sync(QUESTION, model, on_event=recorder)
    page = opened(compared(tmp_path, *paths)).page
    assert ", within research: the response of the model at content" in page.inner_text(".first")
    press(page, "d")
    assert "iteration 1" in active(page)
    assert page.locator(".row.deep.differs").count() == 1


@pytest.mark.browser
def test_runs_without_a_difference_say_so(tmp_path, opened):
    a = recorded(tmp_path / "a.jsonl", 4, answer="3 and 7.")
    b = recorded(tmp_path / "b.jsonl", 4, answer="3 and 7.")
    page = opened(compared(tmp_path, a, b)).page
    assert page.inner_text(".diff .why") == "No difference between a.jsonl and b.jsonl."
    assert page.locator(".row.differs").count() == 0
    press(page, "d")


@pytest.mark.browser
def test_a_run_that_the_other_recording_does_not_have(tmp_path, opened):
    a = recorded(tmp_path / "a.jsonl", 4, answer="3 and 7.")
    with Recorder(tmp_path / "none.jsonl"):
        pass
    page = opened(compared(tmp_path, a, tmp_path / "none.jsonl")).page
    assert "before the first iteration: the number of runs" in page.inner_text(".diff .first")
    assert page.locator(".side button").count() == 1
    press(page, "d")
    assert page.locator(".row.differs").count() == 1


@pytest.mark.browser
def test_recorded_text_is_no_markup_in_the_comparison(tmp_path, opened):
    a = recorded(tmp_path / "a.jsonl", 4, answer="<img src=x onerror=alert(1)> \u202e")
    b = recorded(tmp_path / "b.jsonl", 4, answer="<img src=x onerror=alert(2)> \u202e")
    page = opened(compared(tmp_path, a, b)).page
    assert page.locator(".side pre").first.inner_text() == "<img src=x onerror=alert(1)> U+202E"
    assert page.locator(".side mark").all_inner_texts() == ["1", "2"]


def test_the_data_has_what_has_changed_of_the_loop_and_shortened_values(tmp_path):
    long = "x" * 5000
    options = {"tools": [add], "name": "adder"}
    a = recorded(
        tmp_path / "a.jsonl", 4, answer="ok", loop=Loop(**options, instructions=f"{long}1{long}")
    )
    b = recorded(
        tmp_path / "b.jsonl", 4, answer="ok", loop=Loop(**options, instructions=f"{long}2{long}")
    )
    text = render_report(a, diff=read_recording(b))
    start = text.index('id="data">') + len('id="data">')
    data = json.loads(text[start : text.index("</script>", start)])
    assert [len(run["steps"]) for run in data["runs"]] == [3, 3]
    diff = data["diff"]
    assert [one["name"] for one in diff["sides"]] == ["a", "b"]
    assert [one["value"][1] for one in diff["sides"]] == ["1", "2"]
    assert diff["sides"][0]["value"][0] == f"…{'x' * 600}"
    assert diff["changes"][0].startswith("instructions changed from …xxx")
