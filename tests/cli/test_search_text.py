"""search_text finds plain text in the user's own files, within bounds it tells of."""

import re

import pytest

from treadle.cli import builtin_tools
from treadle.cli.builtin_tools import Workspace


def test_search_text_gives_path_line_and_text_in_order(files, root):
    (root / "docs" / "a").mkdir()
    (root / "docs" / "a" / "deep.txt").write_text("no\n  shuttle here  \n")
    (root / "b.txt").write_text("SHUTTLE\r\nx\r\nshuttle again\r\n")
    assert files.search_text("Shuttle").splitlines() == [
        "b.txt:1: SHUTTLE",
        "b.txt:3: shuttle again",
        "docs/guide.md:2: The Shuttle flies.",
        "docs/a/deep.txt:2: shuttle here",
    ]
    assert files.search_text("shuttle", "docs/a") == "docs/a/deep.txt:2: shuttle here"


def test_search_text_is_sorted_whatever_the_order_on_disk(files, root):
    names = [f"{number * 37 % 100:02}" for number in range(100)]
    for name in names:
        (root / name).mkdir()
        (root / name / f"{name}.txt").write_text("needle" if name < "25" else "")
        (root / "docs" / name).write_text("needle" if name < "25" else "")
    found = [line.split(":")[0] for line in files.search_text("needle").splitlines()]
    first = sorted(names)[:25]
    assert found == [f"{name}/{name}.txt" for name in first] + [f"docs/{name}" for name in first]


def test_found_place_can_be_read(files):
    path, line, text = files.search_text("flies").split(":", 2)
    assert files.read_file(path, int(line), 1) == text.strip()


def test_search_text_is_plain_not_a_pattern(files, root):
    (root / "code.c").write_text("a.b(c)*\naxb(c)\n")
    assert files.search_text("a.b(c)*") == "code.c:1: a.b(c)*"
    assert files.search_text("a.*") == "no line contains 'a.*'"


def test_search_text_keeps_spaces_at_the_ends_of_the_text(files, root):
    (root / "x").write_text("cat\nconcat cats\n")
    assert files.search_text(" cat") == "x:2: concat cats"
    assert files.search_text("cat\n").splitlines() == ["x:1: cat", "x:2: concat cats"]


@pytest.mark.parametrize("text", ["", " ", "\n", "a\nb", "a\rb", "x" * 201])
def test_search_text_wants_one_line(files, text):
    with pytest.raises(ValueError, match="must be one line of 1 to 200 characters"):
        files.search_text(text)


@pytest.mark.parametrize(
    "folder",
    ["node_modules", "venv", "__pycache__", "docs/node_modules"],
)
def test_search_text_skips_folders_that_are_not_the_users_text(files, root, folder):
    (root / folder).mkdir(parents=True)
    (root / folder / "x.txt").write_text("needle")
    assert files.search_text("needle") == "no line contains 'needle'"
    assert files.search_text("needle", folder) == f"{folder}/x.txt:1: needle"


def test_search_text_skips_virtual_environments_of_any_name(files, root):
    (root / "py" / "lib").mkdir(parents=True)
    (root / "py" / "pyvenv.cfg").write_text("needle")
    (root / "py" / "lib" / "x.py").write_text("needle")
    assert files.search_text("needle") == "no line contains 'needle'"
    assert "py/lib/x.py:1: needle" in files.search_text("needle", "py")


@pytest.mark.parametrize("folder", [".git", ".venv", "docs/.hidden"])
def test_search_text_skips_hidden_folders(files, root, folder):
    (root / folder).mkdir(parents=True)
    (root / folder / "x.txt").write_text("needle")
    assert files.search_text("needle") == "no line contains 'needle'"


def test_search_text_skips_hidden_and_binary_files(files, root):
    (root / ".env").write_text("needle")
    (root / "image").write_bytes(b"needle\0")
    assert files.search_text("needle") == "no line contains 'needle'"


