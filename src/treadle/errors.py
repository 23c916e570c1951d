"""The exceptions that treadle raises for mistakes of the caller. Expected failures are values: see `results`."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any


class TreadleError(Exception):
    """The base of every exception that treadle raises."""


class OptionError(TreadleError, TypeError):
    """An unknown option, or a value that an option does not accept."""


class ProviderError(TreadleError):
    """The provider reported an error in place of a response, or within one, with the status of a success.

    ``retryable`` says whether another attempt may succeed; None decides by the provider's code and type.
    """

    def __init__(
        self, message: str, *, code: Any = None, kind: Any = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.type = kind
        self.retryable = retryable


class UnpicklableError(TreadleError):
    """Takes the place of an exception that cannot be pickled, in a result that is.

    Args:
        name: the class of the exception.
        text: its text, and those of the exceptions that led to it.
        facts: its attributes that are numbers or texts, such as ``status_code``.
    """

    def __init__(self, name: str, text: str, facts: Mapping[str, Any]) -> None:
        super().__init__(name, text, facts)
        self.name, self.text, self.facts = name, text, facts

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def safe_str(value: object) -> str:
    """The ``str`` of a value; if that raises, a text that names its type."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a custom `__str__`, or an integer of too many digits
        return f"({type(value).__name__}, which cannot be shown)"


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and those that led to it, each once."""
    seen = set[int]()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__


def portable(error: BaseException) -> BaseException:
    """An exception that survives pickling: the exception itself if it does, else an `UnpicklableError`.

    Exceptions of SDKs have required arguments, connections and locks, with which pickle fails only when it reads.
    """
    import pickle  # noqa: PLC0415 - few results are pickled

    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301 - made here
            return error
    except Exception:  # noqa: BLE001, S110 - a class may raise anything
        pass
    texts = map(safe_str, itertools.islice(causes_of(error), _MAX_CAUSES))
    found = getattr(error, "__dict__", {})
    facts = {name: value for name, value in found.items() if isinstance(value, (str, int, float))}
    return UnpicklableError(type(error).__name__, "; caused by ".join(texts), facts)


_MAX_CAUSES = 8


class ToolDefinitionError(TreadleError, ValueError):
    """A tool is invalid: its name, schema, signature or an option, or nothing can run it."""


class PausedStateError(TreadleError, ValueError):
    """A paused state was changed, belongs to other tools, or was resumed already, or another run resumes it."""


class SessionError(TreadleError):
    """A session cannot be read or stored.

    Attributes:
        result: the result of the run whose turn could not be stored; None if no run has ended. Nothing of the turn
            is stored, so this is the only copy.
    """

    result: Any = None


class SessionConflictError(SessionError):
    """Another run, or another program, has changed a session since it was read.

    Args:
        session_id: the session.
        expected: the number of turns that it had.
        found: the number of turns that it has.
    """

    def __init__(self, session_id: str, expected: int, found: int) -> None:
        super().__init__(
            f"session {session_id!r} was changed meanwhile: expected {expected:,} turns, found {found:,}; "
            "load it again, and repeat the turn if it is still needed"
        )
        self.session_id, self.expected, self.found = session_id, expected, found


class JournalError(TreadleError):
    """A journal cannot be read or written, or does not fit the run. What was written before is not lost.

    Attributes:
        run_id: the id of the run; empty if the error is about the whole journal.
    """

    run_id: str = ""


class RunBusyError(JournalError):
    """Another process, or another task of this one, drives the run."""


class LeaseLostError(JournalError):
    """Another process has taken the run over, since this one did not renew its lease; nothing more is written."""


class OutcomeUnknownError(TreadleError):
    """Raised in steps in place of the outcome of a call that must not run twice and may have run.

    The process ended, or was lost, between the start of the call and its outcome.
    """


class ReplayError(JournalError):
    """A run asks for something else than what was recorded of it, since its loop has changed.

    Args:
        recorded: the recorded effect.
        found: what the run asks for in its place.
        iteration: the number of the iteration; 0 before the first one.

    Attributes:
        changes: what is different in the loop, as sentences.
    """

    def __init__(self, recorded: str, found: str, iteration: int) -> None:
        super().__init__(recorded, found, iteration)
        self.recorded, self.found, self.iteration = recorded, found, iteration
        self.changes: list[str] = []

    def __str__(self) -> str:
        where = f"in iteration {self.iteration}" if self.iteration else "before the first iteration"
        why = f"; changed since then: {'; '.join(self.changes)}" if self.changes else ""
        return (
            f"the run differs from what was recorded {where}: expected {self.recorded}, "
            f"got {self.found}{why}"
        )


class MissingExtraError(TreadleError, ImportError):
    """An optional dependency is needed and not installed.

    Args:
        what: the missing part, as a user would name it.
        command: the command that installs it.
    """

    def __init__(self, what: str, command: str) -> None:
        super().__init__(f"{what} is not installed; install it with: {command}")
        self.what, self.command = what, command


class Retry(TreadleError):  # noqa: N818 - it is a request, not a failure
    """Raised by a tool or an output validator: the model reads the text, and may try again.

    It is not a failure of the tool: it is not logged, and no circuit breaker counts it.

    Args:
        why: what the model should do differently.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)


