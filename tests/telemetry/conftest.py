"""Fixtures with OpenTelemetry's SDK in memory; the global providers are not changed."""

import anyio
import pytest

from treadle import Loop, tool
from treadle.testing import ScriptedLLM

pytest.importorskip("opentelemetry.sdk")

from tests.time_limit import TimeLimit

from .exits import double
from .watching import DRIVERS, Watch


@pytest.fixture(params=DRIVERS)
def driver(request):
    return request.param


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def limit():
    """A time limit that strikes when a test says so."""
    return TimeLimit()


@pytest.fixture(autouse=True)
def no_errors_are_logged(caplog):
    """A failure in telemetry, or in detaching a context, is only logged and does not stop a run."""
    yield
    for record in caplog.get_records("call"):
        assert not record.name.startswith(("treadle.telemetry", "opentelemetry")), record


@tool
def fail():
    raise ValueError("x" * 5000)


@pytest.fixture(params=["sync", "asyncio", "trio"])
def run(request, watch):
    """Run a script or a model under each driver, with a tool that works and one that fails."""

    def run(*script, **options):
        messages = [{"role": "user", "content": "Hi"}]
        options = {"tools": [double, fail], "retry_delay": 0, **watch.options, **options}
        model = script[0] if callable(script[0]) else ScriptedLLM(*script)
        if request.param == "sync":
            return Loop.run_sync(messages, model, **options)
        return anyio.run(lambda: Loop.run(messages, model, **options), backend=request.param)

    return run
