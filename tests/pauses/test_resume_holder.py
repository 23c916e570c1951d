"""A text that identifies a process among all machines that share a pause."""

import pytest

from treadle.pauses.resume_holder import ResumeHolder


def test_it_is_read_as_it_was_written():
    here = ResumeHolder.here()
    assert ResumeHolder.parse(str(here)) == here
    assert here.is_running() is True
    assert ResumeHolder.here() != here


@pytest.mark.parametrize("text", ["", "a", "h-1-x-2-3", "1-2-3", "h-s-1-t"])
def test_another_text_is_none(text):
    assert ResumeHolder.parse(text) is None


def test_a_process_on_another_machine_is_unknown():
    here = ResumeHolder.here()
    other = ResumeHolder("elsewhere", here.space, here.pid, here.start, "x")
    assert other.is_running() is None


def test_an_earlier_process_with_the_same_id_has_ended():
    """As in a container whose program always has the id 1."""
    here = ResumeHolder.here()
    assert ResumeHolder(here.host, here.space, here.pid, "1", "x").is_running() is False


def test_a_process_id_that_no_process_has_has_ended():
    here = ResumeHolder.here()
    assert ResumeHolder(here.host, here.space, 2**22 + 1, "1", "x").is_running() is False
