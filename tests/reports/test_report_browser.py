"""The report in a browser: it can be read, and be worked by keys alone."""
# ruff: noqa: F811 - the fixtures are imported, and named again where they are used

import re
import threading
import time

import pytest

from treadle import Loop, Response, ToolCall, tool
from treadle.testing import ScriptedLLM

from .browser import browser, opened  # noqa: F401 - fixtures
from .looking import QUESTION, active, boxes, lines, page_of, press, unfold
from .samples import add, eventful

pytestmark = pytest.mark.browser


@pytest.fixture
def report(tmp_path):
    """The report on a run in which much happens."""
    return page_of(tmp_path, eventful)


def test_the_top_says_how_the_run_ended_and_what_it_took(report, opened):
    """In plain words and aligned numbers, with the answer."""
    page = opened(report).page
    assert page.inner_text("h1") == "outer"
    assert page.inner_text(".verdict") == "Answered"
    assert page.inner_text(".said pre") == "It is forty-two."
    figures = dict(reversed(text.split("\n")) for text in page.locator(".fig").all_inner_texts())
    assert figures["iterations"] == "6 of 12"
    assert figures["tool calls"] == "5"
    assert figures["guards fired"] == "4"
    assert figures["retries"] == "2"
    assert page.title() == "outer: Answered"


def test_why_a_run_stopped_is_told_at_the_top(tmp_path, opened):
    """The headline in words, the reason in a sentence."""
    same = [Response(None, (ToolCall(f"c{n}", "add", '{"a": 1, "b": 2}'),)) for n in range(9)]
    made = page_of(
        tmp_path,
        lambda to: Loop(tools=[add], on_event=to).run_sync(QUESTION, ScriptedLLM(*same)),
    )
    page = opened(made).page
    assert page.inner_text(".verdict") == "Stopped: the model repeated itself"
    assert page.inner_text(".why").startswith(
        "The same calls with the same results in 4 consecutive iterations"
    )
    assert "limit" in " ".join(lines(page))


def test_steps_unfold_to_what_was_said_and_done(report, opened):
    """Arguments pretty printed, results, retries, why a call did not run."""
    page = opened(report).page
    page.locator(".row", has_text="flaky").last.locator(".head").click()
    body = page.locator(".row.on .body")
    assert body.locator("pre:visible").all_inner_texts() == [
        '{"key": "k"}',
        "Error: ConnectionError: not yet",
        "k at last",
    ]
    page.locator(".row", has_text="no new evidence").locator(".head").click()
    assert "nothing new has been learned since" in page.locator(".row.on .note").first.inner_text()


def test_a_traceback_is_folded_beneath_its_failed_call(report, opened):
    """It unfolds with the mouse and with the keyboard, and where it has what is searched for."""
    page = opened(report).page
    page.locator(".row", has_text="broken").last.locator(".head").click()
    trace = page.locator(".row.on .body details")
    assert trace.locator("summary").inner_text() == "traceback"
    assert not trace.locator("pre").is_visible()
    trace.locator("summary").click()
    assert trace.locator("pre").inner_text().endswith("ValueError: it is broken")
    trace.locator("summary").press("Enter")
    assert not trace.locator("pre").is_visible()
    press(page, "/")
    page.keyboard.type("in broken")
    press(page, "Enter")
    page.locator(".row.on .body details[open] mark").wait_for()


def test_the_traceback_of_a_failed_run_is_beneath_its_reason(tmp_path, opened):
    def model(messages):
        raise ValueError("no key")

    made = page_of(tmp_path, lambda to: Loop(on_event=to).run_sync(QUESTION, model))
    page = opened(made).page
    trace = page.locator(".summary details")
    assert not trace.locator("pre").is_visible()
    trace.locator("summary").click()
    assert trace.locator("pre").inner_text().endswith("ValueError: no key")


