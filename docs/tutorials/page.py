"""What a tutorial does before its first line: a folder that goes away with it, and output that fits a page."""

from __future__ import annotations

import os
import subprocess
import tempfile

import altair
from IPython import get_ipython

_folder = tempfile.TemporaryDirectory()
os.chdir(_folder.name)
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # greetings of Spark's; what goes wrong is raised in a cell
os.environ.pop("FORCE_COLOR", None)  # commands print text for a page, not colours for a terminal
altair.renderers.enable("svg")  # a picture in the page, not a script from elsewhere


def bash(line: str, cell: str) -> None:
    """IPython's `%%bash`, but what commands print comes in one piece, and not a hundred bytes at a time."""
    done = subprocess.run(["bash", "-e", "-c", cell], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    print(done.stdout, end="")


get_ipython().register_magic_function(bash, "cell")
