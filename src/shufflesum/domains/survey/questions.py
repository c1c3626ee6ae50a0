"""The questions of a survey: what each may be answered with, how columns of answers are read, and `survey.toml`.

A question has attributes, of each of which a user has one value: a question with one answer is one attribute, with a
value for each answer; one with several answers is an attribute for each of its labels, "no" or "yes". To leave an
optional question out is an answer.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import check_size, set_fields, shown
from shufflesum.domains.arrays import Arrays
from shufflesum.domains.categories import Categories
from shufflesum.domains.labels import (
    MISSING,
    Label,
    LabelRows,
    Labels,
    is_missing,
    label_rows,
    present,
    taken,
    value_at,
)
from shufflesum.domains.multi_choice import ChoiceRows, ListRows, MultiChoice
from shufflesum.domains.structure import LEFT_OUT, Rows
from shufflesum.encodings import Values
from shufflesum.errors import DataError, FileError, ParameterError, ShufflesumError

NO_ANSWER = "no answer"
"""The answer of whoever leaves an optional question out."""

DEFAULT_LEVELS = 4
"""Steps of the scale that numbers are rounded to; more bring more noise, fewer more rounding."""

_WHOLE_LEVELS = 10  # up to so many whole numbers from bound to bound are the points themselves

_MOST_LEVELS = 1000
_MOST_QUESTIONS = 1000
_BETWEEN = ";"
_TEXT = ("object", "str", "string", "large_string", "string_view")  # what libraries call columns of text

AnswerRows: TypeAlias = LabelRows | ChoiceRows | Rows
"""One answer for each user, or one list of answers."""

QuestionLike: TypeAlias = "Question | Sequence[Label]"
"""A question, or the list of labels of one."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What some users answered to one question: a value of each of its attributes, and numbers still to be rounded."""

    values: NDArray[np.uint32]
    """(m, attributes)."""
    numbers: Values | None = None
    """(m, 1): where the value is 0, this number is to be rounded at random to a value."""


