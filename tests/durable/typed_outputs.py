"""Types of output whose validators must not read what they returned, or whose JSON form is another one."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    computed_field,
    field_serializer,
    model_validator,
)

T = TypeVar("T")
Cents = Annotated[int, AfterValidator(lambda value: value * 100)]


class Price(BaseModel):
    """A validator converts, so that a second one would convert again."""

    cents: Cents


class Aliased(BaseModel):
    """The model writes other names than those of the fields."""

    model_config = ConfigDict(extra="allow")
    number: int = Field(alias="invoiceNumber")


class Hidden(BaseModel):
    """Fields are missing in JSON, computed, or of another type there."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    shown: int
    secret: str = Field(default="s", exclude=True)
    when: dt.date

    @computed_field
    @property
    def double(self) -> int:
        """Twice the number."""
        return 2 * self.shown

    @field_serializer("when")
    def written(self, when: dt.date) -> str:
        """Write a text that is no date."""
        return f"day {when.toordinal()}"


class Whole(BaseModel):
    """One of a union that a value of the other would fit as well."""

    value: int


class Text(BaseModel):
    """The other one; what it has looks like a number."""

    value: str


class Color(enum.Enum):
    """A color."""

    RED = "red"


class Level(enum.IntEnum):
    """A level, which is a number as well."""

    LOW = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    """A dataclass with slots that changes its values."""

    x: int
    color: Color

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", self.x + 1)


@dataclasses.dataclass
class Plain:
    """A plain dataclass that changes its values."""

    names: list[str]

    def __post_init__(self) -> None:
        self.names = [f"{name}!" for name in self.names]


class Parts(BaseModel):
    """Values of many classes."""

    at: dt.datetime
    day: dt.date
    took: dt.timedelta
    amount: Decimal
    id: UUID
    path: Path
    level: Level
    color: Color
    marks: frozenset[str]
    pair: tuple[int, Price]
    point: Point
    plain: Plain
    kind: Literal["a"] = "a"
    _seen: int = PrivateAttr(default=3)

    @model_validator(mode="after")
    def count(self) -> Parts:
        """Count how often it was validated."""
        self._seen += 1
        return self

    @property
    def seen(self) -> int:
        """How often it was validated."""
        return self._seen


class Box(BaseModel, Generic[T]):
    """A generic model."""

    item: T


class Site(BaseModel):
    """A field of a class that is no data: its JSON form is read."""

    url: AnyUrl


PARTS: dict[str, Any] = {
    "at": "2026-01-02T03:04:05.000006+01:00",
    "day": "2026-01-02",
    "took": "PT90M",
    "amount": "1.10",
    "id": "12345678123456781234567812345678",
    "path": "folder/a",
    "level": 1,
    "color": "red",
    "marks": ["a"],
    "pair": [1, {"cents": 5}],
    "point": {"x": 1, "color": "red"},
    "plain": {"names": ["a"]},
}
CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "a converting validator": (Price, "Price", {"cents": 5}),
    "an alias": (Aliased, "Aliased", {"invoiceNumber": 5, "more": [1]}),
    "hidden fields": (Hidden, "Hidden", {"shown": 2, "when": "2026-01-02"}),
    "the second of a union": (Whole | Text, "Text", {"value": "5"}),
    "a dataclass": (Plain, "Plain", {"names": ["a"]}),
    "a frozen dataclass": (Point, "Point", {"x": 1, "color": "red"}),
    "many classes": (Parts, "Parts", PARTS),
    "a generic model": (Box[Price], "Box_Price_", {"item": {"cents": 5}}),
    "a list": (list[Price], "final_answer", {"value": [{"cents": 5}]}),
    "a set": (set[int], "final_answer", {"value": [1, 2]}),
    "a date": (dt.date, "final_answer", {"value": "2026-01-02"}),
    "a number": (Cents, "final_answer", {"value": 5}),
    "a field that is no data": (Site, "Site", {"url": "https://example.org/"}),
}
"""The type, the name of its tool, and what the model writes, by name."""
