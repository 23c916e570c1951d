"""The signature of a callable is read once for all callables that share it, and only for these."""

import functools
import inspect
import types

import pytest

from treadle.model.signature import signature_of


def plain(messages, temperature=None):
    return "x"


def closure(*, with_options):
    def fn(messages, seed=None):
        return "x"

    def fn_with_options(messages, **options):
        return "x"

    return fn_with_options if with_options else fn


class Backend:
    def __call__(self, messages, seed=None):
        return "x"

    def method(self, messages, top_p=None):
        return "x"


class Derived(Backend):
    pass


class Static:
    __call__ = staticmethod(vars(Backend)["__call__"])


class Declared(Backend):
    __signature__ = inspect.signature(plain)


def wrapper(fn):
    @functools.wraps(fn)
    def wrapped(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapped


CALLABLES = {
    "function": lambda: plain,
    "closure": lambda: closure(with_options=False),
    "another closure": lambda: closure(with_options=True),
    "object": Backend,
    "object of a derived class": Derived,
    "object with a static call": Static,
    "object with a signature": Declared,
    "bound method": lambda: Backend().method,
    "function of a class": lambda: Backend.method,
    "partial": lambda: functools.partial(plain, temperature=1),
    "partial with a position": lambda: functools.partial(plain, []),
    "partial of an object": lambda: functools.partial(Backend(), seed=1),
    "wrapper": lambda: wrapper(plain),
    "wrapper of another": lambda: wrapper(Backend.method),
    "other defaults": lambda: types.FunctionType(plain.__code__, {}, "plain", ()),
    "builtin": lambda: print,
    "class": lambda: Backend,
}


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("made", CALLABLES.values(), ids=CALLABLES.keys())
def test_it_is_that_of_inspect(made, turn):
    found, given = signature_of(made()), inspect.signature(made()).parameters.values()
    named = [one for one in given if one.kind in {one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD}]
    positional = [one for one in named if one.kind is one.POSITIONAL_OR_KEYWORD]
    assert found.known == {one.name for one in named} - {one.name for one in positional[:1]}
    assert found.second == (positional[1] if len(positional) > 1 else None)
    assert found.takes_any is any(one.kind is one.VAR_KEYWORD for one in given)


@pytest.mark.parametrize(
    "name", ["function", "closure", "object", "bound method", "partial of an object"]
)
def test_it_is_read_once(name):
    made = CALLABLES[name]
    assert signature_of(made()) is signature_of(made())
