"""The page in a browser: it shows the right numbers, minds its reader, and runs nothing that is not its own."""

import itertools
import json
import re
import time
import types
from importlib import resources

import pytest
from playwright.sync_api import expect
from tests.samples import add

from treadle import Loop, tool
from treadle.recording.recorder import Recorder
from treadle.reports.dashboard_page.page import static_page
from treadle.reports.dashboards.panels import PANELS, ROWS
from treadle.reports.sources.prometheus import PrometheusSource
from treadle.reports.sources.recordings import RecordingSource
from treadle.testing import ScriptedLLM, call

from .browser import browser, opened  # noqa: F401 - fixtures
from .page_runs import QUESTION, Fixed, earlier, recorded, serving
from .scripted_runs import reply

pytestmark = pytest.mark.browser

EVIL = "</script><img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"


def adds(count):
    return [
        *(reply(call("add", a=1, b=number), cost=0.25) for number in range(count)),
        reply(cost=0.25),
    ]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Four runs of one agent, of 1, 2, 3 and 5 iterations, and one of another."""
    return recorded(
        tmp_path_factory.mktemp("records") / "runs.jsonl",
        *(("adder", adds(count), {"tools": [add]}) for count in (0, 1, 2, 4)),
        ("other", ["Done."], {}),
    )


@pytest.fixture(scope="module")
def server(path):
    with serving(RecordingSource([path]), range_key="all") as made:
        yield made


@pytest.fixture
def show(opened):  # noqa: F811 - the fixture
    """Opens the page of a server, and waits for its numbers."""

    def open_page(server, hash_="", **options):
        page = opened(server.url + hash_, served_from=server.url, **options).page
        page.wait_for_selector("body:not(.asking) .tile, #trouble:not([hidden])")
        return page

    return open_page


def tile(page, key):
    return page.inner_text(f"#tile-{key} .value").replace("\n", " ")


def loaded(page):
    """Wait until what was asked for is there."""
    page.wait_for_selector("body:not(.asking)")


def choose(page, range_key):
    page.click(f"label[for=range-{range_key}]")
    loaded(page)


# The numbers


def test_the_tiles_show_what_the_runs_came_to(show, server):
    page = show(server)
    assert tile(page, "runs") == "5"
    assert tile(page, "active_runs") == "0"
    assert tile(page, "answered") == "100 %"
    assert tile(page, "cost") == "$2.75"
    assert tile(page, "mean_cost") == "$0.55"
    choose_agent(page, "adder")
    assert re.findall(r"p\d+ (\d+)", tile(page, "iterations")) == ["2", "5"]


def choose_agent(page, name):
    page.select_option("#agent", label=name)
    loaded(page)


def test_every_panel_of_the_list_is_there_in_its_row(show, server):
    page = show(server)
    assert page.locator("#rows section h2").all_inner_texts() == list(ROWS)[1:]
    titles = page.locator("#rows article h3").all_inner_texts()
    assert titles == [
        title
        for panel in PANELS
        if panel.kind != "stat"
        for title in ([*(["Tools"] if panel.key == "tool_calls" else []), panel.title])
    ]


def test_the_table_of_tools_can_be_sorted(show, server):
    page = show(server)
    row = page.locator("#panel-tools tbody tr")
    assert row.count() == 1
    assert row.inner_text().split()[:2] == ["add", "7"]
    page.click("#panel-tools thead button:has-text('Tool')")
    heads = page.locator("#panel-tools thead th")
    assert heads.evaluate_all("all => all.map(one => one.ariaSort)")[0] == "ascending"
    assert page.evaluate("document.activeElement.textContent") == "Tool"


def test_a_panel_without_numbers_says_so(show, server):
    page = show(server)
    assert page.inner_text("#panel-tool_errors .empty") == "No tool call failed."
    assert page.locator("#panel-tool_errors svg").count() == 0


def test_an_agent_can_be_chosen_and_is_kept_in_the_address(show, server):
    page = show(server)
    assert page.locator("#agent option").all_inner_texts() == ["All agents", "adder", "other"]
    choose_agent(page, "other")
    assert tile(page, "runs") == "1"
    again = show(server, page.evaluate("location.hash"))
    assert tile(again, "runs") == "1"
    assert again.input_value("#agent") == "=other"
    choose_agent(again, "All agents")
    assert tile(again, "runs") == "5"


def test_agents_without_a_name_have_a_word_for_it(show, tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("", ["Done."], {}), ("a", ["Done."], {}))
    with serving(RecordingSource([path]), range_key="all") as server:
        page = show(server)
        choose_agent(page, "(unnamed)")
        assert tile(page, "runs") == "1"
        assert "(unnamed)" in page.inner_text("#panel-runs_per_minute .legend")
        again = show(server, page.evaluate("location.hash"))
        assert tile(again, "runs") == "1"


def test_the_agent_and_the_range_that_the_command_was_given_come_first(show, path):
    with serving(RecordingSource([path]), range_key="15m", agent="other") as server:
        page = show(server)
        assert (page.input_value("#agent"), tile(page, "runs")) == ("=other", "1")
        assert page.is_checked("#range-15m")


def test_a_range_can_be_chosen(show, path):
    """A run of two hours ago is in six hours and not in one."""
    old = path.with_name("old.jsonl")
    old.write_text(earlier(path.read_text(), 7200))
    with serving(RecordingSource([old]), range_key="1h") as server:
        page = show(server)
        assert page.inner_text("#nothing h2") == "No runs in this range"
        assert "Choose a longer range" in page.inner_text("#nothing p")
        assert page.locator("#rows article").count() == 0
        choose(page, "6h")
        assert tile(page, "runs") == "5"
        assert page.is_hidden("#nothing")


def test_new_runs_come_without_a_reload(show, tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("a", ["Done."], {}))
    with serving(RecordingSource([path]), range_key="all") as server:
        page = show(server)
        assert tile(page, "runs") == "1"
        recorded(path, ("b", ["Done."], {}), append=True)
        page.select_option("#refresh", "5")
        loaded(page)
        assert tile(page, "runs") == "2"
        recorded(path, ("c", ["Done."], {}), append=True)
        expect(page.locator("#tile-runs .value")).to_have_text("3", timeout=10_000)
        page.select_option("#refresh", "0")
        assert page.locator("#agent option").all_inner_texts() == ["All agents", "a", "b", "c"]


def test_a_refresh_can_be_asked_for(show, tmp_path):
    path = recorded(tmp_path / "runs.jsonl", ("a", ["Done."], {}))
    with serving(RecordingSource([path]), range_key="all") as server:
        page = show(server, "#refresh=0")
        recorded(path, ("b", ["Done."], {}), append=True)
        page.click("#now")
        expect(page.locator("#tile-runs .value")).to_have_text("2")


@pytest.mark.prometheus
def test_a_real_prometheus_is_shown(show, fed_prometheus):
    """The page has the numbers that Prometheus gives, and every panel has some."""
    source = PrometheusSource(fed_prometheus.prometheus.url)
    with serving(source, range_key="15m") as server:
        page = show(server)
        with page.expect_response("**/data.json*") as answered:
            page.click("#now")
        told = answered.value.json()
        loaded(page)
        panels = {one["key"]: one for row in told["rows"] for one in row["panels"]}
        assert page.inner_text("#source") == source.title
        assert tile(page, "active_runs") == "1"
        [runs] = panels["runs"]["series"]
        assert int(tile(page, "runs")) == round(runs["whole"]) > 20
        assert page.locator("#rows .empty, #rows .refused").all_inner_texts() == []
        assert page.locator("#rows .graph path[d^=M]").count() > 20
        assert page.locator("#ranges label").all_inner_texts()[-1] == "7 d"


# Trouble


class Moody(Fixed):
    """A source that can be broken while it is asked."""


def test_what_is_wrong_with_the_source_is_said_on_the_page(opened):  # noqa: F811 - the fixture
    source = Moody(broken="Prometheus at http://127.0.0.1:9 cannot be reached: Connection refused")
    with serving(source) as server:
        shown = opened(server.url, served_from=server.url)
        shown.page.wait_for_selector("#trouble:not([hidden])")
        assert shown.page.inner_text("#trouble") == f"No data. {source.broken}. Retrying."
        assert shown.page.is_hidden("#agent")
        assert shown.page.locator("#ranges input").count() == 5
        source.broken = None
        shown.page.click("#now")
        shown.page.wait_for_selector("#trouble", state="hidden")
        assert tile(shown.page, "runs") == "1"
        source.broken = "It is away."
        shown.page.click("#now")
        shown.page.wait_for_selector("#trouble:not([hidden])")
        assert "The data below is from " in shown.page.inner_text("#trouble")
        assert tile(shown.page, "runs") == "1"
        forget(shown, "502")


def forget(shown, word):
    """Chromium itself writes an answer that is an error to the console."""
    shown.faults[:] = [fault for fault in shown.faults if word not in fault]


def test_a_server_that_has_ended_is_said_on_the_page(opened):  # noqa: F811 - the fixture
    with serving(Fixed()) as server:
        shown = opened(server.url, served_from=server.url)
        shown.page.wait_for_selector(".tile")
    shown.page.context.set_offline(True)
    shown.page.click("#now")
    shown.page.wait_for_selector("#trouble:not([hidden])")
    assert "treadle dashboard does not respond" in shown.page.inner_text("#trouble")
    forget(shown, "ERR_")


def test_a_refused_panel_says_why_and_the_others_are_shown(show):
    with serving(Fixed(refused="treadle_usage_cost_total")) as server:
        page = show(server)
        assert page.inner_text("#panel-cost_per_hour .refused") == "that is too much"
        assert tile(page, "runs") == "1"


# Hostile names


def hostile(path):
    """A run whose agent, tool and model have names that are markup."""

    @tool(name="fetch")
    def fetch() -> str:
        """Fetch."""
        return EVIL

    evil = {"model": EVIL, "choices": [{"message": reply(call("fetch"))["choices"][0]["message"]}]}
    with Recorder(path) as recorder, ScriptedLLM(evil, reply(cost=1.0)) as model:
        Loop(name=EVIL, tools=[fetch], on_event=recorder).run_sync(QUESTION, model)
    text = path.read_text()
    path.write_text(text.replace('"name":"fetch"', f'"name":{json.dumps(EVIL)}'))
    return path


def test_names_that_are_markup_are_shown_as_text(show, tmp_path):
    with serving(RecordingSource([hostile(tmp_path / "runs.jsonl")]), range_key="all") as server:
        page = show(server)
        assert_harmless(page)
        assert EVIL in page.locator("#agent option").all_inner_texts()
        choose_agent(page, EVIL)
        assert tile(page, "runs") == "1"
        page.hover("#panel-tool_calls .plot")
        assert_harmless(page)


def test_names_that_are_markup_are_shown_as_text_in_a_file(opened, tmp_path):  # noqa: F811 - the fixture
    source = RecordingSource([hostile(tmp_path / "runs.jsonl")])
    target = tmp_path / "page.html"
    target.write_text(static_page(source, "all", EVIL, time.time()), encoding="utf-8")
    page = opened(target).page
    assert_harmless(page)
    assert page.input_value("#agent") == f"={EVIL}"


def assert_harmless(page):
    page.wait_for_selector(".tile")
    page.wait_for_timeout(100)
    assert page.title() == "Runs - treadle"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.inner_text("#panel-tools tbody th") == EVIL
    assert EVIL in page.inner_text("#panel-runs_per_minute .legend")


def test_markup_from_the_source_is_shown_as_text(show):
    """Whatever a Prometheus calls its series, and whatever it says when it refuses."""
    labels = {"gen_ai_agent_name": EVIL, "gen_ai_tool_name": EVIL, "treadle_stop_reason": EVIL}
    source = Fixed(labels=labels)
    source.title = source.hint = EVIL
    with serving(source) as server:
        page = show(server)
        assert page.inner_text("#source") == EVIL
        assert page.inner_text("#panel-stop_reasons_total tbody th") == EVIL
        assert page.title() == "Runs - treadle"


def test_signs_that_cannot_be_seen_are_shown_by_their_numbers(show):
    """Such as those that turn the direction of writing around, and with it what one reads."""
    with serving(
        Fixed(labels={"treadle_stop_reason": "answ\u202edere\u0007", "gen_ai_agent_name": ""})
    ) as server:
        page = show(server)
        told = page.inner_text("#panel-stop_reasons_total tbody th")
        assert told == "answ[U+202E]dere[U+0007]"


# How it looks and feels


def test_it_is_dark_where_the_reader_likes_it_so(show, server):
    colours = {}
    for scheme in ("light", "dark"):
        page = show(server, color_scheme=scheme)
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert page.get_attribute("html", "data-theme") == scheme
    assert brightness(colours["dark"]) < 40 < 220 < brightness(colours["light"])


def brightness(colour):
    return sum(map(int, re.findall(r"\d+", colour))) / 3


def test_the_theme_can_be_switched_and_is_kept(show, server):
    page = show(server, color_scheme="light")
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "dark"
    page.reload()
    page.wait_for_selector(".tile")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.get_attribute("#theme", "aria-pressed") == "true"


def test_it_fits_into_a_narrow_window(show, server):
    for width in (1440, 1000, 700):
        page = show(server, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        rights = page.locator("article").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().right)"
        )
        assert max(rights) <= width
    page.set_viewport_size({"width": 1200, "height": 800})
    expect(page.locator("#panel-runs_per_minute .graph")).to_have_attribute(
        "width", re.compile(r"^3\d\d$")
    )


WIDEST = """
all => all.forEach(one => {
  const parts = one.querySelectorAll('.part');
  if (!parts.length) one.textContent = '88,888/min';
  for (const part of parts) part.lastChild.textContent = '88.8';
})
"""
CLIPPED = """
all => all.filter(one => one.scrollWidth > one.clientWidth)
          .map(one => `${innerWidth}: ${one.innerText}: ${one.scrollWidth} > ${one.clientWidth}`)
