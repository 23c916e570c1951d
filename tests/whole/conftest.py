"""The ways to await a loop, and the settings of Hypothesis."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from tests.ways import AWAITED, Way

settings.register_profile("whole", derandomize=True, deadline=None, max_examples=100)
settings.load_profile("whole")


@pytest.fixture(params=AWAITED, ids=repr)
def awaited(request: Any) -> Way:
    """On asyncio, on trio."""
    return request.param
