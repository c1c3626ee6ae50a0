"""What a survey's tables answer, asked after the collection: cross-tables, groups of users, shares and means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import shown
from shufflesum._format import between, plus_minus
from shufflesum.cautions import ShufflesumWarning, uninformative
from shufflesum.domains.labels import Label
from shufflesum.domains.survey.domain import AttributeCells, MarginalCells, Survey
from shufflesum.domains.survey.quantities import SEEN, FittedTables, Quantity, Weights
from shufflesum.domains.survey.questions import meant
from shufflesum.errors import ParameterError
from shufflesum.estimate import BaseEstimate, EstimateTable, Floats, tail_of

_COLUMNS = ("name", "value", "std_error", "lower", "upper", "users", "notes", "share")  # of a table of counts
_MOST_DETAILS = 10  # pictures on a page

Filter: TypeAlias = Mapping[str, "Label | Sequence[Label]"]
"""For each question the answer that is asked for, or several of which any will do."""


@dataclass(frozen=True, eq=False)
class Respondents:
    """All users, or those who gave some answers (`where`): their number, counts by further questions, shares, means."""

    fitted: FittedTables = field(repr=False)
    weights: Weights = field(default_factory=dict, repr=False)
    condition: str = ""
    """What they answered, in words."""

    @property
    def survey(self) -> Survey:
        """The questions."""
        return self.fitted.survey

    @property
    def users(self) -> Quantity:
        """How many they are."""
        return self.fitted.sum_of(self.weights)

    def where(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Respondents:
        """Those of them who gave these answers: by question, one answer or several of which any will do."""
        given: dict[str, Any] = {**(conditions or {}), **answers}
        weights: dict[int, Floats] = dict(self.weights)
        said = [self.condition] if self.condition else []
        for name, answer in given.items():
            attribute, mask = self._mask(name, answer)
            weights[attribute] = weights[attribute] * mask if attribute in weights else mask
            several = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence) else answer
            said.append(f"{name} = {' or '.join(map(str, several))}")
        return Respondents(self.fitted, weights, ", ".join(said))

    def count(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Quantity:
        """How many of them gave these answers."""
        return self.where(conditions, **answers).users

    def share(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Quantity:
        """Which part of them gave these answers."""
        return self._part_of(self.count(conditions, **answers))

    def sum(self, question: str) -> Quantity:
        """The sum of the numbers they answered."""
        return self._numbers(question)[0]

    def mean(self, question: str) -> Quantity:
        """The mean of the numbers they answered; who left the question out is not counted."""
        total, answered = self._numbers(question)
        return total / answered if answered.variance else total / answered.value

    def means(self, question: str, by: str) -> Answer:
        """The mean of a number for each answer to another question."""
        answers = self.survey.question(by).answers
        groups = [self.where({by: answer}) for answer in answers]
        found = [group.mean(question) for group in groups]

        def rows(level: float) -> EstimateTable:
            return _table_of(
                found,
                level,
                quantity="mean",
                users=np.array([group.users.value for group in groups]),
                shape=(len(found),),
                names_of=lambda places: [answers[place] for place in places],
                entry=by,
            )

        return self.fitted.estimate.read_as(Answer, rows=rows, asked=f"Mean of {question} by {by}{self.of_whom}")

    @property
    def of_whom(self) -> str:
        """Who is asked about, as it ends a title; nothing where it is everybody."""
        return f", where {self.condition}" if self.condition else ""

    def __getitem__(self, questions: str | tuple[str, ...]) -> CrossTable:
        """Counts by one question, or by several together."""
        names = (questions,) if isinstance(questions, str) else tuple(questions)
        return self.fitted.estimate.read_as(CrossTable, among=self, cells=self.survey.cells_of(names))

    def _part_of(self, counted: Quantity) -> Quantity:
        return counted / self.users if self.weights else counted / float(self.fitted.users)

    def _numbers(self, name: str) -> tuple[Quantity, Quantity]:
        """The sum of the numbers they answered, and how many did."""
        question = self.survey.question(name)
        if question.levels is None:
            raise ParameterError(
                "impossible-combination",
                f"question {name!r} has no numbers between bounds, so there is no mean: plan with Question(bounds=...)",
            )
        attribute, points = self.survey.first_attributes[name], question.points
        values = np.concatenate([points, np.zeros(len(question.answers) - len(points))])
        answered = np.concatenate([np.ones(len(points)), np.zeros(len(question.answers) - len(points))])
        sums, counts = (self._with(attribute, each) for each in (values, answered))
        return self.fitted.sum_of(sums), self.fitted.sum_of(counts)

    def _with(self, attribute: int, values: Floats) -> Weights:
        kept = self.weights.get(attribute)
        return {**self.weights, attribute: values if kept is None else values * kept}

    def _mask(self, name: str, answer: Any) -> tuple[int, Floats]:
        """The attribute of a question, or of its label, and which of its values are asked for."""
        question = self.survey.question(name)
        first = self.survey.first_attributes[name]
        asked = [answer] if isinstance(answer, str) or not isinstance(answer, Sequence | np.ndarray) else list(answer)
        places = [self._place(name, each) for each in asked]
        if question.multiple:
            if len(places) != 1:
                raise ParameterError(
                    "impossible-combination",
                    f"question {name!r} has several answers: ask for one label at a time, as {name}={asked[:1]!r}",
                )
            return first + places[0], np.array([0.0, 1.0])
        mask = np.zeros(len(question.answers))
        mask[places] = 1.0
        return first, mask

    def _place(self, name: str, answer: Any) -> int:
        question = self.survey.question(name)
        place = -1
        if question.labels is not None:
            try:
                place = question.labels.code(answer)
            except TypeError:
                place = -1
        if place < 0 and str(answer) in question.answers:
            place = question.answers.index(str(answer))
        if place < 0:
            raise ParameterError(
                "unknown-choice",
                f"{shown(answer)} is no answer to question {name!r}; {meant(answer, question.answers)}",
            )
        return place


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Answer(BaseEstimate):
    """Shares or means that were asked of a survey, as a table."""

    what: ClassVar[str] = "Private survey"

    rows: Callable[[float], EstimateTable] = field(kw_only=True)
    asked: str = field(kw_only=True)
    """What was asked, as a title."""

    @property
    def heading(self) -> str:
        """What was asked."""
        return self.asked

    def remarks(self, level: float = 0.95) -> list[str]:
        """What was asked."""
        return [self.asked]

    def _rows(self, level: float) -> EstimateTable:
        return self.rows(level)


def _table_of(
    found: Sequence[Quantity], level: float, *, quantity: str, users: Floats, **further: Any
) -> EstimateTable:
    """Numbers with their intervals; NaN where a group has too few users."""
    ends = [each.interval(level) for each in found]
    return EstimateTable(
        quantity,
        level,
        np.array([each.value for each in found]),
        np.array([each.standard_error for each in found]),
        np.array([low for low, _ in ends]),
        np.array([high for _, high in ends]),
        users,
        np.array(["too few users" if math.isnan(each.value) else "" for each in found]),
        indexed=False,
        named=True,
        **further,
    )


@dataclass(frozen=True, eq=False, repr=False)
class CrossTable(BaseEstimate):
    """Counts of users by the answers to some questions, one axis for each; consistent with every other table.

    `counts` are those of least squares over everything that was collected, without bias, so that single ones may be
    negative. `raw_counts` are those of the one table with just these questions, where it was collected.
    """

    what: ClassVar[str] = "Private survey"
    caption: ClassVar[str] = "How many users gave these answers"

    among: Respondents = field(kw_only=True)
    cells: MarginalCells = field(kw_only=True)

    def __repr__(self) -> str:
        return f"CrossTable({' x '.join(self.questions)}{self.among.of_whom}, plan {self.plan.id[:12]})"

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions, in the order of the axes."""
        return self.cells.questions

    @property
    def answers(self) -> tuple[tuple[str, ...], ...]:
        """The answers along each axis."""
        return self.cells.answers

    @cached_property
    def counts(self) -> Floats:
        """How many users gave these answers."""
        return self._filled(self._sums)

    @cached_property
    def standard_error(self) -> Floats:
        """The standard error of the counts."""
        return self._filled(lambda part, _: np.array(self._first(part).standard_error))

    def interval(self, level: float = 0.95, *, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Ends that hold each true count, or with `simultaneous` all of them, with at least this probability."""
        tail = tail_of(level, self.counts.size if simultaneous else 1)
        off = self._filled(lambda part, _: np.array(self._first(part).reach(tail)))
        return self.counts - off, self.counts + off

    def at(self, *answers: Label) -> Quantity:
        """The count of one cell."""
        if len(answers) != len(self.questions):
            raise ParameterError("wrong-shape", f"give one answer to each of {', '.join(self.questions)}")
        return self.among.count(dict(zip(self.questions, answers, strict=True)))

    def sum(self, weights: Any) -> Quantity:
        """The sum of cells, each times its weight: an array like `counts`."""
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != self.counts.shape or not np.isfinite(given).all():
            raise ParameterError("wrong-shape", f"weights are one finite number for each cell: {self.counts.shape}")
        cells = [place for place in np.ndindex(*given.shape) if given[place]]
        found = [self._cell(place) * float(given[place]) for place in cells]
        if not found:
            raise ParameterError("out-of-range", "all weights are 0; give some cell one")
        total = found[0]
        for each in found[1:]:
            total = total + each
        return total

    @property
    def shares(self) -> Floats:
        """Each cell as a part of the users asked about."""
        users = self.among.users
        seen = not self.among.weights or users.interval(SEEN)[0] > 0
        return self.counts / users.value if seen else np.full(self.cells.shape, np.nan)

    @property
    def share_standard_error(self) -> Floats:
        """The standard error of the shares."""
        return self._of_cells(lambda cell: self.among._part_of(cell).standard_error)

    def share_interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Ends that hold each true share with at least this probability."""
        ends = self._of_cells(lambda cell: self.among._part_of(cell).interval(level))
        return ends[..., 0], ends[..., 1]

    def within(self, question: str) -> Answer:
        """Shares within each answer to one of the questions: they add up to 1 for each."""
        if question not in self.questions or len(self.questions) < 2:
            raise ParameterError(
                "unknown-choice",
                f"{question!r} is not one of several questions, {', '.join(self.questions)}: ask for two or more",
            )
        groups = self.answers[self.questions.index(question)]
        others = [name for name in self.questions if name != question]
        cells = [
            dict(zip(others, each, strict=True)) for each in product(*(self.survey.question(o).answers for o in others))
        ]
        names = [", ".join(cell.values()) for cell in cells]
        among = [self.among.where({question: group}) for group in groups]
        found = [each.share(cell) for each in among for cell in cells]
        sizes = [each.users for each in among for _ in cells]

        def rows(level: float) -> EstimateTable:
            return _table_of(
                found,
                level,
                quantity="share",
                users=np.array([size.value for size in sizes]),
                shape=(len(names),),
                names_of=lambda places: [names[place] for place in places],
                groups=groups,
                further={"users_std_error": np.array([size.standard_error for size in sizes])},
                entry=" and ".join(others),
            )

        asked = f"Share of {' and '.join(others)} within each {question}{self.among.of_whom}"
        return self.read_as(Answer, rows=rows, asked=asked)

    @cached_property
    def raw_counts(self) -> Floats | None:
        """The counts of the one table with just these questions; None where no such table was collected."""
        fitted = self.among.fitted
        if self.among.weights or any(part.attributes not in fitted.layout.tables for part in self.cells.parts):
            return None

        def raw(part: AttributeCells, _: Weights) -> Floats:
            number = fitted.layout.tables.index(part.attributes)
            table = fitted.tables[number]
            if fitted.layout.single(part.attributes):
                table = np.array([fitted.users - float(table), float(table)])
            return part.taken(table)

        return self._filled(raw)

    @property
    def raw_standard_error(self) -> float:
        """The standard error of each raw count."""
        return math.sqrt(self.among.fitted.noise.variance)

    @property
    def survey(self) -> Survey:
        """All questions."""
        return self.among.survey

    @property
    def heading(self) -> str:
        """Which questions, and of whom."""
        return f"Users by {' and '.join(self.questions)}{self.among.of_whom}"

    def remarks(self, level: float = 0.95) -> list[str]:
        """Who was asked about."""
        return [f"Of users where {self.among.condition}."] if self.among.condition else []

    def _rows(self, level: float) -> EstimateTable:
        lower, upper = self.interval(level)
        names = self.names
        users = self.among.users.value
        return EstimateTable(
            "users",
            level,
            self.counts.ravel(),
            np.broadcast_to(self.standard_error, self.counts.shape).ravel(),
            lower.ravel(),
            upper.ravel(),
            np.full(self.counts.size, users),
            np.full(self.counts.size, ""),
            (self.counts.size,),
            lambda places: [names[place] for place in places],
            further={"share": self.shares.ravel()} | self._answer_columns,
            entry=" and ".join(self.questions),
            of_users=True,
            beside=("share", 100 / users, " %") if users > 0 else None,
            crossed=tuple(zip(self.questions, self.answers, strict=True)),
        )

    @property
    def names(self) -> list[str]:
        """The cells by their answers."""
        return [", ".join(answers) for answers in product(*self.answers)]

    @property
    def _answer_columns(self) -> dict[str, NDArray[np.str_]]:
        """For each question a column of the answers that rows are of."""
        combined = list(product(*self.answers))
        return {
            f"question_{name}" if name in _COLUMNS else name: np.array([row[place] for row in combined])
            for place, name in enumerate(self.questions)
        }

    def _filled(self, found: Callable[[AttributeCells, Weights], Floats]) -> Floats:
        """An array over all answers, part by part."""
        out = np.zeros(self.cells.shape)
        for part in self.cells.parts:
            out[part.target] = found(part, self.among.weights)
        return out

    def _sums(self, part: AttributeCells, weights: Weights) -> Floats:
        """The counts of a part's cells among these users."""
        fitted = self.among.fitted
        outside = {each: values for each, values in weights.items() if each not in part.attributes and np.ptp(values)}
        attributes = tuple(sorted({*part.attributes, *outside}))
        fitted.require(attributes)
        counts = fitted.layout.marginal(fitted.residuals, attributes)
        for axis in reversed(range(len(attributes))):
            values = weights.get(attributes[axis])
            if values is not None:
                counts = np.moveaxis(np.moveaxis(counts, axis, -1) * values, -1, axis)
            if attributes[axis] not in part.attributes:
                counts = counts.sum(axis=axis)
        return part.taken(counts)

    def _first(self, part: AttributeCells) -> Quantity:
        """One cell of a part: noise is the same in all of them."""
        sizes = self.among.survey.sizes
        weights = dict(self.among.weights)
        for attribute, at in zip(part.attributes, part.source, strict=True):
            unit = np.zeros(sizes[attribute])
            kept = weights.get(attribute)
            unit[at if isinstance(at, int) else 0 if kept is None else int(np.flatnonzero(kept)[0])] = 1.0
            weights[attribute] = unit
        return self.among.fitted.sum_of(weights)

    def _cell(self, place: tuple[int, ...]) -> Quantity:
        answers = {name: each[at] for name, each, at in zip(self.questions, self.answers, place, strict=True)}
        return self.among.count(answers)

    def _of_cells(self, number: Callable[[Quantity], Any]) -> Floats:
        found = [number(self._cell(place)) for place in np.ndindex(*self.cells.shape)]
        return np.array(found, dtype=np.float64).reshape(*self.cells.shape, *np.shape(found[0]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SurveyEstimate(BaseEstimate):
    """Everything that follows from the tables of a survey: `estimate["country", "age"]`, `estimate.where(...)`.

    Asking spends nothing: whatever is asked is computed from the same noisy tables.
    """

    what: ClassVar[str] = "Private survey"
    caption: ClassVar[str] = "How many users gave each answer"

    _kept: list[FittedTables] = field(default_factory=list, init=False)

    @property
    def everybody(self) -> Respondents:
        """All users."""
        if not self._kept:
            self._kept.append(FittedTables.of(self))
        return Respondents(self._kept[0])

    @property
    def survey(self) -> Survey:
        """The questions, and which marginals were wanted."""
        return cast("Survey", self.domain)

    def __getitem__(self, questions: str | tuple[str, ...]) -> CrossTable:
        """Counts by one question, or by several together."""
        return self.everybody[questions]

    def where(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Respondents:
        """The users who gave these answers: by question, one answer or several of which any will do."""
        return self.everybody.where(conditions, **answers)

    def count(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Quantity:
        """How many users gave these answers."""
        return self.everybody.count(conditions, **answers)

    def share(self, conditions: Filter | None = None, /, **answers: Label | Sequence[Label]) -> Quantity:
        """Which part of the users gave these answers."""
        return self.everybody.share(conditions, **answers)

    def sum(self, question: str) -> Quantity:
        """The sum of the numbers that users answered."""
        return self.everybody.sum(question)

    def mean(self, question: str) -> Quantity:
        """The mean of the numbers that users answered."""
        return self.everybody.mean(question)

    def means(self, question: str, by: str) -> Answer:
        """The mean of a number for each answer to another question."""
        return self.everybody.means(question, by)

    @property
    def warnings(self) -> tuple[ShufflesumWarning, ...]:
        """What deserves a second look: of the plan, and of answers whose share may be anything."""
        shares, errors = [], []
        for names in self.survey.wanted:
            found = self[names]
            shares.append(found.counts.ravel() / self.users)
            errors.append(np.broadcast_to(found.standard_error, found.counts.shape).ravel() / self.users)
        return *self.plan.warnings, *uninformative(np.concatenate(shares), np.concatenate(errors))

    @property
    def details(self) -> tuple[CrossTable, ...]:
        """Counts by two questions, of the first pairs that were wanted."""
        return tuple(self[names] for names in self.survey.wanted if len(names) == 2)[:_MOST_DETAILS]

    @property
    def counts(self) -> Floats:
        """All wanted counts, marginal after marginal."""
        return np.concatenate([self[names].counts.ravel() for names in self.survey.wanted])

    def remarks(self, level: float = 0.95) -> list[str]:
        """The means of numbers."""
        found = []
        for name, question in self.survey.questions:
            if question.levels is not None and (self.survey.first_attributes[name],) in self.everybody.fitted.known:
                found.append(f"mean of {name}: {self._mean_text(name, level)}")
        return found

    def _mean_text(self, name: str, level: float) -> str:
        mean = self.mean(name)
        low, high = mean.interval(level)
        wide = max(high - mean.value, mean.value - low)
        return f"{plus_minus(mean.value, wide)}, {between(low, high, wide)}"

    def _rows(self, level: float) -> EstimateTable:
        """All cells of all wanted marginals, with the questions of each."""
        found = [(names, self[names]) for names in self.survey.wanted]
        tables = [table.to_table(level) for _, table in found]
        names = [
            ", ".join(f"{name}: {answer}" for name, answer in zip(table.questions, answers, strict=True))
            for _, table in found
            for answers in product(*table.answers)
        ]
        questions = [" x ".join(table.questions) for _, table in found for _ in range(table.counts.size)]

        def joined(column: str) -> Floats:
            return np.concatenate([getattr(table, column) for table in tables])

        return replace(
            tables[0],
            value=joined("value"),
            std_error=joined("std_error"),
            lower=joined("lower"),
            upper=joined("upper"),
            users=np.full(len(names), self.users),
            notes=np.full(len(names), ""),
            shape=(len(names),),
            names_of=lambda places: [names[place] for place in places],
            further={"share": joined("value") / self.users, "questions": np.array(questions)},
            entry="answer",
            beside=("share", 100 / self.users, " %"),
            crossed=(),
            leading=sum(table.counts.size for names, table in found if len(names) == 1),
        )
