"""What all spans, metrics and log records say of where they come from."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from treadle.telemetry import names


class Scope(NamedTuple):
    """An instrumentation scope, in the order in which every provider takes it.

    Args:
        name: the library's.
        version: the library's; None where it is not installed as a package.
        schema_url: of the version of the conventions whose names are used.
    """

    name: str
    version: str | None
    schema_url: str


@functools.cache
def scope() -> Scope:
    """The scope of treadle; its version is looked up once, in the files of the package."""
    try:
        found = version(names.SCOPE)
    except PackageNotFoundError:
        found = None
    return Scope(names.SCOPE, found, names.SCHEMA_URL)
