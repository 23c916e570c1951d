"""The context: what the stages of an iteration see, and the verbs with which they change it."""

# ruff: noqa: I001 - the aliases of one module stand together
from treadle.context.calls import (
    admitted as admitted,
    approval_questions as approval_questions,
    check_call as check_call,
    decision_on as decision_on,
    expect as expect,
    found_call as found_call,
    holds as holds,
    invalid_answer as invalid_answer,
    over_budget as over_budget,
    with_parsed_calls as with_parsed_calls,
    with_plan as with_plan,
    with_reservations as with_reservations,
    with_second_response as with_second_response,
)
from treadle.context.context import Context as Context, ContextChanges as ContextChanges
from treadle.context.iteration import (
    NO_CALLS as NO_CALLS,
    Decision as Decision,
    Iteration as Iteration,
)
from treadle.context.request import Request as Request, RequestChanges as RequestChanges
from treadle.context.services import (
    EventCounter as EventCounter,
    Ledger as Ledger,
    Note as Note,
    RunServices as RunServices,
    uses_of as uses_of,
)
