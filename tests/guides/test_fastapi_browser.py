"""The page of docs/guide-fastapi.md in a browser: its own client of server-sent events."""
# ruff: noqa: F811 - the fixtures are imported, and named again where they are used

import re

import pytest
from tests.reports.browser import browser, opened  # noqa: F401 - fixtures

from treadle import Loop, tool
from treadle.testing import call, calls

from .pasted import import_page, text_of
from .served import Said, Served

pytestmark = pytest.mark.browser


@pytest.fixture
def guide(tmp_path, monkeypatch):
    """The page and the service, in one folder."""
    (tmp_path / "page.html").write_text(text_of("guide-fastapi.md", "html"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return import_page("guide-fastapi.md", tmp_path, monkeypatch)


@pytest.fixture
def serve(guide):
    """Makes the service with another loop."""
    return lambda model, **options: Served(
        guide.create_app(guide.Runs(Loop(llm_send_fn=model, **options)))
    )


def ask(page, text):
    page.fill("input[name=text]", text)
    page.click("text=Ask")


def wait_for(page, selector, text):
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent === text",
        arg=[selector, text],
    )


def test_text_streams_and_is_there_once_after_the_connection_broke(serve, opened):
    model = Said()
    with serve(model) as service:
        tab = opened(service.url + "/", served_from=service.url)
        ask(tab.page, "Tell a story.")
        model.say("Once ", "upon ")
        wait_for(tab.page, "#shown p", "Once upon ")
        service.cut()
        wait_for(tab.page, "#state", "reconnecting")
        model.say("a ")  # while the page is not there
        wait_for(tab.page, "#shown p", "Once upon a ")  # it has come back by itself
        model.say("<b>time</b>.", Said.END)
        wait_for(tab.page, "#state", "answered")
        assert tab.page.inner_text("#shown") == "Once upon a <b>time</b>."
        streams = [url for url in tab.requests if url.endswith("/events")]
        assert len(streams) >= 2
        assert all("net::ERR" in fault for fault in tab.faults)  # of the connection, which was cut
        tab.faults.clear()


def test_what_was_streamed_before_a_retry_disappears(serve, opened):
    model = Said()
    with serve(model, retry_delay=0.01) as service:
        tab = opened(service.url + "/", served_from=service.url)
        ask(tab.page, "Go.")
        model.say("Wrong")
        wait_for(tab.page, "#shown p", "Wrong")
        model.say(ConnectionError("cut"), "Right")
        wait_for(tab.page, "#shown p", "Right")
        model.say(".", Said.END)
        wait_for(tab.page, "#state", "answered")
        assert tab.page.inner_text("#shown") == "Right."


def test_a_person_allows_a_call_in_the_page(serve, opened):
    paid = []

    @tool(requires_approval=True)
    def pay(name: str) -> str:
        """Pay a customer."""
        paid.append(name)
        return "paid"

    answer = Said(["Done."])

    def model(messages):
        is_over = messages[-1]["role"] == "tool"
        return answer(messages) if is_over else calls(call("pay", "c1", name="Ada"))

    with serve(model, tools=[pay]) as service:
        first = opened(service.url + "/", served_from=service.url)
        ask(first.page, "Pay Ada.")
        first.page.click("text=Allow")
        wait_for(first.page, "#state", "answered")
        assert re.sub(r"\s+", " ", first.page.inner_text("#shown")).endswith("done Done.")
    assert paid == ["Ada"]


def test_the_stop_button_cancels_the_run(serve, opened):
    model = Said()
    with serve(model) as service:
        tab = opened(service.url + "/", served_from=service.url)
        ask(tab.page, "Go.")
        model.say("One")
        wait_for(tab.page, "#shown p", "One")
        tab.page.click("#stop")
        wait_for(tab.page, "#state", "cancelled")
