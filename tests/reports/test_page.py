"""The page and its server: what is served to whom, and what is said where there are no numbers."""

import base64
import contextlib
import hashlib
import itertools
import json
import math
import re
import socket
import threading
import time
import urllib.parse
from importlib import resources

import pytest
from tests.http_server import Handler, ScriptedServer, served_by

from treadle.reports.dashboard_page.data import MAX_ROWS, page_data
from treadle.reports.dashboard_page.page import make_page, static_page
from treadle.reports.dashboards.panels import PANELS, ROWS
from treadle.reports.sources.prometheus import PrometheusSource
from treadle.reports.sources.source import Grid, RefusedError, Series, SourceError

from .page_runs import Fixed, ask, numbers_of, serving


@pytest.fixture(scope="module")
def server():
    with serving(Fixed(labels={"gen_ai_agent_name": "a"})) as made:
        yield made


# The page


def inline(html, tag):
    return re.findall(rf"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)


def digest(text):
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def test_the_policy_allows_the_pages_own_style_and_program_and_nothing_else(server):
    _, headers, body = ask(server, "/")
    html, policy = body.decode(), headers["Content-Security-Policy"]
    [style], [script] = inline(html, "style"), inline(html, "script")
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed == {
        "default-src": "'none'",
        "style-src": f"'{digest(style)}'",
        "script-src": f"'{digest(script)}'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
        "frame-ancestors": "'none'",
    }


def test_the_page_names_nothing_outside_of_itself(server):
    """But for the name of SVG's elements, which nobody fetches."""
    html = ask(server, "/")[2].decode()
    assert re.findall(r"(?:src|href)=\"([^\"]*)\"", html) == ["data:,"]
    assert set(re.findall(r"https?://[^\"\s]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in html
    assert "@import" not in html


def test_the_program_has_no_way_to_make_markup_of_text(server):
    script = inline(ask(server, "/")[2].decode(), "script")[0]
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
    ):
        assert word not in script


def test_what_the_page_starts_with_cannot_end_its_element():
    evil = "</script><script>alert(1)</script><!--{{script}}{{start}}"
    html = make_page(Fixed(), "1h", evil).html
    told = re.search(r'<script type="application/json" id="start">(.*?)</script>', html)[1]
    assert json.loads(told)["agent"] == evil
    assert html.count("</script>") == 2
    assert "alert(1)</script>" not in html


def test_a_file_has_the_policy_in_it_and_asks_for_nothing():
    html = static_page(Fixed(), "1h", None, time.time())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)[1]
    assert "connect-src 'none'" in policy
    assert digest(inline(html, "script")[0]) in policy


def test_a_file_has_the_numbers_of_every_choice():
    html = static_page(Fixed(labels={"gen_ai_agent_name": "a"}), "1h", "b", time.time())
    start = json.loads(re.search(r'id="start">(.*?)</script>', html)[1])
    choices = {(one["range"], one["agent"]) for one in start["data"]}
    assert choices == {
        (key, agent) for key in ("15m", "1h", "6h", "24h", "7d") for agent in (None, "a", "b")
    }
    assert start["data"][0]["agents"] == ["a", "b"]


def test_the_panels_that_the_program_names_are_in_the_list():
    """One that was renamed would lose its tile, or what is said where it has nothing."""
    program = (
        resources.files("treadle.reports.dashboard_page")
        .joinpath("panels.js")
        .read_text(encoding="utf-8")
    )
    named = set(re.findall(r'(?:key|trend): "(\w+)"', program))
    named |= set(
        re.findall(
            r"^  (\w+):", program.partition("const EMPTY")[2].partition("};")[0], re.MULTILINE
        )
    )
    assert len(named) > 15
    assert named <= {panel.key for panel in PANELS}


# Who is answered


def test_the_numbers_are_those_of_every_panel_in_its_row(server):
    status, told = numbers_of(server, "?range=6h")
    assert status == 200
    assert [(row["title"], [one["key"] for one in row["panels"]]) for row in told["rows"]] == [
        (title, [panel.key for panel in row]) for title, row in ROWS.items()
    ]
    assert (told["source"], told["agents"], told["count"]) == ("by hand", ["a"], 72)
    for told_panel, panel in zip(
        [one for row in told["rows"] for one in row["panels"]], PANELS, strict=True
    ):
        assert (told_panel["title"], told_panel["unit"]) == (panel.title, panel.unit)
        assert len(told_panel["series"]) == len(panel.queries)
        assert all(one["whole"] == 1.0 for one in told_panel["series"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80", "localhost:9", "LOCALHOST"])
def test_a_browser_on_this_machine_is_answered(server, host):
    assert ask(server, "/", host=host)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:80",
        "127.0.0.2",
        "localhost@evil",
        "[::1]",
        "",
    ],
)
@pytest.mark.parametrize("path", ["/", "/data.json"])
def test_a_name_that_somebody_points_here_is_not_answered(server, host, path):
    status, _, body = ask(server, path, headers=[("Host", host)])
    assert status == 403
    assert b"by hand" not in body


def test_no_host_and_two_hosts_are_not_answered(server):
    assert ask(server, "/", headers=[("X", "1")])[0] == 403
    assert ask(server, "/", headers=[("Host", "localhost"), ("Host", "evil.example")])[0] == 403


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
def test_only_get_is_answered(server, method):
    status, headers, _ = ask(server, "/", method=method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path",
    [
        "/page.py",
        "/page.css",
        "/../page.py",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/data.json/..%2f..%2fpage.py",
        "/data.json%00",
        "/..\\page.py",
        "/index.html",
    ],
)
def test_no_path_leads_to_a_file(server, path):
    status, _, body = ask(server, path)
    assert status == 404
    assert b"import" not in body


def test_every_answer_says_not_to_be_kept_framed_or_read_elsewhere(server):
    for path in ("/", "/data.json", "/else"):
        headers = ask(server, path)[1]
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_a_range_that_there_is_not_is_told(server):
    status, told = numbers_of(server, "?range=2h")
    assert status == 400
    assert told == {"error": "unknown range '2h'; expected one of 15m, 1h, 6h, 24h, 7d"}


def test_the_agent_is_asked_for_by_its_very_name():
    """What is special in regular expressions and in PromQL is not so here."""
    source = Fixed()
    with serving(source) as server:
        numbers_of(server, "?agent=a.*%22%5C")
    asked = [one for one in source.asked if "treadle_invoke_agent_active" in one]
    assert any('gen_ai_agent_name=~"a\\\\.\\\\*\\"\\\\\\\\"' in one for one in asked)


def test_a_browser_that_leaves_is_no_trouble(server, capfd):
    with socket.create_connection(("127.0.0.1", server.server_port)) as gone:
        gone.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert ask(server, "/")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_an_internal_error_is_answered_and_logged(caplog):
    source = Fixed()
    source.window = None
    with serving(source) as server:
        status, answer = numbers_of(server)
    assert (status, "TypeError" in answer["error"]) == (500, True)
    [record] = caplog.records
    assert (record.name, record.exc_info[0]) == ("treadle.reports", TypeError)


class Many(Fixed):
    """A source with several hundred tools and agents, the later ones with larger values."""

    def ask(self, question, grid):
        names = [f"n{number}" for number in range(MAX_ROWS + 250)]
        labels = ("gen_ai_tool_name", "gen_ai_agent_name", "treadle_stop_reason")
        return [
            Series(dict.fromkeys(labels, name), [float(number)] * grid.count)
            for number, name in enumerate(names)
        ]


def test_of_many_series_the_largest_are_shown_and_the_others_are_counted():
    data = page_data(Many(), "1h", None, time.time())
    panels = [panel for row in data["rows"] for panel in row["panels"]]
    [panel] = [panel for panel in panels if panel["key"] == "tool_calls"]
    for rows in (panel["series"], data["tools"]["rows"]):
        assert len(rows) == MAX_ROWS
        assert {int(row["name"][1:]) for row in rows} == set(range(250, MAX_ROWS + 250))
    assert panel["left_out"] == data["tools"]["left_out"] == 250


# Where there are no numbers


def test_a_source_without_numbers_is_told_in_one_line():
    with serving(Fixed(broken="it is away")) as server:
        assert numbers_of(server) == (502, {"error": "it is away"})


def upstream_of(status=200, body=b"", *, in_drops=False):
    """A server that answers every question alike, as something that is no Prometheus might."""
    pieces = [body[at : at + 10] for at in range(0, len(body), 10)] if in_drops else body
    return ScriptedServer((status, {"Content-Type": "application/json"}, pieces))


def trouble_of(source):
    with serving(source) as server:
        status, told = numbers_of(server)
    assert status == 502
    assert "\n" not in told["error"]
    return told["error"]


def test_a_prometheus_that_is_not_there_is_told():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        trouble = trouble_of(PrometheusSource(url))
    assert trouble == f"Prometheus at {url} cannot be reached: Connection refused"


def test_a_name_that_does_not_exist_is_told():
    trouble = trouble_of(PrometheusSource("http://prometheus.invalid:9090"))
    assert trouble.startswith("Prometheus at http://prometheus.invalid:9090 cannot be reached: ")


@pytest.mark.parametrize(
    "body",
    [
        b"<html>Welcome to nginx!</html>",
        b"",
        b"[]",
        b"null",
        b'{"status":"success"}',
        b'{"status":"success","data":{}}',
        b'{"status":"success","data":{"result":7}}',
        b'{"status":"success","data":{"result":[7]}}'.replace(b"7", b'{"values":[7]}'),
        b'{"status":"success","data":{"result":[{"metric":{},"values":[["x","y"]]}]}}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_prometheus_is_told(body):
    with upstream_of(body=body) as upstream:
        trouble = trouble_of(PrometheusSource(upstream.url))
    assert trouble == f"the server at {upstream.url} is not a Prometheus"


def test_what_answers_no_http_is_told():
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk():
            taken, _ = listening.accept()
            taken.recv(1000)
            taken.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            taken.close()

        thread = threading.Thread(target=talk)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        assert trouble_of(PrometheusSource(url)) == f"the server at {url} is not a Prometheus"
        thread.join()


def test_a_prometheus_that_refuses_all_is_told_in_its_own_words():
    body = b'{"status":"error","errorType":"unavailable","error":"TSDB not\\nready"}'
    with upstream_of(503, body) as upstream:
        trouble = trouble_of(PrometheusSource(upstream.url))
    assert trouble == f"Prometheus at {upstream.url} rejected the query: TSDB not ready"


def test_a_prometheus_that_does_not_answer_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        before = time.monotonic()
        trouble = trouble_of(PrometheusSource(url, timeout=0.2))
    assert trouble == f"Prometheus at {url} did not respond within 0.2 seconds"
    assert time.monotonic() - before < 30


def test_an_answer_in_drops_is_not_waited_for():
    """Each drop comes in time, and the whole never would."""
    with upstream_of(body=b" " * 10_000, in_drops=True) as upstream:
        before = time.monotonic()
        trouble = trouble_of(PrometheusSource(upstream.url, timeout=0.5))
    assert "did not respond within 0.5 seconds" in trouble
    assert time.monotonic() - before < 30


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9090", "ftp://127.0.0.1", "file:///etc/passwd", "http://"]
)
def test_what_is_no_url_of_a_server_is_refused(url):
    with pytest.raises(ValueError, match="expected a URL such as"):
        PrometheusSource(url)


def test_a_name_and_a_password_go_to_the_server_and_nowhere_else():
    with upstream_of(body=b'{"status":"success","data":{"result":[]}}') as upstream:
        url = upstream.url.replace("http://", "http://me:s%20ecret@") + "/prefix/"
        source = PrometheusSource(url)
        source.refresh()
    [(path, headers, _)] = upstream.requests
    assert path.startswith("/prefix/api/v1/query?")
    assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:s ecret"
    assert source.title == f"Prometheus at {upstream.url}/prefix"


def test_a_prometheus_of_this_machine_is_asked_without_a_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with upstream_of(body=b'{"status":"success","data":{"result":[]}}') as upstream:
        PrometheusSource(upstream.url).refresh()
        assert len(upstream.requests) == 1
        with pytest.raises(SourceError, match="Connection refused"):
            PrometheusSource("http://prometheus.invalid:1").refresh()


def test_an_agent_of_any_name_can_be_asked_for():
    """Also one that a command line brought that is no text."""
    with upstream_of(body=b'{"status":"success","data":{"result":[]}}') as upstream:
        page_data(PrometheusSource(upstream.url), "1h", "\udcff", time.time())
        assert any("%3F" in path for path in upstream.paths)


def test_a_series_has_none_where_it_skips_a_time_or_is_no_number():
    values = [[100, "1"], [120, "NaN"], [130, "+Inf"], [140, "0.5"]]
    body = {"status": "success", "data": {"result": [{"metric": {"le": "1"}, "values": values}]}}
    with upstream_of(body=json.dumps(body).encode()) as upstream:
        [series] = PrometheusSource(upstream.url).ask("x", Grid(100, 10, 5))
    assert series.labels == {"le": "1"}
    assert series.values == [1.0, None, None, None, 0.5]


def test_a_rate_is_taken_over_a_few_scrapes():
    samples = [[at, "1"] for at in range(0, 600, 60)]
    body = {"status": "success", "data": {"result": [{"metric": {}, "values": samples}]}}
    with upstream_of(body=json.dumps(body).encode()) as upstream:
        source = PrometheusSource(upstream.url)
        assert source.window(1) == 60
        source.refresh()
    assert source.window(1) == 240
    assert source.window(3600) == 3660  # with what grew before the first scrape in it


def test_a_refused_question_has_the_words_of_the_server():
    body = b'{"status":"error","errorType":"bad_data","error":"parse error"}'
    with upstream_of(400, body) as upstream, pytest.raises(RefusedError, match=r"^parse error$"):
        PrometheusSource(upstream.url).ask("(", Grid.at(1))


def test_an_answer_without_an_end_is_cut_off(monkeypatch):
    monkeypatch.setattr("treadle.reports.sources.prometheus.MOST_BYTES", 1000)
    with (
        upstream_of(body=b" " * 5000) as upstream,
        pytest.raises(SourceError, match="more than 1000 bytes"),
    ):
        PrometheusSource(upstream.url).refresh()


# The colours


def linear(channel):
    share = channel / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


# Viénot, Brettel and Mollon (1999): what is left of linear red, green and blue without one kind of cones.
SIGHT = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red cones": ((0.11238, 0.88762, 0), (0.11238, 0.88762, 0), (0.00401, -0.00401, 1)),
    "no green cones": ((0.29275, 0.70725, 0), (0.29275, 0.70725, 0), (-0.02234, 0.02234, 1)),
}


def lab(rgb):
    """Linear RGB in CIE Lab, in which distances are what one sees."""
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(a * b for a, b in zip(row, rgb, strict=True)) for row in to_xyz]
    f = [(max(v, 0) / w) ** (1 / 3) for v, w in zip(xyz, (0.9505, 1, 1.089), strict=True)]
    return 116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])


