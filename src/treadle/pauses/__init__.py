"""Paused runs outside a process: their signature, their files, and the claims of those that are resumed.

`saved` is imported when a pause is saved or resumed from a file.
"""

from treadle.pauses.claims import ClaimStore, Outcome, ProcessClaims
from treadle.pauses.policy import Pauses
from treadle.pauses.signature import VERSION, check_state, digest_of, is_state
from treadle.pauses.sqlite_claims import SQLiteClaims

__all__ = [
    "VERSION",
    "ClaimStore",
    "Outcome",
    "Pauses",
    "ProcessClaims",
    "SQLiteClaims",
    "check_state",
    "digest_of",
    "is_state",
]
