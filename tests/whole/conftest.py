"""The fixtures of the ways to run a loop, and the settings of Hypothesis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from tests.ways import AWAITED, DRIVEN, WAYS, Way

settings.register_profile("whole", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("whole")


@pytest.fixture(params=WAYS, ids=repr)
def way(request: Any) -> Way:
    """Every way there is."""
    return request.param


@pytest.fixture(params=DRIVEN, ids=repr)
def driven(request: Any) -> Way:
    """Without an event loop, on asyncio, on trio."""
    return request.param


@pytest.fixture(params=AWAITED, ids=repr)
def awaited(request: Any) -> Way:
    """On asyncio, on trio."""
    return request.param
