"""Check the type tests, the examples and the Python of the pages with mypy and pyright, both in strict mode.

Each page becomes one file with the same line numbers. Each of its blocks becomes a function inside that of the
block before it. So a block sees the names of earlier blocks and may define them anew, and ``await`` works, as in
the test that executes the pages (tests/test_docs.py). Blocks that are not run are checked, too; those marked
``no-check`` are not: they are of other frameworks, which are not installed, or replace names for the test.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "src"
CACHE = Path(sys.prefix) / "mypy-cache-of-types"
INDENT = "    "
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})python(?P<marks>[^\n]*)\n(?P<code>.*?)^(?P=indent)(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
PYRIGHT = {
    "pythonVersion": "3.11",
    "typeCheckingMode": "strict",
    "enableTypeIgnoreComments": False,  # an error has to be expected of each checker
    "reportUnnecessaryTypeIgnoreComment": "error",
    "reportMissingTypeStubs": False,
    # The names of a page are those of a module, which may be public. Only the scopes of its blocks are functions.
    "reportUnusedClass": False,
    "reportUnusedFunction": False,
    "reportUnusedVariable": False,
}
MYPY = """
[mypy]
strict = true
python_version = 3.11
[mypy-treadle.*]
follow_imports = silent
[mypy-xllamacpp.*]
ignore_missing_imports = true
"""


def module_of(page: str) -> str:
    """The Python blocks of a page as a module; a line has the number that it has in the page."""
    module = ""
    checked = (block for block in BLOCK.finditer(page) if "no-check" not in block["marks"])
    for depth, block in enumerate(checked):
        lines_before = page.count("\n", 0, block.start()) - module.count("\n")
        module += "\n" * lines_before + f"{INDENT * depth}async def block_{depth}() -> None:\n"
        module += textwrap.indent(textwrap.dedent(block["code"]), INDENT * (depth + 1))
    return module


def checked_files() -> Iterator[tuple[Path, str]]:
    """The files to check, each with its Python code."""
    for page in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]):
        module = module_of(page.read_text(encoding="utf-8"))
        if module:
            yield page, module
    for file in sorted([*REPOSITORY.glob("examples/*.py"), *REPOSITORY.glob("tests/types/*.py")]):
        yield file, file.read_text(encoding="utf-8")


def main() -> int:
    """Run both checkers at the same time; return 1 if one of them reports an error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        origins: dict[str, str] = {}
        for number, (origin, module) in enumerate(checked_files()):
            copy = folder / f"checked_{number}_{re.sub(r'[^a-z0-9]', '_', origin.stem.lower())}.py"
            copy.write_text(module, encoding="utf-8")
            origins[str(copy)] = str(origin.relative_to(REPOSITORY))
        commands = commands_for(folder, list(origins))
        running = [
            subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, "MYPYPATH": str(SOURCES)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for command in commands
        ]
        for checker in running:
            out, _ = checker.communicate()
            sys.stdout.write(with_origins(out, origins))
    return int(any(checker.returncode for checker in running))


def commands_for(folder: Path, files: list[str]) -> list[list[str]]:
    """The commands of mypy and pyright; writes their configuration to the folder."""
    venv = Path(sys.prefix)
    paths = {
        "venvPath": str(venv.parent),
        "venv": venv.name,
        "extraPaths": [str(SOURCES)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps({**PYRIGHT, **paths}), encoding="utf-8")
    (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
    mypy = ["mypy", "--config-file", "mypy.ini", "--cache-dir", str(CACHE), *files]
    return [
        [sys.executable, "-m", *mypy],
        [sys.executable, "-m", "pyright", "--project", str(folder)],
    ]


def with_origins(out: str, origins: Mapping[str, str]) -> str:
    """The output of a checker, with the names of the original files."""
    for copy, origin in origins.items():
        out = out.replace(copy, origin).replace(Path(copy).name, origin)
    return out


if __name__ == "__main__":
    sys.exit(main())
