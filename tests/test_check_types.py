"""scripts/check_types.py: the modules that it makes of the pages for the type checkers."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")])
SPEC = importlib.util.spec_from_file_location(
    "check_types", REPOSITORY / "scripts" / "check_types.py"
)
check_types = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check_types)

PAGE = """# A page

```python
first = 1
```

* in a list:

  ```python no-run
  second = await later(first)
  ```

```sh
ls
```
"""


def test_a_block_is_a_scope_inside_that_of_the_block_before_it():
    assert check_types.module_of(PAGE).splitlines() == [
        "",
        "",
        "async def block_0() -> None:",
        "    first = 1",
        "",
        "",
        "",
        "",
        "    async def block_1() -> None:",
        "        second = await later(first)",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_line_of_a_page_is_checked_under_its_number(page):
    text = page.read_text(encoding="utf-8")
    lines, module = text.splitlines(), check_types.module_of(text)
    ast.parse(module)
    checked = module.splitlines()
    starts = [n for n, line in enumerate(lines) if re.match(r"\s*`{3,}python", line)]
    fences = [n for n in starts if "no-check" not in lines[n]]
    assert len(fences) == module.count("async def block_")
    for number, line in enumerate(checked):
        if "async def block_" in line:
            assert number in fences
        else:
            assert line.strip() in {"", lines[number].strip()}


def test_the_examples_and_the_type_tests_are_checked():
    names = {path.name for path, _ in check_types.checked_files()}
    assert {"README.md", "CONTRIBUTING.md", "guide-loop.md", "test_types.py"} <= names
    assert {path.name for path in REPOSITORY.glob("examples/*.py")} <= names
