"""A headless Chromium for tests of pages: no network, and nothing that goes wrong in a page stays unseen.

A test module imports the two fixtures and is marked ``browser``::

    from .browser import browser, opened  # noqa: F401 - fixtures

    def test_it(opened, tmp_path):
        page = opened(tmp_path / "page.html").page
"""

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    """A Chromium for all tests of a module; only one module's is there at a time."""
    assert CHROMIUM.exists(), "these tests need a browser: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=QUIET)
        yield chromium
        chromium.close()


class Opened:
    """A page in a context of its own, and all that it did which it should not have.

    Args:
        context: the browser's context.
        url: where the page is.
        served_from: what else the page may ask for begins with this; empty is nothing else.
    """

    def __init__(self, context, url, served_from=""):
        self.url = url
        self.requests = []
        self.faults = []
        self._served_from = served_from
        self._context = context
        context.set_default_timeout(10_000)
        context.route("**/*", self._route)
        self.page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(f"raised: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.goto(url)

    def _route(self, route):
        asked = route.request.url
        self.requests.append(asked)
        is_own = asked == self.url
        if is_own or (self._served_from and asked.startswith(self._served_from)):
            route.continue_()
        else:
            self.faults.append(f"asked for {asked}")
            route.abort()

    def _console(self, message):
        if message.type in {"error", "warning"}:
            self.faults.append(f"console {message.type}: {message.text}")

    def _dialog(self, dialog):
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def close(self):
        """Close it, and fail on whatever was wrong."""
        self._context.close()
        assert self.faults == []


@pytest.fixture
def opened(browser):
    """Opens pages: files by path, others by URL; what a page does wrong fails the test at its end."""
    made = []

    def open_page(where, *, served_from="", **options):
        url = where.resolve().as_uri() if isinstance(where, Path) else where
        options = {"viewport": {"width": 1440, "height": 900}, **options}
        made.append(Opened(browser.new_context(**options), url, served_from))
        return made[-1]

    yield open_page
    for one in made:
        one.close()
