#!/usr/bin/env python3
"""Make the pictures of the run report in docs/images: a real run, recorded, rendered, and looked at in Chromium.

Run it from anywhere: ``python scripts/screenshots.py``. The model is a script that takes its time; the loop, its
tools, the record and the report are what they always are. It needs Playwright and Debian's ``chromium``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treadle import Loop, Response, Result, ToolCall, Usage, tool
from treadle.recording.recorder import Recorder
from treadle.reports.report.render import render_report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
MOST_BYTES = 300_000


@tool
def search_logs(service: str, words: str) -> list[dict[str, Any]]:
    """Search the logs of a service."""
    time.sleep(0.9 if service == "payments" else 0.5)
    if service == "checkout":
        return [{"at": "09:41:07", "level": "WARN", "text": f"{words}: upstream took 4812 ms"}]
    return [
        {"at": "09:41:03", "level": "WARN", "text": "pool exhausted, 40 of 40 connections in use"},
        {"at": "09:41:09", "level": "ERROR", "text": "acquire timed out after 5000 ms"},
    ]


@tool
def query_metrics(expression: str, minutes: int = 60) -> dict[str, Any]:
    """Ask for a series of the last minutes."""
    time.sleep(0.6)
    return {"expression": expression, "minutes": minutes, "p95": [0.31, 0.33, 2.9, 4.8, 4.7]}


_tries = iter(range(10))


@tool(retries=2)
def deployments(service: str) -> list[str]:
    """List the deployments of a service today."""
    time.sleep(0.35)
    if next(_tries) < 1:
        raise ConnectionError("the deployment server closed the connection")
    return [f"{service} 4.12.0 at 09:38", f"{service} 4.11.3 at 07:02"]


@tool
def read_change(version: str) -> str:
    """Read what a version changed."""
    time.sleep(0.4)
    return (
        f"{version}\n- retry card authorisation up to 5 times\n- hold the connection while waiting"
    )


@tool
def open_ticket(title: str, *, severity: int) -> str:
    """Open a ticket."""
    time.sleep(0.3)
    raise PermissionError(f"{title!r}: severity {severity} needs an owner")


def answer(text: str | None, calls: list[tuple[str, str]], tokens: tuple[int, int]) -> Response:
    """An answer with what it cost."""
    made = tuple(
        ToolCall(f"call_{abs(hash((name, arguments, tokens))) % 10**6:06}", name, arguments)
        for name, arguments in calls
    )
    cost = tokens[0] * 1.25e-6 + tokens[1] * 1e-5
    usage = Usage(*tokens, cached_tokens=tokens[0] // 2, cost=cost)
    return Response(text, made, "tool_calls" if calls else "stop", usage, "example-large")


def script(*steps: tuple[float, Response]) -> Callable[..., Any]:
    """A model that takes some seconds for each of its answers."""
    left = iter(steps)

    def ask(_messages: list[dict[str, Any]]) -> Response:
        seconds, response = next(left)
        time.sleep(seconds)
        return response

    return ask


ANSWER = (
    "Checkout is slow because payments 4.12.0, deployed at 09:38, retries card authorisation up to five times and "
    "holds its database connection while it waits. Its pool of 40 connections is used up at 09:41, and checkout "
    "waits for it: p95 went from 0.3 s to 4.8 s.\n\nRoll payments back to 4.11.3, then release the connection "
    "before the wait."
)

READER = (
    (0.5, answer(None, [("read_change", '{"version": "payments 4.12.0"}')], (412, 28))),
    (0.6, answer("4.12.0 retries five times and holds its connection meanwhile.", [], (497, 31))),
)
INVESTIGATOR = (
    (
        1.1,
        answer(
            "I look at the logs and the numbers of both services first.",
            [
                ("search_logs", '{"service": "checkout", "words": "slow request"}'),
                ("search_logs", '{"service": "payments", "words": "timeout"}'),
                ("query_metrics", '{"expression": "checkout:latency:p95", "minutes": 60}'),
            ],
            (1204, 96),
        ),
    ),
    (
        0.9,
        answer(
            None,
            [
                ("deployments", '{"service": "payments"}'),
                ("query_metrics", '{"expression": "payments:pool:in_use"}'),
            ],
            (1690, 58),
        ),
    ),
    (
        0.8,
        answer(
            None,
            [
                ("review", '{"task": "What does payments 4.12.0 change?"}'),
                ("search_logs", '{"service": "checkout", "words": "card declined"}'),
            ],
            (1982, 61),
        ),
    ),
    (
        0.6,
        answer(None, [("search_logs", '{"service": "payments", "words": "timeout"}')], (2260, 33)),
    ),
    (
        0.7,
        answer(None, [("search_logs", '{"service": "payments", "words": "timeout"}')], (2391, 33)),
    ),
    (0.7, answer(None, [("open_ticket", '{"title": "Payments pool", "severity": 1}')], (2468, 38))),
    (1.4, answer(ANSWER, [], (2540, 141))),
)


def investigate(record: Path) -> Result:
    """The run of the pictures: parallel calls, a retry, a run within a run, a call that is not run again."""
    reviewer = Loop(tools=[read_change], name="reviewer", max_iterations=4)
    review = reviewer.as_tool("review", "Have a change reviewed.", script(*READER))
    tools = [search_logs, query_metrics, deployments, review, open_ticket]
    messages = [
        {
            "role": "system",
            "content": "You find out why services are slow. Say what to do about it.",
        },
        {"role": "user", "content": "Checkout has been slow since this morning. Why?"},
    ]
    with Recorder(record) as recorder:
        loop = Loop(tools=tools, name="investigator", max_iterations=12, on_event=recorder)
        return loop.run_sync(messages, script(*INVESTIGATOR))


def shoot(
    page_file: Path, scheme: str, target: Path, width: int = 1440, height: int = 1440
) -> None:
    """Take a picture of a report, in ``light`` or ``dark``."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - not needed to make the run

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        size = {"width": width, "height": height}
        page = browser.new_page(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(page_file.as_uri())
        page.wait_for_selector(".row")
        page.wait_for_timeout(300)  # the timeline is drawn in the next frame
        page.screenshot(path=str(target))
        browser.close()


def main() -> None:
    """Make both pictures; fails where one is too large to be in a repository."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record, report = Path(folder) / "run.jsonl", Path(folder) / "report.html"
        investigate(record)
        report.write_text(render_report(record), encoding="ascii")
        for scheme in ("light", "dark"):
            target = IMAGES / f"report-{scheme}.png"
            shoot(report, scheme, target)
            size = target.stat().st_size
            if size > MOST_BYTES:
                raise SystemExit(f"{target} is too large: {size} bytes")


if __name__ == "__main__":
    main()