"""
WIDTHS = sorted({*range(360, 1921, 39), 520, 521, 760, 761, 1020, 1021, 1180, 1181, 1300, 1920})


@pytest.mark.parametrize("change", [None, WIDEST], ids=["as they are", "widest"])
def test_no_tile_is_clipped(show, server, change):
    """Neither its title nor its numbers, as large as they may be, in any window."""
    page = show(server, viewport={"width": 1300, "height": 800})
    if change:
        page.locator(".tile .value").evaluate_all(change)
    texts = page.locator(".tile h3, .tile .value")
    assert texts.count() == 16
    clipped = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        clipped += texts.evaluate_all(CLIPPED)
    assert clipped == []


@pytest.mark.parametrize(
    ("value", "told"), [(1.7e308, "\N{EN DASH}"), (-1.7e308, "\N{EN DASH}"), (1.7e14, "2e+14")]
)
def test_numbers_beyond_all_bounds_fit_into_their_tiles(show, value, told):
    """As of a recording with an absurd number. The graphs are drawn."""
    with serving(Fixed(value)) as server:
        page = show(server, viewport={"width": 1300, "height": 800})
        assert page.locator(".tile h3, .tile .value").evaluate_all(CLIPPED) == []
        assert page.inner_text("#tile-runs .value") == told


def test_a_graph_says_its_values_at_the_pointer(show, server):
    page = show(server)
    page.hover("#panel-runs_per_minute .plot")
    readout = page.locator("#panel-runs_per_minute .readout")
    assert readout.is_visible()
    assert re.match(r"\S.* to ", readout.inner_text())
    assert page.locator(".cross[visibility=visible]").count() > 5
    page.mouse.move(2, 2)
    assert readout.is_hidden()


def test_a_graph_can_be_read_with_the_keyboard(show, server):
    page = show(server, "#range=15m")
    page.focus("#panel-iterations .plot")
    readout = page.locator("#panel-iterations .readout")
    assert readout.is_hidden()
    told = []
    for key in ("End", "ArrowLeft", "Home"):
        page.keyboard.press(key)
        told.append(readout.inner_text().split("\n")[0])
    assert len(set(told)) == 3
    page.keyboard.press("Escape")
    assert readout.is_hidden()


def test_the_heatmap_tells_how_many_runs_took_how_many_iterations(show, server):
    """Each run in one band, though Prometheus' buckets count all below them."""
    page = show(server, "#range=7d&agent=adder")
    page.focus("#panel-iterations_heatmap .plot")
    told = ""
    for key in ("End", "ArrowLeft"):  # the runs may be on both sides of a point
        page.keyboard.press(key)
        told += page.inner_text("#panel-iterations_heatmap .readout") + "\n"
    counted = dict(re.findall(r"(\d+) iterations?\s+(\d+)", told))
    assert counted == {"1": "1", "2": "1", "3": "1", "5": "1"}


