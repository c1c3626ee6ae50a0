"""Many questions at once: each user reports once in each table of a workload of marginals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shufflesum._checks import set_fields, shown
from shufflesum.domains import base
from shufflesum.domains.base import LABEL_DISTRIBUTIONS, AnswerColumn, ColumnLayout, Domain, InputCoercion, Missing
from shufflesum.domains.frames import columns_of
from shufflesum.domains.labels import LABEL_GAPS
from shufflesum.domains.options import Option
from shufflesum.domains.survey.questions import (
    AnswerRows,
    Question,
    QuestionLike,
    meant,
    missing_answer,
    questions_of,
    read_survey_file,
)
from shufflesum.encodings import AttributeValues, Block, Encoding, Marginals
from shufflesum.errors import DataError, ParameterError, PlanError
from shufflesum.marginals import Marginal

Workload: TypeAlias = Literal["one-way", "up to two-way"] | tuple[tuple[str, ...], ...]
"""Each question, each pair of questions as well, or the questions of each marginal."""

_WORKLOADS = {"one-way": 1, "up to two-way": 2}


@dataclass(frozen=True, slots=True)
class SurveyRows:
    """A column of answers for each question, all of the same users."""

    questions: tuple[Question, ...]
    columns: tuple[AnswerRows, ...]

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, rows: slice) -> SurveyRows:
        return SurveyRows(self.questions, tuple(column[rows] for column in self.columns))

    def present(self) -> NDArray[np.bool_]:
        """Who answered all questions that are not optional."""
        answered = (question.present(column) for question, column in zip(self.questions, self.columns, strict=True))
        return np.asarray(np.logical_and.reduce(list(answered)))

    def taken(self, kept: NDArray[np.bool_]) -> SurveyRows:
        """The rows that are kept."""
        pairs = zip(self.questions, self.columns, strict=True)
        return SurveyRows(self.questions, tuple(question.taken(column, kept) for question, column in pairs))


@dataclass(frozen=True, slots=True)
class AttributeCells:
    """Where some cells of a marginal of questions are in a marginal of attributes."""

    attributes: Marginal
    source: tuple[slice | int, ...]
    """Where they are taken from: all values of an attribute, or "yes" of a label."""
    axes: tuple[int, ...]
    """The order that the axes that are left have among the questions."""
    target: tuple[slice | int, ...]
    """Where they belong among the questions' answers."""

    def taken(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """These cells, of an array over the attributes' values."""
        return counts[self.source].transpose(self.axes)


@dataclass(frozen=True, slots=True)
class MarginalCells:
    """The cells of a marginal of questions: each combination of their answers."""

    questions: tuple[str, ...]
    answers: tuple[tuple[str, ...], ...]
    parts: tuple[AttributeCells, ...]
    """One, or one for each chosen label of questions with several answers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """How many answers each question has."""
        return tuple(map(len, self.answers))


@dataclass(frozen=True, init=False)
class Survey(Domain):
    """One answer, or several, to each of many questions; `questions` are given by the names of their columns.

    `marginals` says which counts are wanted: of each question ("one-way"), of each pair as well ("up to two-way"), or
    of the questions in each tuple of a list. Users send one report for each table that is collected; the planner
    chooses tables from which all wanted counts follow.
    """

    kind: ClassVar[str] = "survey"
    parts: ClassVar[tuple[str, str]] = ("survey.estimate:SurveyEstimate", "survey.wording:SurveyWording")
    entry_noun: ClassVar[str] = "each cell's share"
    trivial_guess: ClassVar[str] = "that all answers are equally frequent"
    distributions: ClassVar[tuple[str, ...]] = LABEL_DISTRIBUTIONS
    options: ClassVar[tuple[Option, ...]] = (
        Option("survey", "A survey: the file (.toml) with its questions.", "FILE", Path),
    )

    questions: tuple[tuple[str, Question], ...]
    marginals: Workload
    title: str | None
    tables: tuple[Marginal, ...] | None
    """The attributes of each table that is collected; None until a planner chose."""

    def __init__(
        self,
        questions: Mapping[str, QuestionLike],
        *,
        marginals: str | Iterable[Sequence[str]] = "up to two-way",
        title: str | None = None,
        tables: Iterable[Marginal] | None = None,
    ) -> None:
        found = questions_of(questions)
        if title is not None and not isinstance(title, str):
            raise ParameterError("wrong-type", f"title is {shown(title)}; it must be text")
        set_fields(
            self,
            questions=tuple(found.items()),
            marginals=_workload(marginals, tuple(found)),
            title=title,
            tables=None,
        )
        if tables is not None:
            set_fields(self, tables=self._checked_tables(tables))

    @staticmethod
    def from_file(path: str | Path) -> Survey:
        """The survey of a `survey.toml`."""
        given = read_survey_file(path)
        try:
            return Survey(**given)
        except ParameterError as error:
            raise error.at(path) from error

    # ---- questions, attributes, and the cells that are wanted

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the questions are called."""
        return tuple(name for name, _ in self.questions)

    def question(self, name: str) -> Question:
        """The question of this name."""
        found = self._by_name.get(name)
        if found is None:
            raise ParameterError("unknown-choice", f"there is no question {shown(name)}; {meant(name, self.names)}")
        return found

    @cached_property
    def _by_name(self) -> dict[str, Question]:
        return dict(self.questions)

    @cached_property
    def first_attributes(self) -> dict[str, int]:
        """The number of each question's first attribute."""
        found, first = {}, 0
        for name, question in self.questions:
            found[name] = first
            first += len(question.attributes)
        return found

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each attribute has."""
        return tuple(size for _, question in self.questions for size in question.attributes)

    @cached_property
    def wanted(self) -> tuple[tuple[str, ...], ...]:
        """The questions of each marginal that is wanted."""
        if isinstance(self.marginals, tuple):
            return self.marginals
        most = _WORKLOADS[self.marginals]
        return tuple(names for size in range(1, most + 1) for names in combinations(self.names, size))

    def cells_of(self, names: Sequence[str]) -> MarginalCells:
        """The cells of a marginal of these questions, in this order: each combination of answers.

        Of a question with several answers each label counts those who chose it, and has tables of its own.
        """
        firsts = self.first_attributes
        questions = [self.question(name) for name in names]
        if len(set(names)) < len(names) or not names:
            raise ParameterError("conflicting-arguments", f"questions are {shown(list(names))}; name each once")
        found = []
        ways = [range(len(each.answers)) if each.multiple else (None,) for each in questions]
        for chosen in product(*ways):
            attributes = [firsts[name] + (label or 0) for name, label in zip(names, chosen, strict=True)]
            order = sorted(range(len(names)), key=attributes.__getitem__)
            left = [place for place in order if chosen[place] is None]
            found.append(
                AttributeCells(
                    tuple(attributes[place] for place in order),
                    tuple(slice(None) if chosen[place] is None else 1 for place in order),
                    tuple(left.index(place) for place in sorted(left)),
                    tuple(slice(None) if label is None else label for label in chosen),
                )
            )
        return MarginalCells(tuple(names), tuple(each.answers for each in questions), tuple(found))

    # ---- what is estimated

    @property
    def dimension(self) -> int:
        """A count for each cell of each wanted marginal."""
        return sum(math.prod(len(self.question(name).answers) for name in names) for names in self.wanted)

    @property
    def entries(self) -> int:
        """A value of each attribute."""
        return len(self.sizes)

    @property
    def trivial_mse(self) -> float:
        """Squared error of guessing that all cells are equally frequent, or that half of all choose a label."""
        total = 0.0
        for names in self.wanted:
            questions = [self.question(name) for name in names]
            cells = math.prod(len(each.answers) for each in questions)
            total += cells / 4 if any(each.multiple for each in questions) else 1 - 1 / cells
        return total

    @property
    def central_sensitivity(self) -> tuple[float, float]:
        """A trusted curator's squared error in units of Gaussian and of Laplace noise: with the tables that are best,
        and least squares over them. A user changes two cells of each table."""
        layouts = self._encoding.choices()
        gaussian = min(layout.changed * layout.error_per_variance for layout in layouts)
        laplace = min(layout.changed**2 * layout.error_per_variance for layout in layouts)
        return gaussian, laplace

    def size_text(self) -> str:
        """Questions, and cells."""
        return f"{len(self.questions):,} questions, {self.dimension:,} cells"

    # ---- what a user holds

    def rows(self, values: Any) -> SurveyRows:
        """A table with a column for each question, by its name; columns of other names are not looked at.

        A table is of pandas, Polars, PyArrow or DuckDB, a dictionary of columns, or a list of dictionaries, one for
        each user.
        """
        if isinstance(values, SurveyRows):
            return values
        columns = self._columns(values)
        rows = []
        for name, question in self.questions:
            try:
                rows.append(question.rows(columns[name]))
            except DataError as error:
                raise error.at(f"question {name!r}") from None
        lengths = {name: len(column) for name, column in zip(self.names, rows, strict=True)}
        if len(set(lengths.values())) > 1:
            raise DataError("wrong-shape", f"survey: columns have different lengths: {shown(lengths)}")
        if not len(rows[0]):
            raise DataError("no-rows", "survey: no rows; pass the answers of at least one user")
        return SurveyRows(tuple(question for _, question in self.questions), tuple(rows))

    def _columns(self, values: Any) -> Mapping[str, Any]:
        if isinstance(values, list | tuple) and values and all(isinstance(row, Mapping) for row in values):
            known = set(self.names)
            strange = next((name for row in values for name in row if name not in known), None)
            if strange is not None:
                raise DataError("unknown-column", f"survey: there is no question {shown(strange)}; leave it out")
            return {name: [row.get(name) for row in values] for name in self.names}
        if isinstance(values, Mapping):
            found: Mapping[str, Any] = values
        else:
            table = columns_of(values)
            if table is None or not table.is_table or table.names is None:
                raise DataError(
                    "wrong-type",
                    f"survey: {type(values).__name__} is no table with a column for each question; pass a data frame, "
                    "a dictionary of columns, or a list of dictionaries, one for each user",
                    value=shown(values),
                )
            found = dict(zip(table.names, table.columns, strict=True))
            twice = [name for name in self.names if table.names.count(name) > 1]
            if twice:
                raise DataError(
                    "ambiguous-column", f"survey: several columns are named {twice[0]!r}; rename all but one"
                )
        lacking = [name for name in self.names if name not in found]
        if lacking:
            raise DataError(
                "columns-mismatch",
                f"survey: there is no column for question {lacking[0]!r}; the table has "
                f"{', '.join(map(str, found))[:300]}: rename the column, or the question",
            )
        return found

    def check_options(self, *, clip: bool, missing: Missing) -> None:
        """Refuse what cannot be done here about missing answers, and about labels that are no answers."""
        base.refuse_midpoint(missing, "with a survey; let people leave a question out (optional=True)")
        if clip and not any(question.is_number for _, question in self.questions):
            base.refuse_for_labels(clip=clip, missing=missing)

    def block(
        self, rows: Any, first_row: int = 0, *, clip: bool = False, missing: Missing = "refuse"
    ) -> AttributeValues:
        """A value of each attribute, and numbers that are still to be rounded."""
        self.check_options(clip=clip, missing=missing)
        found = self.rows(rows)
        values: NDArray[np.uint32] = np.empty((len(found), self.entries), np.uint32)
        numbers = []
        for (name, question), column, first in zip(
            self.questions, found.columns, self.first_attributes.values(), strict=True
        ):
            try:
                answers = question.read(column, first_row, clip=clip)
            except DataError as error:
                if error.problem == "missing-value" and error.row is not None:
                    raise missing_answer(name, error.row) from None
                raise error.at(f"question {name!r}") from None
            values[:, first : first + answers.values.shape[1]] = answers.values
            if answers.numbers is not None:
                assert question.levels is not None
                numbers.append((first, question.levels, answers.numbers))
        return AttributeValues(values, first_row, tuple(numbers))

    @property
    def column_layout(self) -> ColumnLayout:
        """A column for each question, by its name."""
        columns = (
            AnswerColumn(name, question.is_number, question.multiple, question.optional)
            for name, question in self.questions
        )
        listed = [question.labels for _, question in self.questions if question.labels is not None]
        gaps = tuple(gap for gap in LABEL_GAPS if not any(labels.code(gap) >= 0 for labels in listed))
        return ColumnLayout(answers=tuple(columns), gaps=gaps)

    def value_at(self, rows: Any, row: int) -> dict[str, Any]:
        """A user's answers by question."""
        return {
            name: question.held(column, row)
            for (name, question), column in zip(self.questions, rows.columns, strict=True)
        }

    def coercion(self) -> InputCoercion:
        """Numbers are moved to the nearest bound; a label that is no answer is refused."""

        def wrap_one(held: Any) -> list[Any]:
            if not isinstance(held, Mapping):
                raise DataError(
                    "wrong-type",
                    f"{type(held).__name__} is no dictionary of answers by question, which this task asks for",
                    value=shown(held),
                )
            return [held]

        clip = any(question.is_number for _, question in self.questions)
        return InputCoercion(wrap_one, lambda rows: self.block(rows, clip=clip), clip=clip)

    # ---- made-up data

    def sampler(self, distribution: str, random: np.random.Generator) -> Callable[[int], list[dict[str, Any]]]:
        """Answers of independent questions."""

        def sample(users: int) -> list[dict[str, Any]]:
            columns = {}
            for name, question in self.questions:
                drawn = [base.made_up_codes(random, size, users, distribution).tolist() for size in question.attributes]
                columns[name] = [question.example(values) for values in zip(*drawn, strict=True)]
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

        return sample

    def describe_distribution(self, distribution: str) -> str:
        """Of all questions."""
        return f"answers {distribution}"

    def true_values(self, blocks: Iterable[Block], candidates: Sequence[str] = ()) -> NDArray[np.float64]:
        """How many users are in each cell of each wanted marginal; of numbers between two points, parts of users."""
        marginals = [self.cells_of(names) for names in self.wanted]
        found = [np.zeros(each.shape) for each in marginals]
        for block in blocks:
            assert isinstance(block, AttributeValues)
            shares = self._shares(block)
            for counts, marginal in zip(found, marginals, strict=True):
                for part in marginal.parts:
                    whole = np.ones((len(block), 1))
                    for attribute in part.attributes:
                        whole = (whole[:, :, None] * shares[attribute][:, None, :]).reshape(len(block), -1)
                    counted = whole.sum(axis=0).reshape([self.sizes[attribute] for attribute in part.attributes])
                    counts[part.target] += part.taken(counted)
        return np.concatenate([counts.reshape(-1) for counts in found])

    def _shares(self, block: AttributeValues) -> list[NDArray[np.float64]]:
        """For each attribute how much of each user counts for each value."""
        shares = [np.eye(size)[block.values[:, place]] for place, size in enumerate(self.sizes)]
        for attribute, levels, numbers in block.numbers:
            scale = numbers.scale
            assert scale is not None
            part = (numbers.values[:, 0] - scale.lower[0]) / scale.width[0] * levels
            rounded = np.clip(1.0 - np.abs(part[:, None] - np.arange(self.sizes[attribute])), 0.0, 1.0)
            rounded[:, levels + 1 :] = 0.0
            answered = block.values[:, attribute] == 0
            shares[attribute][answered] = rounded[answered]
        return shares

    # ---- encodings

    @cached_property
    def _encoding(self) -> Marginals:
        counted: dict[Marginal, int] = {}
        for names in self.wanted:
            for part in self.cells_of(names).parts:
                sizes = (self.sizes[each] for each, at in zip(part.attributes, part.source, strict=True) if at != 1)
                counted[part.attributes] = counted.get(part.attributes, 0) + math.prod(sizes)
        return Marginals(self.sizes, tuple(counted.items()), self.tables)

    def encodings(self) -> tuple[Encoding, ...]:
        """Tables of which all that is wanted follows."""
        return (self._encoding,)

    def completed(self, encoding: Encoding) -> Survey:
        """With the tables that were chosen."""
        return self._with_tables(encoding.tables) if isinstance(encoding, Marginals) else self

    def check_complete(self) -> None:
        """Refuse a survey whose tables nobody chose."""
        if self.tables is None:
            raise ParameterError(
                "missing-argument", "a survey in a plan needs its tables, which shufflesum.plan chooses"
            )

    def example(self, *, cells: Any = (), values: Any = None) -> dict[str, Any]:
        """Answers with these values of all attributes."""
        return {
            name: question.example([int(value) for value in cells[first : first + len(question.attributes)]])
            for (name, question), first in zip(self.questions, self.first_attributes.values(), strict=True)
        }

    def _with_tables(self, tables: Iterable[Marginal] | None) -> Survey:
        return Survey(dict(self.questions), marginals=self.marginals, title=self.title, tables=tables)

    def _checked_tables(self, tables: Iterable[Marginal]) -> tuple[Marginal, ...]:
        """Tables of known attributes, of which everything that is wanted follows."""
        given = tuple(tuple(table) for table in tables)
        size = len(self.sizes)
        for table in given:
            whole = all(type(attribute) is int and 0 <= attribute < size for attribute in table)
            if not table or not whole or list(table) != sorted(set(table)):
                raise ParameterError("malformed", f"tables hold {shown(table)}; give rising numbers of attributes")
        wanted = [part.attributes for names in self.wanted for part in self.cells_of(names).parts]
        if len(set(given)) < len(given) or not all(any(set(each) <= set(table) for table in given) for each in wanted):
            raise ParameterError("malformed", "tables are not those of which all wanted marginals follow, each once")
        return given

    # ---- command line and files

    @classmethod
    def from_options(cls, given: Mapping[str, Any], column: str | None, numbers: Any) -> Survey:
        """The survey of a file."""
        return cls.from_file(given["survey"])

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` turns back into an equal survey."""
        wanted: Any = self.marginals if isinstance(self.marginals, str) else [list(names) for names in self.marginals]
        return {
            "kind": self.kind,
            "questions": [{"name": name, **question.to_json()} for name, question in self.questions],
            "marginals": wanted,
            "tables": None if self.tables is None else [list(table) for table in self.tables],
        } | ({} if self.title is None else {"title": self.title})

    _fields: ClassVar[str] = '"questions", "marginals", "tables" and perhaps "title"'

    @classmethod
    def _from_fields(cls, fields: dict[Any, Any]) -> Survey | None:
        match fields:
            case {
                "questions": list(questions),
                "marginals": str() | list() as marginals,
                "tables": list() | None as tables,
                **rest,
            } if not rest.keys() - {"title"}:
                found: dict[str, QuestionLike] = {}
                for each in questions:
                    name = each.get("name") if isinstance(each, dict) else None
                    if not isinstance(name, str) or name in found:
                        raise PlanError("malformed", f"a question of the survey needs a name of its own: {shown(each)}")
                    found[name] = Question.from_json({key: each[key] for key in each if key != "name"}, name)
                if tables is not None and not all(isinstance(table, list) for table in tables):
                    raise PlanError("malformed", f"tables must be lists of attributes, not {shown(tables)}")
                return cls(found, marginals=marginals, title=rest.get("title"), tables=tables)
        return None


def _workload(marginals: object, names: tuple[str, ...]) -> Workload:
    """Which marginals are wanted; the questions of each in the survey's order, each question in one of them."""
    if isinstance(marginals, str):
        if marginals not in _WORKLOADS:
            raise ParameterError(
                "unknown-choice",
                f"marginals is {marginals!r}; it must be {' or '.join(map(repr, _WORKLOADS))}, or a list of tuples of "
                "questions",
            )
        return marginals  # type: ignore[return-value]  # one of the literals
    if not isinstance(marginals, Iterable):
        raise ParameterError("wrong-type", f"marginals is {shown(marginals)}; give a list of tuples of questions")
    found: dict[tuple[str, ...], None] = {}
    for each in marginals:
        wanted = (each,) if isinstance(each, str) else tuple(each)
        strange = [name for name in wanted if name not in names]
        if strange or not wanted or len(set(wanted)) < len(wanted):
            raise ParameterError(
                "unknown-choice",
                f"marginals hold {shown(each)}; each is a tuple of different questions, of {', '.join(names)[:300]}",
            )
        found[tuple(sorted(wanted, key=names.index))] = None
    left = [name for name in names if not any(name in wanted for wanted in found)]
    if left:
        raise ParameterError(
            "missing-argument", f"question {left[0]!r} is in none of the marginals; add one, or leave the question out"
        )
    return tuple(found)
