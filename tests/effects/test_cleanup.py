"""Closing steps whose effects are no longer performed."""

from treadle.effects import NOW, Emit, close_steps


class TestCloseSteps:
    def test_closes_steps_and_ignores_effects_they_still_yield(self):
        seen = []

        def steps():
            try:
                yield NOW
            finally:
                yield Emit("lost")
                yield Emit("lost too")
                seen.append("closed")

        started = steps()
        started.send(None)
        close_steps(started)
        assert seen == []
        assert started.gi_frame is None

    def test_gives_up_on_steps_that_never_end(self):
        def steps():
            while True:
                try:
                    yield NOW
                except GeneratorExit:
                    if is_over:
                        raise

        is_over = False
        started = steps()
        started.send(None)
        close_steps(started)
        is_over = True
        started.close()

    def test_logs_exceptions_of_cleanup_code(self, caplog):
        """A RuntimeError of the cleanup code does not mean that the steps have yielded."""
        for error in (RuntimeError("in cleanup"), ValueError("in cleanup")):
            caplog.clear()
            started = self.failing(error)
            started.send(None)
            close_steps(started)
            assert started.gi_frame is None
            assert [record.exc_info[1] for record in caplog.records] == [error]

    @staticmethod
    def failing(error):
        try:
            yield NOW
        finally:
            raise error
