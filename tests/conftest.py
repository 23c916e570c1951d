"""Settings and fixtures of all tests."""

import signal

import pytest
from hypothesis import settings

from .runners import async_runner, run_python, runner, runners
from .ways import DRIVEN, WAYS

__all__ = ["async_runner", "run_python", "runner", "runners"]

# The same examples every time, so that a failure in CI can be reproduced and no test fails by chance.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

# A shell that starts `make test` in the background has it ignore SIGINT, and child processes inherit that.
# Tests of Ctrl-C need the handler that Python installs otherwise, here and in the programs they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=WAYS, ids=repr)
def way(request):
    """Every way to run a loop."""
    return request.param


@pytest.fixture(params=DRIVEN, ids=repr)
def driven(request):
    """Without an event loop, on asyncio, on trio."""
    return request.param


def pytest_collection_modifyitems(items):
    """Put the tests of Phoenix first: it takes most of a minute to start, while other processes test."""
    items.sort(key=lambda item: item.get_closest_marker("phoenix") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Reports go from process to process as UTF-8, and some tests log lone surrogates on purpose."""
    report = yield
    report.sections = [
        (name, text.encode("utf-8", "replace").decode()) for name, text in report.sections
    ]
    return report
