"""`treadle dashboard`: what it serves and writes, how it ends, and what it says of what makes no sense."""

import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from importlib import resources

import pytest

from treadle import Loop
from treadle.recording.recorder import Recorder
from treadle.testing import ScriptedLLM


@pytest.fixture
def record(tmp_path):
    """A record of two runs."""
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for name in ("one", "two"):
            with ScriptedLLM("Done.") as model:
                loop = Loop(name=name, on_event=recorder)
                loop.run_sync([{"role": "user", "content": "Go."}], model)
    return path


@pytest.fixture
def dashboard(run_main):
    return functools.partial(run_main, "dashboard")


def numbers_in(html):
    return json.loads(re.search(r'id="start">(.*?)</script>', html)[1])["data"]


def runs_of(numbers):
    [panel] = [one for row in numbers["rows"] for one in row["panels"] if one["key"] == "runs"]
    return panel["series"][0]["whole"]


# Serving


@pytest.fixture
def served():
    """Starts the command in a process of its own, and gives it once it serves."""
    started = []

    def start(*args):
        process = subprocess.Popen(
            [sys.executable, "-m", "treadle", "dashboard", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def fetched(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        url, timeout=30
    ) as answer:
        return answer.read()


def test_it_serves_the_page_and_ends_with_ctrl_c(served, record):
    """The address is all that is on stdout; the end is that of the other commands, without a traceback."""
    process, url = served(record)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
    assert b"<title>Runs - treadle</title>" in fetched(url)
    assert runs_of(json.loads(fetched(f"{url}data.json?range=all"))) == 2
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == [
        f"2 recorded runs in {record}. Press Ctrl-C to stop.",
        "treadle: interrupted",
    ]


def test_it_serves_at_the_port_that_is_asked_for(served, record):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    _, url = served(record, "--port", port, "--agent", "two")
    assert url == f"http://127.0.0.1:{port}/"
    assert b'"agent":"two"' in fetched(url)


def test_a_prometheus_that_is_away_is_waited_for(served):
    """It is told, and the page is served: it shows the numbers once they are to be had."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{probe.getsockname()[1]}"
        process, url = served("--prometheus", away)
        assert b"<title>" in fetched(url)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=50)
    assert err.startswith(f"treadle: Prometheus at {away} cannot be reached: Connection refused\n")


# Writing


def test_a_page_is_written_with_the_numbers_in_it(dashboard, record, tmp_path):
    target = tmp_path / "page.html"
    assert dashboard(record, "-o", target) == (0, f"{target}\n", "")
    numbers = numbers_in(target.read_text(encoding="utf-8"))
    [whole] = [one for one in numbers if (one["range"], one["agent"]) == ("all", None)]
    assert (runs_of(whole), whole["agents"]) == (2, ["one", "two"])


def test_a_folder_of_records_is_read(dashboard, record, tmp_path):
    target = tmp_path / "page.html"
    assert dashboard(record.parent, "-o", target)[0] == 0
    assert any(runs_of(one) == 2 for one in numbers_in(target.read_text(encoding="utf-8")))


def test_a_range_and_an_agent_come_first(dashboard, record, tmp_path):
    target = tmp_path / "page.html"
    dashboard(record, "-o", target, "--range", "24h", "--agent", "two")
    start = json.loads(re.search(r'id="start">(.*?)</script>', target.read_text())[1])
    assert (start["range"], start["agent"]) == ("24h", "two")


def test_what_grafana_and_prometheus_take_is_written(dashboard, tmp_path):
    folder = tmp_path / "new" / "folder"
    code, out, err = dashboard("--export", folder)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        str(folder / name) for name in ("grafana.json", "prometheus-rules.yml")
    ]
    packaged = resources.files("treadle.reports").joinpath("dashboards")
    for path in folder.iterdir():
        assert path.read_bytes() == packaged.joinpath(path.name).read_bytes()
    assert len(list(folder.iterdir())) == 2


# What makes no sense


def complaint(result):
    """The one line of a command that was refused."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("treadle dashboard: error: ")
    return err.removeprefix("treadle dashboard: error: ").rpartition(" (see")[0]


ONE_OF = "expected one of: recordings, --prometheus URL, --export FOLDER"


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], ONE_OF),
        (["run.jsonl", "--prometheus", "http://127.0.0.1:9090"], ONE_OF),
        (["run.jsonl", "--export", "x"], ONE_OF),
        (
            ["--prometheus", "9090"],
            "--prometheus: expected a URL such as http://127.0.0.1:9090, got '9090'",
        ),
        (
            ["--prometheus", ""],
            "--prometheus: expected a URL such as http://127.0.0.1:9090, got ''",
        ),
        (
            ["--prometheus", "http://127.0.0.1:1", "--range", "all"],
            "--range: all is only supported for recordings",
        ),
        (["nowhere.jsonl"], "cannot read nowhere.jsonl: No such file or directory"),
        (["x", "--port", "70000"], "--port: expected a number from 0 to 65535, got 70000"),
        (["x", "--port", "-1"], "--port: expected a number from 0 to 65535, got -1"),
        (
            ["x", "-o", "y", "--port", "80"],
            "--port: not supported with -o",
        ),
    ],
)
def test_a_command_that_makes_no_sense_is_refused(dashboard, args, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    assert complaint(dashboard(*args)) == told


def test_a_range_that_there_is_not_is_refused(dashboard):
    assert "--range: invalid choice: '2h'" in complaint(dashboard("x", "--range", "2h"))


def test_a_file_that_is_no_record_is_refused(dashboard, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("\x1b[31mred\n")
    told = complaint(dashboard(path))
    assert told.startswith(f"{path}:1: this is not a recording")
    assert "\x1b" not in told


def test_a_port_that_is_taken_is_told(dashboard, record):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = complaint(dashboard(record, "--port", port))
    assert told == f"--port: cannot listen on 127.0.0.1:{port}: Address already in use"


def test_a_page_that_cannot_be_written_is_told(dashboard, record, tmp_path):
    told = complaint(dashboard(record, "-o", tmp_path / "no" / "page.html"))
    assert told == f"-o: cannot write {tmp_path}/no/page.html: No such file or directory"


def test_a_folder_that_cannot_be_made_is_told(dashboard, record):
    told = complaint(dashboard("--export", record / "x"))
    assert told.startswith(f"--export: cannot write to {record}/x: ")


def test_a_page_of_a_prometheus_that_is_away_is_not_written(dashboard, tmp_path):
    """The command makes sense, and there is nothing to be had: exit code 1, as for a run without an answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        code, out, err = dashboard("--prometheus", url, "-o", tmp_path / "page.html")
    assert (code, out) == (1, "")
    assert err == f"treadle: Prometheus at {url} cannot be reached: Connection refused\n"
    assert not (tmp_path / "page.html").exists()
