"""Helpers to read Phoenix's data."""

from __future__ import annotations

from typing import Any

import pytest

TOKENS = ("llm.token_count.prompt", "llm.token_count.completion", "llm.token_count.total")


def of(name: str) -> Any:
    """The project of a test."""
    return pytest.mark.parametrize("project", [name], indirect=True, ids=[""])


def tokens_of(span: dict[str, Any]) -> tuple[Any, ...]:
    """The input, output and total tokens of a span; None if it has none."""
    return tuple(span["attributes"].get(key) for key in TOKENS)


def events_of(span: dict[str, Any]) -> list[str]:
    """The names of a span's events."""
    return [event["name"] for event in span["events"]]
