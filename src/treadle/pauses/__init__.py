"""Paused runs outside a process: their signature, their files, and the claims of those that are resumed.

`saved` is imported when a pause is saved or resumed from a file.
"""

from treadle.pauses.claims import ClaimStore as ClaimStore
from treadle.pauses.claims import Outcome as Outcome
from treadle.pauses.claims import ProcessClaims as ProcessClaims
from treadle.pauses.protection import VERSION as VERSION
from treadle.pauses.protection import Pauses as Pauses
from treadle.pauses.protection import check_state as check_state
from treadle.pauses.protection import digest_of as digest_of
from treadle.pauses.protection import is_state as is_state
from treadle.pauses.sqlite_claims import SQLiteClaims as SQLiteClaims
