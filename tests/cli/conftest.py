"""A folder for the tools to work in, and one beside it that they must never show."""

import pytest

from treadle.cli.toolset import Workspace

FORBIDDEN = "behind the fence"  # what no tool may ever show


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    (folder / "secret.txt").write_text(FORBIDDEN + "\n")
    (folder / "deep" / "secret.txt").write_text(FORBIDDEN + "\n")
    return folder


@pytest.fixture
def root(tmp_path, outside):
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "docs").mkdir()
    (folder / "docs" / "guide.md").write_text("# Guide\nThe Shuttle flies.\n")
    (folder / "README.md").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def files(root):
    return Workspace(root)
