"""The report of long runs: few rows are in the page, and they are the right ones."""
# ruff: noqa: F811 - the fixtures are imported, and named again where they are used

import time

import pytest

from treadle import Loop, Response, ToolCall, Usage
from treadle.testing import ScriptedLLM

from .browser import browser, opened  # noqa: F401 - fixtures
from .looking import QUESTION, active, boxes, drawn, page_of, press, unfold
from .samples import add

pytestmark = pytest.mark.browser

ITERATIONS = 2_000


@pytest.fixture(scope="module")
def long_report(tmp_path_factory):
    """A report on a run of thousands of iterations, two calls each."""
    numbers = iter(range(1, ITERATIONS))

    def model(_messages):
        number = next(numbers, None)
        if number is None:
            return "done"
        made = tuple(
            ToolCall(f"{letter}{number}", "add", f'{{"a": {number}, "b": {b}}}')
            for b, letter in enumerate("ab")
        )
        return Response(f"Step {number}.", made, usage=Usage(100, 10, cost=0.001))

    def record(to):
        loop = Loop(tools=[add], max_iterations=ITERATIONS, name="long", on_event=to)
        loop.run_sync(QUESTION, model)

    return page_of(tmp_path_factory.mktemp("long"), record)


def test_thousands_of_steps_open_at_once_and_few_are_in_the_page(long_report, opened):
    """A list of which only what can be seen is there."""
    began = time.perf_counter()
    page = opened(long_report).page
    page.wait_for_selector(".row")
    assert time.perf_counter() - began < 8  # about one second on a quiet machine
    assert page.locator(".row").count() < 100
    press(page, "End")
    assert "Answered" in active(page)
    assert page.locator(".row").count() < 100
    bottom = page.evaluate("scrollY + innerHeight")
    assert bottom == pytest.approx(page.evaluate("document.documentElement.scrollHeight"), abs=200)


def test_thousands_of_steps_can_be_unfolded_and_found(long_report, opened):
    """The one that is looked for is where it can be seen, and its neighbours are those it has."""
    page = opened(long_report).page
    press(page, "e", "/")
    page.keyboard.type("Step 1210.")
    press(page, "Enter")
    assert page.inner_text("#found") == "1 of 1"
    assert "Step 1210." in active(page)
    [head] = boxes(page, ".row.on > .head")
    assert 100 < head["y"] < 860
    assert page.locator(".row").count() < 150
    press(page, "Escape", "ArrowLeft", "ArrowLeft", "j")
    press(page, "k")
    assert active(page).startswith("▾\n1210\n") or active(page).startswith("▸\n1210\n")


def test_scrolling_shows_the_steps_that_belong_there(long_report, opened):
    """Wherever one scrolls to, the rows there are the right ones, in order."""
    page = opened(long_report).page
    height = page.evaluate("document.documentElement.scrollHeight")
    for share in (0.25, 0.5, 0.9, 0.1):
        page.evaluate(f"scrollTo(0, {height * share})")
        drawn(page)
        numbers = [int(text) for text in page.locator(".row .no").all_inner_texts() if text]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] / ITERATIONS == pytest.approx(share, abs=0.05)
        heads = boxes(page, ".row > .head")
        assert heads[0]["y"] < 100
        assert heads[-1]["y"] > 800


TOP_ROW = """() => {
  const row = [...document.querySelectorAll(".row")].find((one) => one.getBoundingClientRect().top > 250);
  return [row.id, row.getBoundingClientRect().top];
}"""


def test_what_is_read_stays_where_it_is_while_one_scrolls_up(tmp_path, opened):
    """The heights of rows that come into the page above it are not known before."""

    def record(to):
        texts = ["\n".join([f"line {line}" for line in range(3 + n % 25)]) for n in range(60)]
        made = [
            Response(text, (ToolCall(f"c{n}", "add", f'{{"a": {n}, "b": 1}}'),))
            for n, text in enumerate(texts)
        ]
        loop = Loop(tools=[add], max_iterations=61, on_event=to)
        loop.run_sync(QUESTION, ScriptedLLM(*made, "done"))

    page = opened(page_of(tmp_path, record)).page
    press(page, "e", "Home")
    unfold(page, 200)
    page.set_viewport_size({"width": 1000, "height": 900})  # what was measured is void
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    drawn(page)
    for _ in range(25):
        row, before = page.evaluate(TOP_ROW)
        page.evaluate("scrollBy(0, -200)")
        drawn(page)
        after = page.evaluate(f"document.getElementById('{row}').getBoundingClientRect().top")
        assert after == pytest.approx(before + 200, abs=2)
