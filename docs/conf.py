"""How Sphinx builds the documentation site from this folder: `make docs`."""

from __future__ import annotations

import json
import logging
import os
import re
import zipfile
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from myst_nb.core.read import read_myst_markdown_notebook

project = "shufflesum"
author = "the shufflesum authors"
release = version = installed_version("shufflesum")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"shufflesum {release}"
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}

# Pages link to headings of one another, as they do where the files are read without a site.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

# Tutorials are executed anew in each build; an error in one of them is an error of the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a busy machine; a cell takes a few of a quiet one
nb_execution_in_temp = False
nb_execution_show_tb = True
nb_merge_streams = True  # what a command prints is one block

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "docs" / "_build"

# What kernels say of themselves is of no interest unless it is an error; nobody's own settings of IPython count.
os.environ["IPYTHONDIR"] = str(BUILT / "ipython")
logging.getLogger("traitlets").setLevel(logging.WARNING)

autodoc_mock_imports = ["flwr"]  # its pins are tight, so it is not here
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "inherited-members": "object, BaseException, Exception, tuple"}
python_maximum_signature_line_length = 88
# An object has several names, as shufflesum.L2Ball and shufflesum.domains.L2Ball: an annotation may link to any of
# them.
suppress_warnings = ["ref.python"]
smartquotes = False  # options begin with two hyphens
nb_render_markdown_format = "gfm"
highlight_language = "text"  # indented blocks are formulas
default_role = "code"

_CODE = re.compile(r"(`[^`]+`)")
_OPTION = re.compile(r"(?<![\w`-])(-[a-z]|--[a-z][a-z-]*)(?![\w-])")


def _plain(*arguments: Any) -> None:
    """Docstrings are sentences with code in backticks: what else reStructuredText would read into them is escaped."""
    lines: list[str] = arguments[-1]
    parts = _CODE.split("\n".join(lines))
    parts[::2] = [re.sub(r"([*|\\]|(?<=\w)_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    parts[2::2] = [re.sub(r"^(?=\w)", r"\\ ", part) for part in parts[2::2]]  # `restore`d
    lines[:] = "".join(parts).split("\n")


def _plain_help(app: object, ctx: object, lines: list[str]) -> None:
    """The same for help texts, with examples as commands; the lines between are reStructuredText already."""
    shown: list[str] = []
    for line in lines:
        if line.startswith("| Example: "):
            shown += [".. code-block:: sh", "", f"   {line.removeprefix('| Example: ')}"]
        elif line.startswith("| "):
            shown.append(f"   {line[2:].strip()}")
        elif line.lstrip().startswith((".. ", ":", "**Required**")):
            shown.append(_OPTION.sub(r"``\1``", line) if line.lstrip().startswith("**") else line)
        else:
            shown.append(_OPTION.sub(r"``\1``", line.replace("*", r"\*")))
    lines[:] = shown


_LINK_TO_A_PAGE = re.compile(r"\[([^]]+)\]\((?!https?:)[^)]+\)")
_OWN_FOLDER = """\
# What this notebook writes goes into a folder of its own, which is deleted when the kernel ends.
import os
import tempfile

folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)"""


def _notebook(text: str) -> str:
    """A tutorial as a notebook that runs anywhere: it needs no hidden cell, and links to no page beside it."""
    notebook = read_myst_markdown_notebook(text)
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = str(number)  # the same in every build, so that only what has changed is written
        if cell.cell_type == "markdown":
            cell.source = _LINK_TO_A_PAGE.sub(r"\1", cell.source)
        elif "remove-cell" in cell.metadata.get("tags", []):
            cell.source, cell.metadata = _OWN_FOLDER, {}
    return json.dumps(notebook, indent=1) + "\n"


def _prepare(app: Any) -> None:
    """Write what nobody keeps: the settings of kernels, and what is there to download."""
    profile = BUILT / "ipython" / "profile_default"
    made = {profile / "ipython_kernel_config.json": '{"IPKernelApp": {"log_level": "ERROR"}}\n'}
    for page in Path(app.srcdir, "tutorials").glob("*.md"):
        made[BUILT / "notebooks" / f"{page.stem}.ipynb"] = _notebook(page.read_text())
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    with zipfile.ZipFile(BUILT / "wire-examples.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for example in (*ROOT.glob("tests/vectors/*.json"), *ROOT.glob("tests/clients/[cs]*.py")):
            archive.write(example, example.relative_to(ROOT))


def _offer(app: Any, page: str, source: list[str]) -> None:
    """A link to its notebook under the title of each tutorial."""
    folder, _, name = page.partition("/")
    if folder == "tutorials":
        link = f"{{download}}`Download this page as a notebook <../_build/notebooks/{name}.ipynb>`"
        source[0] = re.sub(r"^(# .+)$", rf"\1\n\n{link}", source[0], count=1, flags=re.MULTILINE)


def setup(app: Any) -> None:
    """Connect what is ours."""
    app.connect("builder-inited", _prepare)
    app.connect("source-read", _offer)
    # The search of Sphinx 9 forgets the words of a page that is not written anew.
    app.connect("env-get-outdated", lambda *_: ["reference/glossary"])
    app.connect("autodoc-process-docstring", _plain)
    for part in ("description", "options"):
        app.connect(f"sphinx-click-process-{part}", _plain_help)
