"""Objects that an SDK made from a response."""

from __future__ import annotations

from typing import Any

from treadle.messages import JSONDict, NotAResponseError, describe


def as_dict(made: Any) -> JSONDict:
    """An object of an SDK as the server sent it.

    Raises:
        NotAResponseError: the server sent another JSON value in its place, which the SDK returns as it is.
    """
    if not hasattr(made, "to_dict"):
        raise NotAResponseError(
            f"llm_send_fn: the response has {describe(made)} where an object is expected"
        )
    # Servers that implement the API may leave out fields, or have other values.
    found: JSONDict = made.to_dict(warnings=False)
    return found
