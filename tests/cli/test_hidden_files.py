"""The tools on files neither list nor read what is hidden: `.env` and `.git` hold secrets."""

import os
import sys

import pytest

from treadle.cli.builtin_tools import Workspace

HIDDEN = "token-in-a-hidden-file"
TOOLS = {
    "list_files": lambda files, path: files.list_files(path),
    "read_file": lambda files, path: files.read_file(path),
    "search_text": lambda files, path: files.search_text("token", path),
}


@pytest.fixture
def root(root):
    (root / ".env").write_text(HIDDEN)
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text(HIDDEN)
    (root / "docs" / ".secrets").mkdir()
    (root / "docs" / ".secrets" / "key.txt").write_text(HIDDEN)
    (root / "to-file").symlink_to(".env")
    (root / "to-folder").symlink_to(".git")
    (root / "to-link").symlink_to("to-file")
    (root / "docs" / "up").symlink_to("../.git/config")
    return root


@pytest.fixture(params=TOOLS)
def use(request, files):
    return lambda path: TOOLS[request.param](files, path)


@pytest.mark.parametrize(
    "path",
    [".env", "./.env", "docs/../.env", "docs//..//.env", ".env/", ".git", ".git/config",
     ".git/hooks/..", "docs/.secrets", "docs/.secrets/key.txt", "docs/.secrets/../guide.md/../.secrets/key.txt"],
)  # fmt: skip
def test_a_hidden_path_is_refused(use, path):
    with pytest.raises(PermissionError, match="is hidden, which cannot be read") as caught:
        use(path)
    assert HIDDEN not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    ["to-file", "to-link", "to-folder", "to-folder/config", "to-folder/hooks", "docs/up"],
)
def test_a_link_to_something_hidden_is_refused(use, path):
    with pytest.raises(PermissionError, match="leads to a hidden file or folder"):
        use(path)


def test_whether_a_hidden_file_exists_cannot_be_told(use):
    errors = []
    for name in (".env", ".none"):
        with pytest.raises(PermissionError) as caught:
            use(name)
        errors.append(str(caught.value).replace(name, ""))
    assert errors[0] == errors[1]


def test_a_hidden_name_is_not_suggested(files):
    with pytest.raises(FileNotFoundError) as caught:
        files.read_file("env")
    assert ".env" not in str(caught.value)


def test_a_link_to_something_hidden_is_listed_as_unreadable(files):
    lines = files.list_files().splitlines()
    assert {"to-file (cannot be read)", "to-folder (cannot be read)"} <= {*lines}


def test_a_working_folder_that_is_hidden_itself_can_be_read(root):
    assert Workspace(root / ".git").read_file("config") == HIDDEN


def test_a_long_chain_of_links_is_followed_or_is_an_error(root, use):
    """Python follows any number of links since 3.13, and does so recursively before."""

    def outcome(path):
        try:
            return use(path)
        except OSError as error:
            return str(error)

    before = "docs"
    for number in range(1500):
        (root / f"link{number}").symlink_to(before)
        before = f"link{number}"
    error = f"{before!r} cannot be opened: {os.strerror(40)}"
    assert outcome(before) == (outcome("docs") if sys.version_info >= (3, 13) else error)
