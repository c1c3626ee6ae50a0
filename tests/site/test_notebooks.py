"""Notebooks that the site offers run where there is neither the source tree nor pandas (`make docs` first)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SITE = DOCS / "_build" / "html"

pytestmark = pytest.mark.slow


def downloaded(tutorial: str) -> Path:
    """The one file of that name that a page links to."""
    (notebook,) = (SITE / "_downloads").glob(f"*/{tutorial}.ipynb")
    assert f"{notebook.parent.name}/{tutorial}.ipynb" in (SITE / "tutorials" / f"{tutorial}.html").read_text()
    return notebook


@pytest.mark.parametrize("tutorial", [page.stem for page in (DOCS / "tutorials").glob("*.md")])
def test_every_tutorial_is_a_notebook_without_what_only_pages_need(tutorial: str) -> None:
    notebook = json.loads(downloaded(tutorial).read_text())
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"])
    assert notebook["metadata"]["kernelspec"] == {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert "import page" not in text
    assert ".md)" not in text
    assert "TemporaryDirectory" in text


@pytest.mark.parametrize("tutorial", ["groups", "weekly"])
def test_a_notebook_runs_twice_and_leaves_nothing_behind(tutorial: str, tmp_path: Path) -> None:
    folder, without = tmp_path / "folder", tmp_path / "without"
    folder.mkdir()
    without.mkdir()
    (without / "pandas.py").write_text('raise ImportError("a reader may not have it")\n')
    (folder / "copy.ipynb").write_bytes(downloaded(tutorial).read_bytes())
    path = os.pathsep.join(filter(None, (str(without), os.environ.get("PYTHONPATH"))))
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for _ in range(2):
        done = subprocess.run(
            [Path(sys.executable).parent / "jupyter-execute", "copy.ipynb"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path, "PATH": programs},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert [entry.name for entry in folder.iterdir()] == ["copy.ipynb"]
