"""No regular expression of the package takes more than linear time, whatever text it searches."""

import ast
import re
from pathlib import Path

import pytest
from tests.growth import is_linear

import treadle

TRUSTED = {"docstrings.py"}
"""Modules whose expressions read only what the author of a program wrote."""

PREFIXES = ["", "data:", "data:a", "{{", '{"v":1', "1", "a", ":param ", "00-", "a.b"]
PARTS = ["aA", "1e", "\t ", ";a", ". ", "((", "{{", '\\"', *"aA1 ;:.({-_*\u00e9\n"]


def _expressions():
    """The expressions that the sources pass to functions of ``re``, with their modules."""
    root = Path(treadle.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.name in TRUSTED:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if not is_call or not node.args:
                continue
            owner, given = node.func.value, node.args[0]
            if isinstance(owner, ast.Name) and owner.id == "re" and isinstance(given, ast.Constant):
                is_verbose = any("VERBOSE" in ast.unparse(more) for more in node.args[1:])
                yield pytest.param(
                    re.compile(given.value, re.VERBOSE if is_verbose else 0),
                    id=f"{path.relative_to(root)}:{node.lineno}",
                )


EXPRESSIONS = list(_expressions())


def test_the_expressions_are_found():
    assert len(EXPRESSIONS) >= 12


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_it_takes_time_linear_in_the_text(expression):
    def make(size):
        texts = [prefix + part * size + "!\n" for prefix in PREFIXES for part in PARTS]
        if isinstance(expression.pattern, bytes):
            texts = [text.encode() for text in texts]
            end = b""
        else:
            end = ""

        def search():
            for text in texts:
                expression.search(text)
                expression.fullmatch(text)
                expression.sub(end, text)

        return search

    assert is_linear(make, 250)
