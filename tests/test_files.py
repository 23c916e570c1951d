"""Pages are replaced as a whole, and readable by their owner only."""

import contextlib
import os
import stat

import pytest

from treadle.files import check_replaceable, replace_file

from .reports.full_disk import no_room


def names_in(folder):
    return sorted(one.name for one in folder.iterdir())


@pytest.fixture
def page(tmp_path):
    """A page that was written before."""
    page = tmp_path / "page.html"
    page.write_bytes(b"old")
    return page


@contextlib.contextmanager
def no_sync():
    """A disk that fails when it has to have a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: os.write(-1, b""))
        yield


@pytest.mark.parametrize(
    ("fault", "text"), [(no_room(100), "File too large"), (no_sync(), "Bad file descriptor")]
)
def test_a_page_that_cannot_be_written_whole_leaves_the_old_one(page, fault, text):
    with fault, pytest.raises(OSError, match=text):
        replace_file(page, b"new" * 1_000, durable=True)
    assert page.read_bytes() == b"old"
    assert names_in(page.parent) == ["page.html"]


def test_a_new_page_is_private_and_an_open_old_one_is_not_changed(page):
    page.chmod(0o644)
    with page.open("rb") as reader:
        replace_file(page, b"new")
        assert reader.read() == b"old"
    assert page.read_bytes() == b"new"
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert names_in(page.parent) == ["page.html"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_its_target_is_replaced(tmp_path, exists):
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "page.html", tmp_path / "there" / "real.html"
    link.symlink_to("there/real.html")
    if exists:
        target.write_bytes(b"old")
    replace_file(link, b"new")
    assert link.readlink().name == "real.html"
    assert target.read_bytes() == b"new"


def test_pipes_and_open_files_are_written_to(tmp_path):
    """A name such as /dev/stdout may lead to a regular file, to which the shell writes, too."""
    file = tmp_path / "out.txt"
    fd = os.open(file, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"before ")
    replace_file(f"/dev/fd/{fd}", b"page")
    os.close(fd)
    assert file.read_bytes() == b"before page"
    replace_file("/dev/null", b"page")
    with pytest.raises(OSError, match="No space left"):
        replace_file("/dev/full", b"page")


@pytest.mark.parametrize("check", [check_replaceable, lambda path: replace_file(path, b"")])
def test_the_check_reports_what_writing_would(tmp_path, check):
    """The error names the target, not a temporary file."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "no" / "page.html", loop, tmp_path / "pipe"):
        with pytest.raises(OSError) as raised:
            check(path)
        assert raised.value.strerror
        assert raised.value.filename == str(path)
    assert names_in(tmp_path) == ["loop", "pipe"]


def test_the_check_changes_nothing(page):
    check_replaceable(page.parent / "new.html")
    check_replaceable(page)
    assert page.read_bytes() == b"old"
    assert names_in(page.parent) == ["page.html"]
