"""Listing, reading and telling the time: plain bounded text that says how to go on."""

import inspect
import os
import re
import time
import zoneinfo
from datetime import datetime, timedelta

import pytest

from treadle.cli import builtin_tools
from treadle.cli.builtin_tools import current_time, read_only_tools

# --- list_files


def test_list_files_gives_sorted_names_and_marks_folders(files, root):
    for name in ("b", "a", "C"):
        (root / name).write_text("")
    (root / "a.d").mkdir()
    assert files.list_files() == "C\nREADME.md\na\na.d/\nb\ndocs/"
    assert files.list_files("") == files.list_files("./") == files.list_files("docs/..")
    assert files.list_files("docs/") == "guide.md"


def test_list_files_of_an_empty_folder(files, root):
    (root / "empty").mkdir()
    assert files.list_files("empty") == "(empty folder)"


def test_list_files_counts_hidden_names(files, root):
    (root / ".git").mkdir()
    (root / ".env").write_text("")
    assert files.list_files() == "README.md\ndocs/\n(2 hidden, not shown)"


def test_list_files_tells_what_links_lead_to(files, root, outside):
    (root / "inner-file").symlink_to("README.md")
    (root / "inner-folder").symlink_to("docs")
    (root / "broken").symlink_to("nothing")
    (root / "outer-file").symlink_to(outside / "secret.txt")
    (root / "outer-folder").symlink_to(outside)
    assert files.list_files().splitlines() == [
        "README.md",
        "broken (cannot be read)",
        "docs/",
        "inner-file",
        "inner-folder/",
        "outer-file (cannot be read)",
        "outer-folder (cannot be read)",
    ]


def test_list_files_is_bounded_and_says_so(files, root):
    (root / "many").mkdir()
    for number in range(builtin_tools.MAX_NAMES + 5):
        (root / "many" / f"{number:04}").write_text("")
    lines = files.list_files("many").splitlines()
    assert lines[:2] == ["0000", "0001"]
    assert lines[builtin_tools.MAX_NAMES - 1 :] == [
        f"{builtin_tools.MAX_NAMES - 1:04}",
        "(5 more, not shown)",
    ]


def test_odd_names_stay_on_one_line_of_valid_text(files, root):
    (root / "two\nlines").write_text("")
    (root / os.fsdecode(b"caf\xe9")).write_text("")
    listing = files.list_files()
    assert listing.splitlines() == ["README.md", r"caf\udce9", "docs/", r"two\nlines"]
    listing.encode()


def test_names_beyond_ascii_are_themselves(files, root):
    (root / "žluťoučký kůň.txt").write_text("ano")
    assert "žluťoučký kůň.txt" in files.list_files()
    assert files.read_file("žluťoučký kůň.txt") == "ano"


# --- read_file


def test_read_file_gives_the_text_alone_when_all_of_it_fits(files):
    assert files.read_file("README.md") == "one\ntwo\nthree"
    assert files.read_file("README.md", first_line=2) == "two\nthree"


def test_read_file_says_how_to_go_on(files):
    assert files.read_file("README.md", max_lines=2) == (
        "one\ntwo\n(lines 1-2 of 3; go on with first_line=3)"
    )
    assert files.read_file("README.md", 2, 1) == "two\n(lines 2-2 of 3; go on with first_line=3)"
    assert files.read_file("README.md", 3, 1) == "three"


def test_following_the_advice_reads_every_line_once(files, root):
    lines = [f"line {number} {'x' * (number % 700)}" for number in range(1, 400)]
    (root / "long").write_text("\n".join(lines))
    seen, first = [], 1
    for _ in range(100):
        *page, last = files.read_file("long", first, 90).split("\n")
        seen += page
        found = re.fullmatch(r"\(lines (\d+)-(\d+) of 399; go on with first_line=(\d+)\)", last)
        if not found:
            seen.append(last)
            break
        assert (int(found[1]), int(found[2])) == (first, int(found[3]) - 1)
        first = int(found[3])
    assert seen == lines


@pytest.mark.parametrize(("first", "most"), [(0, 1), (-1, 1), (1, 0), (1, -5)])
def test_read_file_wants_positive_numbers(files, first, most):
    with pytest.raises(ValueError, match="must be at least 1"):
        files.read_file("README.md", first, most)


def test_read_file_after_the_end(files):
    with pytest.raises(ValueError, match=r"first_line is after the end: 'README.md' has 3 lines"):
        files.read_file("README.md", 4)


def test_read_file_takes_enormous_numbers(files):
    assert files.read_file("README.md", 1, 10**30) == "one\ntwo\nthree"
    with pytest.raises(ValueError, match="after the end"):
        files.read_file("README.md", 10**30)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "(empty file)"),
        (b"a\r\nb\r\n", "a\nb"),
        (b"a\rb", "a\nb"),
        (b"\xef\xbb\xbfmark", "mark"),
        (b"caf\xe9\n", "caf\ufffd"),
        ("form\ffeed\u2028and\x85more".encode(), "form\ffeed\u2028and\x85more"),
        (b"\n\nx\n\n", "\n\nx\n"),
    ],
)
def test_read_file_of_any_text(files, root, content, text):
    (root / "text").write_bytes(content)
    assert files.read_file("text") == text