def test_runs_within_a_run_are_folded_inside_their_call(report, opened):
    """Down to their own calls."""
    page = opened(report).page
    assert "inner" not in " ".join(lines(page))
    press(page, "Home")
    while "delegate {" not in active(page):
        press(page, "j")
    press(page, "ArrowRight", "ArrowRight")
    assert "inner" in active(page)
    press(page, "ArrowRight", "ArrowRight")
    assert active(page).startswith("▸\niteration 1")
    press(page, "ArrowRight")
    assert any('add {"a": 20, "b": 22}' in line for line in lines(page))


def test_the_keys_go_through_the_steps(report, opened):
    """j and k, the arrows, Home and End, Enter and Space; what is active is told to screen readers."""
    page = opened(report).page
    press(page, "c", "Home")
    assert active(page).startswith("▸\n1\n")
    press(page, "j", "ArrowDown")
    assert active(page).startswith("▸\n3\n")
    press(page, "k")
    assert active(page).startswith("▸\n2\n")
    row = page.locator(".row.on")
    assert row.get_attribute("aria-expanded") == "false"
    press(page, "Enter")
    assert row.get_attribute("aria-expanded") == "true"
    press(page, "Space")
    assert row.get_attribute("aria-expanded") == "false"
    press(page, "End")
    assert "Answered" in active(page)
    told = page.locator("#steps").get_attribute("aria-activedescendant")
    assert told == page.locator(".row.on").get_attribute("id")
    press(page, "Home", "g")
    assert "broken" in active(page) or "flaky" in active(page)


