"""The parameters of a wrapper: those of the function that it wraps, without those that the wrapper fills."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any

_VARIABLE = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """The signature with which a callable can be called.

    `inspect.signature` describes the innermost function of `functools.wraps`. A wrapper that names its parameters
    is called with these. One that takes ``*args`` and ``**kwargs`` is called with the parameters of the function
    that it wraps, without those that its source fills: ``fn(db, *args, **kwargs)``, ``kwargs["db"] = db``.

    Raises:
        TypeError, ValueError: it has no signature that Python can read.
    """
    wrapped = getattr(fn, "__wrapped__", None)
    if not isinstance(fn, FunctionType) or wrapped is None or hasattr(fn, "__signature__"):
        return inspect.signature(fn)
    own = inspect.signature(fn, follow_wrapped=False)
    named = [one for one in own.parameters.values() if one.kind not in _VARIABLE]
    if len(named) == len(own.parameters):
        return own
    inner = list(signature_of(wrapped).parameters.values())
    leading, filled = _filled_by(fn, wrapped)
    rest = [one for one in inner[leading:] if one.name not in filled]
    taken = {one.name for one in rest}
    added = [one for one in named if one.name not in taken]
    positional = [
        one for one in added if one.kind is not one.KEYWORD_ONLY and one.default is one.empty
    ]
    others = [one.replace(kind=one.KEYWORD_ONLY) for one in added if one not in positional]
    last = [one for one in rest if one.kind is one.VAR_KEYWORD]
    rest = [one for one in rest if one.kind is not one.VAR_KEYWORD]
    return inspect.Signature([*positional, *rest, *others, *last], __validate_parameters__=False)


def filled_by_wrappers(fn: Any) -> set[str]:
    """The names of the arguments that the wrappers of a function fill."""
    filled: set[str] = set()
    wrapped: Any = getattr(fn, "__wrapped__", None)
    while isinstance(fn, FunctionType) and wrapped is not None:
        filled |= _filled_by(fn, wrapped)[1]
        fn, wrapped = wrapped, getattr(wrapped, "__wrapped__", None)
    return filled


def _filled_by(fn: FunctionType, wrapped: Any) -> tuple[int, set[str]]:
    """How many positional arguments a wrapper adds before its own, and the names that it passes itself."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn.__code__)))
    except (OSError, TypeError, SyntaxError):  # such as a function that `exec` made
        return 0, set()
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
    names = {name for name, cell in cells if _content_of(cell) is wrapped}
    flags = list(inspect.signature(fn, follow_wrapped=False).parameters.values())
    args = next((p.name for p in flags if p.kind is p.VAR_POSITIONAL), "")
    kwargs = next((p.name for p in flags if p.kind is p.VAR_KEYWORD), "")
    leading, filled = 0, set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=given, keywords=keywords) if name in names:
                stars = [ast.unparse(argument) == f"*{args}" for argument in given]
                leading = max(leading, stars.index(True) if True in stars else len(stars))
                filled |= {keyword.arg for keyword in keywords if keyword.arg is not None}
            case ast.Subscript(
                value=ast.Name(id=name), slice=ast.Constant(value=str() as key), ctx=ast.Store()
            ) if name == kwargs:  # kwargs["db"] = db
                filled.add(key)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="setdefault"),
                args=[ast.Constant(value=str() as key), *_],
            ) if name == kwargs:
                filled.add(key)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="update"), keywords=keywords
            ) if name == kwargs:
                filled |= {keyword.arg for keyword in keywords if keyword.arg is not None}
            case _:
                pass
    return leading, filled


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
