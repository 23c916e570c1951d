"""Records: small values that are made several times in every iteration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(cls: type[T]) -> type[T]:
    """Make a dataclass that type checkers hold immutable, and that costs nothing extra to make.

    A frozen dataclass sets each field by a detour that takes four times as long; with some five of these
    in every iteration that is a twentieth of its cost. Nothing in treadle changes a record.
    """
    return dataclass(slots=True)(cls)
