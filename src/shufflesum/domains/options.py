"""What is said of domains on a command line, as plain data, and how labels, numbers and arrays are written there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shufflesum.domains.labels import Label
from shufflesum.errors import FileError, ParameterError


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name without dashes, its help, and what its text becomes; a flag has no text.

    Domains may share an option; it then says the same for each.
    """

    name: str
    help: str
    metavar: str = ""
    convert: Callable[[str], Any] = str
    flag: bool = False

    @property
    def argument(self) -> str:
        """Its name among arguments."""
        return self.name.replace("-", "_")


def labels_from_text(text: str) -> int | list[Label]:
    """A number, a file with one label a line, or labels with commas between."""
    if text.strip().isdecimal():
        return int(text)
    if os.path.exists(text) or text.lower().endswith(".txt"):
        found = read_words(Path(text), "labels")
    else:
        found = [label.strip() for label in text.split(",")]
        if not all(found):
            raise ParameterError("wrong-type", f"--labels is {text!r}: a label is empty; write yes,no,unsure")
    if all(label.lower() in ("true", "false") for label in found):
        return [label.lower() == "true" for label in found]  # what is true in files may be written True and TRUE
    return list(found)


LABELS = Option(
    "labels",
    "The public labels: yes,no,unsure, a file with one per line (.txt), or a number D for 0 to D-1.",
    "L",
    labels_from_text,
)
"""Of all domains that list their labels."""


def listed_labels(given: Mapping[str, Any], option: str, remedy: str = "") -> int | list[Label]:
    """The labels that were given; refused where there are none, since they are never read off the data."""
    if "labels" not in given:
        raise ParameterError(
            "missing-argument",
            f"--labels is missing: {option} needs the list of all that can occur, since labels are public, part of the "
            "plan and never read off the data; give --labels yes,no,unsure, or --labels labels.txt with one per line, "
            f"or --labels D for 0 to D-1{remedy}",
        )
    labels: int | list[Label] = given["labels"]
    return labels


def read_words(path: Path, what: str) -> list[str]:
    """The lines of a text file that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        problem = "not-text" if isinstance(error, UnicodeError) else "unreadable"
        reason = getattr(error, "strerror", None) or error
        raise FileError(problem, f"cannot read the {what} {path}: {reason}; give a text file, one per line") from error
    words = [line.strip() for line in text.splitlines() if line.strip()]
    if not words:
        raise FileError("no-rows", f"{path}: is empty; it must hold {what}, one per line")
    return words


def bin_edges(text: str) -> list[float]:
    """Edges of bins, as they are written."""
    try:
        return [float(edge) for edge in text.split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--bins is {text!r}; write numbers with commas, such as 0,18,65,120"
        ) from None


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file."""
    try:
        with path.open("rb") as file:
            found: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FileError(
            "unreadable", f"cannot read the centre {path}: {error}; give one array in a .npy file"
        ) from error
    return found
