"""A program that has used Temporal's SDK ends when the threads of the SDK have left the interpreter."""

import sys

from tests.programs import run_program

PROGRAM = """
import _thread
import sys
import time

import treadle.durable.temporal

def hand_over():
    begun.release()
    time.sleep(0.3)  # until the program has ended
    sys.stdout.write("handed over")
    sys.stdout.flush()

begun = _thread.allocate_lock()
begun.acquire()
_thread.start_new_thread(hand_over, ())  # Python does not count it among its threads, as those of the SDK
begun.acquire()
"""


def test_a_program_does_not_end_while_a_thread_of_the_sdk_executes_code_of_python():
    """An interpreter that ends meanwhile aborts, since such a thread cannot give it up any more."""
    done = run_program([sys.executable, "-c", PROGRAM])
    assert (done.returncode, done.stdout, done.stderr) == (0, "handed over", "")
