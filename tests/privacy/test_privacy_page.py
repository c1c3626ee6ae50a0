"""The proofs are read beside the code: the modules and functions that their pages name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import shufflesum.privacy

ROOT = Path(__file__).parents[2]
PACKAGE = Path(shufflesum.privacy.__file__).parent
FOLDERS = (PACKAGE, PACKAGE.parent, ROOT)
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("privacy.md", "privacy-ball.md")}
NAMED = re.compile(r"`([\w/]+\.py)`((?:(?:,| and)\s+`[\w.]+`)*)")  # `module.py`, `function` and `function`


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_function_named_on_a_page_is_where_it_says(page: str) -> None:
    named = [(path, re.findall(r"`([\w.]+)`", names)) for path, names in NAMED.findall(PAGES[page])]
    assert sum(len(names) for _, names in named) > 20
    for path, names in named:
        file = next((folder / path for folder in FOLDERS if (folder / path).exists()), None)
        assert file is not None, path
        for name in names:
            assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b", file.read_text()), (path, name)


def test_every_module_of_the_accountant_is_on_a_page() -> None:
    pages = "".join(PAGES.values())
    modules = [file.relative_to(PACKAGE).as_posix() for file in PACKAGE.glob("**/[!_]*.py")]
    assert len(modules) > 15
    assert [module for module in modules if f"`{module}`" not in pages] == []
