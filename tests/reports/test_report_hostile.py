"""What models, tools and users wrote is shown in the report, and takes no effect."""
# ruff: noqa: F811 - the fixtures are imported, and named again where they are used

import json
import re
import time

import pytest

from treadle import Loop, Response, RunState, ToolCall, Usage, tool
from treadle.limits import Limits
from treadle.reports.report.render import render_report
from treadle.testing import ChaosLLM, ChaosTools, ScriptedLLM

from .browser import browser, opened  # noqa: F401 - fixtures
from .looking import OURS, QUESTION, check_harmless, page_of, press, unfold
from .spoilt import spoilt_records

pytestmark = pytest.mark.browser

PAYLOADS = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=2>",
    "<svg onload=window.hacked=3></svg>",
    "javascript:window.hacked=4//",
    "<!-- <script>window.hacked=5",
    "</style><style>*{display:none}</style>",
    "<a href='javascript:window.hacked=6'>click</a>",
    "</noscript><iframe srcdoc='<script>parent.hacked=7</script>'></iframe>",
    "</textarea></title></pre><object data=x></object>",
    "{{data}} ${window.hacked=8} `+window.hacked+`",
    "\\u003cscript\\u003e",
    "]]> &lt;b&gt; &#x3c;",
    "user\u202egnp.exe\u202c",
    "\x1b[31mred\x1b[0m\x00\x07",
    "half \ud800 of one",
    "tag\U000e0041 zero\u200bwidth\u2028line",
    "__proto__",
    "constructor",
]


def hostile(payload):
    """What records a run in which everything that anybody may write is a payload."""
    state = RunState(payload, payload)

    @tool
    def repeat(text: str) -> str:
        """Say it again."""
        return text

    @tool
    def fail(text: str) -> str:
        """Fail with it."""
        raise ValueError(text)

    given = json.dumps({"text": payload, payload: 1}), json.dumps({"text": payload})
    made = (
        ToolCall(payload or "x", "repeat", given[1]),
        ToolCall(f"{payload}2", "fail", given[1]),
        ToolCall(f"{payload}3", payload or "x", given[0]),
        ToolCall(f"{payload}4", "repeat", payload),
    )
    first = Response(payload, made, payload, Usage(1, 1), payload, payload, {payload: payload})
    last = Response(payload, (), payload, None, payload)
    messages = [
        {"role": "system", "content": payload},
        {"role": "user", "content": [{"type": "text", "text": payload}, {"type": payload}]},
    ]

    def record(to):
        loop = Loop(tools=[repeat, fail], max_retries=1, retry_delay=0.001, on_event=to)
        loop.run_sync(messages, ScriptedLLM(ConnectionError(payload), first, last), state=state)
        loop.run_sync(messages, ScriptedLLM(first, ValueError(payload)), max_retries=0)

    return record


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_what_anybody_wrote_is_shown_and_takes_no_effect(tmp_path, opened, payload):
    """In names, ids, arguments, results, errors, answers, messages, on every level of the page."""
    page = opened(page_of(tmp_path, hostile(payload))).page
    for run in ("0", "1"):
        page.select_option("#run", run)
        press(page, "e", "Home")
        unfold(page, 20)
        page.hover(".row.on > .head")
        check_harmless(page)
    page.select_option("#run", "0")
    parts = re.split(r"[^ -~]+", payload)
    shown = page.inner_text("main")
    for part in parts:
        assert part in shown, part
    for odd in re.findall(r"[\x00-\x08\x1b\u202e\ud800\u200b\u2028\U000e0041]", payload):
        assert f"U+{ord(odd):04X}" in shown
    if len(parts) == 1:
        page.fill("#words", payload)
        press(page, "Enter")
        assert re.fullmatch(r"1?\d of 1\d|\d of \d", page.inner_text("#found"))
        check_harmless(page)


def test_hostile_text_takes_no_effect_without_javascript(tmp_path, opened):
    """The plain page is made of escaped text."""
    page = opened(page_of(tmp_path, hostile(" ".join(PAYLOADS))), java_script_enabled=False).page
    tags = {one.evaluate("one => one.tagName") for one in page.locator("body *").all()}
    assert {tag.lower() for tag in tags} <= OURS | {"details", "summary"}
    assert "<img src=x" in page.inner_text("body")


def test_a_line_of_a_million_characters_is_shown_in_parts(tmp_path, opened):
    """The page stays quick, and all of it can be had."""

    @tool
    def much() -> str:
        """Say much."""
        return "x"

    long = "lorem ipsum " * 90_000 + "<end>"
    call = ToolCall("c1", "much", f'{{"text": "{long}"}}')

    def record(to):
        model = ScriptedLLM(Response(long, (call,)), long)
        Loop(tools=[much], on_event=to).run_sync([{"role": "user", "content": long}], model)

    began = time.perf_counter()
    page = opened(page_of(tmp_path, record)).page
    press(page, "Home", "e", "j", "Enter")
    assert time.perf_counter() - began < 10
    body = page.locator(".row.on .body")
    assert len(body.inner_text()) < 5_000
    body.locator("button").click()
    assert 50_000 < len(body.inner_text()) < 60_000
    page.fill("#words", "<END>")
    press(page, "Enter")
    assert page.locator("mark", has_text="<end>").count() >= 1


@pytest.mark.parametrize("seed", range(3))
def test_whatever_models_and_tools_do_it_can_be_looked_at(tmp_path, opened, seed):
    """Runs that misbehave in every way make pages that do not."""

    def record(to):
        loop = Loop(
            tools=ChaosTools(seed),
            limits=Limits(max_iterations=8, max_tool_calls=40),
            retry_delay=0.0,
            on_event=to,
        )
        loop.run_sync(QUESTION, ChaosLLM(seed, turns=7, longest=5_000, most_calls=50))

    page = opened(page_of(tmp_path, record)).page
    press(page, "e", "Home")
    unfold(page, 60)
    check_harmless(page)


@pytest.mark.parametrize("seed", range(3))
def test_a_record_that_somebody_else_made_can_be_looked_at(tmp_path, opened, seed):
    """Whatever fits the schema, sense or none, makes a page that works."""
    record, report = tmp_path / "run.jsonl", tmp_path / "report.html"
    record.write_bytes(b"".join(spoilt_records(seed, 12)))
    report.write_text(render_report(record), encoding="ascii")
    page = opened(report).page
    count = page.locator("#run option").count()
    assert count > 4
    for run in range(count):
        page.select_option("#run", str(run), force=True)
        press(page, "e")
        unfold(page, 40)
        check_harmless(page)
