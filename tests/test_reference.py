"""docs/reference.md lists each public name once, with its arguments and the first sentence of its docstring."""

import ast
import enum
import importlib
import inspect
import itertools
import pkgutil
import re
import types
import typing
from collections import Counter
from pathlib import Path

import pytest

import treadle
from treadle.pipeline import Stage

PAGE = Path(__file__).parents[1] / "docs" / "reference.md"
MARKS = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def parts_of(page):
    """The parts of the page: for each the module that it is about, and the rows of its tables."""
    parts = []
    for line in page.read_text(encoding="utf-8").splitlines():
        heading = re.fullmatch(r"## (?:`(.+)`|(.+))", line)
        if heading:
            parts.append((heading[1] or heading[2], []))
        elif line.startswith("| `"):
            parts[-1][1].append(line)
    return parts


PARTS = parts_of(PAGE)
*_, (_, INTERNAL_ROWS) = PARTS
ROWS = [
    (title if title.startswith("treadle.") else "treadle", row)
    for title, rows in PARTS[:-1]
    for row in rows
]
"""Each row of a public name, with the module that has the name."""


def name_in(row):
    """The name in the first cell of a row."""
    return re.match(r"\| `([\w.]+)`", row)[1]


def found(module, name):
    """The object that a name in a module refers to; a property as it is."""
    value = importlib.import_module(module)
    for part in name.split("."):
        static = inspect.getattr_static(value, part, None)
        value = static if isinstance(static, property) else getattr(value, part)
    return value


def modules():
    """All modules of treadle, imported."""
    names = [info.name for info in pkgutil.walk_packages(treadle.__path__, "treadle.")]
    return [treadle, *map(importlib.import_module, names)]


def text_under(name, value):
    """The text under the assignment of a constant or a type alias."""
    for module in modules():
        if vars(module).get(name) is value:
            body = ast.parse(inspect.getsource(module)).body
            for statement, after in itertools.pairwise(body):
                targets = getattr(statement, "targets", [getattr(statement, "target", None)])
                if getattr(targets[0], "id", None) == name and isinstance(after, ast.Expr):
                    return ast.literal_eval(after.value)
    return None


def description_of(name, value):
    """The first sentence of a docstring."""
    documented = inspect.unwrap(value.fn if isinstance(value, Stage) else value)
    has_docstring = isinstance(documented, type | types.ModuleType | property | types.MethodType)
    if has_docstring or inspect.isfunction(documented):
        text = inspect.getdoc(documented)
    else:
        text = text_under(name, value)
    paragraph = " ".join((text or "").split("\n\n")[0].replace("``", "`").split())
    return re.match(r".*?\.(?= |$)|.*", paragraph)[0].replace("|", "\\|")


def arguments_of(value):
    """The arguments of a callable, or the members of an enumeration, separated by commas."""
    if isinstance(value, enum.EnumMeta):
        return ", ".join(value.__members__)
    if isinstance(value, Stage):
        _, *parameters = inspect.signature(value.fn).parameters.values()
    elif has_arguments(value):
        parameters = inspect.signature(value).parameters.values()
    else:
        return ""
    named = [parameter for parameter in parameters if parameter.name != "self"]
    return ", ".join(MARKS.get(parameter.kind, "") + parameter.name for parameter in named)


def has_arguments(value):
    """Whether something is a function, or a class whose constructor has named arguments."""
    if not isinstance(value, type):
        return inspect.isroutine(inspect.unwrap(value))
    if typing.is_typeddict(value) or getattr(value, "_is_protocol", False):
        return False
    return not issubclass(value, BaseException) or inspect.isfunction(value.__init__)


def expected_row(module, name):
    """The row that the page must have."""
    value = found(module, name)
    arguments = arguments_of(value)
    code = f" `{arguments}` " if arguments else "  "
    return f"| `{name}` |{code}| {description_of(name.rpartition('.')[2], value)} |"


@pytest.mark.parametrize(("module", "row"), ROWS, ids=[f"{m}: {name_in(r)}" for m, r in ROWS])
def test_a_row_agrees_with_the_code(module, row):
    assert row == expected_row(module, name_in(row))


def identity(module, name):
    """A name, and the object that it is about or that has it as an attribute."""
    return name, id(found(module, name.partition(".")[0]))


PUBLIC = Counter(identity(module, name_in(row)) for module, row in ROWS)


def test_no_name_is_listed_twice_and_each_is_described():
    assert [name for (name, _), count in PUBLIC.items() if count > 1] == []
    assert [row for _, row in ROWS if row.endswith("|  |")] == []


def exported_by(module):
    """The names that a package without `__all__` exports: it imports each as itself, or defines it."""
    if not hasattr(module, "__path__"):
        return []
    tree = ast.parse(inspect.getsource(module))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names if alias.name == alias.asname}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names.add(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    return sorted(name for name in names if not name.startswith("_"))


def test_every_exported_name_is_listed_as_public_or_as_internal():
    internal = {}
    for module in modules():
        exported = getattr(module, "__all__", None) or exported_by(module)
        left = [name for name in exported if identity(module.__name__, name) not in PUBLIC]
        if left:
            internal[module.__name__] = sorted(left)
    listed = {
        name_in(row): sorted(re.findall(r"`(\w+)`", row.split("|")[2])) for row in INTERNAL_ROWS
    }
    assert listed == internal


def test_the_names_of_treadle_are_in_the_parts_by_topic():
    by_topic = {name_in(row).partition(".")[0] for module, row in ROWS if module == "treadle"}
    assert by_topic == set(treadle.__all__)
