"""What tests of the report's page share: to make one, to press its keys, to look at its steps."""

from treadle.recording.recorder import Recorder
from treadle.reports.report.render import render_report

QUESTION = [{"role": "user", "content": "go"}]


def page_of(folder, make, name="report"):
    """The file of a report on what a function records."""
    record, report = folder / f"{name}.jsonl", folder / f"{name}.html"
    with Recorder(record) as recorder:
        make(recorder)
    report.write_text(render_report(record), encoding="ascii")
    return report


def active(page):
    """The line of the step that keys act on."""
    return page.locator(".row.on > .head").inner_text()


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


UNFOLD = """(count) => {
  for (let step = 0; step < count; step++) {
    for (const key of ["ArrowRight", "j"]) {
      document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    }
  }
}"""


def unfold(page, count):
    """Go through so many steps, and unfold each; in the page, since that is quicker than by its keyboard."""
    page.evaluate(UNFOLD, count)


FRAMES = """(count) => new Promise((done) => {
  const next = () => (count-- > 0 ? requestAnimationFrame(next) : done());
  next();
})"""


def drawn(page, frames=4):
    """Wait some frames: the page draws in the next one, and a scroll may cause another."""
    page.evaluate(FRAMES, frames)


BOXES = """(selector) => [...document.querySelectorAll(selector)].map(
  (one) => one.getBoundingClientRect().toJSON())"""


def boxes(page, selector):
    """Where the elements are, all measured in one frame: a drawing replaces them."""
    drawn(page)
    return page.evaluate(BOXES, selector)


def lines(page):
    """The lines of all steps that are in the page."""
    return [text.replace("\n", " ") for text in page.locator(".row > .head").all_inner_texts()]


OURS = """
    html head meta title style body a header span label select option form input output button main dialog
    details summary noscript script section h1 h2 h3 p ul li b small div dl dt dd i kbd svg g line text rect
    clippath pre bdi mark
"""
OURS = {*OURS.split()}
SEEN = """() => [...document.querySelectorAll("*")].map((one) => [
  one.tagName.toLowerCase(), [...one.attributes].map((given) => given.name)])"""


def check_harmless(page):
    """Nothing ran, and there is nothing in the page that is not ours."""
    assert page.evaluate("window.hacked") is None
    seen = page.evaluate(SEEN)
    assert {tag for tag, _ in seen} <= OURS
    assert [tag for tag, _ in seen].count("script") == 2
    assert [tag for tag, _ in seen].count("a") == 1
    assert [name for _, names in seen for name in names if name.startswith("on")] == []
