"""Options for labels: which column of a file holds them, which there are, and which words to ask about."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from shufflesum.cli.options.gathered import gathered
from shufflesum.domain import Ball, Box, Categories, Choices, Domain, Groups, Hashed, Label
from shufflesum.errors import FileError, ParameterError
from shufflesum.tables import option_of

__all__ = [
    "Chosen",
    "LabelOptions",
    "bin_edges",
    "candidates_option",
    "column_for",
    "label_column_options",
    "label_options",
    "planned_column_options",
    "read_words",
]

Chosen = tuple[str, str | None]
"""What labels are for, by the name of the option, and the column that holds them, if it has a name."""

_F = TypeVar("_F", bound=Callable[..., object])

_PUBLIC = "labels are public, part of the plan and never read off the data"

candidates_option = click.option(
    "--candidates",
    type=click.Path(path_type=Path),
    help="words: a file of the words to count, one a line.",
)


def _chosen(categories: str | None, choices: str | None, group_by: str | None, words: str | None) -> Chosen | None:
    """What the column of labels is for, and its name."""
    columns = {"categories": categories, "choices": choices, "group_by": group_by, "words": words}
    given = [(name, column) for name, column in columns.items() if column is not None]
    if len(given) > 1:
        one, other = (f"--{name.replace('_', '-')}" for name, _ in given[:2])
        raise ParameterError("conflicting-arguments", f"{one} and {other} exclude each other; leave one of them out")
    return given[0] if given else None


def _columns(categories: str, choices: str, group_by: str, words: str) -> Callable[[_F], _F]:
    """The options that name the column of labels, with what is said of each."""
    return gathered(
        "chosen",
        _chosen,
        click.option("--categories", metavar="COLUMN", help=categories),
        click.option("--choices", metavar="COLUMN", help=choices),
        click.option("--group-by", metavar="COLUMN", help=group_by),
        click.option("--words", metavar="COLUMN", help=words),
    )


label_column_options = _columns(
    "Count the labels, or numbers in bins, of this column.",
    "Count the lists of labels of this column, or text with ; between.",
    "Means of numbers in the groups of this column.",
    "Count any words in this column, without a list of them.",
)
"""Which column holds labels, as `chosen`; at most one of the four may be given."""

planned_column_options = _columns(
    "The column of each user's label, or number in bins, under a plan for categories.",
    "The column of lists of labels, or of text with ; between, under a plan for choices.",
    "The column of each user's group, under a plan for groups.",
    "The column of each user's word, under a plan for words.",
)
"""The same for commands that count nothing themselves: what is done with the column is the plan's."""


