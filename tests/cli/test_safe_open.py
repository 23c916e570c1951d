"""No tool reads beyond its folder, whatever the path, and each says what to try instead."""

import contextlib
import os
import socket
import threading
import time
from pathlib import Path, PurePosixPath

import pytest

from treadle.cli import safe_open
from treadle.cli.builtin_tools import Workspace

FORBIDDEN = "behind the fence"  # what conftest writes outside

TOOLS = {
    "list_files": lambda files, path: files.list_files(path),
    "read_file": lambda files, path: files.read_file(path),
    "search_text": lambda files, path: files.search_text("s", path),
}


@pytest.fixture(params=TOOLS)
def use(request, files):
    """Each tool on files in turn, as a function of a path."""
    return lambda path: TOOLS[request.param](files, path)


def refused(use, path, tmp_path):
    """The error of a tool for a path, of a kind that is expected, which leaks nothing."""
    with pytest.raises((OSError, ValueError)) as caught:
        use(path)
    message = str(caught.value)
    assert FORBIDDEN not in message
    assert str(tmp_path) not in message.replace(f"'{path}'", "")
    assert "Errno" not in message
    assert "\n" not in message
    assert len(message) < 400
    message.encode()
    return message


@pytest.mark.parametrize(
    "path",
    ["..", "../", "../outside", "../outside/secret.txt", "docs/../..",
     "docs/../../outside/secret.txt", "./../outside", "docs/./.././../outside",
     "/", "/etc", "/etc/passwd", "//etc/passwd",
     "../root/README.md", "../nowhere/../root/README.md"],
)  # fmt: skip
def test_path_out_of_the_folder_is_refused_as_text(use, path, tmp_path):
    message = refused(use, path, tmp_path)
    assert "is outside the working folder; give a path relative to it" in message


def test_absolute_path_is_refused_even_to_the_inside(use, root, tmp_path):
    assert "give a path relative" in refused(use, str(root / "README.md"), tmp_path)
    assert "give a path relative" in refused(use, str(root / "docs"), tmp_path)


@pytest.mark.parametrize("target", ["secret.txt", "deep", "deep/secret.txt", ".", "missing"])
@pytest.mark.parametrize("relative", [True, False])
def test_link_to_the_outside_is_refused(use, root, outside, tmp_path, target, relative):
    """Also where it leads nowhere: whether something exists outside cannot be told."""
    (root / "link").symlink_to(Path("../outside", target) if relative else outside / target)
    assert refused(use, "link", tmp_path) == "'link' leads outside the working folder"


@pytest.mark.parametrize(
    "path", ["link/secret.txt", "link/deep", "link/deep/secret.txt", "link/none"]
)
def test_link_in_the_middle_of_a_path_is_refused(use, root, outside, tmp_path, path):
    (root / "link").symlink_to(outside)
    assert "leads outside the working folder" in refused(use, path, tmp_path)