def test_everything_can_be_reached_with_the_keyboard(show, server):
    page = show(server)
    reached = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"agent", "range-all", "refresh", "now", "theme", "plot"} <= reached


def test_a_series_can_be_left_out(show, server):
    page = show(server)
    bars = page.locator("#panel-runs_per_minute .bar")
    expect(bars).to_have_count(2)
    page.click("#panel-runs_per_minute .legend button:has-text('adder')")
    expect(bars).to_have_count(1)
    page.click("#now")
    loaded(page)
    expect(bars).to_have_count(1)
    page.click("#panel-runs_per_minute .legend button:has-text('adder')")
    expect(bars).to_have_count(2)


def test_new_numbers_leave_the_keyboard_where_it_is(show, server):
    page = show(server)
    page.focus("#panel-iterations .plot")
    page.keyboard.press("End")
    page.evaluate("document.querySelector('#panel-iterations .readout').dataset.old = 'yes'")
    page.evaluate("document.getElementById('now').click()")
    expect(page.locator("[data-old]")).to_have_count(0)
    assert page.evaluate("document.activeElement.closest('article').id") == "panel-iterations"
    expect(page.locator("#panel-iterations .readout")).to_be_visible()


def test_new_numbers_leave_readers_where_they_are(show, server, monkeypatch):
    """The page is not scrolled, and the readout at a point of a graph stays."""
    now = time.time()
    stopped = types.SimpleNamespace(time=lambda: now)  # a step later, the graph has moved
    monkeypatch.setattr("treadle.reports.dashboard_page.server.time", stopped)
    page = show(server, "#range=15m", viewport={"width": 1200, "height": 500})
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.hover("#panel-cost_per_run .plot")
    before = page.evaluate("scrollY")
    readout = page.locator("#panel-cost_per_run .readout")
    told = readout.inner_text()
    page.evaluate("document.querySelector('#panel-cost_per_run .readout').dataset.old = 'yes'")
    page.evaluate("document.getElementById('now').click()")
    loaded(page)
    expect(readout).to_be_visible()
    assert (readout.inner_text(), readout.get_attribute("data-old")) == (told, None)
    assert page.evaluate("scrollY") == before > 500


