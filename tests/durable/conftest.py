"""The fixtures of the ways to run a loop."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ways import DRIVEN, Way


@pytest.fixture(params=DRIVEN, ids=repr)
def driven(request: Any) -> Way:
    """Without an event loop, on asyncio, on trio."""
    return request.param
