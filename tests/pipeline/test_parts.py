"""What a stream is ordered by: gates and turnstiles."""

from treadle.pipeline.streaming import Gate, Turnstile


class TestGate:
    def test_lets_in_so_many_and_then_the_next_in_line(self):
        gate = Gate(1)
        first, second, third = gate.enter(), gate.enter(), gate.enter()
        assert list(first) == []
        turns = [second.send(None).signal, third.send(None).signal]
        assert [turn.is_set for turn in turns] == [False, False]
        gate.leave()
        assert [turn.is_set for turn in turns] == [True, False]
        assert list(second) == []

    def test_gives_the_place_of_one_that_is_cancelled_to_the_next(self):
        gate = Gate(1)
        list(gate.enter())
        second, third = gate.enter(), gate.enter()
        second.send(None)
        turn = third.send(None).signal
        gate.leave()
        second.close()  # it had the place, and never came to use it
        assert turn.is_set

    def test_forgets_one_that_is_cancelled_in_line(self):
        gate = Gate(1)
        list(gate.enter())
        second, third = gate.enter(), gate.enter()
        second.send(None)
        turn = third.send(None).signal
        second.close()
        gate.leave()
        assert turn.is_set


class TestTurnstile:
    def test_lets_pass_in_order(self):
        turnstile = Turnstile(once=True)
        later = turnstile.take(1)
        turn = later.send(None).signal
        assert list(turnstile.take(0)) == []
        assert turn.is_set
        assert list(later) == []

    def test_goes_on_past_one_that_will_never_come(self):
        turnstile = Turnstile(once=True)
        later = turnstile.take(2)
        turn = later.send(None).signal
        turnstile.passed(1)
        assert not turn.is_set
        turnstile.passed(0)
        assert turn.is_set

    def test_keeps_no_memory_of_those_long_past(self):
        turnstile = Turnstile(once=True)
        for number in range(100):
            list(turnstile.take(number))
            turnstile.passed(number)
        assert not turnstile._passed
