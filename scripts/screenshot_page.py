"""Make the pictures of the dashboard page in docs/images, of runs that are made and recorded here.

    python scripts/screenshot_page.py [--seconds 120]

The runs are real ones of three agents, for two minutes of real time; only their model is a script, which takes
its time and makes mistakes by a dice with a fixed seed. Nothing is changed in what they recorded. It needs
Playwright and Debian's ``chromium``.
"""
# ruff: noqa: S311, PLR2004 - the dice keeps no secrets, its odds need no names, and a script may print

from __future__ import annotations

import argparse
import contextlib
import itertools
import logging
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from treadle import CircuitBreaker, Loop, tool
from treadle.recording.recorder import Recorder
from treadle.reports.dashboard_page.server import PageServer
from treadle.reports.sources.recordings import RecordingSource
from treadle.testing import call, calls

IMAGES = Path(__file__).parents[1] / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
QUIET = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
PRICES = {"large-2": (3e-6, 15e-6), "small-2": (0.25e-6, 1.25e-6)}
"""US dollars for a token of a prompt and of an answer."""
PATIENCE = {"large-2": -1.4, "small-2": -2.2}
"""How long the models take, as the mean of the logarithm of seconds."""


class World:
    """What the tools of all runs share.

    Args:
        seconds: how long it lasts.
    """

    def __init__(self, seconds: float) -> None:
        self._from = time.monotonic()
        self._seconds = seconds
        self._ids = itertools.count(1)
        self.breaker = CircuitBreaker(threshold=3, cool_down=seconds / 6)

    @property
    def passed(self) -> float:
        """How much of it is over, from 0 to 1."""
        return (time.monotonic() - self._from) / self._seconds

    def tools(self, dice: random.Random) -> dict[str, Any]:
        """The tools of one run, by name."""

        def wait(mean: float, spread: float) -> None:
            time.sleep(dice.lognormvariate(mean, spread))

        @tool
        def find_order(number: int) -> str:
            """Find an order."""
            wait(-4.0, 0.5)
            if dice.random() < 0.04:
                raise LookupError(f"no order {number}")
            return f"order {number} is on its way"

        @tool
        def search(words: str) -> str:
            """Search the web, unless the index is away."""
            wait(-2.0, 0.6)
            if 0.5 < self.passed < 0.65:
                raise ConnectionError("the index does not answer")
            return f"ten pages about {words}"

        @tool(timeout=0.8)
        def read_page(url: str) -> str:
            """Read a page; some never come."""
            wait(-1.8, 0.8)
            return f"the text of {url}"

        @tool
        def read_file(path: str) -> str:
            """Read a file."""
            wait(-6.0, 0.5)
            return f"the text of {path}"

        @tool
        def run_tests(path: str) -> str:
            """Run the tests; they tell something else each time."""
            wait(-0.9, 0.3)
            return f"{next(self._ids)} tests of {path} passed"

        made = (find_order, search, read_page, read_file, run_tests)
        return {one.name: one for one in made}


def support(dice: random.Random) -> tuple[str, list[Any]]:
    """A customer's question: a look at an order or two, sometimes at the same one again."""
    steps = dice.choices([0, 1, 2, 3, 4], [1, 5, 4, 2, 1])[0]
    script = [asks(dice, "find_order", number=dice.randrange(9999)) for _ in range(steps)]
    if dice.random() < 0.2:
        script += script[-1:]
    return "small-2", script


def research(dice: random.Random) -> tuple[str, list[Any]]:
    """Search and read in turns; now and then it does not come to an end."""
    script = []
    for _ in range(dice.choices([1, 2, 3, 4, 7], [3, 5, 4, 3, 1])[0]):
        script.append(asks(dice, "search", words=f"word {dice.randrange(10**6)}"))
        script.append(asks(dice, "read_page", url=f"https://example.com/{dice.randrange(10**6)}"))
    return "large-2", script


def coder(dice: random.Random) -> tuple[str, list[Any]]:
    """Read files and run the tests; sometimes it reads the same file again and again."""
    script = []
    for _ in range(dice.randrange(2, 6)):
        script.append(asks(dice, "read_file", path=f"src/{dice.randrange(50)}.py"))
        script.append(asks(dice, "run_tests", path="tests"))
    if dice.random() < 0.15:
        script += [asks(dice, "read_file", path="src/main.py")] * 6
    return "large-2", script