def colours_of(scheme):
    """The card and the series of a scheme, as linear red, green and blue."""
    style = resources.files("treadle.reports.dashboard_page").joinpath("page.css").read_text()
    light, dark = style.split(':root[data-theme="dark"]')
    found = re.findall(r"(--card|--slot-\d): #(\w{6});", light if scheme == "light" else dark)
    return {
        name: [linear(int(value[at : at + 2], 16)) for at in (0, 2, 4)] for name, value in found
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_colours_of_series_can_be_told_apart(scheme, sight):
    """By those who see fewer colours, too; and all can be seen on the card."""
    seen = {
        name: lab([sum(a * b for a, b in zip(row, rgb, strict=True)) for row in SIGHT[sight]])
        for name, rgb in colours_of(scheme).items()
    }
    assert len(seen) == 9
    near = {
        pair
        for pair in itertools.combinations(seen, 2)
        if math.dist(seen[pair[0]], seen[pair[1]]) < 18
    }
    assert near == set()
    assert all(
        abs(seen["--card"][0] - one[0]) > 30 for name, one in seen.items() if name != "--card"
    )


@pytest.mark.parametrize("target", ["http://[", "/?agent=%ff"])
def test_an_odd_request_target_is_answered(target):
    with serving(Fixed()) as server:
        status, _, _ = ask(server, target)
    assert status in {200, 400}


@pytest.mark.parametrize(
    "header",
    [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Origin", "https://example.org"),
        ("Origin", "null"),
        ("Origin", "http://127.0.0.1:1"),
    ],
)
def test_a_page_of_another_site_gets_nothing(header):
    """It could make the server query Prometheus, although it cannot read the answer."""
    with serving(source := Fixed()) as server:
        host = ("Host", f"127.0.0.1:{server.server_port}")
        status, _, _ = ask(server, "/data.json", headers=[host, header])
    assert status == 403
    assert source.asked == []


def test_the_page_itself_is_answered_with_its_origin():
    with serving(Fixed()) as server:
        own = f"127.0.0.1:{server.server_port}"
        headers = [("Host", own), ("Origin", f"http://{own}"), ("Sec-Fetch-Site", "same-origin")]
        status, _, _ = ask(server, "/data.json", headers=headers)
    assert status == 200


class Partial(Handler):
    """A Prometheus that fails at the queries of one metric, each time in the way of its server."""

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["query"][0]
        status, body = 200, b'{"status":"success","data":{"result":[]}}'
        if self.server.metric in query:
            status, body, seconds = self.server.fault
            self.server.over.wait(seconds)
        with contextlib.suppress(OSError):
            self.respond(status, body, {})


@pytest.mark.parametrize(
    "fault",
    [
        (422, b'{"status":"error","error":"too many samples"}', 0),
        (500, b"<html>no</html>", 0),
        (200, b"<html>no</html>", 0),
        (200, b'{"status":"success","data":{"result":[{"metric":{},"values":[["x","y"]]}]}}', 0),
        (200, b"", 60),
    ],
    ids=["refused", "page", "no json", "malformed", "silent"],
)
def test_a_query_that_fails_empties_no_other_panel(fault):
    status, failed, took = failed_panels("treadle_usage_cost_total", fault)
    assert (status, failed) == (200, {"cost", "mean_cost", "cost_per_hour", "cost_per_run"})
    assert took < 20


def test_the_query_for_the_scrape_interval_may_be_refused():
    refused = (422, b'{"status":"error","error":"no range selectors"}', 0)
    status, failed, _ = failed_panels("treadle_invoke_agent_active[10m]", refused)
    assert (status, failed) == (200, set())


def failed_panels(metric, fault):
    """The status of the page, the keys of the panels with an error, and the seconds that it took."""
    with served_by(Partial, metric=metric, fault=fault, over=threading.Event()) as upstream:
        source = PrometheusSource(upstream.url, timeout=1)
        before = time.monotonic()
        with serving(source) as server:
            status, told = numbers_of(server)
        took = time.monotonic() - before
        upstream.over.set()
    failed = {one["key"] for row in told["rows"] for one in row["panels"] if "error" in one}
    return status, failed, took


def test_agents_that_cannot_be_queried_do_not_fail_the_page():
    source = Fixed()
    source.refused = "sum by (gen_ai_agent_name)"
    assert page_data(source, "1h", None, time.time())["agents"] == []