def test_the_tree_is_one_for_screen_readers(report, opened):
    """Roles, levels, places among the siblings; a link that leads past the top."""
    page = opened(report).page
    tree = page.locator("[role=tree]")
    assert tree.get_attribute("aria-label") == "Steps"
    first = page.locator("[role=treeitem]").first
    told = [first.get_attribute(f"aria-{name}") for name in ("level", "posinset", "setsize")]
    assert told == ["1", "1", "7"]
    press(page, "Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the steps"
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "steps"


def test_the_focus_can_be_seen(report, opened):
    """By an outline or a ring."""
    page = opened(report).page
    press(page, "j")
    shadow = page.locator(".row.on > .head").evaluate("one => getComputedStyle(one).boxShadow")
    assert "inset" in shadow
    press(page, "Tab", "Shift+Tab", "Shift+Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_finding_unfolds_what_is_found(report, opened):
    """In folded steps and in runs within; Enter and n go on, N back."""
    page = opened(report).page
    press(page, "c", "/")
    assert page.evaluate("document.activeElement.id") == "words"
    page.keyboard.type("IT IS 42")
    press(page, "Enter")
    assert page.inner_text("#found") == "1 of 2"
    assert "It is 42." in active(page) or "delegate" in active(page)
    assert page.locator("mark").first.inner_text().lower() == "it is 42"
    press(page, "Enter")
    assert page.inner_text("#found") == "2 of 2"
    press(page, "Escape", "N")
    assert page.inner_text("#found") == "1 of 2"
    press(page, "/")
    page.keyboard.type("nowhere at all")
    press(page, "Enter")
    assert page.inner_text("#found") == "not found"


def test_the_keys_are_shown(report, opened):
    """In a dialog that Escape closes."""
    page = opened(report).page
    press(page, "?")
    assert page.locator("dialog").is_visible()
    assert "expand all iterations" in page.inner_text("dialog")
    press(page, "Escape")
    assert not page.locator("dialog").is_visible()


def ground(page):
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def brightness(color):
    return sum(map(int, re.findall(r"\d+", color)[:3])) / 3


@pytest.mark.parametrize(("scheme", "is_light"), [("light", True), ("dark", False)])
def test_it_is_light_or_dark_as_the_system_is_and_can_be_turned(report, opened, scheme, is_light):
    """The text has enough contrast with the ground in both."""
    page = opened(report, color_scheme=scheme).page
    for expected in (is_light, not is_light):
        ink = brightness(page.evaluate("getComputedStyle(document.body).color"))
        assert (brightness(ground(page)) > 128) is expected
        assert abs(ink - brightness(ground(page))) > 150
        press(page, "t")


CONTRASTS = """() => {
  const light = (color) => {
    const parts = color.match(/[0-9.]+/g).slice(0, 3).map((one) => one / 255)
      .map((one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
  };
  const bad = [];
  for (const one of document.querySelectorAll("main *:not(svg *)")) {
    const own = [...one.childNodes].some((kid) => kid.nodeType === 3 && kid.data.trim());
    if (!own) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${one.className || one.tagName} ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_that_wcag_asks_for(report, opened, scheme):
    """4.5 to 1 (AA), folded and unfolded."""
    page = opened(report, color_scheme=scheme).page
    assert page.evaluate(CONTRASTS) == []
    press(page, "Home")
    unfold(page, 30)
    assert page.evaluate(CONTRASTS) == []


def test_the_timeline_has_a_lane_for_each_call_at_the_same_time(tmp_path, opened):
    """One for the model, and three for three calls at once."""
    all_run = threading.Barrier(3)

    @tool
    def wait(seconds: float) -> str:
        """Wait."""
        all_run.wait(30)
        time.sleep(seconds)
        return "done"

    three = tuple(ToolCall(f"c{n}", "wait", f'{{"seconds": 0.2{n}}}') for n in range(3))
    page = opened(
        page_of(
            tmp_path,
            lambda to: Loop(tools=[wait], on_event=to).run_sync(
                QUESTION, ScriptedLLM(Response(None, three), "done")
            ),
        )
    ).page
    page.wait_for_selector(".chart g[data-at]")
    bars = boxes(page, ".chart rect.tool")
    assert len({round(bar["y"]) for bar in bars}) == len(bars) == 3
    page.locator(".chart rect.tool").nth(1).click()
    assert "wait" in active(page)
    page.click("[aria-label^='Zoom in']")
    assert boxes(page, ".chart rect.tool")[0]["width"] > 1.1 * bars[0]["width"]
    press(page, "0")
    assert boxes(page, ".chart rect.tool")[0]["width"] == pytest.approx(bars[0]["width"])


def test_the_timeline_shows_tries_and_waits(report, opened):
    """What failed and what was waited for, apart from what worked."""
    page = opened(report).page
    page.wait_for_selector(".chart g[data-at]")
    for kind in ("model", "tool", "fail", "wait"):
        assert page.locator(f".chart rect.{kind}").count() > 0, kind


def test_one_of_several_runs_can_be_chosen(tmp_path, opened):
    """A record may have several."""

    def both(to):
        for name in ("first", "second"):
            Loop(name=name, on_event=to).run_sync(QUESTION, ScriptedLLM(f"I am {name}."))

    page = opened(page_of(tmp_path, both)).page
    assert page.inner_text("h1") == "first"
    page.select_option("#run", "1")
    assert page.inner_text("h1") == "second"
    assert page.inner_text(".said pre") == "I am second."


def test_a_narrow_window_shows_all_without_scrolling_aside(report, opened):
    """At 700 and at 360 pixels."""
    for width in (700, 360):
        page = opened(report, viewport={"width": width, "height": 800}).page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert boxes(page, ".row .what")[0]["width"] > width / 3


def test_without_javascript_it_can_be_read(report, opened):
    """As plain text."""
    page = opened(report, java_script_enabled=False).page
    text = page.inner_text("body")
    assert "Answered" in text
    assert "6 iterations, 5 tool calls" in text
    texts = page.locator("summary").evaluate_all("all => all.map((one) => one.textContent)")
    at = texts.index("1. call of flaky: done")
    page.locator("summary").nth(at).click()
    assert page.locator("details[open] pre").inner_text() == '{"key": "k"}\n\nk at last'