AGENTS: dict[str, tuple[Callable[[random.Random], tuple[str, list[Any]]], tuple[str, ...]]] = {
    "support": (support, ("find_order",)),
    "research": (research, ("search", "read_page")),
    "coder": (coder, ("read_file", "run_tests")),
}


def asks(dice: random.Random, name: str, **arguments: Any) -> Any:
    """A message with a call, or with two alike where the model is not quite awake."""
    made = call(name, **arguments)
    return calls(made, call(name, **arguments)) if dice.random() < 0.06 else calls(made)


def make_model(dice: random.Random, name: str, script: list[Any]) -> Callable[..., Any]:
    """A model that goes through its script, and streams an answer at its end."""
    steps, prompts = iter(script), itertools.accumulate(iter(lambda: dice.randrange(80, 600), 0))
    start = dice.randrange(400, 2400)

    def model(messages: Any, **_options: Any) -> Any:  # noqa: ARG001 - a script does not listen
        time.sleep(dice.lognormvariate(PATIENCE[name], 0.5))
        if dice.random() < 0.02:
            raise ConnectionError("overloaded")
        usage = usage_of(name, start + next(prompts), dice.randrange(20, 300))
        step = next(steps, None)
        if step is None:
            return stream(dice, name, usage)
        return {"model": name, "choices": [{"message": step}], "usage": usage}

    return model


def usage_of(name: str, prompt: int, written: int) -> dict[str, Any]:
    """Tokens and what they cost, as a server tells them."""
    of_prompt, of_answer = PRICES[name]
    cost = prompt * of_prompt + written * of_answer
    return {"prompt_tokens": prompt, "completion_tokens": written, "cost": cost}


def stream(dice: random.Random, name: str, usage: dict[str, Any]) -> Iterator[Any]:
    """An answer in pieces."""
    for piece in ("That ", "is ", "all ", "there ", "is."):
        yield {"model": name, "choices": [{"delta": {"content": piece}}]}
        time.sleep(dice.random() * 0.05)
    yield {
        "model": name,
        "choices": [{"delta": {}, "finish_reason": "stop"}],
        "usage": usage,
    }


def go_on(world: World, recorder: Recorder, seed: int) -> None:
    """Make one run after another until the time is over."""
    dice = random.Random(seed)
    while world.passed < 1:
        name = dice.choices([*AGENTS], [6, 3, 2])[0]
        make_script, tools = AGENTS[name]
        model, script = make_script(dice)
        loop = Loop(
            name=name,
            llm_opts={"model": model},
            tools=[world.tools(dice)[one] for one in tools],
            breaker=world.breaker,
            max_iterations=12,
            retry_delay=0.05,
            on_event=recorder,
        )
        loop.run_sync([{"role": "user", "content": "Go on."}], make_model(dice, model, script))
        time.sleep(dice.expovariate(4))


def record(path: Path, seconds: float, threads: int = 4) -> None:
    """Make runs in some threads, and record them."""
    with Recorder(path) as recorder:
        world = World(seconds)
        at_work = [
            threading.Thread(target=go_on, args=(world, recorder, seed)) for seed in range(threads)
        ]
        for thread in at_work:
            thread.start()
        for thread in at_work:
            thread.join()


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    """Serve the page of a record."""
    server = PageServer(RecordingSource([path]), range_key="all")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def picture(url: str, out: Path, scheme: Any, width: int = 1440, height: int = 0) -> None:
    """Take a picture of a page, as high as is told; 0 is all of it."""
    size: Any = {"width": width, "height": height or 900}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*QUIET])
        page = browser.new_page(viewport=size, color_scheme=scheme)
        page.goto(url)
        page.wait_for_selector(".graph path")
        page.wait_for_timeout(300)
        page.screenshot(path=str(out), full_page=not height)
        browser.close()
    print(f"{out}: {out.stat().st_size} bytes")


def main() -> None:
    """Make the runs and the pictures."""
    parser = argparse.ArgumentParser(description="Make the pictures of the dashboard page.")
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    logging.getLogger("treadle").addHandler(logging.NullHandler())
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # the page tells where the record is
        record(Path("runs.jsonl"), args.seconds)
        with served(Path("runs.jsonl")) as url:
            picture(url, IMAGES / "dashboard.png", "light", height=1080)
            picture(url, IMAGES / "dashboard-dark.png", "dark", height=1080)
        os.chdir(IMAGES)


if __name__ == "__main__":
    main()
