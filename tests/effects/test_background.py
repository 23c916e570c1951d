"""The background loops at the exit of the interpreter."""

import time


def test_generators_are_closed_at_the_exit(run_python):
    """As `asyncio.run` does at its end: they close what lives as long as a loop, such as connections."""
    code = """
        from treadle.effects import Call, Mode, drive_sync

        async def resource():
            try:
                yield
            finally:
                print("closed")

        opened = resource()

        async def use():
            await anext(opened)

        def steps():
            yield Call(use, mode=Mode.ASYNC)

        drive_sync(steps())
    """
    run_python(code, "closed\n")


def test_a_generator_that_still_runs_is_no_noise_at_the_exit(run_python):
    """It belongs to a call that was abandoned, and cannot be closed."""
    code = """
        import asyncio, threading
        from treadle.effects.background import BackgroundCall

        has_begun = threading.Event()

        async def pieces():
            has_begun.set()
            await asyncio.sleep(60)
            yield

        async def use():
            async for _ in pieces():
                pass

        BackgroundCall(use()).start()
        has_begun.wait()
    """
    run_python(code, "")


def test_a_blocked_loop_does_not_keep_the_process(run_python):
    code = """
        import threading, time
        from treadle.effects.background import BackgroundCall

        has_begun = threading.Event()

        async def block():
            has_begun.set()
            time.sleep(60)

        BackgroundCall(block()).start()
        has_begun.wait()
    """
    started = time.monotonic()
    run_python(code, "")
    assert time.monotonic() - started < 20