def test_search_text_does_not_follow_links(files, root, outside):
    (root / "file").symlink_to(outside / "secret.txt")
    (root / "folder").symlink_to(outside)
    (root / "docs" / "loop").symlink_to("..")
    found = files.search_text("secret")
    assert found.splitlines()[0] == "no line contains 'secret'"
    assert found.splitlines()[1].startswith("(1 not searched: links")
    assert files.search_text("shuttle").splitlines()[0] == "docs/guide.md:2: The Shuttle flies."
    assert files.search_text("shuttle").count("docs/guide.md") == 1


def test_search_text_skips_enormous_files_and_says_so(files, root):
    (root / "big").write_text("needle\n" + "x" * builtin_tools.MAX_SEARCHED_FILE)
    (root / "fits").write_text("needle\n" + "x" * (builtin_tools.MAX_SEARCHED_FILE - 7))
    assert files.search_text("needle").splitlines() == [
        "fits:1: needle",
        "(1 not searched: links, special, unreadable or very large)",
    ]


def test_search_text_shows_the_part_of_a_long_line_around_the_text(files, root):
    (root / "min.js").write_text("a" * 5000 + "needle" + "b" * 5000)
    found = files.search_text("needle")
    assert re.fullmatch(r"min.js:1: a+needleb+", found)
    assert len(found) == len("min.js:1: ") + builtin_tools.MAX_EXCERPT
    (root / "min.js").write_text("a" * 5000 + "needle")
    assert (
        files.search_text("needle")
        == "min.js:1: " + "a" * (builtin_tools.MAX_EXCERPT - 6) + "needle"
    )


def test_search_text_is_bounded_and_says_so(files, root):
    (root / "few").mkdir()
    (root / "few" / "x").write_text("needle\n" * builtin_tools.MAX_HITS)
    assert files.search_text("needle").splitlines()[-1] == f"few/x:{builtin_tools.MAX_HITS}: needle"
    (root / "few" / "y").write_text("needle\n" * 100_000)
    lines = files.search_text("needle").splitlines()
    assert len(lines) == builtin_tools.MAX_HITS + 1
    assert lines[-2] == f"few/x:{builtin_tools.MAX_HITS}: needle"
    assert lines[-1] == "(more found, not shown; search for a longer text)"


def test_search_text_stops_after_so_many_bytes(root):
    (root / "a").write_text("x" * 500_000)
    (root / "b").write_text("needle")
    (root / "c").write_text("x" * 500_000)
    (root / "d").write_text("needle")
    stopped = "(too many files: search stopped; name a smaller folder)"
    assert Workspace(root, 1_100_000).search_text("needle").splitlines() == [
        "b:1: needle",
        "d:1: needle",
    ]
    assert Workspace(root, 900_000).search_text("needle").splitlines() == ["b:1: needle", stopped]
    assert Workspace(root, 400_000).search_text("needle").splitlines() == [
        "no line contains 'needle'",
        stopped,
    ]


@pytest.mark.parametrize("kind", ["folder", "file", "binary", "link"])
def test_search_text_stops_after_so_many_files_or_folders(root, kind):
    """Each costs time, also the empty and those that are not searched."""
    for number in range(100):
        path = root / f"{number:03}"
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to("README.md")
        else:
            path.write_bytes(b"\0" if kind == "binary" else b"")
    most = 104 * builtin_tools.MIN_COST  # the 100, the root, and the 3 of the fixture
    assert "search stopped" not in Workspace(root, most).search_text("needle")
    assert "search stopped" in Workspace(root, most - 1).search_text("needle")


def test_search_text_ends_in_very_deep_folders(files, root):
    deep = root
    for _ in range(builtin_tools.MAX_DEPTH + 3):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x").write_text("needle")
    (deep.parents[3] / "x").write_text("needle")
    lines = files.search_text("needle").splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("/d/x:1: needle")
    assert lines[1].startswith("(1 not searched")
