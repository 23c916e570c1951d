"""The public names of the package, and what importing it imports."""

import sys

from tests.programs import run_program

import treadle

LATE = {"asyncio", "difflib", "hashlib", "hmac", "random", "pathlib", "secrets", "sqlite3"}
"""Modules of the standard library that take long to import."""

IMPORTED = """
import sys
before = set(sys.modules)
import treadle
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_importing_it_imports_no_third_party_package_and_no_slow_module():
    """They are imported when they are first used: asyncio and anyio by the first run."""
    command = [sys.executable, "-c", IMPORTED]
    done = run_program(command, check=True)
    imported = set(done.stdout.split())
    assert imported - sys.stdlib_module_names == {"treadle"}
    assert not imported & LATE


def test_it_has_a_version():
    assert treadle.__version__.count(".") == 2
