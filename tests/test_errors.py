"""The exceptions: each is one of treadle's and one of Python's kind too."""

import pytest

from treadle import PausedStateError, RunPausedError
from treadle.errors import MissingExtraError, OptionError, ToolDefinitionError, TreadleError
from treadle.messages import MalformedJSONError, NotAResponseError
from treadle.results import Reason
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
        (Reason, Exception),
    ],
)
def test_an_error_can_be_caught_as_treadles_and_as_pythons(error, kind):
    assert issubclass(error, TreadleError)
    assert issubclass(error, kind)


def test_a_missing_extra_says_what_to_install():
    error = MissingExtraError("the OpenAI client", "pip install 'treadle[openai]'")
    assert str(error) == (
        "the OpenAI client is not installed; install it with: pip install 'treadle[openai]'"
    )
    assert (error.what, error.command) == ("the OpenAI client", "pip install 'treadle[openai]'")
