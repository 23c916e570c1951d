"""The option ``pauses`` of a loop."""

from __future__ import annotations

from typing import Literal

from treadle.checks import ValueCheck, check_fields, checked, choice, methods
from treadle.fast_dataclass import fast_dataclass_kw
from treadle.pauses.claims import ClaimStore


@fast_dataclass_kw
class Pauses:
    """How the pauses of a loop are protected: ``Loop(pauses=Pauses(secret=...))``.

    Raises:
        OptionError: a value that a field does not accept.
    """

    secret: str | bytes | None = checked(
        None,
        ValueCheck(lambda value: isinstance(value, (str, bytes)) and value, "text or bytes"),
        repr=False,
    )
    """Signs the state of paused runs, so that no one else can forge one; None detects accidental changes only."""
    claims: ClaimStore | None = checked(
        None,
        methods("an object with claim and release, such as SQLiteClaims(path)", "claim", "release"),
        repr=False,
    )
    """Remembers which pauses are resumed, so that each is resumed once: `SQLiteClaims`, or another `ClaimStore`,
    for several processes. None uses a table in this process."""
    on_unknown: Literal["tell", "ask"] = checked("tell", choice("tell", "ask"))
    """What happens to a call that may have run already, because the process ended while it ran, and whose tool is
    not ``idempotent``: ``tell`` reports the outcome to the model as unknown, ``ask`` pauses the run for a person's
    decision."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def key(self) -> bytes | None:
        """The secret as bytes; None if there is none."""
        return self.secret.encode() if isinstance(self.secret, str) else self.secret
