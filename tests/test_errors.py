"""Each exception is a `TreadleError` and a standard exception."""

import pytest

from treadle import PausedStateError, RunPausedError
from treadle.errors import MissingExtraError, OptionError, ToolDefinitionError, TreadleError
from treadle.messages import MalformedJSONError, NotAResponseError
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
    ],
)
def test_an_error_is_a_treadle_error_and_a_standard_exception(error, kind):
    assert issubclass(error, TreadleError)
    assert issubclass(error, kind)


def test_a_missing_extra_names_the_command_that_installs_it():
    error = MissingExtraError("the OpenAI client", "pip install 'treadle[openai]'")
    assert str(error) == (
        "the OpenAI client is not installed; install it with: pip install 'treadle[openai]'"
    )
    assert (error.what, error.command) == ("the OpenAI client", "pip install 'treadle[openai]'")
