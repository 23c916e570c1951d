"""The programs of a page: its blocks in one file, as a reader would paste them."""

import importlib.util
import re
import sys
from pathlib import Path

from tests.test_docs import blocks_of, is_run

DOCS = Path(__file__).parents[2] / "docs"


def text_of(page, language="python"):
    """The blocks of a page in one language, in their order."""
    found = [block for block in blocks_of(DOCS / page) if block.info[:1] == (language,)]
    return "\n\n".join(block.text for block in found if is_run(block))


def shown_blocks(page):
    """The Python blocks of a page that run and that a reader sees: not those within a comment."""
    hidden = re.findall(r"<!--.*?-->", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    return [
        block.text
        for block in blocks_of(DOCS / page)
        if block.info[:1] == ("python",)
        and is_run(block)
        and not any(block.text in comment for comment in hidden)
    ]


def import_page(page, folder, monkeypatch):
    """Import the Python of a page as a module, from a file in a folder."""
    name = f"pasted_{Path(page).stem.replace('-', '_')}"
    file = folder / f"{name}.py"
    file.write_text(text_of(page), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module
