"""Imports go downward only, floor by floor; each dependency has its one place."""

import ast
from pathlib import Path

import pytest

import treadle

FLOORS = {
    0: {"pipeline", "types"},
    1: {"telemetry"},
    2: {"stages"},
    3: {"loop"},
    4: {"providers", "mcp", "sessions", "durable", "reports", "testing"},
    5: {"cli"},
}
FLOOR_OF = {package: floor for floor, packages in FLOORS.items() for package in packages}
ROOT = Path(treadle.__file__).parent
FILES = {path: path.relative_to(ROOT).parts[0] for path in sorted(ROOT.glob("*/**/*.py"))}
ONLY_IN = {
    "opentelemetry": {"telemetry"},
    "openai": {"providers"},
    "xllamacpp": {"providers"},
    "anthropic": {"providers"},
    "rich": {"cli", "reports"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_what_it_may(path):
    """Lower floors and its own package; packages of one floor never import each other."""
    package = FILES[path]
    for name in imports(path):
        top, _, rest = name.partition(".")
        assert package in ONLY_IN.get(top, {package}), f"{path} imports {name}"
        if top == "treadle":
            other = rest.partition(".")[0]
            # A name of `treadle` itself brings in all that it re-exports, up to the loop.
            below = other == package or FLOOR_OF.get(other, FLOOR_OF["loop"]) < FLOOR_OF[package]
            assert below, f"{path} of floor {FLOOR_OF[package]} imports {name}"


def test_every_package_has_a_floor():
    assert set(FILES.values()) <= set(FLOOR_OF)
