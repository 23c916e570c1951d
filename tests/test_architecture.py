"""The packages and their imports are as docs/architecture.md says; that page is what these tests read."""

import ast
import graphlib
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import treadle

ROOT = Path(treadle.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
FILES = sorted(ROOT.glob("**/*.py"))

ONLY_IN = {
    "anyio": {"effects", "loop", "mcp", "model", "pipeline", "providers", "testing"},
    "anthropic": {"providers"},
    "cryptography": {"durable"},
    "genai_prices": {"providers"},
    "httpx2": {"mcp"},
    "jsonschema": {"tools"},
    "mcp": {"mcp"},
    "mcp_types": {"mcp"},
    "openai": {"providers"},
    "opentelemetry": {"telemetry"},
    "pydantic": {"tools"},
    "pydantic_core": {"tools"},
    "pytest": {"testing"},
    "redis": {"databases", "durable", "providers", "sessions"},
    "referencing": {"tools"},
    "rich": {"cli", "reports"},
    "sniffio": {"effects"},
    "temporalio": {"durable"},
    "typing_extensions": {"type_vars"},  # for type checkers only
    "xllamacpp": {"providers"},
}
"""Where each third-party package may be imported. All others (trio, for example) may not be imported at all."""


def table_rows():
    """Each row of the table of packages: its floor, its names, what is in it, what is not."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(r"\| \d+ \|", line):
            floor, names, inside, outside = (cell.strip() for cell in line.strip("|").split("|"))
            yield int(floor), re.findall(r"`([^`]+)`", names), inside, outside


FLOOR_OF = {
    name.removesuffix("/").removesuffix(".py"): floor
    for floor, names, _, _ in table_rows()
    for name in names
}
ROOT_MODULES = [
    name.removesuffix(".py") for _, names, _, _ in table_rows() for name in names if ".py" in name
]
TOP = "treadle/__init__"
FLOOR_OF[TOP] = FLOOR_OF["loop"] + 0.5  # it exports names of `loop` and of everything below it


def part_of(path):
    """The package or the module of `src/treadle` that a file belongs to."""
    first = path.relative_to(ROOT).parts[0]
    return {"__init__.py": TOP, "__main__.py": "cli"}.get(first, first.removesuffix(".py"))


def imports_of(path):
    """The full name of everything that a file imports, in functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_part(name):
    """The package or module of treadle that a name starting with `treadle` comes from."""
    part = name.split(".")[1] if "." in name else TOP
    return part if part in FLOOR_OF else TOP


def may_import(part, other):
    """Whether a part may import another: a lower one, or a root module above it in the table."""
    if part == other:
        return True
    if part in ROOT_MODULES and other in ROOT_MODULES and FLOOR_OF[part] == FLOOR_OF[other]:
        return ROOT_MODULES.index(other) < ROOT_MODULES.index(part)
    return FLOOR_OF[other] < FLOOR_OF[part]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_lower_floors_and_its_own_package(path):
    part = part_of(path)
    for name in imports_of(path):
        if name.split(".")[0] == "treadle":
            other = imported_part(name)
            assert may_import(part, other), (
                f"{path.relative_to(ROOT)} (floor {FLOOR_OF[part]}) imports {name} "
                f"(floor {FLOOR_OF[other]})"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_third_party_package_is_imported_only_where_it_is_allowed(path):
    for name in imports_of(path):
        package = name.split(".")[0]
        if package != "treadle" and package not in sys.stdlib_module_names:
            assert part_of(path) in ONLY_IN.get(package, ()), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


def test_each_package_and_root_module_is_in_the_table_once():
    listed = [name for _, names, _, _ in table_rows() for name in names]
    folders = {f"{path.parent.name}/" for path in ROOT.glob("*/__init__.py")}
    modules = {path.name for path in ROOT.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert sorted(listed) == sorted(folders | modules)


def test_the_table_describes_what_is_in_each_package_and_what_is_not():
    for _, names, inside, outside in table_rows():
        is_package = any(name.endswith("/") for name in names)
        assert inside, f"the table does not say what is in {names}"
        assert outside or not is_package, f"the table does not say what is not in {names}"


def test_the_rows_of_the_table_are_in_the_order_of_their_floors():
    floors = [floor for floor, *_ in table_rows()]
    assert floors == sorted(floors)
    assert set(floors) == set(range(max(floors) + 1))


PACKAGES = [
    ".".join(("treadle", *path.parent.relative_to(ROOT).parts))
    for path in sorted(ROOT.glob("**/__init__.py"))
]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_shadowed_by_a_name_that_its_package_exports(package):
    """`treadle.stages.circuit_breaker` cannot be both a module and a function."""
    module = importlib.import_module(package)
    folder = Path(module.__file__).parent
    names = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    names |= {path.parent.name for path in folder.glob("*/__init__.py")}
    exported = {name: getattr(module, name) for name in sorted(names) if hasattr(module, name)}
    assert [name for name, value in exported.items() if not isinstance(value, ModuleType)] == []


def imports_within(package):
    """For each file of a package, the other files of it that it imports, for type checkers too."""
    folder = ROOT / package
    names = {
        ".".join(("treadle", *path.relative_to(ROOT).with_suffix("").parts)): path
        for path in folder.rglob("*.py")
        if path.name != "__init__.py"
    }
    return {
        name: {
            other
            for imported in imports_of(path)
            for other in (imported, imported.rpartition(".")[0])
            if other in names and other != name
        }
        for name, path in names.items()
    }


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("*/__init__.py")))
def test_no_files_of_a_package_import_each_other_in_a_circle(package):
    graphlib.TopologicalSorter(imports_within(package)).prepare()  # raises `CycleError`


@pytest.mark.parametrize("package", ["pipeline", "stages", "loop"])
def test_each_file_is_once_in_the_reading_order_and_after_the_files_that_it_imports(package):
    _, _, rows = PAGE.read_text(encoding="utf-8").partition(f"\n| `{package}/` | what it holds |\n")
    table = [row for row in rows.partition("\n\n")[0].splitlines() if row.startswith("| `")]
    order = [name for row in table for name in re.findall(r"`(\w+)\.py`", row.split("|")[1])]
    files = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert sorted(order) == sorted(files)
    imports = imports_within(package)
    for position, name in enumerate(order):
        used = {one.rpartition(".")[2] for one in imports[f"treadle.{package}.{name}"]}
        assert used <= set(order[:position]), f"{name}.py is before a file that it imports"


def test_nothing_in_the_loop_imports_what_runs_many_items():
    core = list((ROOT / "pipeline").glob("*.py"))
    assert core
    for path in [*core, *(path for path in FILES if part_of(path) not in {"pipeline", TOP})]:
        assert not any(name.startswith("treadle.pipeline.streams") for name in imports_of(path))
