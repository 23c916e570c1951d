"""Every example runs as it is, without a network or a warning, and prints what `examples/expected` has.

After a change that is meant: ``python examples/NN_name.py > examples/expected/NN_name.txt``, and read it.
"""

import os
import sys
from pathlib import Path

import pytest
from tests.programs import run_program

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
SECONDS = 60
REPLAYING = (Path(__file__).parent / "replaying.py").read_text(encoding="utf-8")
NOT_RECORDED = {"06_pipeline_alone.py", "26_survive_a_crash.py", "27_temporal.py"}
"""Those without a run of a loop, and those whose log is elsewhere: in a journal, in the history of a workflow."""

# What would make sockets fail in the example, so that a network is not needed without being noticed.
OFFLINE = """
import socket
def refused(*args, **kwargs):
    raise OSError("an example has no network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refused
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_prints_what_is_expected_of_it(script, tmp_path):
    """In a separate process and folder, with warnings as errors and without a network."""
    done = run_example(script, tmp_path, OFFLINE)
    assert (done.returncode, done.stderr) == (0, "")
    expected = EXAMPLES / "expected" / f"{Path(script).stem}.txt"
    assert done.stdout == expected.read_text(encoding="utf-8")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_run_of_an_example_is_replayed_from_its_recording(script, tmp_path):
    """The same results and events, without one call of a model or a tool."""
    replays = tmp_path / "replays.txt"
    done = run_example(script, tmp_path, f"{OFFLINE}\n{REPLAYING}", REPLAYS=str(replays))
    assert (done.returncode, done.stderr) == (0, "")
    lines = replays.read_text(encoding="utf-8").splitlines()
    assert lines == ["same"] * len(lines)
    assert bool(lines) is (script not in NOT_RECORDED)


def run_example(script, folder, customized, **variables):
    """Run an example in a process that runs some code first."""
    (folder / "sitecustomize.py").write_text(customized)
    paths = [str(folder), *sys.path]
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("OTEL_")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUTF8": "1"}
    return run_program(
        [sys.executable, "-W", "error", str(EXAMPLES / script)],
        encoding="utf-8",
        cwd=folder,
        env=environment | variables,
        timeout=SECONDS,
    )


def test_nothing_is_expected_of_examples_that_are_not_there():
    """Each file of expected output belongs to an example, and there are examples at all."""
    expected = {path.stem for path in (EXAMPLES / "expected").iterdir()}
    assert expected == {Path(script).stem for script in SCRIPTS} != set()


def test_no_two_examples_have_the_same_number():
    """Their numbers are an order to read them in."""
    numbers = [int(script[:2]) for script in SCRIPTS]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_is_short_and_says_what_it_shows(script):
    """At most 80 lines, of which the first are a docstring."""
    source = (EXAMPLES / script).read_text(encoding="utf-8")
    assert source.startswith('"""')
    assert len(source.splitlines()) <= 80