def check_names(
    names: Iterable[str],
    known: Collection[str],
    what: str,
    hint_of: Callable[[str], str | None] | None = None,
) -> None:
    """Raise `OptionError` for an unknown name: ``what``, the name, and the hint for it or a similar name."""
    for name in names:
        if name not in known:
            hint = None if hint_of is None else hint_of(name)
            raise OptionError(
                f"{what} {name!r}{f'; {hint}' if hint else did_you_mean(name, known)}"
            )


@functools.cache
def migration_hints(package: str) -> Mapping[str, str]:
    """Where options of other frameworks belong, by name: the file ``migration_hints.txt`` of a package.

    Its rows are ``NAME NAME ... -> HINT``, with ``<name>`` for the name; an indented line continues a row.
    """
    from importlib.resources import files  # noqa: PLC0415 - most programs need no hint

    text = files(package).joinpath("migration_hints.txt").read_text(encoding="ascii")
    lines = text.replace("\n    ", " ").splitlines()
    rows = (line.partition(" -> ") for line in lines if not line.startswith("#"))
    return {name: hint.replace("<name>", name) for names, _, hint in rows for name in names.split()}


class InitSignature:
    """The ``__signature__`` of a class that takes ``*_``, or has a ``__new__``, only to refuse arguments."""

    def __get__(self, instance: object, owner: Any) -> Any:
        import inspect  # noqa: PLC0415 - only documentation needs it

        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature([one for one in parameters if one.name != "_"])


def one_of(values: Collection[object]) -> str:
    """Format the values that are accepted, for an error: ``'a', 'b' or 'c'``."""
    *others, last = map(repr, values)
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """The end of an error about an unknown name: ``"; did you mean 'x'?"``, or the known names."""
    names = [str(candidate) for candidate in known]
    close = closest(str(name), names)
    if close is not None:
        return f"; did you mean {close!r}?"
    return f"; known are {', '.join(names)}" if names else "; there are none"


MAX_COMPARED = 64
"""The length to which names are compared, in characters: a comparison takes a time quadratic in it."""
MAX_KNOWN = 1_000
"""The number of known names that are compared."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most similar to an unknown one; None if none is."""
    import difflib  # noqa: PLC0415 - most programs need no hint, and its import takes 2 ms

    by_start = {one[:MAX_COMPARED]: one for one in itertools.islice(known, MAX_KNOWN)}
    found = difflib.get_close_matches(name[:MAX_COMPARED], by_start, 1)
    return by_start[found[0]] if found else None
