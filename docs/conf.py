"""How Sphinx builds the documentation site from this folder: `make docs`."""

from __future__ import annotations

import re
from importlib.metadata import version as installed_version
from typing import Any

project = "shufflesum"
author = "the shufflesum authors"
release = version = installed_version("shufflesum")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"shufflesum {release}"
html_show_copyright = False
html_copy_source = False
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

autodoc_mock_imports = ["flwr"]  # its pins are tight, so it is not here
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "inherited-members": "object, BaseException, Exception, tuple"}
python_maximum_signature_line_length = 88
# An object has several names, as shufflesum.Ball and shufflesum.domain.Ball: an annotation may link to any of them.
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


def setup(app: Any) -> None:
    """Connect what is ours."""
    app.connect("autodoc-process-docstring", _plain)
    for part in ("description", "options"):
        app.connect(f"sphinx-click-process-{part}", _plain_help)