def test_no_series_beyond_the_colours_is_drawn_in_one_of_them(show, tmp_path):
    """Two of them have names that are known elsewhere, and the same colour there."""
    agents = ["answered", "input", *(f"agent {number}" for number in range(9))]
    runs = [(agent, ["Done."], {}) for agent in agents]
    with serving(
        RecordingSource([recorded(tmp_path / "runs.jsonl", *runs)]), range_key="all"
    ) as server:
        page = show(server)
        assert page.inner_text("#panel-runs_per_minute .legend .more") == "and 3 smaller"
        classes = page.locator("#panel-runs_per_minute .bar").evaluate_all(
            "all => all.map(one => one.classList[1])"
        )
        assert len(set(classes)) == len(classes) == 8


@pytest.fixture(scope="module")
def words(browser):  # noqa: F811 - the fixture
    """Evaluates an expression with the page's functions that write numbers."""
    page = browser.new_page()
    functions = (
        resources.files("treadle.reports.dashboard_page")
        .joinpath("format.js")
        .read_text(encoding="utf-8")
    )
    yield lambda expression: page.evaluate(f"() => {{ {functions}; return {expression}; }}")
    page.close()


@pytest.mark.parametrize(
    ("unit", "told"),
    [
        ("seconds", {0: "0 s", 0.0000012: "1 µs", 0.0123: "12 ms", 1.234: "1.23 s"}),
        ("seconds", {75: "75 s", 150: "2.5 min", 7200: "2 h"}),
        ("dollars", {0: "$0", 0.00031: "$0.00031", 0.25: "$0.25", 12.5: "$12.50", 12345.6: "$12,346"}),
        ("ratio", {0: "0 %", 0.012: "1.2 %", 0.5: "50 %", 0.9996: "99.9 %", 1: "100 %"}),
        ("runs", {0: "0", 4.0067: "4", 1.5: "1.5", 26.9: "27", 12345: "12,345", 1234567: "1.2M"}),
        ("per_minute", {0.0083: "0.0083/min", 12.34: "12.3/min"}),
        ("tokens_per_second", {26936.2: "26,936/s"}),
    ],
)  # fmt: skip
def test_numbers_are_written_as_people_read_them(words, unit, told):
    assert {value: words(f"format('{unit}', {value})") for value in told} == told
    assert words(f"format('{unit}', null)") == "\N{EN DASH}"


