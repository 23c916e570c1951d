"""Type variables of the public generic classes.

At run time, only Python 3.13 has defaults of type variables; type checkers know them for every version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    ItemT = TypeVar("ItemT", default=Any)
    OutputT_co = TypeVar("OutputT_co", default=Any, covariant=True)
    OtherT = TypeVar("OtherT", default=Never)  # a second type of output; a run may have one alone
    DepsT_co = TypeVar("DepsT_co", default=Any, covariant=True)
    ParamsT = ParamSpec("ParamsT", default=...)
    ReturnT_co = TypeVar("ReturnT_co", default=Any, covariant=True)
else:
    from typing import ParamSpec, TypeVar

    ItemT = TypeVar("ItemT")
    OutputT_co = TypeVar("OutputT_co", covariant=True)
    OtherT = TypeVar("OtherT")
    DepsT_co = TypeVar("DepsT_co", covariant=True)
    ParamsT = ParamSpec("ParamsT")
    ReturnT_co = TypeVar("ReturnT_co", covariant=True)
