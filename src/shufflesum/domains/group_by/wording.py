"""Nouns and sentences about `GroupBy`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from shufflesum.domains.group_by.domain import GroupBy
from shufflesum.domains.wording import Wording, arrays_of, bounds_of, listed, margin_of_users, margins_of_numbers
from shufflesum.mechanisms import NoisyCounts

if TYPE_CHECKING:
    from shufflesum.plans import Plan


class GroupByWording(Wording[GroupBy]):
    """What is said of a group and an array for each user."""

    public: ClassVar[str] = "Groups, bounds"

    def collected(self) -> str:
        """Sizes, means and sums."""
        values, groups = self.domain.values, listed(self.domain.names, "group")
        held = arrays_of(values.shape, values.dimension)
        return f"users, mean and sum of {held} in each of {groups}{self._from_column()}"

    def bounds(self) -> str:
        """Of every number or of each, in all groups."""
        return bounds_of(self.domain.values)

    def margins(self, plan: Plan) -> dict[str, str]:
        """Of a mean, and of a group's size."""
        assert isinstance(plan.mechanism, NoisyCounts)
        size = math.sqrt(plan.users * float(plan.mechanism.noise_variances[-1]))
        sizes = {"the size of each group": margin_of_users(size)}
        return margins_of_numbers(plan, "a group's mean") | sizes

    def error_details(self, plan: Plan) -> list[str]:
        """What the error of a mean assumes."""
        return ["means: if all groups are equally large"]

    def moved(self, plan: Plan) -> str:
        """A mean of a group."""
        return f"the mean of a group (one of {len(self.domain.labels):,} equally large ones)"