def test_read_file_refuses_binary_files(files, root):
    (root / "image.png").write_bytes(b"\x89PNG\r\n\0\0")
    with pytest.raises(ValueError, match=r"^'image.png' is a binary file, not text$"):
        files.read_file("image.png")


def test_read_file_cuts_long_lines_and_long_output(files, root):
    (root / "line").write_text("x" * 1_000_000)
    text = files.read_file("line")
    assert text == "x" * builtin_tools.MAX_LINE + "... (line cut, 1000000 characters)"
    (root / "lines").write_text(("y" * 999 + "\n") * 100)
    text = files.read_file("lines")
    assert text.endswith("(lines 1-20 of 100; go on with first_line=21)")
    assert len(text) < builtin_tools.MAX_OUTPUT + 100


def test_read_file_looks_at_the_start_of_an_enormous_file(files, root):
    with (root / "huge").open("wb") as file:
        file.write(b"first\n" + b"x" * 8000 + b"\nthird\n")
        file.truncate(10**12)
    started = time.process_time()
    assert (
        files.read_file("huge", 1, 1) == "first\n(lines 1-1 of 4 or more; go on with first_line=2)"
    )
    assert "rest cannot be read" in files.read_file("huge", 4)
    with pytest.raises(ValueError, match="has 4 or more lines"):
        files.read_file("huge", 5)
    assert time.process_time() - started < 5


# --- current_time


def test_current_time_is_now_in_utc_by_default():
    found = re.fullmatch(r"(\S+) \((\w+), UTC\)", current_time())
    moment = datetime.fromisoformat(found[1])
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(moment.tzinfo) - moment) < timedelta(seconds=5)
    assert found[2] == moment.strftime("%A")


def test_current_time_in_a_zone():
    found = re.fullmatch(r"(\S+) \((\w+), Asia/Kolkata\)", current_time("Asia/Kolkata"))
    moment = datetime.fromisoformat(found[1])
    assert moment.utcoffset() == timedelta(hours=5, minutes=30)
    assert abs(datetime.now(moment.tzinfo) - moment) < timedelta(seconds=5)
    assert found[2] == moment.strftime("%A")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("EUROPE/PARIS", "did you mean 'Europe/Paris'?"),
        ("europe/paris", "did you mean 'Europe/Paris'?"),
        ("Europe/Pariss", "did you mean 'Europe/Paris'?"),
        ("Paris", "did you mean 'Europe/Paris'?"),
        ("new york", "did you mean 'America/New_York'?"),
        ("qqqqqqqqqq", "give one such as 'Europe/Paris'"),
        ("Europe", "unknown time zone 'Europe'"),
        ("", "unknown time zone ''"),
        ("../../etc/passwd", "unknown time zone '../../etc/passwd'"),
        ("/etc/passwd", "unknown time zone '/etc/passwd'"),
        ("UTC\0", r"unknown time zone 'UTC\x00'"),
        ("\ud800", r"unknown time zone '\ud800'"),
        ("x" * 5000, "unknown time zone 'xxx"),
    ],
)
def test_current_time_of_an_unknown_zone_suggests_one(name, advice):
    with pytest.raises(ValueError) as caught:
        current_time(name)
    assert str(caught.value).startswith("unknown time zone '")
    assert advice in str(caught.value)
    assert len(str(caught.value)) < 300


def test_current_time_in_utc_needs_no_database():
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    try:
        assert "UTC" in current_time("utc")
        if not zoneinfo.available_timezones():  # not so where the tzdata package is installed
            with pytest.raises(ValueError, match="this system knows only 'UTC'"):
                current_time("Europe/Paris")
    finally:
        zoneinfo.reset_tzpath()


# --- the set


def test_tools_work_on_the_given_root(root):
    tools = {tool.__name__: tool for tool in read_only_tools(root)}
    assert list(tools) == ["list_files", "read_file", "search_text", "current_time", "calculate"]
    assert tools["list_files"]() == "README.md\ndocs/"
    assert tools["calculate"]("6 * 7") == 42


def test_every_tool_tells_a_model_what_it_does_and_takes():
    """A first paragraph on one line, type hints, and a line of Args for each argument."""
    for tool in read_only_tools():
        assert re.match(r".{20,100}\.\n\n", tool.__doc__)
        for name, parameter in inspect.signature(tool).parameters.items():
            assert parameter.annotation in {str, int}
            assert re.search(rf"^ +{name}: \S", tool.__doc__, re.MULTILINE)