@pytest.mark.parametrize(
    ("most", "unit", "marks"),
    [
        (0, "runs", [0, 1]),
        (1, "runs", [0, 1]),
        (7, "iterations", [0, 5, 10]),
        (15, "iterations", [0, 5, 10, 15]),
        (0.03, "per_minute", [0, 0.01, 0.02, 0.03]),
        (254, "dollars", [0, 100, 200, 300]),
        (200, "seconds", [0, 120, 240]),
        (40000, "seconds", [0, 21600, 43200]),
        (0.3, "ratio", [0, 0.25, 0.5]),
        (1, "ratio", [0, 0.5, 1]),
    ],
)
def test_an_axis_has_round_numbers(words, most, unit, marks):
    assert words(f"ticks({most}, '{unit}')") == marks


@pytest.mark.parametrize(
    ("length", "step"), [(8, 2), (900, 300), (3600, 900), (86400, 21600), (604800, 172800)]
)
def test_an_axis_has_round_times(words, length, step):
    found = words(f"timeTicks(1000000000, 1000000000 + {length}, 4)")
    assert found["step"] == step
    assert {after - before for before, after in itertools.pairwise(found["at"])} <= {step}
    assert 1 <= len(found["at"]) <= 5


# A page that stands alone


def test_a_file_shows_its_numbers_without_a_server(opened, path, tmp_path):  # noqa: F811 - the fixture
    target = tmp_path / "page.html"
    target.write_text(
        static_page(RecordingSource([path]), "all", None, time.time()), encoding="utf-8"
    )
    page = opened(target).page
    page.wait_for_selector(".tile")
    assert tile(page, "runs") == "5"
    choose_agent(page, "other")
    assert tile(page, "runs") == "1"
    choose(page, "15m")
    assert tile(page, "runs") == "1"
    assert page.is_hidden("#now")
    assert page.is_hidden("#refresh")
    assert "written" in page.inner_text("#status")
