"""Each exception is a `TreadleError` and a standard exception."""

import difflib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle import PausedStateError, RunPausedError
from treadle.errors import (
    MAX_KNOWN,
    MissingExtraError,
    OptionError,
    ToolDefinitionError,
    TreadleError,
    closest,
)
from treadle.messages import NotAResponseError
from treadle.messages.json_text import MalformedJSONError
from treadle.pipeline import PipelineError, StageError
from treadle.pipeline.streams import NotOneItemError
from treadle.results import RunError
from treadle.run_state import IllegalMoveError
from treadle.tools import LockedError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OptionError, TypeError),
        (ToolDefinitionError, ValueError),
        (MissingExtraError, ImportError),
        (RunPausedError, RuntimeError),
        (PausedStateError, ValueError),
        (IllegalMoveError, RuntimeError),
        (LockedError, RuntimeError),
        (MalformedJSONError, ValueError),
        (NotAResponseError, TypeError),
        (RunError, Exception),
        (PipelineError, ValueError),
        (StageError, RuntimeError),
        (NotOneItemError, LookupError),
    ],
)
def test_an_error_is_a_treadle_error_and_a_standard_exception(error, kind):
    assert issubclass(error, TreadleError)
    assert issubclass(error, kind)


def test_a_missing_extra_names_the_command_that_installs_it():
    command = "pip install 'treadle[openai]'"
    error = MissingExtraError("the OpenAI client", command)
    assert str(error) == f"the OpenAI client is not installed; install it with: {command}"
    assert (error.what, error.command) == ("the OpenAI client", command)


@given(
    st.text(alphabet="abc_", max_size=12),
    st.lists(st.text(alphabet="abc_", max_size=12), max_size=5),
)
def test_the_closest_name_is_that_of_difflib(name, known):
    assert closest(name, known) == next(iter(difflib.get_close_matches(name, known, n=1)), None)


def test_of_many_names_some_are_compared_and_only_their_beginnings():
    read = itertools.count()
    assert closest("ab" * 1_000, (f"{'ab' * 1_000}{n}" for n in read)).startswith("abab")
    assert next(read) == MAX_KNOWN
