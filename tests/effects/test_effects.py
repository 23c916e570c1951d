"""Effects as plain data, the signal, and how a callable has to be called."""

import functools
import threading
from unittest.mock import AsyncMock, Mock

import pytest

from treadle.effects import Call, Mode, Signal, call_mode, is_awaitable


def plain():
    pass


async def coroutine():
    pass


def generator():
    yield


async def async_generator():
    yield


class Plain:
    def __call__(self):
        pass

    async def method(self):
        pass


class Async:
    async def __call__(self):
        pass


class Static:
    @staticmethod
    async def __call__():
        pass


@pytest.mark.parametrize(
    ("fn", "mode"),
    [
        (plain, Mode.THREAD),
        (len, Mode.THREAD),
        (lambda: None, Mode.THREAD),
        (Mock(), Mode.THREAD),
        (Plain(), Mode.THREAD),
        (Plain, Mode.THREAD),
        (Async, Mode.THREAD),
        (functools.partial(plain), Mode.THREAD),
        (coroutine, Mode.ASYNC),
        (AsyncMock(), Mode.ASYNC),
        (Async(), Mode.ASYNC),
        (Static(), Mode.ASYNC),
        (Plain().method, Mode.ASYNC),
        (functools.partial(functools.partial(coroutine)), Mode.ASYNC),
        (functools.partial(Async()), Mode.ASYNC),
        (generator, Mode.INLINE),
        (async_generator, Mode.INLINE),
    ],
)
def test_call_mode_is_how_a_callable_runs_without_blocking(fn, mode):
    assert call_mode(fn) is mode


def test_is_awaitable_recognizes_awaitables():
    made = coroutine()
    assert is_awaitable(made)
    made.close()
    assert not is_awaitable(coroutine)
    assert not is_awaitable(Mock())


def test_a_call_shows_its_label_or_its_function():
    assert repr(Call(plain, label="tool", key="a")) == "Call('tool', key='a')"
    assert repr(Call(plain)) == "Call('plain', key='')"


def test_an_effect_cannot_be_subclassed():
    with pytest.raises(TypeError, match=r"^Mine: an effect cannot be subclassed; middleware may"):

        class Mine(Call): ...


class TestSignal:
    def test_calls_each_subscriber_once_in_order_of_subscription(self):
        signal, seen = Signal(), []
        for number in range(3):
            signal.subscribe(functools.partial(seen.append, number))
        assert not signal.is_set
        signal.set()
        signal.set()
        assert signal.is_set
        assert seen == [0, 1, 2]

    def test_calls_a_late_subscriber_at_once(self):
        signal, seen = Signal(), []
        signal.set()
        signal.subscribe(lambda: seen.append(1))
        assert seen == [1]

    def test_a_subscription_can_be_removed(self):
        signal, seen = Signal(), []
        ticket = signal.subscribe(lambda: seen.append(1))
        signal.subscribe(lambda: seen.append(2))
        signal.unsubscribe(ticket)
        signal.unsubscribe(ticket)
        signal.set()
        assert seen == [2]

    def test_may_be_set_and_subscribed_to_by_a_subscriber(self):
        signal, seen = Signal(), []

        def again():
            signal.set()
            signal.subscribe(lambda: seen.append("late"))

        signal.subscribe(again)
        signal.subscribe(lambda: seen.append("second"))
        signal.set()
        assert sorted(seen) == ["late", "second"]

    def test_notifies_each_subscriber_once_when_threads_race(self):
        for _ in range(50):
            assert self.notified_in_a_race(subscribers=3, setters=2) == 60

    @staticmethod
    def notified_in_a_race(subscribers, setters):
        signal, received = Signal(), []
        start = threading.Barrier(subscribers + setters)

        def subscribe():
            start.wait()
            for number in range(20):
                signal.subscribe(functools.partial(received.append, number))

        def raise_it():
            start.wait()
            signal.set()

        threads = [threading.Thread(target=subscribe) for _ in range(subscribers)]
        threads += [threading.Thread(target=raise_it) for _ in range(setters)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(received)
