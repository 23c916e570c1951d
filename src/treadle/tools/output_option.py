"""The option ``output`` of a loop, where it is more than a type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from treadle.checks import FUNCTIONS, check_fields, checked, choice, copied, number
from treadle.errors import OptionError
from treadle.fast_dataclass import fast_dataclass
from treadle.type_vars import OutputT_co

U = TypeVar("U")
V = TypeVar("V")
OutputMode = Literal["tool", "json"]
Validators = Callable[..., Any] | Sequence[Callable[..., Any]]


class _Options(TypedDict, total=False):
    """For type checkers: the fields of `Output` after the first."""

    mode: OutputMode
    max_retries: int
    validators: Validators


@fast_dataclass
class Output(Generic[OutputT_co]):
    """What a run has to end with: ``Loop(output=Output(Invoice, max_retries=1))``.

    Raises:
        OptionError: a value that a field does not accept.
    """

    form: Any
    """A pydantic model, dataclass, TypedDict, union, list, scalar or any type that pydantic validates; a JSON
    Schema; a tool, or the name of a tool of the loop, whose arguments are the output; or a list of alternatives.
    ``str`` among them allows plain text."""
    mode: OutputMode = checked("tool", choice("tool", "json"))
    """How the model gives the output: ``tool``, by the call of a tool, works with every model; ``json``, as text,
    uses the provider's ``response_format``."""
    max_retries: int = checked(2, number(0))
    """How often the model is asked again if it gives no valid output. In tool mode, the last request forces the
    call."""
    validators: Validators = checked((), FUNCTIONS)
    """Functions that check the output, sync or async: they take it, or the context and it. They return what to use
    instead, or None, and raise `Retry` with the reason if the model should correct it."""

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Output[U | V], form: tuple[type[U], type[V]], **options: Unpack[_Options]
        ) -> None: ...
        @overload
        def __init__(
            self: Output[U], form: type[U] | Sequence[type[U]], **options: Unpack[_Options]
        ) -> None: ...
        @overload
        def __init__(self: Output[Any], form: Any, **options: Unpack[_Options]) -> None: ...
        def __init__(self, *_: Any, **__: Any) -> None: ...

    def __post_init__(self) -> None:
        if self.form is None:
            raise OptionError("output: Output takes the type of the output, got None")
        check_fields(self)
        object.__setattr__(self, "form", copied(self.form))
        object.__setattr__(self, "validators", copied(self.validators))

    @property
    def all_validators(self) -> tuple[Callable[..., Any], ...]:
        """The validators as a tuple."""
        given = self.validators
        return (given,) if callable(given) else tuple(given)