@dataclass(frozen=True, init=False)
class Question:
    """One question: `labels` to choose from, `bins` that a number is counted in, or `bounds` of a number.

    With `multiple` any number of labels may be chosen, each of which is a question of its own to the guarantee. A
    number with bounds is rounded at random to one of `levels` + 1 points from bound to bound, so that its mean stays;
    unless given, `levels` are 4, or as many as there are steps between whole bounds at most 10 apart.
    Where a question is `optional`, "no answer" is an answer. All of it is public: never chosen by looking at the data.
    """

    labels: Labels | None
    bins: tuple[float, ...] | None
    bounds: tuple[float, float] | None
    levels: int | None
    multiple: bool
    optional: bool
    text: str | None
    """The question as users read it."""

    def __init__(
        self,
        labels: Iterable[Label] | Labels | None = None,
        *,
        bins: Sequence[float] | None = None,
        bounds: tuple[float, float] | None = None,
        levels: int | None = None,
        multiple: bool = False,
        optional: bool = False,
        text: str | None = None,
    ) -> None:
        if sum(given is not None for given in (labels, bins, bounds)) != 1:
            raise ParameterError(
                "missing-argument" if labels is bins is bounds else "conflicting-arguments",
                "a question has labels, bins or bounds, and just one of these",
            )
        for name, flag in (("multiple", multiple), ("optional", optional)):
            if not isinstance(flag, bool | np.bool_):
                raise ParameterError("wrong-type", f"{name} is {shown(flag)}; it must be True or False")
        if multiple and labels is None:
            raise ParameterError("conflicting-arguments", "multiple=True is for labels; leave it out")
        if levels is not None and bounds is None:
            raise ParameterError("conflicting-arguments", "levels are for a number with bounds; leave it out")
        if text is not None and not isinstance(text, str):
            raise ParameterError("wrong-type", f"text is {shown(text)}; give the question as users read it")
        listed = None if labels is None else labels if isinstance(labels, Labels) else Labels(labels)
        if listed is not None and len(listed) < 2 - bool(optional or multiple):
            raise ParameterError("out-of-range", "a question with a single answer says nothing; give more labels")
        if listed is not None and optional and listed.code(NO_ANSWER) >= 0:
            raise ParameterError(
                "conflicting-arguments", f"{NO_ANSWER!r} is one of the labels already; leave it out, or optional=True"
            )
        if bounds is not None:
            numbers = Arrays((), bounds)
            bounds = float(numbers.lower[0]), float(numbers.upper[0])
            levels = _default_levels(*bounds) if levels is None else levels
            check_size("levels", levels, 1, _MOST_LEVELS)
        set_fields(
            self,
            labels=listed,
            bins=None if bins is None else Categories(bins=bins).bins,
            bounds=bounds,
            levels=None if levels is None else int(levels),
            multiple=bool(multiple),
            optional=bool(optional),
            text=text,
        )

    # ---- its answers

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """All answers as text, "no answer" last where there is one; of numbers the points they are rounded to."""
        if self.labels is not None:
            names = self.labels.texts
        elif self.bins is not None:
            names = self._bins.names
        else:
            names = tuple(f"{point:.12g}" for point in self.points)
        return (*names, NO_ANSWER) if self.optional else names

    @cached_property
    def attributes(self) -> tuple[int, ...]:
        """How many values each of its attributes has."""
        return (2,) * len(self.answers) if self.multiple else (len(self.answers),)

    @cached_property
    def points(self) -> NDArray[np.float64]:
        """What a number is rounded to, from bound to bound; empty where it has no bounds."""
        if self.bounds is None or self.levels is None:
            return np.empty(0)
        return np.linspace(*self.bounds, self.levels + 1)

    @property
    def is_number(self) -> bool:
        """Whether columns of answers hold numbers."""
        return self.labels is None

    @cached_property
    def scale(self) -> Arrays:
        """The bounds of its number."""
        assert self.bounds is not None
        return Arrays((), self.bounds)

    # ---- columns of answers

    def rows(self, column: Any) -> AnswerRows:
        """A column of one answer for each user; arrays are not copied."""
        if self.labels is None:
            column = [np.nan if each is None else each for each in column] if isinstance(column, list) else column
            return self._bins.rows(column) if self.bins is not None else self.scale.rows(column)
        if not self.multiple:
            return label_rows(column, "answers")
        return self._choices.rows(_split(column, optional=self.optional))

    def read(self, rows: Any, first_row: int, *, clip: bool) -> Answers:
        """The values of users' answers; refuses what is none, and what is missing unless the question is optional."""
        if self.multiple:
            return Answers(self._ticks(rows, first_row))
        if self.labels is not None:
            return Answers(self._codes(rows, first_row)[:, None])
        numbers, missing = self._numbers(rows)
        if self.bins is not None:
            codes = self._bins.block(numbers, first_row, clip=clip).cells
            return Answers(np.where(missing, len(self.bins) - 1, codes).astype(np.uint32)[:, None])
        assert self.levels is not None
        block = self.scale.block(numbers, first_row, clip=clip)
        block.check()
        return Answers(np.where(missing, self.levels + 1, 0).astype(np.uint32)[:, None], block)

    def present(self, rows: Any) -> NDArray[np.bool_]:
        """Who gave an answer, or need not."""
        return np.ones(len(rows), np.bool_) if self.optional else present(rows)

    def taken(self, rows: Any, kept: NDArray[np.bool_]) -> AnswerRows:
        """The rows that are kept."""
        if not isinstance(rows, ListRows):
            return cast("AnswerRows", taken(rows, kept))
        sizes = np.diff(rows.starts)
        first, last = int(rows.starts[0]), int(rows.starts[-1])
        labels = taken(rows.labels[first:last], np.repeat(kept, sizes))
        starts = np.concatenate([[0], np.cumsum(sizes[kept])]).astype(np.int64)
        return ListRows(starts, labels, None if rows.missing is None else rows.missing[kept])

    def held(self, rows: Any, row: int) -> Any:
        """One user's answer."""
        if isinstance(rows, ListRows):
            if rows.missing is not None and rows.missing[row]:
                return None
            return [value_at(rows.labels, index) for index in range(*rows.starts[row : row + 2].tolist())]
        if self.multiple:
            return np.asarray(rows[row : row + 1])[0]
        if self.labels is not None:
            return value_at(rows, row)
        return float(np.asarray(rows[row : row + 1]).reshape(-1)[0])

    def example(self, values: Sequence[int]) -> Any:
        """An answer with these values of its attributes."""
        if self.multiple:
            assert self.labels is not None
            if self.optional and values[-1]:
                return None
            return [label for label, ticked in zip(self.labels.values, values, strict=False) if ticked]
        (value,) = values
        if self.optional and value == len(self.answers) - 1:
            return None
        if self.labels is not None:
            return self.labels.values[value]
        return self._bins.example(cells=[value]) if self.bins is not None else float(self.points[value])

    @cached_property
    def _bins(self) -> Categories:
        return Categories(bins=self.bins)

    @cached_property
    def _choices(self) -> MultiChoice:
        assert self.labels is not None
        several = self.labels if len(self.labels) > 1 else Labels([*self.labels.values, NO_ANSWER])
        return MultiChoice(several, max_choices=len(several))

    def _codes(self, rows: Any, first_row: int) -> NDArray[np.uint32]:
        assert self.labels is not None
        codes = self.labels.codes(rows, first_row, "answers")
        if self.optional:
            codes = np.where(codes == MISSING, len(self.labels), codes)
        if (codes < 0).any():
            row = int(np.flatnonzero(codes < 0)[0])
            remedy = ", or let people leave the question out (optional=True)" if codes[row] == MISSING else ""
            self.labels.refuse(value_at(label_rows(rows), row), first_row + row, remedy)
        return codes.astype(np.uint32)

    def _numbers(self, rows: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Numbers, and whose are missing where that is an answer; these are put at the lower end."""
        numbers = np.asarray(rows[:]).reshape(-1)
        missing = np.isnan(numbers) if self.optional and numbers.dtype.kind == "f" else np.zeros(len(numbers), np.bool_)
        lowest = self.bins[0] if self.bins is not None else self.scale.lower[0]
        return (np.where(missing, numbers.dtype.type(lowest), numbers) if missing.any() else numbers), missing

    def _ticks(self, rows: Any, first_row: int) -> NDArray[np.uint32]:
        assert self.labels is not None
        labels = len(self.labels)
        missing = getattr(rows, "missing", None) if self.optional else None
        if missing is not None:
            rows = ListRows(rows.starts, rows.labels)
        cells = self._choices.block(rows, first_row).cells
        ticks = np.zeros((len(cells), len(self.answers)), np.uint32)
        users, places = np.nonzero(cells < labels)
        ticks[users, cells[users, places]] = 1
        if missing is not None:
            ticks[missing, labels] = 1
        return ticks

    # ---- files

    def to_json(self) -> dict[str, Any]:
        """What is said of it, as in `survey.toml`."""
        if self.labels is not None:
            found: dict[str, Any] = {"labels": self.labels.to_json()}
        elif self.bins is not None:
            found = {"bins": list(self.bins)}
        else:
            assert self.bounds is not None
            found = {"bounds": list(self.bounds), "levels": self.levels}
        found |= {name: True for name in ("multiple", "optional") if getattr(self, name)}
        return found | ({} if self.text is None else {"text": self.text})

    @classmethod
    def from_json(cls, fields: object, name: str) -> Question:
        """Undo `to_json`; refuses all else."""
        allowed = ("labels", "bins", "bounds", "levels", "multiple", "optional", "text")
        if not isinstance(fields, Mapping) or fields.keys() - set(allowed):
            raise ParameterError(
                "malformed", f"question {name!r} is {shown(fields)}; it may say {', '.join(allowed)}, and nothing else"
            )
        given = dict(fields)
        for each in ("bins", "bounds"):
            numbers = given.get(each)
            if numbers is not None and not (
                isinstance(numbers, list) and all(type(number) in (int, float) for number in numbers)
            ):
                raise ParameterError(
                    "wrong-type", f"question {name!r}: {each} are {shown(numbers)}; give a list of numbers"
                )
        if "bounds" in given and len(given["bounds"]) != 2:
            raise ParameterError("bad-bounds", f"question {name!r}: bounds are two numbers, the lower and the upper")
        try:
            labels = None if "labels" not in given else Labels.from_json(given.pop("labels"))
            return cls(labels, **given)
        except ShufflesumError as error:
            raise ParameterError(error.problem, f"question {name!r}: {error}") from error


def _default_levels(lower: float, upper: float) -> int:
    """Whole numbers, of which there are few, stay what they are."""
    whole = lower.is_integer() and upper.is_integer() and upper - lower <= _WHOLE_LEVELS
    return int(upper - lower) if whole and upper - lower > 1 else DEFAULT_LEVELS


def meant(given: object, known: Sequence[str]) -> str:
    """What was meant, perhaps, as the end of a message; or else what there is."""
    names = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(str(given).casefold(), names, n=1, cutoff=0.7)
    asked = f"did you mean {names[near[0]]!r}? " if near else ""
    return f"{asked}There are {', '.join(known)[:300]}"


def questions_of(given: Mapping[str, QuestionLike]) -> dict[str, Question]:
    """Questions by name, in their order; a list of labels is a question with one answer."""
    if not isinstance(given, Mapping) or not given:
        raise ParameterError(
            "wrong-type",
            f"questions is {shown(given)}; give a dictionary of questions by name, as {{'country': ['DE', 'FR']}}",
        )
    if len(given) > _MOST_QUESTIONS:
        raise ParameterError("out-of-range", f"{len(given)} questions are given; at most {_MOST_QUESTIONS} are allowed")
    found: dict[str, Question] = {}
    for name, question in given.items():
        if not isinstance(name, str) or not name.strip():
            raise ParameterError("wrong-type", f"a question is called {shown(name)}; give it a name, as of a column")
        if isinstance(question, Question):
            found[str(name)] = question
            continue
        if isinstance(question, str) or not isinstance(question, Sequence | np.ndarray):
            raise ParameterError(
                "wrong-type",
                f"question {name!r} is {shown(question)}; give shufflesum.Question(...) or a list of labels",
            )
        try:
            found[str(name)] = Question(list(question))
        except ShufflesumError as error:
            raise error.at(f"question {name!r}") from None
    return found


def _split(column: Any, *, optional: bool) -> Any:
    """Cells of text with several labels, with ; between, as lists; anything else as it is.

    Programs that read CSV files make an empty cell a missing one: unless that is an answer, nothing is chosen there.
    """
    if isinstance(column, list | tuple) or (isinstance(column, np.ndarray) and column.dtype.kind in "OUT"):
        cells = list(column)
    elif str(getattr(column, "dtype", getattr(column, "type", ""))).lower() in _TEXT:
        read = next(getattr(column, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(column, name))
        cells = read()
    else:
        return column
    if not any(isinstance(cell, str) for cell in cells):
        return column
    empty = None if optional else ""
    texts = (empty if not isinstance(cell, str) and is_missing(cell) else cell for cell in cells)
    return [
        [part.strip() for part in cell.split(_BETWEEN) if part.strip()] if isinstance(cell, str) else cell
        for cell in texts
    ]


# ---- survey.toml

_KEYS = ("questions", "marginals", "title")


def read_survey_file(path: str | Path) -> dict[str, Any]:
    """Questions and marginals of a `survey.toml`, as arguments of `Survey`."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError("unreadable", f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeError) as error:
        raise FileError("malformed", f"{path}: is no TOML: {error}") from error
    unknown = content.keys() - set(_KEYS)
    questions = content.get("questions")
    if unknown or not isinstance(questions, dict):
        what = f"says {', '.join(sorted(unknown))}" if unknown else "has no [questions.NAME]"
        raise FileError("malformed", f"{path}: {what}; a survey has {', '.join(_KEYS)}, and nothing else")
    if not isinstance(content.get("title", ""), str):
        raise FileError("wrong-type", f"{path}: title is {shown(content['title'])}; it must be text")
    try:
        found = {name: Question.from_json(fields, name) for name, fields in questions.items()}
    except ShufflesumError as error:
        raise FileError(error.problem, f"{path}: {error}") from error
    return {"questions": found} | {name: content[name] for name in ("marginals", "title") if name in content}


def missing_answer(question: str, row: int) -> DataError:
    """The refusal of a user who left out a question that is not optional."""
    return DataError(
        "missing-value",
        f"row {row}: question {question!r} is not answered; {LEFT_OUT}, or let people leave it out (optional=True)",
        row=row,
    )
