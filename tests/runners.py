"""The three ways to run the same steps: no event loop, asyncio, trio."""

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterable, Iterable

import anyio
import pytest
from tests.programs import run_program

from treadle.effects import drive, drive_sync
from treadle.pipeline import Pipeline
from treadle.pipeline.streams import StreamPipeline


class Runner:
    """Runs steps, pipelines and streams in one of the three ways."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name

    @property
    def is_sync(self):
        return self.name == "sync"

    def drive(self, steps, emit=None):
        if self.is_sync:
            return drive_sync(steps, emit)
        return anyio.run(drive, steps, emit, backend=self.name)

    def run(self, pipeline: Pipeline, item):
        if self.is_sync:
            return pipeline.run_sync(item)
        return anyio.run(pipeline.run, item, backend=self.name)

    def run_all(self, pipeline: StreamPipeline, item):
        if self.is_sync:
            return pipeline.run_all_sync(item)
        return anyio.run(pipeline.run_all, item, backend=self.name)

    def stream(
        self, pipeline: StreamPipeline, items: Iterable | AsyncIterable, take=None, **options
    ):
        """The results of a stream, or the first `take`; an error that it raises comes last."""

        async def read():
            out = []
            try:
                async with pipeline.stream(items, **options) as results:
                    if take == 0:
                        return out
                    async for result in results:
                        out.append(result)
                        if len(out) == take:
                            break
            except Exception as error:
                out.append(error)
            return out

        if not self.is_sync:
            return anyio.run(read, backend=self.name)
        out = []
        results = pipeline.stream_sync(items, **options)
        try:
            while len(out) != take:
                out.append(next(results))
        except StopIteration:
            pass
        except Exception as error:
            out.append(error)
        finally:
            results.close()
        return out


RUNNERS = [Runner("sync"), Runner("asyncio"), Runner("trio")]


@pytest.fixture(params=RUNNERS, ids=repr)
def runner(request):
    return request.param


@pytest.fixture(params=RUNNERS[1:], ids=repr)
def async_runner(request):
    return request.param


@pytest.fixture(scope="session")
def runners():
    return RUNNERS


def await_standstill():
    """Wait in another thread until the main thread waits, and so is always at the same instruction."""
    main, before, times = threading.main_thread().ident, None, 0
    while times < 10:
        time.sleep(0.005)
        frame = sys._current_frames()[main]
        place = (frame.f_code, frame.f_lasti)
        times = times + 1 if place == before else 0
        before = place


def interrupt_main(number):
    """Send a signal to the main thread when it waits."""
    await_standstill()
    signal.pthread_kill(threading.main_thread().ident, number)


@pytest.fixture
def run_python():
    """Run code in a separate Python, in which warnings are errors, and check what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # To measure there, coverage imports asyncio, and forgets it: the CancelledError that the code
    # then imports is not the one that is raised.
    environment.pop("COVERAGE_PROCESS_CONFIG", None)

    def run(code, expected, *options):
        done = run_program(
            [sys.executable, "-W", "error", *options, "-c", textwrap.dedent(code)], env=environment
        )
        assert (done.stdout, done.stderr, done.returncode) == (expected, "", 0)

    return run