def test_chain_of_links_to_the_outside_is_refused(use, root, tmp_path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("docs/c")
    (root / "docs" / "c").symlink_to("../../outside/secret.txt")
    assert "leads outside the working folder" in refused(use, "a", tmp_path)


def test_dots_after_a_link_are_taken_as_text(files, root, outside):
    """`link/..` is the folder of the link, not that of what it leads to."""
    (root / "link").symlink_to(outside / "deep")
    assert files.read_file("link/../README.md") == "one\ntwo\nthree"
    with pytest.raises(FileNotFoundError):
        files.read_file("link/../secret.txt")


def test_sibling_that_begins_with_the_name_of_the_root_is_outside(use, root, tmp_path):
    (tmp_path / "root2").mkdir()
    (tmp_path / "root2" / "secret.txt").write_text(FORBIDDEN)
    (root / "link").symlink_to(tmp_path / "root2" / "secret.txt")
    assert "leads outside" in refused(use, "link", tmp_path)


def test_links_inside_the_folder_work(files, root):
    (root / "readme").symlink_to("README.md")
    (root / "manual").symlink_to(root / "docs")
    (root / "docs" / "up").symlink_to("..")
    assert files.read_file("readme") == "one\ntwo\nthree"
    assert files.read_file("manual/guide.md") == "# Guide\nThe Shuttle flies."
    assert files.read_file("docs/up/README.md") == "one\ntwo\nthree"
    assert files.list_files("manual") == "guide.md\nup/"
    assert files.search_text("shuttle", "manual").startswith("docs/guide.md:2: The Shuttle flies.")


def test_root_may_itself_be_a_link(root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert Workspace(tmp_path / "alias").read_file("README.md") == "one\ntwo\nthree"


def test_link_loop_is_an_error(use, root, tmp_path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "self").symlink_to("self")
    assert "neither a file nor a folder" in refused(use, "a", tmp_path)
    assert "neither a file nor a folder" in refused(use, "self/x", tmp_path)


def test_link_that_appears_after_the_check_is_not_followed(root):
    """The last stand: opening refuses any link, wherever it leads."""
    (root / "link").symlink_to("README.md")
    fd = os.open(root, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="neither"):
            safe_open.open_child(fd, "link", PurePosixPath("link"), wants_folder=False)
    finally:
        os.close(fd)


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_nothing_is_read_outside_while_links_are_swapped_in(files, root, outside, swapped):
    """A race, both ways: between file and link, and between a folder on the way and a link."""
    (root / "way").mkdir()
    (root / "way" / "secret.txt").write_text("harmless")
    stop = threading.Event()

    way, parked, coming = root / "way", root / "parked", root / "way" / "coming"

    def swap_folder():
        while not stop.is_set():
            way.rename(parked)
            way.symlink_to(outside)
            way.unlink()
            parked.rename(way)

    def swap_file():
        while not stop.is_set():
            coming.symlink_to(outside / "secret.txt")
            coming.replace(way / "secret.txt")
            coming.write_text("harmless")
            coming.replace(way / "secret.txt")

    thread = threading.Thread(target=swap_folder if swapped == "folder" else swap_file)
    thread.start()
    try:
        end = time.monotonic() + 1
        read = []
        # On a busy machine it may take longer until the file is met as it was.
        while time.monotonic() < end or ("harmless" not in read and time.monotonic() < end + 30):
            try:
                read.append(files.read_file("way/secret.txt"))
                read.append(files.search_text(FORBIDDEN, "way"))
            except OSError as error:
                read.append(str(error))
    finally:
        stop.set()
        thread.join()
    assert "harmless" in read
    assert not [
        text for text in read if FORBIDDEN in text.replace(f"no line contains '{FORBIDDEN}'", "")
    ]


@pytest.mark.parametrize("path", ["a\0b", "README.md\0", "\0", "\ud800", "docs/\udfff", "x" * 5000])
def test_impossible_path_is_an_error(use, path, tmp_path):
    assert "is not a valid path" in refused(use, path, tmp_path)


def test_name_too_long_for_the_system_is_an_error(use, tmp_path):
    assert "cannot be opened: File name too long" in refused(use, "x" * 300, tmp_path)


def test_error_shows_control_characters_escaped(use, tmp_path):
    message = refused(use, "a\x1b[2Jb\nc\u2028", tmp_path)
    assert r"'a\x1b[2Jb\nc\u2028'" in message


def test_special_files_are_refused_without_blocking(root, files):
    """Opening a FIFO without a writer blocks for ever unless it is avoided."""
    os.mkfifo(root / "fifo")
    results = []

    def use_all():
        results.append(files.list_files())
        results.append(files.search_text("nowhere"))
        for tool in TOOLS.values():
            with pytest.raises(OSError) as caught:
                tool(files, "fifo")
            results.append(str(caught.value))

    thread = threading.Thread(target=use_all, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert results[0] == "README.md\ndocs/\nfifo (cannot be read)"
    assert "(1 not searched: links, special, unreadable or very large)" in results[1]
    assert all("'fifo' is neither a file nor a folder" in text for text in results[2:])


def test_socket_and_device_are_refused(root, use, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        assert "neither a file nor a folder" in refused(use, "sock", tmp_path)
    for tool in TOOLS.values():
        with pytest.raises(OSError, match="'null' is neither a file nor a folder"):
            tool(Workspace("/dev"), "null")


def opened_below(folder):
    """The open files and folders of this process below a folder; other tests may have others open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(descriptor.readlink())
    return [one for one in found if one.is_relative_to(folder)]


def test_no_file_descriptor_is_left_open(files, root, outside, tmp_path):
    (root / "link").symlink_to(outside)
    (root / "loop").symlink_to("loop")
    with (root / "README.md").open():
        assert len(opened_below(tmp_path)) == 1
    for tool in TOOLS.values():
        for path in (".", "docs", "docs/guide.md", "README.md", "none/x", "link", "loop"):
            with contextlib.suppress(OSError):
                tool(files, path)
    assert opened_below(tmp_path) == []


def test_missing_root_is_an_error_that_does_not_name_it(tmp_path):
    for tool in TOOLS.values():
        with pytest.raises(OSError, match=r"^the working folder cannot be opened: No such file"):
            tool(Workspace(tmp_path / "gone"), ".")


def test_relative_root_follows_the_current_folder(root, outside, monkeypatch):
    files = Workspace()
    monkeypatch.chdir(root)
    assert files.list_files() == "README.md\ndocs/"
    monkeypatch.chdir(outside)
    assert files.list_files() == "deep/\nsecret.txt"


def test_workspace_cannot_be_pointed_elsewhere(files):
    with pytest.raises(AttributeError):
        files.root = "/"


# --- errors that help


@pytest.mark.parametrize(
    ("tool", "path", "message"),
    [
        ("list_files", "doc", "no such folder 'doc'; did you mean 'docs'?"),
        ("list_files", "z", "no such folder 'z'; list_files with folder='.' shows what there is"),
        ("read_file", "READM.md", "no such file 'READM.md'; did you mean 'README.md'?"),
        ("read_file", "docs/giud.md", "no such file 'docs/giud.md'; did you mean 'docs/guide.md'?"),
        ("read_file", "doc/guide.md", "no such folder 'doc'; did you mean 'docs'?"),
        ("read_file", "docs/x",
         "no such file 'docs/x'; list_files with folder='docs' shows what there is"),
        ("read_file", "docs", "'docs' is a folder; use list_files"),
        ("read_file", ".", "'.' is a folder; use list_files"),
        ("read_file", "", "'' is a folder; use list_files"),
        ("list_files", "README.md", "'README.md' is a file, not a folder; use read_file"),
        ("search_text", "README.md", "'README.md' is a file, not a folder; use read_file"),
        ("read_file", "README.md/x", "'README.md' is a file, not a folder; use read_file"),
    ],
)  # fmt: skip
def test_error_says_what_to_do(files, tool, path, message):
    with pytest.raises(OSError) as caught:
        TOOLS[tool](files, path)
    assert str(caught.value) == message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_and_folder(files, root):
    (root / "README.md").chmod(0)
    (root / "docs").chmod(0)
    try:
        with pytest.raises(OSError, match=r"^'README.md' cannot be opened: Permission denied$"):
            files.read_file("README.md")
        with pytest.raises(OSError, match=r"^'docs' cannot be opened: Permission denied$"):
            files.list_files("docs")
        assert "(2 not searched" in files.search_text("shuttle")
    finally:
        (root / "docs").chmod(0o755)