def column_for(domain: Domain, chosen: Chosen | None) -> str | None:
    """The name of the column of labels under a plan, if one was given; it must be what the plan is for."""
    if chosen is None:
        return None
    option, wanted = f"--{chosen[0].replace('_', '-')}", None if isinstance(domain, Ball | Box) else option_of(domain)
    if option != wanted:
        remedy = "leave it out" if wanted is None else f"name the column with {wanted}"
        raise ParameterError(
            "conflicting-arguments", f"{option} is not what the plan is for, {type(domain).__name__}; {remedy}"
        )
    return chosen[1]


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The options of `label_options`."""

    labels: str | None = None
    bins: str | None = None
    other: bool = False
    most: int | None = None
    buckets: int | None = None
    functions: int | None = None

    @property
    def given(self) -> list[str]:
        """Which options were given."""
        return [f"--{name}" for name in self.__slots__ if getattr(self, name) not in (None, False)]

    @property
    def implied(self) -> Chosen | None:
        """What labels are for, where only their list or such was given: a file with one column needs no name."""
        if self.most is not None:
            return "choices", None
        if self.labels is not None or self.bins is not None or self.other:
            return "categories", None
        return ("words", None) if self.given else None

    def domain(
        self, kind: str, column: str | None = None, numbers: Box | None = None
    ) -> Categories | Choices | Groups | Hashed:
        """What users hold, in a column of this name and, of groups, in these numbers; `kind` by its option's name."""
        match kind:
            case "categories":
                return self._categories(column)
            case "choices":
                return self._choices(column)
            case "group_by":
                return self._groups(column, numbers or Box.of((), (0, 1)))
        return self._hashed(column)

    def _categories(self, column: str | None) -> Categories:
        self._refuse_but(("--labels", "--bins", "--other"), "is not for --categories")
        if self.labels is not None and self.bins is not None:
            raise ParameterError("conflicting-arguments", "--labels and --bins exclude each other; leave one out")
        if self.bins is not None:
            return Categories(bins=bin_edges(self.bins), other=self.other, column=column)
        return Categories(
            self._listed("--categories", ", or edges of bins for numbers (--bins 0,18,65,120)"),
            other=self.other,
            column=column,
        )

    def _choices(self, column: str | None) -> Choices:
        self._refuse_but(("--labels", "--most"), "is not for --choices")
        if self.most is None:
            raise ParameterError(
                "missing-argument", "--most is missing: how many labels a user may have at most, as --most 3"
            )
        return Choices(self._listed("--choices"), most=self.most, column=column)

    def _groups(self, column: str | None, numbers: Box) -> Groups:
        self._refuse_but(("--labels",), "is not for --group-by")
        return Groups(self._listed("--group-by"), numbers, column=column)

    def _hashed(self, column: str | None) -> Hashed:
        self._refuse_but(("--buckets", "--functions"), "is not for --words, which has no list of labels")
        return Hashed(self.buckets, self.functions, column=column)

    def _listed(self, option: str, remedy: str = "") -> int | list[Label]:
        if self.labels is None:
            raise ParameterError(
                "missing-argument",
                f"--labels is missing: {option} needs the list of all that can occur, since {_PUBLIC}; give --labels "
                f"yes,no,unsure, or --labels labels.txt with one a line, or --labels D for 0 to D-1{remedy}",
            )
        return _labels(self.labels)

    def _refuse_but(self, allowed: tuple[str, ...], why: str) -> None:
        for option in self.given:
            if option not in allowed:
                raise ParameterError("conflicting-arguments", f"{option} {why}; leave it out")


label_options = gathered(
    "labelled",
    LabelOptions,
    click.option(
        "--labels",
        metavar="L",
        help="The public labels: yes,no,unsure, a file with one a line (.txt), or a number D for 0 to D-1.",
    ),
    click.option("--bins", metavar="E,E,...", help="categories: edges of bins for numbers, as 0,18,65,120."),
    click.option("--other", is_flag=True, help="categories: count everything else as one more label."),
    click.option("--most", type=int, metavar="S", help="choices: most labels of a user."),
    click.option("--buckets", type=int, metavar="B", help="words: buckets of a hash.  [chosen]"),
    click.option("--functions", type=int, metavar="S", help="words: hash functions.  [chosen]"),
)
"""Which labels there are, and what a plan for them fixes, as `labelled`."""


def read_words(path: Path, what: str) -> list[str]:
    """The lines of a text file that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        problem = "not-text" if isinstance(error, UnicodeError) else "unreadable"
        raise FileError(problem, f"cannot read the {what} {path}: {error}; give a text file, one a line") from error
    words = [line.strip() for line in text.splitlines() if line.strip()]
    if not words:
        raise FileError("no-rows", f"{path}: is empty; it must hold {what}, one a line")
    return words


def _labels(text: str) -> int | list[Label]:
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


def bin_edges(text: str) -> list[float]:
    """Edges of bins, as they are written."""
    try:
        return [float(edge) for edge in text.split(",")]
    except ValueError:
        raise ParameterError(
            "wrong-type", f"--bins is {text!r}; write numbers with commas, such as 0,18,65,120"
        ) from None
