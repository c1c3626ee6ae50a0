"""What is said of a survey on cards, in statements and on pages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shufflesum._format import counted as plural
from shufflesum._format import margin
from shufflesum.domains.survey.domain import Survey
from shufflesum.domains.wording import Wording, counted, listed, margin_of_users
from shufflesum.encodings import Marginals

if TYPE_CHECKING:
    from shufflesum.plans import Plan

_WAYS = {1: "the count of each answer", 2: "the count of each pair of answers"}


class SurveyWording(Wording[Survey]):
    """What is said of answers to many questions."""

    public: ClassVar[str] = "Questions and answers"
    clipped: ClassVar[str] = "numbers beyond the bounds were moved to the nearest one"
    counted: ClassVar[str] = "cell"

    def collected(self) -> str:
        """Which counts are wanted."""
        survey = self.domain
        most = max(map(len, survey.wanted))
        together = {1: "each by itself", 2: "alone and in pairs"}.get(most, f"up to {most} together")
        return f"how many users gave each answer to {listed(survey.names, 'question')}, {together}"

    def bounds(self) -> str:
        """Of numbers."""
        numbers = [
            f"{name}: {question.bounds[0]:.12g} to {question.bounds[1]:.12g}, rounded at random to "
            f"{plural(question.levels + 1, 'point')}"
            for name, question in self.domain.questions
            if question.bounds is not None and question.levels is not None
        ]
        return f"Bounds of numbers: {'; '.join(numbers)}." if numbers else ""

    def margins(self, plan: Plan) -> dict[str, str]:
        """The largest for each number of questions that are counted together, and of each mean."""
        survey, encoding = self.domain, plan.encoding
        assert isinstance(encoding, Marginals)
        variance = plan.expected_error.noise * plan.users**2 / encoding.error_per_variance
        layout = encoding.least_squares(variance)
        worst: dict[int, float] = {}
        for names in survey.wanted:
            error = max(math.sqrt(layout.cell_variance(part.attributes)) for part in survey.cells_of(names).parts)
            worst[len(names)] = max(worst.get(len(names), 0.0), error)
        found = {
            _WAYS.get(ways, f"the count of each answer to {ways} questions together"): margin_of_users(error)
            for ways, error in sorted(worst.items())
        }
        for name, question in survey.questions:
            attribute = (survey.first_attributes[name],)
            if question.levels is not None and attribute in layout.subsets:
                weights = np.zeros(len(question.answers))
                weights[: question.levels + 1] = question.points - question.points.mean()
                sums = layout.coefficients(weights, attribute)
                step = float(question.points[1] - question.points[0])
                error = math.sqrt(layout.covariance(sums, sums) + plan.users * step**2 / 4) / plan.users
                found[f"the mean of {name}"] = margin(error)
        return found

    def error_details(self, plan: Plan) -> list[str]:
        """Which tables are collected."""
        survey = self.domain
        sizes = [len(table) for table in survey.tables or ()]
        tables = ", ".join(
            f"{plural(sizes.count(size), 'table')} of {plural(size, 'attribute')}" for size in sorted(set(sizes))
        )
        return [f"one report of each user in {tables}; all counts follow from these by least squares"]

    def moved(self, plan: Plan) -> str:
        """A count."""
        return "the count of an answer"

    def shift(self, plan: Plan, malicious: int) -> str:
        """In users."""
        return counted(plan, malicious)
