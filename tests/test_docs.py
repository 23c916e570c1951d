"""README.md and docs/*.md: their code runs, their commands parse, and their links have a target.

The Python blocks of a page are run in order, as one module; ``await`` works at the top level. A block
``python no-run`` needs a key, a network or a model, which an HTML comment before it has to say. A page with an
``if __name__ == "__main__"`` is run as a program as well: its input is empty, and it has to end without an error.
"""

import ast
import inspect
import re
import shlex
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.programs import run_program

from treadle.cli.arguments import make_parser

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted(path for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")))
MAX_NOT_RUN = 8
"""Blocks that are not run, in all pages together."""


@dataclass(frozen=True)
class Block:
    """A fenced block: the words of its fence, its text, the line where it starts, and the text before it."""

    info: tuple[str, ...]
    text: str
    line: int
    before: str


def blocks_of(page):
    """The fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start, fence = 0, ""
    for number, line in enumerate(lines):
        found = re.match(r"\s*(`{3,}|~{3,})", line)
        if found is None:
            continue
        if not fence:
            start, fence = number, found[1]
        elif found[1].startswith(fence) and not line.strip().strip(fence[0]):
            indent = len(lines[start]) - len(lines[start].lstrip())
            text = "\n".join(part[indent:] for part in lines[start + 1 : number])
            before = next((one for one in reversed(lines[:start]) if one.strip()), "")
            info = tuple(lines[start].strip().lstrip(fence[0]).split())
            yield Block(info, f"{text}\n", start + 1, before)
            fence = ""
    assert not fence, f"{page.name}:{start + 1}: this block never ends"


def prose_of(page):
    """A page without its blocks, its code and its comments."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^\s*(`{3,}|~{3,}).*?^\s*\1[`~]*\s*$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: "x" * len(code[0]), text)


def of_language(*languages):
    """The blocks of all pages that are in one of some languages, each with its page."""
    return [
        (page, block)
        for page in PAGES
        for block in blocks_of(page)
        if block.info and block.info[0] in languages
    ]


def is_run(block):
    """Whether a block of Python is one to run."""
    return "no-run" not in block.info


PYTHON = of_language("python")
TO_RUN = [(page, block) for page, block in PYTHON if is_run(block)]


def name_of(page):
    return page.relative_to(REPOSITORY).as_posix()


def execute(block, page, namespace):
    """Run one block; what it raises points at its line in the page."""
    source = "\n" * block.line + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, str(page), "exec", flags=flags, dont_inherit=True)
    running = eval(code, namespace)  # noqa: S307 - the repository's own pages
    if inspect.iscoroutine(running):

        async def awaited():
            await running

        anyio.run(awaited)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_python_of_a_page_runs(page, monkeypatch, tmp_path):
    """Every block, in order, in one namespace; its asserts count."""
    monkeypatch.chdir(tmp_path)  # a page may write files
    module = types.ModuleType(f"page_{page.stem.replace('-', '_')}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where type hints are looked up
    for one, block in TO_RUN:
        if one == page:
            execute(block, page, vars(module))


def program_of(page):
    """The Python of a page in one file."""
    return "\n\n".join(block.text for one, block in TO_RUN if one == page)


PROGRAMS = [page for page in PAGES if "__main__" in program_of(page)]


@pytest.mark.parametrize("page", PROGRAMS, ids=name_of)
def test_the_program_of_a_page_starts_and_ends(page, tmp_path):
    """What only a program does: `__name__` is ``"__main__"``, and the input is empty."""
    file = tmp_path / f"{page.stem.replace('-', '_')}.py"
    file.write_text(program_of(page), encoding="utf-8")
    done = run_program(
        [sys.executable, "-W", "error", str(file)], stdin=subprocess.DEVNULL, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_pages_and_they_have_code():
    """So that the tests above are not empty."""
    assert len(TO_RUN) > len(PAGES) > 1
    assert REPOSITORY / "docs" / "guide-chat.md" in PROGRAMS


def test_few_blocks_are_not_run_and_each_has_a_reason():
    """A comment directly before the block has the reason."""
    not_run = [(page, block) for page, block in PYTHON if "no-run" in block.info]
    assert len(not_run) <= MAX_NOT_RUN
    for page, block in not_run:
        has_reason = re.fullmatch(r"<!-- not run: .+ -->", block.before.strip())
        assert has_reason, f"{page.name}:{block.line}: no comment says why this block is not run"
        ast.parse(block.text)


def commands_of(block):
    """The simple commands of a shell block, each as its words."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        if block.info[0] == "console":
            if not line.startswith("$ "):
                continue  # what the command prints
            line = line[2:]  # noqa: PLW2901 - the prompt is no part of it
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        command = []
        for word in (*words, ";"):
            if word and not word.strip("|&;<>()"):
                yield without_assignments(command)
                command = []
            else:
                command.append(word)


def without_assignments(words):
    """A command without the variables that are set for it alone."""
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    return words


COMMANDS = [
    pytest.param(command, id=f"{page.name}: {' '.join(command)}")
    for page, block in of_language("console", "sh", "bash", "shell")
    for command in commands_of(block)
    if command
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_a_page_names_exists(command, capsys):
    """The targets of make are in the Makefile, and `treadle` takes the arguments as they are."""
    name, *arguments = command
    if arguments[:2] == ["-m", "treadle"]:
        name, arguments = "treadle", arguments[2:]
    if Path(name).name == "make":
        makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
        targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.MULTILINE))
        wanted = {word for word in arguments if not word.startswith("-") and "=" not in word}
        assert wanted <= targets
    elif Path(name).name == "treadle":
        assert exit_code_of(arguments) == 0, capsys.readouterr().err


def exit_code_of(arguments):
    """The exit code of parsing the arguments of `treadle`; 0 if they are valid."""
    try:
        make_parser().parse_args(arguments)
    except SystemExit as end:
        return end.code
    return 0


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return text.replace(" ", "-")


def anchors_of(page):
    """The anchors of a page."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_have_a_target(page):
    """Those within the repository: to a file or a folder, and to a heading where they name one."""
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose_of(page)):
        if re.match(r"\w+:", target):
            continue
        where, _, anchor = target.partition("#")
        file = (page.parent / where).resolve() if where else page
        is_here = file.exists() and file.is_relative_to(REPOSITORY.resolve())
        if not is_here or (anchor and anchor not in anchors_of(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_no_path_of_a_particular_machine(page):
    """A path in a home directory, or where the project happened to be built, is of no use to others."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?:file://|(?<![\w.:/])/(?:home|Users|root|work|mnt)/)\S*", text) == []
