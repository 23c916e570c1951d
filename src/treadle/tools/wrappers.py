"""The parameters of a wrapper: those of the function that it wraps, without those that the wrapper fills."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
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
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            stars = [_is_star_of(argument, args) for argument in node.args]
            leading = max(leading, stars.index(True) if True in stars else len(stars))
            filled |= {keyword.arg for keyword in node.keywords if keyword.arg is not None}
        filled |= set(_keys_set(node, kwargs))
    return leading, filled


def _content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _is_star_of(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Starred) and isinstance(node.value, ast.Name) and node.value.id == name
    )


def _keys_set(node: ast.AST, kwargs: str) -> Iterator[str]:
    """The keys that code sets in the keyword arguments, as ``kwargs["db"] = db`` and ``kwargs.update(db=db)``."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = (one for one in node.targets if isinstance(one, ast.Subscript))
        found += (one.slice for one in targets if _is_name(one.value, kwargs))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if _is_name(node.func.value, kwargs) and node.func.attr == "setdefault":
            found += node.args[:1]
        elif _is_name(node.func.value, kwargs) and node.func.attr == "update":
            yield from (keyword.arg for keyword in node.keywords if keyword.arg is not None)
    for key in found:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
