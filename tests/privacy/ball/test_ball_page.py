"""docs/privacy-ball.md is read beside the code: the modules and functions it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import shufflesum.privacy.ball

ROOT = Path(__file__).parents[3]
PACKAGE = Path(shufflesum.privacy.ball.__file__).parent
FOLDERS = (PACKAGE.parent, PACKAGE.parents[1], ROOT)
PAGE = (ROOT / "docs" / "privacy-ball.md").read_text()
NAMED = re.compile(r"`([\w/]+\.py)`((?:(?:,| and)\s+`[\w.]+`)*)")  # `module.py`, `function` and `function`


def test_every_module_and_function_named_on_the_page_is_where_it_says() -> None:
    named = [(path, re.findall(r"`([\w.]+)`", names)) for path, names in NAMED.findall(PAGE)]
    assert sum(len(names) for _, names in named) > 20
    for path, names in named:
        file = next((folder / path for folder in FOLDERS if (folder / path).exists()), None)
        assert file is not None, path
        for name in names:
            assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b", file.read_text()), (path, name)


def test_every_module_of_the_ball_is_on_the_page() -> None:
    modules = [f"ball/{file.name}" for file in PACKAGE.glob("[!_]*.py")]
    assert len(modules) == 7
    assert [module for module in modules if f"`{module}`" not in PAGE] == []
